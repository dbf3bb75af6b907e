"""The service of a host that systemd runs, through systemctl and systemd-run."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence

from ..errors import CommandError, SafeUpdateError
from . import processes
from .command import Run
from .files import remove, write_atomic
from .inhibitor import RUNTIME_UNITS, UnitInhibitor, full_name, properties_of
from .service import Interruption, LastRun, ServiceState

_TIMEOUT = 30.0
# A stop waits for the minion. systemd kills it after 90 s unless its unit says otherwise.
_STOP_TIMEOUT = 300.0
# How often to look whether a unit has ended, and seconds between two looks. Salt takes 5 s.
_END_ATTEMPTS = 40
_END_INTERVAL = 0.5
# Tries to start a program under a name that systemd still knows, and seconds between them.
_SPAWN_ATTEMPTS = 50
_SPAWN_INTERVAL = 0.1
_SHUTDOWN_JOB = re.compile(r"\b(?:reboot|kexec|soft-reboot|shutdown)\.target\s+start\b")
_ALREADY = re.compile(r"already (exists|loaded)|already been loaded")
# The verb of systemctl that brings a unit file into a state.
_VERBS = {
    "enabled": ("enable",),
    "enabled-runtime": ("enable", "--runtime"),
    "disabled": ("disable",),
    "masked": ("mask",),
    "masked-runtime": ("mask", "--runtime"),
}
# Words that mean themselves in a unit file.
_PLAIN = re.compile(r"[\w@+=:,./-]+", re.ASCII)
_EXEC_PATH = re.compile(r"\bpath=(/\S+)")
# The properties that name the units that systemd stops with one (systemd.unit(5)).
_STOPPED_WITH = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
_UNITS = "/etc/systemd/system"
# The watchdog finishes an update whose supervisor is gone: it runs at every boot and every minute.
_WATCHDOG = {
    "service": """\
# An update of the minion is under way; see 'salt-call --local safeupdate.status'.
[Unit]
Description=Finish the update of the Salt minion

[Service]
ExecStart={argv}
KillMode=process

[Install]
WantedBy=multi-user.target
""",
    "timer": """\
# An update of the minion is under way; see 'salt-call --local safeupdate.status'.
[Unit]
Description=Watch over the update of the Salt minion

[Timer]
OnActiveSec=60
OnUnitInactiveSec=60
AccuracySec=1

