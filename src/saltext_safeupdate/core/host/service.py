"""The minion's own service, as the init system sees it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ..errors import CommandError, SafeUpdateError
from .command import Run
from .command import run as run_command
from .files import remove, write_atomic

_TIMEOUT = 30.0
# A stop waits for the minion, which systemd kills after 90 s where its unit says nothing else.
_STOP_TIMEOUT = 300.0
# Looks for the end of a unit that need not end well, and seconds between them. Salt takes 5 s.
_END_ATTEMPTS = 40
_END_INTERVAL = 0.5
# Tries to start a program under a name that systemd still knows, and seconds between them.
_SPAWN_ATTEMPTS = 50
_SPAWN_INTERVAL = 0.1
_ALREADY = re.compile(r"already (exists|loaded)|already been loaded")
# The verb of systemctl that brings a unit file into a state.
_VERBS = {
    "enabled": ("enable",),
    "enabled-runtime": ("enable", "--runtime"),
    "disabled": ("disable",),
    "masked": ("mask",),
    "masked-runtime": ("mask", "--runtime"),
}
_EXEC_PATH = re.compile(r"\bpath=(/\S+)")
_RUNTIME_UNITS = "/run/systemd/system"
_UNITS = "/etc/systemd/system"
# What brings an update to its end that nobody else does: at every boot, and every minute.
_DEAD_MAN = {
    "service": """\
# An update of the minion is under way; see 'salt-call --local safeupdate.status'.
[Unit]
Description=Bring the update of the Salt minion to its end

[Service]
ExecStart={argv}
KillMode=process

[Install]
WantedBy=multi-user.target
""",
    "timer": """\
# An update of the minion is under way; see 'salt-call --local safeupdate.status'.
[Unit]
Description=Look after the update of the Salt minion

[Timer]
OnActiveSec=60
OnUnitInactiveSec=60
AccuracySec=1

