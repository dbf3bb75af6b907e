"""Drain and undrain as commands."""

import os

import pytest

from saltext_safeupdate import hooks
from saltext_safeupdate.admin.status import drains, status
from saltext_safeupdate.admin.updates import rollout_requests
from saltext_safeupdate.core.errors import InputError, LockHeldError, SafeUpdateError
from saltext_safeupdate.core.host import drained, locks
from saltext_safeupdate.core.jobs import current

from ..updates.test_rollout_requests import NEW, N, made  # noqa: F401


@pytest.fixture(autouse=True)
def _hooked(monkeypatch):
    """This is the process of a job whose minion has the hooks."""
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getppid()})


@pytest.fixture
def told(made):  # noqa: F811
    return drains.drain(made, 60, "disk")


def test_it_shows_wherever_one_looks(made, told):  # noqa: F811
    assert (told["draining"], told["running"], told["held"]) == (True, ["5 test.sleep"], [])
    assert told["drained"]["reason"] == "disk"
    for found in (status.status(made), rollout_requests.report(made)):
        assert found["drained"]["until"] == pytest.approx(told["drained"]["until"], abs=2)
        assert found["drained"]["reason"] == "disk"
    context = {}
    (event,) = status.beacon_events(made.opts, context)
    assert (event["drained"], event["pending"]) == (True, False)
    assert status.beacon_events(made.opts, context) == []
    assert drains.undrain(made) == {
        "was_drained": True,
        "draining": False,
        "running": ["5 test.sleep"],
        "held": [],
    }
    (event,) = status.beacon_events(made.opts, context)
    assert event["drained"] is False
    assert "drained" not in status.status(made)


def test_undrain_where_there_is_no_drain(made):  # noqa: F811
    assert drains.undrain(made)["was_drained"] is False


def test_an_update_holds_jobs_as_well(made, told):  # noqa: F811
    holder = locks.acquire(made.settings.run_dir, "drain", "")
    assert drains.undrain(made)["draining"] is True
    holder.close()


def test_a_rollout_waits_for_its_end(made, told):  # noqa: F811
    asked = rollout_requests.request(made, {}, N, NEW)
    assert "safeupdate.undrain" in asked["refused"]
    assert (asked["again"], asked["number"]) == (True, 0)
    drains.undrain(made)
    assert rollout_requests.request(made, {}, N, NEW)["phase"] == "requested"


def test_salt_call_is_told_who_holds_it(made, told):  # noqa: F811
    with pytest.raises(LockHeldError, match=r"administrator.*safeupdate\.undrain"):
        current.ensure(made.settings)


@pytest.mark.parametrize(
    "timeout", [0, -1, True, None, "60", float("nan"), float("inf"), drained.MOST + 1]
)
def test_a_drain_has_an_end(made, timeout):  # noqa: F811
    with pytest.raises(InputError, match="Nothing was changed"):
        drains.drain(made, timeout, "")
    assert drained.look(made.settings.run_dir) is None


def test_where_nothing_would_be_held_nothing_is_promised(made, monkeypatch):  # noqa: F811
    monkeypatch.setattr(hooks, "_installed", {})
    with pytest.raises(SafeUpdateError, match=r"has no hooks.*no job would be held"):
        drains.drain(made, 60, "")
    assert drained.look(made.settings.run_dir) is None


def test_where_nothing_can_be_written_it_says_so(made, tmp_path):  # noqa: F811
    (tmp_path / "run").write_text("no directory")
    with pytest.raises(SafeUpdateError, match=r"safeupdate\.check"):
        drains.drain(made, 60, "")
