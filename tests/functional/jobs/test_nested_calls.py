"""``salt-call`` inside a job, on a host whose kernel does not let two processes share a lock."""

import os

import pytest
import salt.config

from saltext_safeupdate.core.errors import LockUnavailableError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.executors import safeupdate as executor
from tests.support.forked import forked


@pytest.mark.parametrize("call", ["_SYS_PIDFD_OPEN", "_SYS_PIDFD_GETFD"])
def test_it_runs_and_only_an_update_of_the_minion_is_refused(tmp_path, monkeypatch, call):
    """Each one was refused, or waited for the job that it was in."""
    # No system call has this number: what a filter answers for one that it does not allow.
    monkeypatch.setattr(locks, call, 0xFFFFFF)
    names = {"state_dir": "state", "run_dir": "run", "registry_dir": "registry"}
    places = {name: str(tmp_path / place) for name, place in names.items()}
    opts = {
        **salt.config.DEFAULT_MINION_OPTS,
        "id": "minion",
        "cachedir": str(tmp_path / "cache"),
        "conf_file": str(tmp_path / "minion"),
        "module_executors": ["safeupdate", "direct_call"],
        "engines": [{"safeupdate": {}}],
        "safeupdate": places,
    }
    around = locks.share(places["run_dir"], "jobs")
    # An update waits for the job around it, and holds others.
    drain = locks.acquire(places["run_dir"], "drain", "")

    def work(hear, say):
        os.close(around.fd)
        os.close(drain.fd)
        say(str(executor.execute(opts, {"fun": "cmd.run"}, print, [], {})))
        try:
            current.get().share()
        except LockUnavailableError as err:
            say(str(err))

    with forked(work) as child:
        assert child.hear() == "None", "the next executor runs it"
        said = child.hear()
    assert f"{call.removeprefix('_SYS_').lower()}(2) failed" in said
    assert "Nothing was done" in said
