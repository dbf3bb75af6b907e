"""The shell: every function's command line, and how errors and results pass through."""

import inspect
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.admin.transactional import transactions
from saltext_safeupdate.core.errors import LockHeldError, SafeUpdateError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.transactional import call as calls
from saltext_safeupdate.core.transactional import cli, inside
from saltext_safeupdate.core.transactional import reboot as reboots
from saltext_safeupdate.core.transactional.tool import Tool
from saltext_safeupdate.modules import transactional_update as module

BASE = ("transactional-update", "--non-interactive", "--drop-if-no-change", "--no-selfupdate")
UPDATE = tuple(word for word in BASE if word != "--no-selfupdate")


@pytest.fixture(autouse=True)
def dunders(monkeypatch):
    salt = {"saltutil.is_running": Mock(return_value=[])}
    for name, value in {"__opts__": {}, "__context__": {}, "__salt__": salt}.items():
        monkeypatch.setattr(module, name, value, raising=False)
    return SimpleNamespace(salt=salt)


@pytest.fixture
def sent(monkeypatch):
    """The command lines that reach the tool, of version 6.1.1."""
    lines = []
    monkeypatch.setattr(transactions.shutil, "which", lambda name, **_: f"/usr/bin/{name}")

    def outcome(words, options, limits):
        lines.append(cli.build(words, options, (6, 1, 1)))
        result = Result(argv=lines[-1], returncode=0, stdout="printed", stderr="")
        found = SimpleNamespace(result=result, printed=result.stdout)
        found.check = lambda: found
        return found

    fake = Mock(spec=Tool)
    fake.invoke.side_effect = outcome
    fake.run_command.side_effect = lambda command, options, limits: outcome(
        cli.command_words(command), options, limits
    )
    fake.rollback.side_effect = lambda snapshot, limits: outcome(
        cli.rollback_words(snapshot), None, limits
    )
    monkeypatch.setattr(transactions, "Tool", lambda **_: fake)
    fake.lines = lines
    return fake


SIMPLE = {
    "grub_cfg": "grub.cfg",
    "bootloader": "bootloader",
    "initrd": "initrd",
    "kdump": "kdump",
    "dup": "dup",
    "up": "up",
    "patch": "patch",
    "migration": "migration",
    "setup_selinux": "setup-selinux",
    "setup_kdump": "setup-kdump",
    "setup_fips": "setup-fips",
    "register": "register",
}
PACKAGES = ("pkg_install", "pkg_remove", "pkg_update")


@pytest.mark.parametrize(("name", "word"), SIMPLE.items())
def test_snapshot_makers(sent, name, word):
    function = getattr(module, name)
    assert function() == "printed"
    function(self_update=True, snapshot="continue")
    function(snapshot="7")
    assert sent.lines == [
        (*BASE, word),
        (*UPDATE, "--continue", word),
        (*BASE, "--continue", "7", word),
    ]


@pytest.mark.parametrize("name", ["cleanup", "cleanup_snapshots", "cleanup_overlays"])
def test_cleanups(sent, name):
    getattr(module, name)()
    getattr(module, name)(self_update=True)
    word = name.replace("_", "-")
    assert sent.lines == [(*BASE, word), (*UPDATE, word)]


@pytest.mark.parametrize("name", PACKAGES)
def test_packages(sent, name):
    function, verb = getattr(module, name), name.partition("_")[2]
    function(pkg="a")
    function("a", ["b"], "--x 'y z'", True, "continue")
    assert sent.lines == [
        (*BASE, "pkg", verb, "a"),
        (*UPDATE, "--continue", "pkg", verb, "--x", "y z", "a", "b"),
    ]
    with pytest.raises(CommandExecutionError, match="nothing was changed"):
        function()


def test_run(sent):
    assert module.run("mkdir '/a b'", snapshot="continue") == "printed"
    module.run(["x", "y z"], keep=True, drop_if_no_change=False)
    assert sent.lines == [
        (*BASE, "--continue", "--quiet", "run", "mkdir", "/a b"),
        (BASE[0], BASE[1], BASE[3], "--keep", "--quiet", "run", "x", "y z"),
    ]


def test_rollback(sent):
    module.rollback()
    module.rollback("last")
    module.rollback(5)
    tool = "transactional-update"
    assert sent.lines == [(tool, "rollback"), (tool, "rollback", "last"), (tool, "rollback", "5")]


def test_register_and_apply_snapshot(sent):
    module.register(args="--url 'http://x'")
    module.apply_snapshot()
    assert sent.lines[0][-3:] == ("register", "--url", "http://x")
    assert sent.lines[1] == (BASE[0], BASE[1], BASE[3], "apply")


def test_a_system_without_the_program_is_not_registered(sent, monkeypatch):
    monkeypatch.setattr(transactions.shutil, "which", lambda name, **_: None)
    with pytest.raises(CommandExecutionError, match=r"SUSEConnect.*not installed.*nothing was"):
        module.register(args="--url x")
    assert sent.lines == []


def test_limits_pass_through(sent):
    module.dup(timeout=5, lock_timeout=6)
    limits = sent.invoke.call_args.args[2]
    assert (limits.timeout, limits.lock_timeout) == (5, 6)


def test_errors_are_salts(sent):
    sent.invoke.side_effect = LockHeldError("busy")
    with pytest.raises(CommandExecutionError, match="busy"):
        module.dup()
    with pytest.raises(CommandExecutionError, match="timeout has to be"):
        module.dup(timeout="soon")


