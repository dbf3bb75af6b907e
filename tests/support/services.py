"""An init system that starts real supervisors and restarts nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import saltext_safeupdate
from saltext_safeupdate.core import program, wiring
from saltext_safeupdate.core.generations.generation import Report
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import init_system, processes
from saltext_safeupdate.core.host.direct import Direct
from saltext_safeupdate.core.host.service import ServiceState
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.supervisor.watchdog import read_settings

from .fakes import FakeRunner
from .packages import Database, FakeManager

REPO = Path(__file__).resolve().parents[2]
SOURCE = Path(saltext_safeupdate.__file__).resolve().parents[1]


class FakeServices(Direct):
    """An init system that restarts a minion by saying that it did."""

    name = "fake"

    def __init__(self, database, state_dir):
        super().__init__(FakeRunner())
        self._database = database
        self._state_dir = state_dir
        self._mark = database.path.with_suffix(".inhibited")
        self._stopped = database.path.with_suffix(".stopped")
        self._children = []

    def state(self, unit):
        return ServiceState("inactive" if self._stopped.exists() else "active", "enabled", 0)

    def obstacle(self, unit):
        return ""

    def goes_down(self):
        return False

    def begin_restart(self, unit):
        self._database.note("minion restarts")
        generations = Generations(Store(f"{self._state_dir}/safeupdate.db"))
        generations.reports(
            uuid.uuid4().hex, Report(at=time.time(), boot=processes.boot(), version="2")
        )

    start = begin_restart

    def stop(self, unit):
        self._stopped.touch()
        self._database.note("minion stops")

    def set_enabled(self, unit, enabled):
        return

    def inhibit(self, unit):
        self._mark.touch()
        self._database.note("inhibit")

    def release(self, unit):
        self._mark.unlink(missing_ok=True)
        self._database.note("release")

    def resume(self, unit):
        pass

    def inhibited(self, unit):
        return self._mark.exists()

    def unit_file(self, unit):
        return None

    program = unit_file

    def spawn(self, name, argv):
        """Start the real supervisor with these fakes."""
        program = (
            sys.executable,
            "-m",
            "tests.support.services",
            str(self._database.path),
            argv[-1],
        )
        path = os.pathsep.join((str(REPO), str(SOURCE)))
        child = subprocess.Popen(
            program, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
        )
        self._children.append(child)

    def join(self):
        """Wait until every supervisor has ended, as each does when its update is over."""
        while self._children:
            assert self._children.pop().wait() == 0


def main(database, settings):
    fake = Database(database)
    manager = FakeManager(fake)
    services = FakeServices(fake, read_settings(settings).state_dir)
    wiring.package_manager = lambda: manager
    init_system.detect = lambda: services
    return program.main([settings])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
