from unittest.mock import Mock

import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.modules import transactional_update as module
from saltext_safeupdate.states import transactional_update as state

CHANGED = {"a_|-a_|-a_|-b": {"result": True, "changes": {"x": 1}}}
WOULD = {"a_|-a_|-a_|-b": {"result": None, "changes": {"x": 1}}}


@pytest.fixture
def salt(monkeypatch):
    functions = {
        "transactional_update.call": Mock(spec=module.call),
        "transactional_update.apply": Mock(spec=module.apply_, return_value=CHANGED),
        "transactional_update.in_transaction": Mock(spec=module.in_transaction, return_value=False),
        "transactional_update.pending_transaction": Mock(
            spec=module.pending_transaction, return_value=True
        ),
        "transactional_update.reboot": Mock(spec=module.reboot, return_value="reboot requested"),
    }
    monkeypatch.setattr(state, "__salt__", functions, raising=False)
    monkeypatch.setattr(state, "__opts__", {"test": False}, raising=False)
    return {name.partition(".")[2]: function for name, function in functions.items()}


@pytest.fixture(params=[True, False])
def testmode(request, salt, monkeypatch):
    monkeypatch.setattr(state, "__opts__", {"test": request.param}, raising=False)
    return request.param


def test_applied(salt, testmode):
    salt["apply"].return_value = WOULD if testmode else CHANGED
    found = state.applied("x", mods="a", pillar={"y": 1}, __env__="base")
    salt["apply"].assert_called_once_with("a", test=testmode, pillar={"y": 1})
    assert found["result"] is (None if testmode else True)
    assert bool(found["changes"]) is not testmode


def test_applied_says_what_failed(salt):
    salt["apply"].side_effect = CommandExecutionError("busy")
    assert state.applied("x") == {"name": "x", "changes": {}, "result": False, "comment": "busy"}
    salt["in_transaction"].return_value = True
    assert state.applied("x")["result"] is False


def test_rebooted(salt, testmode):
    found = state.rebooted("x")
    assert found["result"] is (None if testmode else True)
    assert found["changes"] == ({} if testmode else {"reboot": "requested"})
    assert salt["reboot"].call_count == (0 if testmode else 1)


def test_rebooted_with_nothing_pending(salt, testmode):
    salt["pending_transaction"].return_value = False
    found = state.rebooted("x")
    assert (found["result"], found["changes"]) == (True, {})
    assert salt["reboot"].call_count == 0


def test_rebooted_inside_asks_without_looking(salt):
    salt["in_transaction"].return_value = True
    assert state.rebooted("x")["result"] is True
    assert salt["pending_transaction"].call_count == 0


def test_a_reboot_that_fails(salt):
    salt["reboot"].side_effect = CommandExecutionError("no reboot is under way")
    assert state.rebooted("x")["result"] is False


def test_virtual(salt, monkeypatch):
    assert state.__virtual__() == "transactional_update"
    monkeypatch.setattr(state, "__salt__", {}, raising=False)
    assert state.__virtual__()[0] is False