[Install]
WantedBy=timers.target
""",
}
# How the last run of a unit ended: in words, by exit or by signal, and with which of them.
_STATE = ("ActiveState", "SubState", "UnitFileState", "MainPID", "InvocationID")
_HOW_IT_ENDED = ("Result", "ExecMainCode", "ExecMainStatus")
_NO_MEMORY = "oom-kill"
# The process of a minion waits for the one that works, and ends with this status if that one was
# killed by SIGKILL.
_CHILD_KILLED = "247"
# When a unit left "inactive", when its main process began and ended, and when the unit left
# "active": microseconds since the boot, 0 if it never did.
_TIMES = (
    "InactiveExitTimestampMonotonic",
    "ExecMainStartTimestampMonotonic",
    "ExecMainExitTimestampMonotonic",
    "ActiveExitTimestampMonotonic",
)
# When the unit last left "active", became "inactive", and left that again, and when its main
# process began; seconds that systemd takes at most between the two halves of a restart.
_INTERRUPTED = (
    "ActiveExitTimestampMonotonic",
    "InactiveEnterTimestampMonotonic",
    "InactiveExitTimestampMonotonic",
    "ExecMainStartTimestampMonotonic",
)
_BETWEEN = 1.0
# Reasons that can make a start of a unit fail, and the units that have to be active for it.
_CONDITIONS = ("ConditionResult", "AssertResult")
_NEEDS = ("Requires", "Requisite", "BindsTo")
# Results of the end of its process; others, such as "start-limit-hit", are about a start.
_ENDS = ("success", "exit-code", "signal", "core-dump", "timeout")


class Systemd:
    """systemd, through systemctl and systemd-run."""

    name = "systemd"

    def __init__(
        self,
        run: Run,
        runtime_units: str = RUNTIME_UNITS,
        units: str = _UNITS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._inhibitor = UnitInhibitor(run, runtime_units, sleep)
        self._units = units
        self._sleep = sleep

    def state(self, unit: str) -> ServiceState:
        shown = self._show(unit, *_STATE)
        # The unit that systemd makes of an init script stays active when all processes have ended.
        ended = shown.get("SubState") == "exited"
        return ServiceState(
            "failed" if ended else shown.get("ActiveState", ""),
            shown.get("UnitFileState", ""),
            int(shown.get("MainPID") or 0),
            shown.get("InvocationID", ""),
        )

    def last_run(self, unit: str) -> LastRun:
        shown = self._show(unit, "ActiveState", *_HOW_IT_ENDED, "NRestarts", *_TIMES)
        restarts = shown.get("NRestarts", "")
        ended = [shown.get(name, "") for name in _HOW_IT_ENDED]
        times = [_number(shown, name) for name in _TIMES]
        # If memory runs out, systemd ends the rest of the unit, as in a stop.
        stopped = ended[0] != _NO_MEMORY and _was_stopped(shown.get("ActiveState", ""), *times)
        return LastRun(
            stopped,
            _number(shown, "ExecMainStatus"),
            int(restarts) if restarts.isdigit() else None,
            # A stop may have ended so, too.
            not stopped and _was_killed(*ended),
        )

    def interruption(self, unit: str) -> Interruption | None:
        shown = self._show(unit, "MainPID", *_INTERRUPTED)
        left, ended, began, main = (_number(shown, name) / 1e6 for name in _INTERRUPTED)
        if not left or not ended <= began:
            return None
        # NRestarts stays if somebody stops a unit that waits for RestartSec. With
        # RestartMode=direct, the unit has not been inactive since it left "active".
        by_itself = began - ended < _BETWEEN or began < left
        now = time.monotonic()
        # This clock stands still while the host sleeps; the age of a process counts on.
        age = processes.age(_number(shown, "MainPID"))
        slept = 0.0 if age is None else max(0.0, age - (now - main))
        return Interruption(now - left + slept, by_itself)

    def is_left_stopped(self, unit: str) -> bool:
        shown = self._show(unit, "ActiveState", "Job", "Result", *_CONDITIONS, *_NEEDS)
        if shown.get("ActiveState") not in ("inactive", "failed") or _number(shown, "Job"):
            return False
        if "no" in (shown.get(name) for name in _CONDITIONS):
            return False
        if shown.get("Result") not in _ENDS:
            return False
        needed = " ".join(shown.get(name, "") for name in _NEEDS).split()
        if not needed:
            return True
        argv = ("systemctl", "show", "--property=ActiveState", "--", *needed)
        said = self._run(argv, timeout=_TIMEOUT).stdout.split()
        return set(said) == {"ActiveState=active"}

    def obstacle(self, unit: str) -> str:
        return ""

    def can_start(self, unit: str) -> bool:
        return self._show(unit, "CanStart").get("CanStart") != "no"

    def dependents(self, unit: str) -> list[str]:
        found: dict[str, bool] = {}
        waiting = [unit]
        while waiting:
            shown = self._show(waiting.pop(), "ActiveState", *_STOPPED_WITH)
            named = " ".join(shown.get(name, "") for name in _STOPPED_WITH).split()
            for each in named:
                if each not in found and each != full_name(unit) and not each.endswith(".target"):
                    found[each] = self._runs_or_will(each)
                    waiting.append(each)
        return [each for each, runs in found.items() if runs]

    def _runs_or_will(self, unit: str) -> bool:
        shown = self._show(unit, "ActiveState", "Job")
        if shown.get("ActiveState") in ("active", "activating", "reloading"):
            return True
        # A boot may have got so far only: the job of what does not run is to start it.
        return shown.get("ActiveState") == "inactive" and bool(_number(shown, "Job"))

    def unit_file(self, unit: str) -> str | None:
        return self._show(unit, "FragmentPath").get("FragmentPath") or None

    def program(self, unit: str) -> str | None:
        if self._inhibitor.inhibited(unit):
            return self._inhibitor.program(unit)
        match = _EXEC_PATH.search(self._show(unit, "ExecStart").get("ExecStart", ""))
        return match[1] if match else None

    def begin_restart(self, unit: str) -> None:
        self._run(("systemctl", "--no-block", "restart", unit), timeout=_TIMEOUT)

    def goes_down(self) -> bool:
        return goes_down(self._run)

    def reboot(self, message: str) -> None:
        told = f"--message={message}"
        self._run(("systemctl", "--no-block", told, "reboot"), timeout=_TIMEOUT)

    def start(self, unit: str) -> None:
        # systemd refuses to start a unit that failed too often, until that is reset.
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
        self._inhibitor.inhibit(unit)

    def resume(self, unit: str) -> None:
        self._inhibitor.resume(unit)

    def release(self, unit: str) -> None:
        self._inhibitor.release(unit)

    def inhibited(self, unit: str) -> bool:
        return self._inhibitor.inhibited(unit)

    def running(self, pattern: str) -> dict[str, int]:
        argv = ("systemctl", "show", "--property=Id,MainPID", "--", pattern)
        units = [
            dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
            for unit in self._run(argv, timeout=_TIMEOUT).stdout.split("\n\n")
        ]
        found = {unit.get("Id", ""): int(unit.get("MainPID") or 0) for unit in units}
        return {unit: pid for unit, pid in found.items() if unit and pid}

    def spawn(self, name: str, argv: Sequence[str]) -> None:
        for _ in range(_SPAWN_ATTEMPTS - 1):
            try:
                self._spawn(name, argv)
            except CommandError as err:
                if not _ALREADY.search(err.stderr):
                    raise
                # systemd has not yet forgotten a unit that has just ended.
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
                # systemd replaces variables in it.
                *(word.replace("$", "$$") for word in argv),
            ),
            timeout=_TIMEOUT,
        )

    def arm(self, name: str, argv: Sequence[str]) -> None:
        line = " ".join(quoted(word) for word in argv)
        known = os.path.exists(os.path.join(self._units, f"{name}.service"))
        try:
            for kind, text in _WATCHDOG.items():
                path = os.path.join(self._units, f"{name}.{kind}")
                write_atomic(path, text.format(argv=line), mode=0o644)
        except OSError as err:
            raise SafeUpdateError(
                f"{path} cannot be written: {err.strerror or err}. Without it, nothing would "
                "finish an update whose supervisor is gone; check that directory."
            ) from err
        both = (f"{name}.service", f"{name}.timer")
        # A reload runs all generators of the host; systemd also reads a new unit without one.
        self._run(("systemctl", "enable", "--no-reload", *both), timeout=_TIMEOUT)
        if known:
            self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)
        try:
            self._run(("systemctl", "--no-block", "start", both[1]), timeout=_TIMEOUT)
        except CommandError:
            # The next boot starts it.
            if not self.goes_down():
                raise

    def watchdog(self, name: str) -> str:
        try:
            with open(os.path.join(self._units, f"{name}.service"), encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def rest(self, name: str) -> None:
        self._run(("systemctl", "--no-block", "stop", f"{name}.timer"), timeout=_TIMEOUT, ok=None)

    def disarm(self, name: str) -> None:
        paths = [os.path.join(self._units, f"{name}.{kind}") for kind in _WATCHDOG]
        if not any(os.path.exists(path) for path in paths):
            return
        both = [os.path.basename(path) for path in paths]
        # This process may run in that service, so only the timer is stopped.
        self._run(("systemctl", "--no-block", "stop", both[1]), timeout=_TIMEOUT, ok=None)
        self._run(("systemctl", "disable", "--no-reload", *both), timeout=_TIMEOUT, ok=None)
        for path in paths:
            remove(path)
        self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)

    def _show(self, unit: str, *properties: str) -> dict[str, str]:
        return properties_of(self._run, unit, *properties)


def goes_down(run: Run) -> bool:
    """Tell whether the host goes down: systemd refuses to start anything that conflicts."""
    state = run(("systemctl", "is-system-running"), timeout=_TIMEOUT, ok=None)
    if state.stdout.strip() == "stopping":
        return True
    jobs = run(("systemctl", "list-jobs", "--no-legend"), timeout=_TIMEOUT, ok=None)
    return bool(_SHUTDOWN_JOB.search(jobs.stdout))


def quoted(word: str) -> str:
    """Return any word in the form that ``ExecStart=`` and ``ExecStop=`` need."""
    if _PLAIN.fullmatch(word):
        return word
    for char, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(char, written)
    return f'"{word}"'


def _was_killed(result: str, code: str, status: str) -> bool:
    """Return whether something outside of a unit has ended it by SIGKILL."""
    if result == "exit-code":
        return status == _CHILD_KILLED
    # With "timeout" or "watchdog" systemd itself has lost patience with it.
    by_signal = (code, status) == (str(int(os.CLD_KILLED)), str(int(signal.SIGKILL)))
    return result == _NO_MEMORY or (result == "signal" and by_signal)


def _was_stopped(active: str, left: int, began: int, ended: int, ends: int) -> bool:
    """
    Tell whether somebody asked for the end of a unit: its main process ended after that.

    One that ends by itself does so first, and its unit leaves "active" afterwards.
    """
    if active not in ("inactive", "failed") or not left:
        return False
    if began < left or ends < left:
        # The end came before the main process began, or before it said that it is ready. By
        # itself, that is a failure.
        return active == "inactive"
    return ends < ended


def _number(shown: dict[str, str], name: str) -> int:
    value = shown.get(name, "")
    return int(value) if value.isdigit() else 0
