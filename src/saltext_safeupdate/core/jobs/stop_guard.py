"""
The stop guard: a drop-in of the minion's unit that delays a stop until no job runs any more.

The program next to this file does the waiting, in shell, so that it works when Salt, Python
or the database do not. The drop-in names a copy of it in the state directory, which no package
update removes. If others could replace that directory, the copy is next to the drop-in, because
systemd runs it as root.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import re
import shutil

from ..errors import CommandError, SafeUpdateError
from ..host import files, inhibitor
from ..host.command import Run
from ..host.command import run as run_command
from ..host.files import remove, write_atomic
from ..host.systemd import quoted
from ..settings import Settings
from . import guard_file

_PROGRAM = "stop_guard.sh"
# Seconds that systemd gives the guard beyond its own limits, to stop the minion itself.
_MARGIN = 120
_TIMEOUT = 30.0
_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SPAN = re.compile(rf"([\d.]+)({'|'.join(_UNITS)})\b")
_TEXT = """\
# The minion stops when its jobs have ended; see 'salt-call --local safeupdate.check'.
# Managed by the state safeupdate.enabled. Bypass: touch {bypass}
[Service]
ExecStop=-/bin/sh {words} {limit} {shutdown} {mode}
TimeoutStopSec={timeout}
"""
# By this signal, the guard ends the process that waits for a minion which is handed over. A restart
# takes one second instead of six, so systemd would soon refuse the next one (5 starts in 10 s).
_HANDOVER = """\
SuccessExitStatus=SIGUSR2
[Unit]
StartLimitBurst=20
"""


class StopGuard:
    """Installs, removes and checks the drop-in of one unit."""

    def __init__(self, settings: Settings, *, run: Run = run_command, units: str = "") -> None:
        self._run = run
        self._units = units
        self._take(settings)

    def _take(self, settings: Settings) -> None:
        unit = settings.service
        self._unit = unit if "." in unit else f"{unit}.service"
        self._settings = settings
        self.drop_in = guard_file.path(self._unit, self._units)
        others = _is_of_others(settings.state_dir)
        place = os.path.dirname(self.drop_in) if others else settings.state_dir
        self.program = os.path.join(place, _PROGRAM)

    def with_settings(self, settings: Settings) -> StopGuard:
        """Return the stop guard of a minion with other settings."""
        other = copy.copy(self)
        other._take(settings)
        return other

    def wanted(self) -> dict[str, str]:
        """Return the contents that the files must have, by path."""
        with open(os.path.join(os.path.dirname(__file__), _PROGRAM), encoding="utf-8") as file:
            program = file.read()
        settings = self._settings
        text = _TEXT.format(
            bypass=os.path.join(settings.run_dir, "bypass"),
            words=" ".join(map(quoted, (self.program, settings.run_dir, self._unit))),
            limit=round(settings.stop_timeout),
            shutdown=round(settings.shutdown_timeout),
            mode=settings.restart,
            timeout=round(settings.stop_timeout) + _MARGIN,
        )
        if settings.restart == "handover":
            text += _HANDOVER
        for mark, part in zip(
            ("@INHIBITOR@", "@DROP_IN@"), inhibitor.contents(self._unit), strict=True
        ):
            program = program.replace(mark, part.rstrip())
        return {self.program: program, self.drop_in: text}

    def differing(self) -> list[str]:
        """Return the paths of the files that are missing or have other contents."""
        return [path for path, text in self.wanted().items() if files.text(path) != text]

    def install(self) -> list[str]:
        """Write files that differ, reload systemd, and return the paths. Raise SafeUpdateError."""
        differing = self.differing()
        wanted = self.wanted()
        for path in differing:
            place = os.path.dirname(path)
            mode = 0o755 if place == os.path.dirname(self.drop_in) else 0o700
            try:
                os.makedirs(place, mode=mode, exist_ok=True)
                write_atomic(path, wanted[path], mode=0o644)
            except OSError as err:
                raise SafeUpdateError(
                    f"The stop guard cannot be written to {path}: {err.strerror or err}. The "
                    "minion works without it, but a restart by others does not wait for its jobs."
                ) from err
        if differing:
            self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)
        return differing

    def remove(self) -> bool:
        """Remove the drop-in; tell whether it was there."""
        if not remove(self.drop_in):
            return False
        place = os.path.dirname(self.drop_in)
        remove(os.path.join(place, _PROGRAM))
        with contextlib.suppress(OSError):
            os.rmdir(place)
        self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)
        return True

    def problems(self) -> list[tuple[str, str]]:
        """Return the problems that keep the guard from working, each with its fix."""
        found = []
        apply = "Run 'state.single safeupdate.enabled name=safeupdate' on the minion."
        if self.missing():
            return [
                ("The stop guard is not installed: a restart by others kills running jobs.", apply)
            ]
        if self.differing():
            found.append(("The stop guard was installed by another version.", apply))
        else:
            found += self._not_in_effect()
        if os.geteuid() == 0 and (others := self._others()):
            found.append(
                (
                    f"The stop guard does not wait for jobs, because it is root: {others}.",
                    f"Let only root write to {self._settings.run_dir} and above it, or set "
                    "'safeupdate:run_dir' to such a directory.",
                )
            )
        if shutil.which("flock") is None:
            found.append(
                ("The program 'flock' is missing, so the guard does not wait.", "Install it.")
            )
        return found

    def missing(self) -> bool:
        """Tell whether there is no drop-in."""
        return files.text(self.drop_in) == ""

    def obstacle(self) -> str:
        """Return why no minion of this host can be handed over; empty if one can."""
        if not guard_file.has_one_hierarchy():
            return "the host has no single hierarchy of control groups (cgroup v2)"
        if shutil.which("systemd-run") is None:
            return "the program 'systemd-run' is missing"
        if self.missing():
            return "the stop guard is not installed"
        if guard_file.way(self.drop_in) != "handover":
            return "the stop guard was written for another setting"
        if others := self._others():
            return f"the stop guard, which is root, does not work in its 'run_dir': {others}"
        return self._of_unit()

    def _others(self) -> str:
        """Return who else than root could put another file into the directory of the locks."""
        place = os.path.realpath(self._settings.run_dir)
        # The minion makes it.
        return files.others_on_the_way(place) if os.path.isdir(place) else ""

    def _of_unit(self) -> str:
        """Return the obstacle in the unit, as the program itself finds it."""
        argv = ("/bin/sh", self.program, "--obstacle", self._unit)
        try:
            asked = self._run(argv, timeout=_TIMEOUT)
        except CommandError as err:
            return f"cannot tell whether {self._unit} allows it: {err}"
        return asked.stdout.strip()

    def _not_in_effect(self) -> list[tuple[str, str]]:
        """Return what systemd does in another way than the drop-in says."""
        now = inhibitor.properties_of(self._run, self._unit, "ExecStop", "TimeoutStopUSec")
        started = now.get("ExecStop", "")
        if f"/{inhibitor.PROGRAM} " in started:
            # While packages change, something else is in effect.
            return []
        look = (
            "Run 'systemctl daemon-reload'. If that does not help, look at 'systemctl cat "
            f"{self._unit}' for a later drop-in that sets "
        )
        if self.program not in started:
            return [(f"systemd does not use {self.drop_in}.", f"{look}'ExecStop='.")]
        wanted, given = self._settings.stop_timeout, now.get("TimeoutStopUSec", "")
        if _seconds(given) >= wanted:
            return []
        return [
            (
                f"systemd ends the stop guard after {given}, and then the jobs that it waits for: "
                f"'stop_timeout' is {wanted:.0f} s.",
                f"{look}'TimeoutStopSec=' or 'TimeoutSec='.",
            )
        ]


def _seconds(span: str) -> float:
    """Return the seconds of a time span as systemd shows it (systemd.time(7)); 0 is no span."""
    if span == "infinity":
        return math.inf
    return sum(float(number) * _UNITS[unit] for number, unit in _SPAN.findall(span))


def _is_of_others(directory: str) -> bool:
    """Tell whether others than root could replace a directory, such as by the option 'user'."""
    while not os.path.lexists(directory):
        # Root makes it.
        directory = os.path.dirname(directory)
    try:
        return bool(files.others_on_the_way(directory, me=0))
    except OSError:
        # It has just been replaced.
        return True
