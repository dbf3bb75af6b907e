"""The execution module, with a real record on disk."""

import os

import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate import hooks
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.supervisor import asking
from saltext_safeupdate.modules import safeupdate as module
from tests.support import this_host


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getppid()})
    return this_host.simulated(this_host.opts(tmp_path))


@pytest.fixture(autouse=True)
def _loaded(made, monkeypatch):
    monkeypatch.setattr(module, "__opts__", made.opts, raising=False)
    monkeypatch.setattr(module, "Host", lambda opts: made)
    functions = {"publish.runner": lambda function: "3008.3"}
    monkeypatch.setattr(module, "__salt__", functions, raising=False)


def test_it_is_there_on_each_minion_and_on_no_proxy(monkeypatch):
    assert module.__virtual__() == "safeupdate"
    monkeypatch.setattr(module, "__opts__", {"conf_file": "/etc/salt/proxy"})
    assert module.__virtual__()[0] is False


def test_it_gives_what_the_room_says(made):
    assert module.status()["phase"] == "idle"
    assert module.check() == []
    assert module.history() == []
    assert module.drain(5)["draining"] is True
    assert module.undrain()["draining"] is False
    assert module.jobs()["running"] == ["5 test.sleep"]
    assert module.accepted(["1"]) == {"1": "unknown"}


@pytest.mark.parametrize(
    "call",
    [
        lambda: module.history(limit="x"),
        module.cancel,
        lambda: module.accepted("1"),
    ],
)
def test_errors_are_salts(call):
    with pytest.raises(CommandExecutionError):
        call()


def test_a_database_that_cannot_be_read_is_an_error(made):
    os.makedirs(made.settings.database)
    with pytest.raises(CommandExecutionError, match="cannot be used"):
        module.status()


def test_restart_asks_for_one(made, monkeypatch):
    asked = []

    def restart(by, *, jid, reason, delay):
        asked.append((by.versions(), jid, reason))
        return Update(id="u1", kind="restart", phase=Phase.WAITING)

    monkeypatch.setattr(asking, "restart", restart)
    found = module.restart(reason="config")
    assert asked == [(this_host.VERSIONS, "", "config")]
    assert found["phase"] == "waiting"
    # Both ways: a minion that can be handed over waits for none.
    assert "without waiting for jobs if it can be handed over" in found["comment"]
    assert "otherwise as soon as every job has ended" in found["comment"]
