"""
The minion's own service: what an update needs of the init system that runs it.

A user of an init system asks for the part that it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class ServiceState(NamedTuple):
    """
    The answer of the init system about a unit.

    ``active`` and ``enabled`` are systemd's words; ``active`` is ``unknown`` if the init system
    cannot tell. ``pid`` is 0 if nothing runs. ``invocation`` differs after each start; it is
    empty if that is not known.
    """

    active: str
    enabled: str
    pid: int
    invocation: str = ""

    @property
    def running(self) -> bool:
        """Whether it runs, or may run."""
        return self.active in ("active", "activating", "reloading", "deactivating", "unknown")


class LastRun(NamedTuple):
    """
    How the last run of a unit began and ended, as far as the init system knows.

    *stopped* tells that somebody asked for its end, *killed* that somebody, or the kernel because
    memory ran out, has killed it, *status* is the exit status of its main process. *restarts* is
    how often the init system has started it again by itself since somebody did; None if that is
    not known.
    """

    stopped: bool = False
    status: int = 0
    restarts: int | None = None
    killed: bool = False


class Interruption(NamedTuple):
    """
    The time between the last two runs of a unit. It *began* so many seconds ago.

    *by_itself*: the init system started the unit again at once, as in a restart or after a crash.
    """

    began: float
    by_itself: bool


class Services(Protocol):
    """The state of units, and their start and stop. Every method may be called again."""

    name: str

    def state(self, unit: str) -> ServiceState: ...

    def last_run(self, unit: str) -> LastRun: ...

    def interruption(self, unit: str) -> Interruption | None:
        """Return the time before this run of the unit; None if it is the first, or not known."""
        ...

    def is_left_stopped(self, unit: str) -> bool:
        """
        Tell whether nobody is about to start the unit, and nothing keeps its start back.

        After a restart was asked for, somebody has asked for a stop in its place then.
        """
        ...

    def obstacle(self, unit: str) -> str:
        """Return why the unit cannot be restarted on this host; empty if it can."""
        ...

    def can_start(self, unit: str) -> bool:
        """Tell whether the unit would start again if it stopped now."""
        ...

    def dependents(self, unit: str) -> list[str]:
        """Return the units that run and end if the unit is stopped; targets are left out."""
        ...

    def begin_restart(self, unit: str) -> None:
        """Ask for a restart and return at once."""
        ...

    def start(self, unit: str) -> None: ...

    def stop(self, unit: str) -> None: ...

    def end(self, unit: str) -> None:
        """Stop the unit; kill what does not end by itself within some seconds."""
        ...

    def set_enabled(self, unit: str, enabled: str) -> None:
        """Make the unit enabled, disabled or masked, in the words of :meth:`state`."""
        ...

    def unit_file(self, unit: str) -> str | None:
        """Return the path of the file that defines the unit."""
        ...

    def program(self, unit: str) -> str | None:
        """Return the path of the program that the unit starts."""
        ...

    def running(self, pattern: str) -> dict[str, int]:
        """Return the main process of each running unit whose name matches; empty if unknown."""
        ...


class Inhibitor(Protocol):
    """
    Keeps the processes of a unit while packages change. Every method may be called again.

    No request to start, stop or restart the unit fails meanwhile, because some scriptlets of
    packages fail with it. None of them ends or starts a process either.
    """

    def inhibit(self, unit: str) -> None:
        """Keep the processes of the unit until :meth:`release` or a reboot."""
        ...

    def resume(self, unit: str) -> None:
        """Make the unit active again with its processes, if somebody has stopped it meanwhile."""
        ...

    def release(self, unit: str) -> None:
        """:meth:`resume` it, and have it start and stop as usual again."""
        ...

    def inhibited(self, unit: str) -> bool: ...


class Watchdogs(Protocol):
    """Runs programs apart from the minion. Every method may be called again."""

    def spawn(self, name: str, argv: Sequence[str]) -> None:
        """Start a program that outlives the minion: outside its cgroup and session."""
        ...

    def arm(self, name: str, argv: Sequence[str]) -> None:
        """Start a watchdog: *argv* is run at every boot and every minute until :meth:`disarm`."""
        ...

    def watchdog(self, name: str) -> str:
        """Return the definition of the watchdog, with all that it starts; empty without one."""
        ...

    def rest(self, name: str) -> None:
        """Keep the watchdog from running its program before the next boot."""
        ...

    def disarm(self, name: str) -> None:
        """Remove the watchdog."""
        ...


class ServiceManager(Services, Inhibitor, Watchdogs, Protocol):
    """The init system of a host."""

    def goes_down(self) -> bool:
        """Tell whether the host goes down, so that nothing new can be started."""
        ...

    def reboot(self, message: str) -> None:
        """Ask for a reboot of the host, tell its users the *message*, and return at once."""
        ...