@pytest.fixture
def called(monkeypatch, sent):
    """What reaches the core's call, which answers 5 with exit status 3."""
    reply = Mock(spec=calls.Reply, value=5, retcode=3)
    reply.reboot_due.return_value = False
    reply.shown.side_effect = lambda report: {"return": 5} if report else 5
    fake = Mock(spec=calls.call, return_value=reply)
    monkeypatch.setattr(calls, "call", fake)
    fake.reply = reply
    return fake


def test_call(called):
    assert module.call("x.y", 1, a="b", timeout=9, transaction_timeout=4, __pub_jid="7") == 5
    _, function, args, kwargs = called.call_args.args
    assert (function, args, kwargs) == ("x.y", (1,), {"a": "b", "timeout": 9})
    options, limits = called.call_args.kwargs["options"], called.call_args.kwargs["limits"]
    assert (options.snapshot, options.quiet, options.keep, limits.timeout) == (
        "continue",
        True,
        False,
        4,
    )
    assert module.__context__["retcode"] == 3
    assert module.call("x.y", transaction_report=True) == {"return": 5}


def test_call_reboots_where_that_is_due(called, monkeypatch):
    reboot = Mock(spec=reboots.reboot)
    monkeypatch.setattr(reboots, "reboot", reboot)
    module.call("x.y", activate_transaction=False)
    assert reboot.call_count == 0
    called.reply.reboot_due.return_value = True
    module.call("x.y", activate_transaction=True)
    assert called.reply.reboot_due.call_args.args == (True,)
    assert reboot.call_count == 1


@pytest.mark.parametrize(
    ("configured", "given", "activates"),
    [
        (False, {}, True),
        (False, {"test": True}, False),
        (True, {}, False),
        (True, {"test": False}, True),
    ],
)
def test_test_mode_activates_nothing(called, configured, given, activates):
    module.__opts__["test"] = configured
    called.reply.reboot_due.return_value = False
    module.call("x.y", activate_transaction=True, **given)
    assert called.reply.reboot_due.call_args.args == (activates,)


def test_a_reboot_that_fails_is_told_with_the_result(called, monkeypatch):
    reboot = Mock(spec=reboots.reboot, side_effect=SafeUpdateError("rebootmgr is off"))
    monkeypatch.setattr(reboots, "reboot", reboot)
    told = Mock(spec=calls.not_rebooted, return_value=called.reply)
    monkeypatch.setattr(calls, "not_rebooted", told)
    called.reply.reboot_due.return_value = True
    assert module.call("x.y", activate_transaction=True) == 5
    assert told.call_args.args == (called.reply, "x.y", reboot.side_effect)
    assert module.__context__["retcode"] == 3


@pytest.mark.parametrize(
    ("run", "function", "args", "kwargs"),
    [
        (lambda: module.sls("a", test=True), "state.sls", ("a",), {"test": True}),
        (lambda: module.apply_("a", pillar={"x": 1}), "state.sls", ("a",), {"pillar": {"x": 1}}),
        (module.apply_, "state.highstate", (), {}),
        (lambda: module.highstate(exclude="b"), "state.highstate", (), {"exclude": "b"}),
        (
            lambda: module.single("pkg.installed", "emacs", test=True, x=1, __pub_jid="7"),
            "state.high",
            ({"emacs": {"pkg": ["installed", {"name": "emacs"}, {"x": 1}]}},),
            {"test": True},
        ),
    ],
)
def test_state_runs(called, run, function, args, kwargs):
    assert run() == 5
    assert called.call_args.args[1:] == (function, args, {**kwargs, "concurrent": True})


@pytest.mark.parametrize("fun", ["pkg", "", ".x", "a.b.c", None])
def test_single_wants_a_state_function(called, fun):
    with pytest.raises(CommandExecutionError, match="is no state function"):
        module.single(fun, "x")
    assert called.call_count == 0


def test_a_state_run_in_the_way(called, dunders):
    dunders.salt["saltutil.is_running"].return_value = [{"fun": "state.sls", "pid": 1, "jid": "4"}]
    assert "is running" in module.sls("a")[0]
    assert module.__context__["retcode"] == 1
    assert called.call_count == 0


def test_reboot_inside_is_asked_for(monkeypatch):
    monkeypatch.setenv("TRANSACTIONAL_UPDATE", "true")
    ask = Mock(spec=inside.ask_for_reboot, return_value=True)
    monkeypatch.setattr(inside, "ask_for_reboot", ask)
    assert module.reboot() == "the reboot comes after the transaction"
    with pytest.raises(CommandExecutionError, match="do not nest"):
        module.pending_transaction()


def test_virtual(monkeypatch):
    monkeypatch.setattr(module.salt.utils.path, "which", lambda _: "/usr/sbin/transactional-update")
    assert module.__virtual__() == "transactional_update"
    monkeypatch.setattr(module.salt.utils.path, "which", lambda _: None)
    assert module.__virtual__()[0] is False


def test_salt_sees_every_parameter():
    """Salt's argument handling knows no keyword-only parameters."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("_") or function.__module__ != module.__name__:
            continue
        assert "CLI Example:" in function.__doc__, name
        assert inspect.getfullargspec(function).kwonlyargs == [], name
