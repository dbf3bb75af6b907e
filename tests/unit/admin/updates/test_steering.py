"""What can still be done about an update, with a real record on disk."""

import dataclasses

import pytest

from saltext_safeupdate import factory
from saltext_safeupdate.admin.updates import steering
from saltext_safeupdate.core.errors import InputError, TransitionError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.record.parts import Request
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.ordering import runs
from tests.support.this_host import record


class TestCancel:
    def test_a_restart_that_waits(self, made):
        record(made, Phase.WAITING, kind="restart")
        assert steering.cancel(made)["phase"] == "cancelled"
        assert made.store.latest().phase is Phase.CANCELLED
        assert not locks.held(made.settings.run_dir, "update")

    def test_nothing_is_under_way(self, made):
        with pytest.raises(TransitionError, match="nothing was changed"):
            steering.cancel(made)
        record(made, Phase.COMMITTED)
        with pytest.raises(TransitionError, match="nothing was changed"):
            steering.cancel(made)

    @pytest.mark.parametrize(
        ("kind", "phase"), [("update", Phase.WAITING), ("restart", Phase.RESTARTING)]
    )
    def test_what_has_begun_goes_on(self, made, kind, phase):
        record(made, phase, kind=kind)
        with pytest.raises(TransitionError, match=phase.value):
            steering.cancel(made)
        assert made.store.latest().phase is phase

    def test_an_update_that_was_asked_for_and_has_not_begun(self, made):
        record(made, Phase.STAGING, request=Request())
        found = steering.cancel(made)
        assert found["phase"] == "cancelled"
        assert found["reason"] == "It was cancelled with 'safeupdate.cancel'."

    def test_a_restart_that_begins_just_now_is_not_cancelled_behind_its_back(
        self, made, monkeypatch
    ):
        by = dataclasses.replace(factory.initiator(made), write_timeout=0.0)
        monkeypatch.setattr(made, "initiator", lambda jid="": by, raising=False)
        record(made, Phase.WAITING, kind="restart")
        supervisor = locks.acquire(made.settings.run_dir, "update", "")
        with pytest.raises(locks.LockHeldError, match="under way"):
            steering.cancel(made)
        assert made.store.latest().phase is Phase.WAITING
        supervisor.close()


class TestRestartAfterRun:
    def test_the_run_of_this_thread_asks_for_it_once(self, monkeypatch):
        run = runs.Run()
        monkeypatch.setattr(runs, "current", lambda: run)
        assert steering.restart_after_run("state a")
        assert steering.restart_after_run("state b")
        assert (run.restart_asked, run.restart_reason) == (True, "state a")

    def test_there_may_be_none(self, monkeypatch):
        monkeypatch.setattr(runs, "current", lambda: None)
        assert not steering.restart_after_run("state a")


@pytest.mark.parametrize("jitter", [-1, True, "x", None, float("inf"), float("nan"), []])
def test_a_jitter_that_is_no_time_is_refused(made, jitter):
    with pytest.raises(InputError, match="'jitter'"):
        steering.restart(made, "x", jitter)
    assert not made.store.exists()
