"""Salt's own list of what runs, while the files of which it is made are being written."""

import subprocess
import sys

import pytest
import salt.payload
import salt.utils.minion
from salt.exceptions import SaltDeserializationError

from saltext_safeupdate.minion import proc_files

JID = "20260101000000000001"


@pytest.fixture
def job(tmp_path):
    """Return the settings of a minion, the file of one of its jobs, and what is in it."""
    path = tmp_path / "proc" / JID
    path.parent.mkdir()
    # Salt looks for its own name among the arguments.
    argv = [sys.executable, "-c", "input()", "salt"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        noted = {"jid": JID, "pid": process.pid, "fun": "cmd.run"}
        yield {"cachedir": str(tmp_path), "multiprocessing": True}, path, noted
        process.kill()


def test_what_is_just_being_written_is_read_again(job):
    opts, path, noted = job
    whole = salt.payload.dumps(noted)
    # What is read if a longer version takes its place between two reads.
    path.write_bytes(whole + b"d")
    pauses = []

    def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 2:
            path.write_bytes(whole)

    assert proc_files.running(salt.utils.minion.running, opts, pause) == [noted]
    assert len(pauses) == 2


def test_what_stays_unreadable_is_said(job):
    opts, path, _ = job
    path.write_bytes(b"\x81")
    pauses = []
    with pytest.raises(SaltDeserializationError):
        proc_files.running(salt.utils.minion.running, opts, pauses.append)
    assert sum(pauses) < 0.1, "the main process looks at them too"
    assert path.read_bytes() == b"\x81"
