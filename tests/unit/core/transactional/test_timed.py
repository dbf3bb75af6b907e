import signal

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.transactional.family import MARK, Family
from saltext_safeupdate.core.transactional.timed import TimedRun


def test_a_call_that_ends(tmp_path):
    def run(argv, **kwargs):
        assert kwargs["env"] == {MARK: "m"}
        assert kwargs["ok"] is None
        return Result(argv=argv, returncode=7, stdout="", stderr="")

    timed = TimedRun(run, clock=lambda: 0.0, watch=lambda members: None)
    ended = timed(("x",), Family("m", proc=tmp_path), timeout=5)
    assert (ended.result.returncode, ended.error, ended.timed_out) == (7, None, False)


def test_a_call_that_cannot_start(tmp_path):
    def run(argv, **kwargs):
        raise CommandError(argv, "cannot be started")

    timed = TimedRun(run, clock=lambda: 0.0, watch=lambda members: None)
    ended = timed(("x",), Family("m", proc=tmp_path), timeout=5)
    assert (ended.result, ended.error.reason) == (None, "cannot be started")


def test_sigterm_is_as_before_afterwards(tmp_path):
    def run(argv, **kwargs):
        return Result(argv=argv, returncode=0, stdout="", stderr="")

    before = signal.getsignal(signal.SIGTERM)
    TimedRun(run, clock=lambda: 0.0, watch=lambda members: None)(("x",), Family("m"), timeout=5)
    assert signal.getsignal(signal.SIGTERM) == before