[Install]
WantedBy=timers.target
""",
}
_DROP_IN = "50-safeupdate-quiet.conf"
_QUIET = """\
# An update of the minion is under way; see 'salt-call --local safeupdate.status'.
[Unit]
RefuseManualStart=yes
RefuseManualStop=yes
"""


class ServiceState(NamedTuple):
    """
    ``active`` and ``enabled`` in systemd's words; ``pid`` is 0 where nothing runs.
    ``invocation`` is another one after each start; empty where that is not known.
    """

    active: str
    enabled: str
    pid: int
    invocation: str = ""

    @property
    def running(self) -> bool:
        return self.active in ("active", "activating", "reloading", "deactivating")


class ServiceManager(Protocol):
    """What the update needs of an init system. Every method may be called again."""

    name: str

    def state(self, unit: str) -> ServiceState: ...

    def begin_restart(self, unit: str) -> None:
        """Ask for a restart and return at once."""
        ...

    def start(self, unit: str) -> None: ...

    def stop(self, unit: str) -> None: ...

    def end(self, unit: str) -> None:
        """Stop the unit; what does not end by itself within a moment is killed."""
        ...

    def set_enabled(self, unit: str, enabled: str) -> None:
        """Make the unit enabled, disabled or masked again, in the words of :meth:`state`."""
        ...

    def inhibit(self, unit: str) -> None:
        """Refuse to start, stop or restart the unit until :meth:`release`; gone after a reboot."""
        ...

    def release(self, unit: str) -> None: ...

    def inhibited(self, unit: str) -> bool: ...

    def unit_file(self, unit: str) -> str | None:
        """Return the path of the file that defines the unit."""
        ...

    def program(self, unit: str) -> str | None:
        """Return the path of the program that the unit starts."""
        ...

    def spawn(self, name: str, argv: Sequence[str]) -> None:
        """Start a program that outlives the minion: outside its cgroup and session."""
        ...

    def arm(self, name: str, argv: Sequence[str]) -> None:
        """Have a program started at every boot and every minute, until :meth:`disarm`."""
        ...

    def rest(self, name: str) -> None:
        """Have an armed program not be started before the next boot."""
        ...

    def disarm(self, name: str) -> None: ...


def detect(run: Run = run_command) -> ServiceManager:
    """Return systemd where it is PID 1, else the direct one."""
    if os.path.isdir("/run/systemd/system"):
        return Systemd(run)
    return Direct(run)


class Systemd:
    """systemd, through systemctl and systemd-run."""

    name = "systemd"

    def __init__(
        self,
        run: Run,
        runtime_units: str = _RUNTIME_UNITS,
        units: str = _UNITS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._runtime_units = runtime_units
        self._units = units
        self._sleep = sleep

    def state(self, unit: str) -> ServiceState:
        shown = self._show(unit, "ActiveState", "UnitFileState", "MainPID", "InvocationID")
        return ServiceState(
            shown.get("ActiveState", ""),
            shown.get("UnitFileState", ""),
            int(shown.get("MainPID") or 0),
            shown.get("InvocationID", ""),
        )

    def unit_file(self, unit: str) -> str | None:
        return self._show(unit, "FragmentPath").get("FragmentPath") or None

    def program(self, unit: str) -> str | None:
        match = _EXEC_PATH.search(self._show(unit, "ExecStart").get("ExecStart", ""))
        return match[1] if match else None

    def begin_restart(self, unit: str) -> None:
        self._run(("systemctl", "--no-block", "restart", unit), timeout=_TIMEOUT)

    def start(self, unit: str) -> None:
        # A unit that failed too often has to be forgiven before it may start.
        self._run(("systemctl", "reset-failed", unit), timeout=_TIMEOUT, ok=None)
        self._run(("systemctl", "--no-block", "start", unit), timeout=_TIMEOUT)

    def stop(self, unit: str) -> None:
        self._run(("systemctl", "stop", unit), timeout=_STOP_TIMEOUT)

    def end(self, unit: str) -> None:
        self._run(("systemctl", "--no-block", "stop", unit), timeout=_TIMEOUT)
        if not self._ended(unit):
            kill = ("systemctl", "kill", "--kill-who=all", "--signal=KILL", unit)
            self._run(kill, timeout=_TIMEOUT, ok=None)
            self._ended(unit)

    def _ended(self, unit: str) -> bool:
        for _ in range(_END_ATTEMPTS):
            if not self.state(unit).running:
                return True
            self._sleep(_END_INTERVAL)
        return False

    def set_enabled(self, unit: str, enabled: str) -> None:
        now = self.state(unit).enabled
        wanted = _VERBS.get(enabled)
        if enabled == now or wanted is None:
            return
        if now.startswith("masked"):
            runtime = _VERBS[now][1:]
            self._run(("systemctl", "unmask", *runtime, unit), timeout=_TIMEOUT)
        self._run(("systemctl", *wanted, unit), timeout=_TIMEOUT)

    def inhibit(self, unit: str) -> None:
        path = self._drop_in(unit)
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        write_atomic(path, _QUIET, mode=0o644)
        self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)

    def release(self, unit: str) -> None:
        path = self._drop_in(unit)
        if remove(path):
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(path))
        # Also where the file is gone: the reload may be what a crash left undone.
        self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)

    def inhibited(self, unit: str) -> bool:
        return os.path.exists(self._drop_in(unit))

    def spawn(self, name: str, argv: Sequence[str]) -> None:
        for _ in range(_SPAWN_ATTEMPTS - 1):
            try:
                self._spawn(name, argv)
            except CommandError as err:
                if not _ALREADY.search(err.stderr):
                    raise
                # One that has just ended is not forgotten yet.
                self._sleep(_SPAWN_INTERVAL)
            else:
                return
        self._spawn(name, argv)

    def _spawn(self, name: str, argv: Sequence[str]) -> None:
        self._run(("systemctl", "reset-failed", f"{name}.service"), timeout=_TIMEOUT, ok=None)
        self._run(
            (
                "systemd-run",
                f"--unit={name}",
                "--description=Update of the Salt minion",
                "--collect",
                "--quiet",
                "--property=Restart=on-failure",
                "--property=RestartSec=1",
                "--property=KillMode=process",
                "--",
                *argv,
            ),
            timeout=_TIMEOUT,
        )

    def arm(self, name: str, argv: Sequence[str]) -> None:
        line = " ".join(_quoted(word) for word in argv)
        try:
            for kind, text in _DEAD_MAN.items():
                path = os.path.join(self._units, f"{name}.{kind}")
                write_atomic(path, text.format(argv=line), mode=0o644)
        except OSError as err:
            raise SafeUpdateError(
                f"{path} cannot be written: {err.strerror or err}. Nothing looks after an update "
                "then once its supervisor is gone; check that directory."
            ) from err
        both = (f"{name}.service", f"{name}.timer")
        self._run(("systemctl", "enable", *both), timeout=_TIMEOUT)
        self._run(("systemctl", "--no-block", "start", both[1]), timeout=_TIMEOUT)

    def rest(self, name: str) -> None:
        self._run(("systemctl", "--no-block", "stop", f"{name}.timer"), timeout=_TIMEOUT, ok=None)

    def disarm(self, name: str) -> None:
        paths = [os.path.join(self._units, f"{name}.{kind}") for kind in _DEAD_MAN]
        if not any(os.path.exists(path) for path in paths):
            return
        both = [os.path.basename(path) for path in paths]
        # The service may be the one that we run in: only the timer is stopped.
        self._run(("systemctl", "--no-block", "stop", both[1]), timeout=_TIMEOUT, ok=None)
        self._run(("systemctl", "disable", *both), timeout=_TIMEOUT, ok=None)
        for path in paths:
            remove(path)
        self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)

    def _drop_in(self, unit: str) -> str:
        return os.path.join(self._runtime_units, f"{_full(unit)}.d", _DROP_IN)

    def _show(self, unit: str, *properties: str) -> dict[str, str]:
        result = self._run(
            ("systemctl", "show", f"--property={','.join(properties)}", "--", _full(unit)),
            timeout=_TIMEOUT,
        )
        return dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)


class Direct:
    """
    Hosts without systemd: the ``service`` program where there is one.

    Nothing can refuse a restart there: :meth:`inhibit` does nothing, and the shared lock
    of the jobs is what protects them.
    """

    name = "direct"

    def __init__(self, run: Run, spawner: Callable[[Sequence[str]], None] | None = None) -> None:
        self._run = run
        self._spawner = spawner or detach

    def state(self, unit: str) -> ServiceState:
        if not shutil.which("service"):
            return ServiceState("unknown", "", 0)
        result = self._run(("service", unit, "status"), timeout=_TIMEOUT, ok=None)
        return ServiceState("active" if result.returncode == 0 else "inactive", "", 0)

    def unit_file(self, unit: str) -> str | None:
        path = f"/etc/init.d/{unit}"
        return path if os.path.exists(path) else None

    def program(self, unit: str) -> str | None:
        return shutil.which(unit)

    def begin_restart(self, unit: str) -> None:
        self._service(unit, "restart")

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

    def spawn(self, name: str, argv: Sequence[str]) -> None:
        self._spawner(argv)

    def arm(self, name: str, argv: Sequence[str]) -> None:
        return

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
    middle = os.fork()
    if middle:
        os.waitpid(middle, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        os.execv(argv[0], list(argv))  # noqa: S606
    finally:
        os._exit(127)


def _quoted(word: str) -> str:
    """Return the word as an ``ExecStart=`` line has to hold it."""
    for char, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(char, written)
    return f'"{word}"'


def _full(unit: str) -> str:
    return unit if "." in unit else f"{unit}.service"
