"""A minion whose package manager and init system are simulated, and whose record is real."""

from saltext_safeupdate.admin.setup import stand_ins
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.this_host import Host
from tests.support.simulated import FakePackages, FakeServices

VERSIONS = {"salt": "3006.28", "salt-minion": "3006.28"}


class SimulatedHost(Host):
    """The real one, with a simulated package manager and init system."""

    manager = None
    services = None
    stop_guard = None
    found = Own(frozenset(VERSIONS), False)

    def own(self):
        if isinstance(self.found, Exception):
            raise self.found
        return self.found

    def running_jobs(self):
        return ["5 test.sleep"]


def opts(directory):
    """Return the configuration of a minion that is set up well."""
    return {
        "id": "minion",
        "__role": "minion",
        "cachedir": str(directory / "cache"),
        "conf_file": str(directory / "minion"),
        "module_executors": ["safeupdate", "direct_call"],
        "engines": [{"safeupdate": {}}],
        # What stands in for this package lies outside of it, on a real minion.
        "executor_dirs": [f"{stand_ins.sources()}/executor"],
        "engines_dirs": [f"{stand_ins.sources()}/engines"],
        "safeupdate": {
            "state_dir": str(directory / "state"),
            "run_dir": str(directory / "run"),
            "registry_dir": str(directory / "registry"),
        },
    }


def simulated(opts):
    made = SimulatedHost(opts)
    made.manager = FakePackages(**VERSIONS)
    made.services = FakeServices()
    return made


def record(made, phase, **changes):
    """Save an update in this phase."""
    return made.store.save(
        Update(**{"id": "u1", "kind": "update", "phase": phase, "created": 1.0, **changes})
    )
