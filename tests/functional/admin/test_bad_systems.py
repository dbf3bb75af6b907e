"""Whatever is wrong with a transactional host, its modules, states and beacons say so in words."""

import contextlib
import inspect
import subprocess
import sys

import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.beacons import safeupdate as beacon
from saltext_safeupdate.beacons import transactional_update as snapshot_beacon
from saltext_safeupdate.grains import safeupdate as grain
from saltext_safeupdate.modules import rebootmgr, transactional_update
from saltext_safeupdate.states import transactional_update as states
from tests.functional.admin.test_bad_hosts import HOSTS as MINIONS
from tests.functional.admin.test_bad_hosts import Host
from tests.support import this_host

# With what a person may give them; the others need nothing.
GIVEN = {
    "transactional_update": {
        "apply": ("web",),
        "call": ("test.ping",),
        "perform": ("/nowhere",),
        "pkg_install": ("emacs",),
        "pkg_remove": ("emacs",),
        "pkg_update": ("emacs",),
        "register": ("--product x",),
        "run": ("true",),
        "single": ("test.nop", "x"),
        "sls": ("web",),
    },
    "rebootmgr": {
        "set_group": ("group",),
        "set_max": (1,),
        "set_strategy": ("instantly",),
        "set_window": ("12:00", "1h"),
    },
}


def _functions(module):
    """Return the functions of a module that Salt finds, by their names there."""
    alias = getattr(module, "__func_alias__", {})
    return {
        alias.get(name, name): each
        for name, each in vars(module).items()
        if inspect.isfunction(each) and name[0] != "_"
    }


def programs_are_missing(argv):
    raise FileNotFoundError(2, "No such file or directory", argv[0])


def programs_may_not_be_run(argv):
    raise PermissionError(13, "Permission denied", argv[0])


def programs_say_nothing(argv):
    return (sys.executable, "-SEc", "")


def programs_say_something_else(argv):
    return ("/bin/echo", "{]\tID x \x1b[2J\n  42: <none>\n")


def programs_fail(argv):
    return ("/bin/sh", "-c", "echo no >&2; exit 99")


def programs_are_killed(argv):
    return ("/bin/sh", "-c", "kill -9 $$")


SYSTEMS = [
    *(programs_are_missing, programs_may_not_be_run, programs_say_nothing),
    *(programs_say_something_else, programs_fail, programs_are_killed),
]


@pytest.fixture
def spoil(tmp_path, monkeypatch):
    """Return a way to have each program that is started replaced: none of them runs here."""
    real = subprocess.Popen
    functions = {
        f"{module.__virtualname__}.{name}": function
        for module in (transactional_update, rebootmgr)
        for name, function in _functions(module).items()
    }
    functions["saltutil.is_running"] = lambda _: []
    opts = this_host.opts(tmp_path) | {"test": False, "cachedir": str(tmp_path)}
    opts["transactional_update"] = {"handover_dir": str(tmp_path / "handover"), "lock_timeout": 0}
    dunders = {"__context__": {}, "__salt__": functions, "__opts__": opts}
    for each in (transactional_update, rebootmgr, states, snapshot_beacon, beacon, grain):
        for dunder, value in dunders.items():
            monkeypatch.setattr(each, dunder, value, raising=False)

    def spoil(spoilt):
        def popen(argv, *args, **kwargs):
            return real(spoilt(argv), *args, **kwargs)

        monkeypatch.setattr(subprocess, "Popen", popen)
        return opts

    return spoil


@pytest.mark.parametrize("spoilt", SYSTEMS, ids=lambda each: each.__name__)
@pytest.mark.parametrize("module", [transactional_update, rebootmgr], ids=lambda m: m.__name__)
def test_no_function_of_a_transactional_host_shows_a_traceback(module, spoilt, spoil):
    spoil(spoilt)
    given = GIVEN[module.__virtualname__]
    refused = 0
    for name, function in _functions(module).items():
        # Whatever else is raised is shown as a traceback.
        with contextlib.suppress(CommandExecutionError):
            function(*given.get(name, ()))
            continue
        refused += 1
    assert refused, "something of it needs the programs"


@pytest.mark.parametrize("spoilt", SYSTEMS, ids=lambda each: each.__name__)
def test_no_state_or_beacon_of_a_transactional_host_shows_a_traceback(spoilt, spoil):
    spoil(spoilt)
    for name in ("applied", "rebooted"):
        found = getattr(states, name)("x")
        assert found["result"] in (True, False)
        assert found["comment"]
    assert isinstance(snapshot_beacon.beacon([]), list)


def handover_dir_is_a_file(opts, path):
    (path / "handover").write_text("somebody's file")


def handover_dir_below_a_file(opts, path):
    handover_dir_is_a_file(opts, path)
    opts["transactional_update"]["handover_dir"] = str(path / "handover" / "below")


def settings_are_no_mapping(opts, path):
    opts["transactional_update"] = ["lock_timeout"]


def settings_are_something_else(opts, path):
    opts["transactional_update"] = {"timeout": "soon", "lock_timeout": [], "handover_dir": 7}


@pytest.mark.parametrize(
    "spoilt",
    [
        *(handover_dir_is_a_file, handover_dir_below_a_file),
        *(settings_are_no_mapping, settings_are_something_else),
    ],
    ids=lambda each: each.__name__,
)
def test_bad_places_and_settings_show_no_traceback(spoilt, spoil, tmp_path):
    spoilt(spoil(programs_say_nothing), tmp_path)
    for name in ("status", "pending_transaction", "run", "call", "sls", "single", "up"):
        with pytest.raises(CommandExecutionError):
            _functions(transactional_update)[name](*GIVEN["transactional_update"].get(name, ()))
    assert states.applied("x")["result"] is False
    assert states.rebooted("x")["result"] is False


@pytest.mark.parametrize("spoilt", MINIONS, ids=lambda each: each.__name__)
def test_the_grain_and_the_beacon_say_that_they_do_not_know(spoilt, tmp_path, monkeypatch):
    host = Host(this_host.opts(tmp_path))
    host.manager = None
    with spoilt(host, tmp_path) or contextlib.nullcontext():
        for each in (grain, beacon):
            monkeypatch.setattr(each, "__opts__", host.opts, raising=False)
            monkeypatch.setattr(each, "__context__", {}, raising=False)
        told = grain.safeupdate()["safeupdate"]
        assert told["version"]
        assert told.get("reason") or told["phase"] in ("idle", "committed")
        assert all(event["reason"] for event in beacon.beacon([]))
