import inspect

import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.core.host import command
from saltext_safeupdate.modules import rebootmgr as module
from tests.support.fakes import FakeRunner

VERSION = {("rebootmgrctl", "--version"): (0, "rebootmgrctl (rebootmgr) 1.3", "")}
CALLS = {
    "version": ((), ("--version",)),
    "is_active": ((), ("is_active", "--quiet")),
    "reboot": (("now",), ("reboot", "now")),
    "cancel": ((), ("cancel",)),
    "status": ((), ("status", "--quiet")),
    "set_strategy": (("off",), ("set-strategy", "off")),
    "get_strategy": ((), ("get-strategy",)),
    "set_window": (("Thu", "1h"), ("set-window", "Thu", "1h")),
    "get_window": ((), ("get-window",)),
    "set_group": (("g",), ("set-group", "g")),
    "get_group": ((), ("get-group",)),
    "set_max": ((4,), ("set-max", "4")),
    "lock": ((), ("lock",)),
    "unlock": ((None, "g"), ("unlock", "--group", "g")),
}
SAID = {
    "--version": "rebootmgrctl (rebootmgr) 1.3",
    "get-window": "Maintenance window is set to Thu, lasting 1h.",
    "get-group": "Etcd lock group is set to g",
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(monkeypatch, name):
    args, words = CALLS[name]
    before = {("rebootmgrctl", "get-strategy"): (0, "Reboot strategy: best-effort", "")}
    run = FakeRunner(
        {**VERSION, **before, ("rebootmgrctl", *words): (0, SAID.get(words[0], "said"), "")}
    )
    monkeypatch.setattr(command, "run", run)
    getattr(module, name)(*args)
    assert ("rebootmgrctl", *words) in run.calls


def test_every_function_is_here():
    functions = {
        name
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if not name.startswith("_")
    }
    assert functions == {*CALLS, "soft_reboot"}


def test_errors_are_salts(monkeypatch):
    monkeypatch.setattr(command, "run", FakeRunner(VERSION))
    with pytest.raises(CommandExecutionError, match="order has to be"):
        module.reboot("later")
    with pytest.raises(CommandExecutionError, match="soft-reboot"):
        module.soft_reboot()


def test_virtual(monkeypatch):
    monkeypatch.setattr(module.salt.utils.path, "which", lambda _: None)
    assert module.__virtual__()[0] is False
