"""A real master and real minions on loopback; only packages and service are fakes."""

from pathlib import Path

import pytest
import salt.client
from saltfactories.daemons.master import SaltMaster

from devtools import as_packaged
from devtools.master import GRAINS_ONCE
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.record.store import Store
from tests.support.minion import AVAILABLE, CORE_PROVIDERS, INSTALLED, MODULES, OWN
from tests.support.packages import Database

REPO = Path(__file__).resolve().parents[2]
_START_TIMEOUT = 600
# What saltfactories asks for, everything, takes longer to write than to do.
LOGS = {"log_level_logfile": "info"}
# What masters have besides.
MASTER = {"user": as_packaged.USER, **LOGS, **GRAINS_ONCE}


@pytest.fixture(scope="session")
def salt_factories_config(tmp_path_factory):
    return {
        "code_dir": str(REPO),
        "root_dir": str(tmp_path_factory.mktemp("salt")),
        "start_timeout": _START_TIMEOUT,
    }


class PackagedMaster(SaltMaster):
    """A master of saltfactories that runs as the user of the packages."""

    def cmdline(self, *args):
        as_packaged.give(Path(self.config["root_dir"]))
        return as_packaged.as_user(super().cmdline(*args))

    def salt_cli(self, *args, **kwargs):
        return _as_user(super().salt_cli(*args, **kwargs))

    def salt_run_cli(self, *args, **kwargs):
        return _as_user(super().salt_run_cli(*args, **kwargs))

    def salt_key_cli(self, *args, **kwargs):
        return _as_user(super().salt_key_cli(*args, **kwargs))


def _as_user(program):
    """Have a program of saltfactories begin as the user that it becomes anyway."""
    plain = program.cmdline
    program.cmdline = lambda *args, **kwargs: as_packaged.as_user(plain(*args, **kwargs))
    return program


class Site:
    """The state tree of the masters, and where a minion notes what it does."""

    def __init__(self, path):
        self.path = path
        self.roots = path / "srv"
        self.roots.mkdir(parents=True)

    def sls(self, name, text):
        (self.roots / f"{name}.sls").write_text(text)


class Guest:
    """A minion of saltfactories with its fake packages."""

    def __init__(self, daemon, database, master):
        self.daemon = daemon
        self.id = daemon.id
        self.master = master
        self.database = database
        self.path = database.path.parent

    def run(self, fun, *args, by=None, **kwargs):
        """
        Have its master, or another one, give it a job; return what it returns, None if it does not.

        A program costs ten times that.
        """
        with salt.client.LocalClient(mopts=(by or self.master).config.copy()) as client:
            return client.cmd(self.id, fun, args, timeout=120, kwarg=kwargs).get(self.id)

    def begin(self, fun, *args, by=None):
        """Have its master, or another one, give it a job, and do not wait for it."""
        with salt.client.LocalClient(mopts=(by or self.master).config.copy()) as client:
            return client.pub(self.id, fun, list(args), timeout=120)["jid"]

    def journal(self):
        return [
            entry for entry in self.database.journal() if entry[0] not in ("inhibit", "release")
        ]

    def reset(self):
        self.database.create(INSTALLED, AVAILABLE)
        self.database.journal_path.unlink(missing_ok=True)

    def phase(self):
        """Return the phase of the newest update, from the minion's own record."""
        store = Store(self.path / "state" / "safeupdate.db")
        latest = store.latest() if store.exists() else None
        return latest and latest.phase.value

    def draining(self):
        return locks.held(str(self.path / "locks"), "drain")

    def restarted(self):
        return ("minion restarts",) in self.journal()


def minion_options(path, database, **options):
    return {
        "module_dirs": [str(MODULES)],
        "disable_modules": CORE_PROVIDERS,
        "fake_packages": str(database.path),
        "module_executors": ["safeupdate", "direct_call"],
        "engines": [{"safeupdate": {}}],
        "safeupdate": {
            "state_dir": str(path / "state"),
            "run_dir": str(path / "locks"),
            "registry_dir": str(path / "registry"),
            "packages": list(OWN),
            "jobs_timeout": 60,
            "return_timeout": 60,
            "restart_timeout": 20,
            "stable_interval": 0.1,
            "tick_interval": 0.2,
        },
        "loop_interval": 0.2,
        **LOGS,
        **options,
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return Site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def make_guest(tmp_path_factory):
    """Start minions of a master; each ends with the module."""
    started = []

    def make(owner, name, /, **options):
        path = tmp_path_factory.mktemp(name)
        database = Database(path / "packages.json").create(INSTALLED, AVAILABLE)
        daemon = owner.salt_minion_daemon(name, overrides=minion_options(path, database, **options))
        daemon.start()
        started.append(daemon)
        return Guest(daemon, database, owner)

    yield make
    for daemon in reversed(started):
        daemon.terminate()
