"""Whatever is wrong with a host, each function answers or refuses in words."""

import contextlib
import os
import sqlite3

import pytest
from salt.exceptions import CommandExecutionError

import saltext_safeupdate.this_host as real_host
from saltext_safeupdate import factory
from saltext_safeupdate.admin.status import facts
from saltext_safeupdate.admin.updates import background
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.modules import safeupdate as module
from saltext_safeupdate.states import safeupdate as states
from tests.support import this_host
from tests.support.full import full_disk
from tests.support.simulated import FakePackages, FakeServices
from tests.unit.test_surface import SURFACE

NOBODY = 65534
NAMES = SURFACE["modules"]["safeupdate"]
# With what a person may give them; the others need nothing.
GIVEN = {
    "accepted": (["20260101120000000000"],),
    "forget": ("20260101120000000000",),
    "forget_slot": ("salt-3008.3",),
    "plan": ("3008.3",),
    "prefetch": ("3008.3",),
    "request": (1_780_000_000_000_000, "3008.3"),
    "resume": ("20260101120000000000",),
    "stage": ("3008.3",),
    "unquarantine": ("3008.3",),
    "update": ("3008.3",),
    "wait": (None, 0.01),
    "withdraw": (1_780_000_000_000_001,),
}


class Host(this_host.SimulatedHost):
    """A minion whose supervisor is started, and does nothing."""

    supervisor = None

    def launch(self):
        self.supervisor = locks.Lock(self.settings.run_dir, "supervisor")
        self.supervisor.try_exclusive()

    def roots(self):
        return ()


def _file(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("somebody's file")
    return path


def state_dir_below_a_file(host, path):
    host.opts["safeupdate"]["state_dir"] = f"{_file(path / 'file')}/below/state"


def state_dir_is_a_file(host, path):
    _file(path / "state")


def run_dir_is_a_file(host, path):
    _file(path / "run")


def run_dir_below_a_file(host, path):
    host.opts["safeupdate"]["run_dir"] = f"{_file(path / 'file')}/run"


def links_that_lead_nowhere(host, path):
    for name in ("state", "run"):
        (path / name).symlink_to(path / "nowhere" / name)


def database_is_a_directory(host, path):
    (path / "state" / "safeupdate.db").mkdir(parents=True)


def database_is_something_else(host, path):
    _file(path / "state" / "safeupdate.db")


def database_without_its_tables(host, path):
    this_host.record(host, Phase.COMMITTED)
    with contextlib.closing(sqlite3.connect(host.store.path)) as db:
        for table in ("updates", "facts", "jobs"):
            db.execute(f"DROP TABLE {table}")


def no_package_manager(host, path):
    host.manager = None


def directories_of_another_user(host, path):
    this_host.record(host, Phase.COMMITTED)
    (path / "run").mkdir(mode=0o700)
    return _as_nobody(path)


def nothing_can_be_made(host, path):
    return _as_nobody(path)


@contextlib.contextmanager
def _as_nobody(path):
    """The minion runs as another user, who may look into no more than his own directories."""
    for each in (path, *path.parents):
        if not each.stat().st_mode & 0o001:
            each.chmod(each.stat().st_mode | 0o011)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextlib.contextmanager
def disk_is_full(host, path):
    """Nothing can be written any more; what is there can be read."""
    this_host.record(host, Phase.COMMITTED)
    with full_disk():
        yield


HOSTS = {
    state_dir_below_a_file: "database",
    state_dir_is_a_file: "state-dir",
    run_dir_is_a_file: "locks",
    run_dir_below_a_file: "locks",
    links_that_lead_nowhere: "locks",
    database_is_a_directory: "database",
    database_is_something_else: "last-update",
    database_without_its_tables: "database",
    directories_of_another_user: "locks",
    nothing_can_be_made: "locks",
    disk_is_full: "database",
    no_package_manager: "package-manager",
}


@pytest.fixture
def spoil(tmp_path, monkeypatch):
    """Return a way to call a function on a host that is spoilt, each on one of its own."""
    monkeypatch.setattr(facts, "state_uses", lambda opts, functions: set())
    monkeypatch.setattr(background, "spawner", lambda opts: lambda work: work())
    functions = {"publish.runner": lambda _: None}
    functions |= {f"safeupdate.{name}": getattr(module, name) for name in NAMES}
    dunders = {"__context__": {}, "__salt__": functions, "__low__": {}, "__lowstate__": ()}

    def call(spoilt, where, name, *given):
        path = tmp_path / f"{where.__name__}.{name}"
        path.mkdir()
        host = Host(this_host.opts(path) | {"test": False})
        host.manager, host.services = FakePackages(**this_host.VERSIONS), FakeServices()
        host.manager.offers = {each: ["3008.3"] for each in this_host.VERSIONS}
        for each in (module, states):
            for dunder, value in (dunders | {"__opts__": host.opts}).items():
                monkeypatch.setattr(each, dunder, value, raising=False)
        monkeypatch.setattr(factory, "launch", lambda host: host.launch())
        for each in (module, real_host):
            monkeypatch.setattr(each, "Host", lambda opts: host)
        with spoilt(host, path) or contextlib.nullcontext():
            try:
                return getattr(where, name)(*given)
            finally:
                if host.supervisor is not None:
                    host.supervisor.close()

    return call


def _name(value):
    return getattr(value, "__name__", "")


@pytest.mark.parametrize(("spoilt", "code"), HOSTS.items(), ids=_name)
def test_no_function_shows_a_traceback(spoilt, code, spoil):
    for name in NAMES - {"check"}:
        # Whatever else is raised is shown as a traceback.
        with contextlib.suppress(CommandExecutionError):
            spoil(spoilt, module, name, *GIVEN.get(name, ()))
    found = spoil(spoilt, module, "check")
    assert code in [each["code"] for each in found]
    assert all(each["problem"] and each["fix"] for each in found)


@pytest.mark.parametrize("spoilt", HOSTS, ids=_name)
def test_no_state_shows_a_traceback(spoilt, spoil):
    for name in SURFACE["states"]["safeupdate"]:
        found = spoil(spoilt, states, name, "x")
        assert found["name"] == "x"
        assert found["result"] in (True, False)
        assert found["comment"]
