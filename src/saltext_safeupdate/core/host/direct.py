"""The service of a host without systemd."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence

from ..errors import CommandError
from . import processes
from .command import Run
from .service import LastRun, ServiceState

_TIMEOUT = 30.0
# A stop waits until the minion has ended.
_STOP_TIMEOUT = 300.0
# What the exit status of ``service x status`` means by the LSB. With 1 and 2, a PID or lock file
# is left, and many scripts return 1 or 4 for whatever they do not know: it may run.
_STATUS = {0: "active", 3: "inactive"}


# What defines a service for the program ``service``: scripts, and the jobs of Upstart.
_SCRIPTS = ("/etc/init.d/{}", "/etc/init/{}.conf")


class Direct:
    """
    A host without systemd: the ``service`` program, if there is one.

    Nothing there can refuse a restart, so :meth:`inhibit` does nothing. Only the jobs lock
    protects jobs. There is no watchdog either.
    """

    name = "direct"

    def __init__(
        self,
        run: Run,
        spawner: Callable[[Sequence[str]], None] | None = None,
        scripts: Sequence[str] = _SCRIPTS,
    ) -> None:
        self._run = run
        self._scripts = scripts
        self._spawner = spawner or detach

    def state(self, unit: str) -> ServiceState:
        if not shutil.which("service"):
            return ServiceState("unknown", "", 0)
        result = self._run(("service", unit, "status"), timeout=_TIMEOUT, ok=None)
        return ServiceState(_STATUS.get(result.returncode, "unknown"), "", 0)

    def last_run(self, unit: str) -> LastRun:
        return LastRun()

    def is_left_stopped(self, unit: str) -> bool:
        return False

    def obstacle(self, unit: str) -> str:
        if not shutil.which("service"):
            return "this host has neither systemd nor the program 'service'"
        if not any(os.path.exists(place.format(unit)) for place in self._scripts):
            return f"this host does not run systemd, and its init system has no service {unit}"
        return ""

    def unit_file(self, unit: str) -> str | None:
        path = self._scripts[0].format(unit)
        return path if os.path.exists(path) else None

    def program(self, unit: str) -> str | None:
        return shutil.which(unit)

    def begin_restart(self, unit: str) -> None:
        self._service(unit, "restart")

    def reboot(self, message: str) -> None:
        self._run(("shutdown", "-r", "now", message), timeout=_TIMEOUT)

    def start(self, unit: str) -> None:
        self._service(unit, "start")

    def stop(self, unit: str) -> None:
        self._service(unit, "stop")

    def end(self, unit: str) -> None:
        self.stop(unit)

    def set_enabled(self, unit: str, enabled: str) -> None:
        return

    def inhibit(self, unit: str) -> None:
        return

    def release(self, unit: str) -> None:
        return

    def inhibited(self, unit: str) -> bool:
        return False

    def running(self, pattern: str) -> dict[str, int]:
        return {}

    def spawn(self, name: str, argv: Sequence[str]) -> None:
        self._spawner(argv)

    def arm(self, name: str, argv: Sequence[str]) -> None:
        return

    def watchdog(self, name: str) -> str:
        return ""

    def rest(self, name: str) -> None:
        return

    def disarm(self, name: str) -> None:
        return

    def _service(self, unit: str, verb: str) -> None:
        if not shutil.which("service"):
            raise CommandError(
                ("service",),
                f"this host has neither systemd nor the 'service' program, so {unit} cannot be "
                f"asked to {verb}. What was installed stays installed; do it by hand.",
            )
        self._run(("service", unit, verb), timeout=_STOP_TIMEOUT)


def detach(argv: Sequence[str]) -> None:
    """Start a program in a session of its own, as a child of PID 1."""

    def become() -> None:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.execv(argv[0], list(argv))  # noqa: S606 (an argument list, and no shell)

    processes.in_background(become)
