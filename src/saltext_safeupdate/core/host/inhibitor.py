"""
Keeps the processes of a unit of systemd while its packages change, whoever stops or restarts it.

Scriptlets of packages restart the minion in the middle of a transaction, and some of them fail if
that fails. So no request is refused: a drop-in gives the unit another start and stop. At a stop,
systemd leaves the processes alone (``KillMode=none``). At the next start, it takes the same ones
(``PIDFile=``). It does not matter how the request is made: by ``systemctl``, ``invoke-rc.d``,
``service`` or over D-Bus.

All files are in a directory of root below ``/run``: a reboot removes them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Callable

from ..errors import CommandError
from . import processes
from .command import Run
from .files import remove, text, write_atomic

log = logging.getLogger(__name__)

RUNTIME_UNITS = "/run/systemd/system"
_TIMEOUT = 30.0
# How often to look whether a process has ended, and seconds between two looks. Salt takes 5 s.
_END_ATTEMPTS = 80
_END_INTERVAL = 0.25
# The last one by name counts: no letter and no digit comes after this sign.
_DROP_IN = "~safeupdate-inhibitor.conf"
PROGRAM, _PROCESS, _PID = "inhibitor.sh", "inhibitor.process", "inhibitor.pid"
_NAMED = (PROGRAM, _PROCESS, _PID)
_TEXT = """\
# The packages of this unit change; see 'salt-call --local safeupdate.status'. Until they are in
# place, a stop or a restart of the unit leaves its processes as they are.
[Unit]
ConditionPathExists=
AssertPathExists=
StartLimitIntervalSec=0
[Service]
Type=forking
PIDFile={place}/inhibitor.pid
ExecCondition=
ExecStartPre=
ExecStart=
ExecStart=+/bin/sh {place}/inhibitor.sh start
ExecStartPost=
ExecStop=
ExecStop=-+/bin/sh {place}/inhibitor.sh stop
ExecStopPost=
KillMode=none
Restart=no
RuntimeDirectoryPreserve=yes
WatchdogSec=0
"""
_SCRIPT = """\
#!/bin/sh
# Part of safeupdate: the start and stop of a unit whose packages change. A start takes the process
# that is there already (inhibitor.process: PID, and when it began) and tells systemd so
# (inhibitor.pid). A stop leaves it alone, unless the system goes down.
place=${0%/*}

lives() {
    read -r pid began <"$place/inhibitor.process" && [ "$pid" ] || return 1
    read -r line <"/proc/$pid/stat" || return 1
    # Behind its name, the 20th is when it began.
    set -- ${line##*)}
    [ "${20}" = "$began" ]
} 2>/dev/null

case $1 in
    start)
        # Whoever asks for a start gets one: without a process, this one stands for it to the end.
        lives || {
            (while [ -e "$0" ]; do sleep 1; done) </dev/null >/dev/null 2>&1 &
            pid=$!
        }
        echo "$pid" >"$place/inhibitor.pid"
        ;;
    stop)
        [ "$(systemctl is-system-running 2>/dev/null)" = stopping ] || exit 0
        kill -TERM "$MAINPID"
        limit=60
        while [ "$limit" -gt 0 ] && kill -0 "$MAINPID" 2>/dev/null; do
            limit=$((limit - 1))
            sleep 1
        done
        ;;
esac
exit 0
"""
# A program, behind what may come before its path (systemd.service(5)); an empty one removes others.
_EXEC_START = re.compile(r"^ExecStart[ \t]*=[ \t]*[-@:+!|]*\"?([^\s\"]*)", re.M)
# The directory for temporary files that only the unit sees goes with a stop, unless another unit
# uses it as well (systemd.exec(5), PrivateTmp=).
_HOLDER = "salt-safeupdate-tmp-{unit}"
_HOLD = ("--property=PrivateTmp=yes", "--property=JoinsNamespaceOf={unit}", "--", "sleep", "86400")


class UnitInhibitor:
    """The inhibitor of systemd's units. Every method may be called again."""

    def __init__(
        self,
        run: Run,
        runtime_units: str = RUNTIME_UNITS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._run = run
        self._runtime_units = runtime_units
        self._sleep = sleep

    def inhibit(self, unit: str) -> None:
        """
        Keep the processes of the unit from now on.

        Raise CommandError if systemd cannot be told, or if another drop-in of the unit prevents it.
        """
        place = self._place(unit)
        now = self._show(unit, "MainPID", "PrivateTmp")
        os.makedirs(place, mode=0o755, exist_ok=True)
        if not self._lives(unit):
            self._end_orphans(unit)
            self._write(place, _PROCESS, _noting(int(now.get("MainPID") or 0)))
        program, drop_in = contents(unit, self._runtime_units)
        self._write(place, PROGRAM, program)
        if now.get("PrivateTmp") == "yes":
            self._hold_files(unit)
        self._write(place, _DROP_IN, drop_in)
        self._reload()
        if not self._is_known(unit):
            self._lift(unit)
            raise CommandError(
                ("systemctl", "daemon-reload"),
                f"{unit} cannot be kept running while its packages change: a later drop-in than "
                f"{_DROP_IN} sets its start or stop. Look at 'systemctl cat {unit}'",
            )

    def resume(self, unit: str) -> None:
        """Make the unit active again with its processes, if somebody has stopped it meanwhile."""
        if not self.inhibited(unit) or not self._lives(unit):
            return
        if self._has_its_process(unit):
            return
        try:
            self._run(("systemctl", "start", unit), timeout=_TIMEOUT)
        except CommandError as err:
            # Its package, and the unit with it, may be gone.
            log.warning("%s cannot be started with the processes that it has: %s", unit, err)

    def release(self, unit: str) -> None:
        """
        Have the unit start and stop as usual again.

        If somebody has stopped it, and systemd cannot make it active again, its process ends now:
        its package was removed, or it is masked.
        """
        if self.inhibited(unit):
            self.resume(unit)
            if not self._lives(unit):
                # Somebody has started the process that stands for it.
                with contextlib.suppress(CommandError):
                    self._run(("systemctl", "stop", unit), timeout=_TIMEOUT)
                self._end_orphans(unit)
            elif not self._has_its_process(unit):
                self._end(int(self._noted(unit)[0]))
        self._lift(unit)

    def _lift(self, unit: str) -> None:
        place = self._place(unit)
        removed = remove(os.path.join(place, _DROP_IN))
        # A crash may have come between the two. A reload runs all generators of the host.
        if removed or self._is_known(unit):
            self._reload()
        # systemd uses these until it has been reloaded.
        for name in _NAMED:
            removed = remove(os.path.join(place, name)) or removed
        if removed:
            with contextlib.suppress(OSError):
                os.rmdir(place)
            holder = _HOLDER.format(unit=full_name(unit))
            self._run(("systemctl", "--no-block", "stop", holder), timeout=_TIMEOUT, ok=None)

    def program(self, unit: str) -> str | None:
        """Return the path of the program that the unit starts when it is released."""
        files = self._show(unit, "FragmentPath", "DropInPaths")
        found = None
        for path in (files.get("FragmentPath", ""), *files.get("DropInPaths", "").split()):
            if os.path.basename(path) != _DROP_IN:
                for line in _EXEC_START.finditer(text(path)):
                    found = line[1] or None
        return found

    def inhibited(self, unit: str) -> bool:
        """Tell whether the processes of the unit are kept."""
        return os.path.exists(os.path.join(self._place(unit), _DROP_IN))

    # -- how -------------------------------------------------------------------------------

    def _place(self, unit: str) -> str:
        return _place(unit, self._runtime_units)

    def _write(self, place: str, name: str, content: str) -> None:
        write_atomic(os.path.join(place, name), content, mode=0o644)

    def _noted(self, unit: str) -> list[str]:
        """Return the PID of the process that belongs to the unit, and when it began."""
        return [*text(os.path.join(self._place(unit), _PROCESS)).split(), "", ""][:2]

    def _lives(self, unit: str) -> bool:
        pid, began = self._noted(unit)
        return pid.isdigit() and processes.start_time(int(pid)) == began

    def _end_orphans(self, unit: str) -> None:
        """
        End what the process had begun when it was noted, and what has outlived it.

        Salt's minion looks every 5 s whether its parent lives, and until then no other one starts.
        """
        lines = text(os.path.join(self._place(unit), _PROCESS)).splitlines()
        for pid, began in (line.split() for line in lines[1:]):
            if processes.start_time(int(pid)) == began:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def _has_its_process(self, unit: str) -> bool:
        return self._show(unit, "MainPID").get("MainPID") == self._noted(unit)[0]

    def _is_known(self, unit: str) -> bool:
        """Tell whether systemd has the drop-in in effect."""
        now = self._show(unit, "PIDFile", "KillMode", "Type", "ExecStart")
        place = self._place(unit)
        return (
            now.get("PIDFile") == f"{place}/{_PID}"
            and (now.get("KillMode"), now.get("Type")) == ("none", "forking")
            and f"{place}/{PROGRAM} start" in now.get("ExecStart", "")
        )

    def _end(self, pid: int) -> None:
        """End a process that no unit has any more, and what it has begun if it does not end."""
        process, left = processes.identity(pid), [pid, *processes.descendants(pid)]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        for _ in range(_END_ATTEMPTS):
            if not processes.alive(process):
                return
            self._sleep(_END_INTERVAL)
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)

    def _hold_files(self, unit: str) -> None:
        name, full = _HOLDER.format(unit=full_name(unit)), full_name(unit)
        hold = (word.format(unit=full) for word in _HOLD)
        try:
            self._run(
                ("systemd-run", f"--unit={name}", "--collect", "--quiet", *hold), timeout=_TIMEOUT
            )
        except CommandError as err:
            # After a crash, it is there already.
            log.warning("%s may lose its temporary files: %s", unit, err)

    def _reload(self) -> None:
        self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)

    def _show(self, unit: str, *properties: str) -> dict[str, str]:
        return properties_of(self._run, unit, *properties)


def _noting(pid: int) -> str:
    """Return a line for the process, and one for each that it has begun: the PID, when it began."""
    if not pid or not (began := processes.start_time(pid)):
        return "\n"
    children = (each for each in processes.descendants(pid) if processes.parent(each) == pid)
    lines = [(pid, began), *((each, processes.start_time(each)) for each in children)]
    return "".join(f"{each} {when}\n" for each, when in lines if when)


def contents(unit: str, runtime_units: str = RUNTIME_UNITS) -> tuple[str, str]:
    """Return the program that starts and stops the unit meanwhile, and the drop-in."""
    return _SCRIPT, _TEXT.format(place=_place(unit, runtime_units))


def _place(unit: str, runtime_units: str) -> str:
    return os.path.join(runtime_units, f"{full_name(unit)}.d")


def properties_of(run: Run, unit: str, *properties: str) -> dict[str, str]:
    """Return these properties of a unit, by name. Raise CommandError."""
    argv = ("systemctl", "show", f"--property={','.join(properties)}", "--", full_name(unit))
    said = run(argv, timeout=_TIMEOUT).stdout
    return dict(line.split("=", 1) for line in said.splitlines() if "=" in line)


def full_name(unit: str) -> str:
    """Return the name of a unit with its type; a service if it has none."""
    return unit if "." in unit else f"{unit}.service"
