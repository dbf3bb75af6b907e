"""A real master and real minions on loopback; only packages and service are fakes."""

from pathlib import Path

import pytest

from tests.support.minion import AVAILABLE, CORE_PROVIDERS, INSTALLED, MODULES, OWN
from tests.support.packages import Database

REPO = Path(__file__).resolve().parents[2]
_START_TIMEOUT = 180


@pytest.fixture(scope="session")
def salt_factories_config(tmp_path_factory):
    return {
        "code_dir": str(REPO),
        "root_dir": str(tmp_path_factory.mktemp("salt")),
        "start_timeout": _START_TIMEOUT,
    }


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

    def __init__(self, daemon, database):
        self.daemon = daemon
        self.id = daemon.id
        self.database = database

    def journal(self):
        return [
            entry for entry in self.database.journal() if entry[0] not in ("inhibit", "release")
        ]

    def reset(self):
        self.database.create(INSTALLED, AVAILABLE)
        self.database.journal_path.unlink(missing_ok=True)

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
            "packages": list(OWN),
            "jobs_timeout": 60,
            "return_timeout": 60,
            "restart_timeout": 20,
            "stable_interval": 0.1,
            "tick_interval": 0.2,
        },
        "loop_interval": 0.2,
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
        return Guest(daemon, database)

    yield make
    for daemon in reversed(started):
        daemon.terminate()
