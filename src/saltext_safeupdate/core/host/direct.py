"""The service of a host without systemd."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Sequence

from ..errors import CommandError
from . import keeper, processes
from .command import Run
from .keeper import Kept
from .service import Interruption, LastRun, ServiceState

_TIMEOUT = 30.0
# A stop waits until the minion has ended.
_STOP_TIMEOUT = 300.0
# Seconds that a minion gets for its end before it is killed, and between two looks at it.
_END_TIMEOUT = 20.0
_POLL_INTERVAL = 0.05
# The meaning of the exit status of ``service x status`` in the LSB. With 1 and 2, a PID or lock
# file is left, and many scripts return 1 or 4 if they do not know: it may run.
_STATUS = {0: "active", 3: "inactive"}


# What defines a service for the program ``service``: scripts, and the jobs of Upstart.
_SCRIPTS = ("/etc/init.d/{}", "/etc/init/{}.conf")


class Direct:
    """
    A host without systemd: the keeper of a minion, or else the ``service`` program.

    A keeper restarts the minion below itself, and looks after an update. Without one, there is no
    watchdog. Nothing can make a restart harmless, so :meth:`inhibit` does nothing: only the jobs
    lock protects jobs. *keepers* is where the keepers of this host have their state.
    """

    name = "direct"

    def __init__(
        self,
        run: Run,
        spawner: Callable[[Sequence[str]], None] | None = None,
        scripts: Sequence[str] = _SCRIPTS,
        *,
        keepers: str = keeper.PLACE,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._scripts = scripts
        self._spawner = spawner or detach
        self._keepers = keepers
        self._monotonic = monotonic
        self._sleep = sleep

    def kept(self, unit: str) -> Kept | None:
        """Return the minion if a keeper has started it."""
        return keeper.look(self._keepers, unit)

    def state(self, unit: str) -> ServiceState:
        if kept := self.kept(unit):
            return ServiceState(kept.active, "", kept.pid, kept.invocation)
        if not shutil.which("service"):
            return ServiceState("unknown", "", 0)
        result = self._run(("service", unit, "status"), timeout=_TIMEOUT, ok=None)
        return ServiceState(_STATUS.get(result.returncode, "unknown"), "", 0)

    def last_run(self, unit: str) -> LastRun:
        kept = self.kept(unit)
        return LastRun(status=kept.status) if kept else LastRun()

    def interruption(self, unit: str) -> Interruption | None:
        return None

    def is_left_stopped(self, unit: str) -> bool:
        return False

    def obstacle(self, unit: str) -> str:
        if self.kept(unit):
            return ""
        if not shutil.which("service"):
            return "this host has neither systemd nor the program 'service'"
        if not any(os.path.exists(place.format(unit)) for place in self._scripts):
            return f"this host does not run systemd, and its init system has no service {unit}"
        return ""

    def can_start(self, unit: str) -> bool:
        return True

    def dependents(self, unit: str) -> list[str]:
        return []

    def unit_file(self, unit: str) -> str | None:
        path = self._scripts[0].format(unit)
        return path if os.path.exists(path) else None

    def program(self, unit: str) -> str | None:
        kept = self.kept(unit)
        return kept.program if kept else shutil.which(unit)

    def begin_restart(self, unit: str) -> None:
        if not self._told(unit, keeper.START):
            self._service(unit, "restart")

    def goes_down(self) -> bool:
        return False

    def reboot(self, message: str) -> None:
        self._run(("shutdown", "-r", "now", message), timeout=_TIMEOUT)

    def start(self, unit: str) -> None:
        if not self._told(unit, keeper.START):
            self._service(unit, "start")

    def stop(self, unit: str) -> None:
        if not self._told(unit, keeper.STOP):
            self._service(unit, "stop")
        elif not self._is_down(unit, _STOP_TIMEOUT):
            raise CommandError(
                ("keeper",), f"{unit} did not end within {_STOP_TIMEOUT:g} s. It runs on."
            )

    def end(self, unit: str) -> None:
        kept = self.kept(unit)
        if kept is None:
            self.stop(unit)
            return
        kept.told(keeper.STOP)
        if self._is_down(unit, _END_TIMEOUT):
            return
        for pid in (kept.pid, *processes.descendants(kept.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._is_down(unit, _END_TIMEOUT)

    def set_enabled(self, unit: str, enabled: str) -> None:
        return

    def inhibit(self, unit: str) -> None:
        return

    def resume(self, unit: str) -> None:
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
        if keeper.any_lives(self._keepers):
            keeper.watch(self._keepers, name, argv)

    def watchdog(self, name: str) -> str:
        return keeper.watched(self._keepers, name)

    def rest(self, name: str) -> None:
        return

    def disarm(self, name: str) -> None:
        keeper.unwatch(self._keepers, name)

    def _told(self, unit: str, order: int) -> bool:
        """Give the keeper of a minion an order; tell whether there is one."""
        kept = self.kept(unit)
        if kept is not None:
            kept.told(order)
        return kept is not None

    def _is_down(self, unit: str, timeout: float) -> bool:
        """Tell whether the minion has ended within some seconds."""
        deadline = self._monotonic() + timeout
        while self._monotonic() < deadline:
            kept = self.kept(unit)
            if kept is None or not kept.pid:
                return True
            self._sleep(_POLL_INTERVAL)
        return False

    def _service(self, unit: str, verb: str) -> None:
        if not shutil.which("service"):
            raise CommandError(
                ("service",),
                f"this host has neither systemd nor the 'service' program, so {unit} cannot be "
                f"asked to {verb}. The installed version stays; do it by hand.",
            )
        self._run(("service", unit, verb), timeout=_STOP_TIMEOUT)


def detach(argv: Sequence[str]) -> None:
    """Start a program in a session of its own, as a child of PID 1."""

    def become() -> None:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.execv(argv[0], list(argv))  # noqa: S606 (an argument list, and no shell)

    processes.in_background(become)
