"""The supervisor as a program."""

from saltext_safeupdate.core import program
from saltext_safeupdate.core.jobs.stop_guard import StopGuard
from saltext_safeupdate.core.settings import Settings
from tests.support.simulated import FakeServices


def test_whether_the_minion_is_handed_over_is_asked_of_the_guard_when_it_matters(
    tmp_path, monkeypatch
):
    settings = Settings(state_dir=str(tmp_path / "state"), run_dir=str(tmp_path / "run"))
    told = []
    monkeypatch.setattr(StopGuard, "obstacle", lambda guard: told[-1])
    context = program.context(settings, FakeServices(), None)
    try:
        for each in ("salt-minion.service has 'PrivateTmp='", ""):
            told.append(each)
            assert context.obstacle_to_handover() == each
    finally:
        for lock in vars(context.locks).values():
            lock.close()
