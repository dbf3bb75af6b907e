"""Salt's own list of what runs, while the files of which it is made are being written."""

import subprocess
import sys
import time

import pytest
import salt.payload
import salt.utils.minion
from salt.exceptions import SaltDeserializationError

from saltext_safeupdate.minion import proc_files
from saltext_safeupdate.minion.state_runs import StateRuns

JID = "20260101000000000001"


@pytest.fixture
def job(tmp_path):
    """Return the settings of a minion, the file of one of its jobs, and what is in it."""
    path = tmp_path / "proc" / JID
    path.parent.mkdir()
    # Salt looks for its own name among the arguments, and these are there a little after exec().
    argv = [sys.executable, "-c", "print(flush=True); input()", "salt"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe) as process:
        process.stdout.readline()
        noted = {"jid": JID, "pid": process.pid, "fun": "cmd.run"}
        yield {"cachedir": str(tmp_path), "multiprocessing": True}, path, noted
        process.kill()


def test_what_is_just_being_written_is_read_again(job, monkeypatch):
    opts, path, noted = job
    whole = salt.payload.dumps(noted)
    # What is read if a longer version takes its place between two reads.
    path.write_bytes(whole + b"d")
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            path.write_bytes(whole)

    monkeypatch.setattr(time, "sleep", pause)
    assert proc_files.running(salt.utils.minion.running, opts) == [noted]
    assert len(pauses) == 2


def test_what_stays_unreadable_is_said(job, monkeypatch):
    opts, path, _ = job
    path.write_bytes(b"\x81")
    pauses = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(SaltDeserializationError):
        proc_files.running(salt.utils.minion.running, opts)
    assert sum(pauses) < 0.1, "the main process looks at them too"
    assert path.read_bytes() == b"\x81"


def test_the_state_runs_that_are_active(job):
    opts, path, noted = job
    noted = {**noted, "fun": "state.apply"}
    path.write_bytes(salt.payload.dumps(noted))
    path.with_name("another").write_bytes(salt.payload.dumps({**noted, "fun": "cmd.run"}))
    assert StateRuns.active(opts) == [noted]
    for ended in (2**22 + 1, 1):
        path.write_bytes(salt.payload.dumps({**noted, "pid": ended}))
        assert StateRuns.active(opts) == [], "no process, or that of another program"
    assert StateRuns.active({**opts, "cachedir": f"{path}.not-there"}) == []


@pytest.mark.parametrize("half", [b"", b"\x81", b"\xc0"])
def test_to_look_for_state_runs_removes_nothing(job, half):
    """
    A process opens its file, and writes it a moment later.

    Salt removes what is empty. Then the job counts as none for as long as it runs.
    """
    opts, path, noted = job
    path.write_bytes(half)
    assert StateRuns.active(opts) == []
    assert path.read_bytes() == half
    run = {**noted, "fun": "state.apply"}
    path.write_bytes(salt.payload.dumps(run))
    assert StateRuns.active(opts) == [run]
