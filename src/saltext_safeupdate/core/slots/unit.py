"""What has systemd start a minion from its active slot: a drop-in of its unit."""

from __future__ import annotations

import contextlib
import os
import re
from typing import NamedTuple, Protocol

from ..errors import CommandError, SafeUpdateError
from ..host import files
from ..host.command import Run
from ..host.files import remove, write_atomic
from ..host.systemd import quoted
from . import unit_files

_UNITS = "/etc/systemd/system"
_DROP_IN = "40-safeupdate-slot.conf"
_TIMEOUT = 30.0
_PROGRAM = "salt-minion"
# What the program of a slot ends with, whatever directory its slots are in: see .installer.program.
_PARTS = 5
_PATHS = ("FragmentPath", "DropInPaths")
# How systemctl shows a program: "{ path=... ; argv[]=... ; flags=privileged ; ...". Before version
# 243 it has "ignore_errors=no" only, also for what "flags" would tell.
_SHOWN = re.compile(r"path=(.*?) ; argv\[\]=(.*?) ; (?:ignore_errors=(\w+)|flags=([\w -]*?)) ;")
_PROPERTIES = ("ExecStartEx", "ExecStart")
# What stands before a program for them (systemd.service(5)).
_PREFIXES = {
    "ignore-failure": "-",
    "no-env-expand": ":",
    "privileged": "+",
    "no-setuid": "!",
    "ambient": "!!",
    "via-shell": "|",
}
# What stands before a program in a unit, and the program.
_WORDS = re.compile(r"([-:+!|@]*)(/\S+)")
# It shows arguments without the quotes that they have.
_PLAIN = re.compile(r"[\w./:=@+,-]+", re.ASCII)
_TEXT = """\
# The minion runs from a slot that safeupdate has activated. Without this file it runs from the
# package, or from wherever its unit says.
[Unit]
RequiresMountsFor={place}

[Service]
ExecStart=
ExecStart={command}
"""


class _Started(NamedTuple):
    """What a unit starts: the prefixes of the program, its path, and its arguments."""

    prefixes: str
    path: str
    arguments: list[str]


class Unit(Protocol):
    """
    What starts a minion, and has it run from a slot or not.

    Each method may be called again, and raises CommandError, OSError, or SafeUpdateError if it is
    not one that can be taken over.
    """

    @property
    def program(self) -> str:
        """The path of the program that it starts now."""
        ...

    @property
    def arguments(self) -> list[str]:
        """What it starts the program with."""
        ...

    @property
    def follows(self) -> bool:
        """Whether it starts the program of the slot."""
        ...

    @property
    def named(self) -> str:
        """The path of the program that it starts without a slot; empty if that cannot be told."""
        ...

    @property
    def elsewhere(self) -> str:
        """The path of the program of a slot in another directory that it starts; empty if none."""
        ...

    @property
    def drop_in(self) -> str:
        """The path of what has it start the slot."""
        ...

    @property
    def without_slot(self) -> str:
        """What an administrator does to have it start what it did before."""
        ...

    def check(self) -> None:
        """Raise SafeUpdateError if it is not one that can be taken over."""
        ...

    def follow(self) -> None:
        """Have it start the program of the slot, with the arguments that it has now."""
        ...

    def leave(self) -> None:
        """Have it start what it did before."""
        ...


class SlotUnit:
    """
    The drop-in of one unit; *program* is the path of the minion's program by the link of its slot.

    Each method may be called again, and raises CommandError, OSError, or SafeUpdateError if the
    unit is not one that can be taken over.
    """

    def __init__(self, unit: str, program: str, *, run: Run, units: str = _UNITS) -> None:
        self._unit = unit if "." in unit else f"{unit}.service"
        self._program = program
        self._run = run
        self.drop_in = os.path.join(units, f"{self._unit}.d", _DROP_IN)

    @property
    def program(self) -> str:
        """The path of the program that systemd starts now."""
        return self._started().path

    @property
    def arguments(self) -> list[str]:
        """What systemd starts the program with."""
        return self._started().arguments

    @property
    def follows(self) -> bool:
        """Whether systemd starts the program of the slot."""
        return self.program == self._program

    @property
    def named(self) -> str:
        """The path of the program that systemd starts without a slot; empty if unknown."""
        if not os.path.lexists(self.drop_in):
            return self.program
        found = self._named()
        return found.path if found is not None and _PLAIN.fullmatch(found.path) else ""

    @property
    def elsewhere(self) -> str:
        """The path of the program of a slot elsewhere that systemd starts; empty if none."""
        if not os.path.lexists(self.drop_in):
            return ""
        path, tail = self.program, self._program.split(os.sep)[-_PARTS:]
        return path if path != self._program and path.split(os.sep)[-_PARTS:] == tail else ""

    @property
    def without_slot(self) -> str:
        """What an administrator does to have it start what it did before."""
        return f"remove {self.drop_in}, run 'systemctl daemon-reload'"

    def check(self) -> None:
        """Raise SafeUpdateError if the unit is not one that can be taken over."""
        if self.elsewhere:
            raise SafeUpdateError(
                f"{self._unit} starts {self.elsewhere}, a slot that is not below "
                "'safeupdate:slots_dir'. Nothing was changed; set that back to what it was, leave "
                "the slot with 'safeupdate.rollback to=without_slot', and change it then."
            )
        if self._taken_over().path != self._program and not _can_be_made(self.drop_in):
            raise SafeUpdateError(
                f"{self.drop_in} cannot be written, by which {self._unit} would start a slot. "
                "Nothing was changed; make that file system writable."
            )

    def follow(self) -> None:
        """Have systemd start the program of the slot, with the arguments that the unit has now."""
        wanted = self._wanted()
        command = wanted.prefixes + " ".join(map(quoted, (self._program, *wanted.arguments)))
        # The slots may be on a file system that a boot mounts late.
        # Nothing is replaced there after a dollar sign, as it is in a command.
        place = quoted(self._program).replace("$$", "$")
        text = _TEXT.format(place=place, command=command)
        is_new = files.text(self.drop_in) != text
        if is_new:
            os.makedirs(os.path.dirname(self.drop_in), mode=0o755, exist_ok=True)
            write_atomic(self.drop_in, text, mode=0o644)
        started = self._started()
        if is_new or (started.path, started.arguments) != (self._program, wanted.arguments):
            # Whoever wrote it may have died before this.
            self._reload()
        if not self.follows:
            self.leave()
            raise CommandError(
                ("systemctl",),
                f"{self._unit} still starts {self.program}: look for a drop-in behind "
                f"{self.drop_in} that sets 'ExecStart='",
            )

    def leave(self) -> None:
        """Have systemd start what the unit itself names."""
        remove_it = os.path.exists(self.drop_in)
        if remove_it:
            remove(self.drop_in)
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(self.drop_in))
        if remove_it or self._may_follow():
            self._reload()

    def _may_follow(self) -> bool:
        try:
            return self.follows
        except SafeUpdateError:
            # Somebody may have removed its package meanwhile.
            return True

    def _wanted(self) -> _Started:
        """Return what the unit has, once it follows its slot: that may have changed since."""
        started = self._taken_over()
        return (self._named() or started) if started.path == self._program else started

    def _named(self) -> _Started | None:
        """Return what the unit starts without our drop-in; None if that cannot be told."""
        argv = ("systemctl", "show", *(f"--property={each}" for each in _PATHS), "--", self._unit)
        shown = self._run(argv, timeout=_TIMEOUT).stdout.splitlines()
        told = dict(line.partition("=")[::2] for line in shown)
        paths = [each for name in _PATHS for each in told.get(name, "").split()]
        words = unit_files.started(path for path in paths if path != self.drop_in)
        found = _WORDS.fullmatch(words[0]) if words else None
        if found is None or _PROGRAM not in os.path.basename(found[2]):
            return None
        if not all(map(_PLAIN.fullmatch, words[1:])):
            return None
        return _Started(found[1], found[2], words[1:])

    def _taken_over(self) -> _Started:
        """Return what the unit starts. Raise SafeUpdateError if that is nothing for a slot."""
        started = self._started()
        if _PROGRAM not in os.path.basename(started.path):
            raise SafeUpdateError(
                f"{self._unit} starts {started.path}, and not the program {_PROGRAM} itself. "
                "Nothing was changed; have it start that."
            )
        odd = [each for each in started.arguments if not _PLAIN.fullmatch(each)]
        if odd:
            raise SafeUpdateError(
                f"{self._unit} starts the minion with {odd[0]!r}, which cannot be taken over into "
                "a drop-in. Nothing was changed; leave that argument out of the unit."
            )
        return started

    def _started(self) -> _Started:
        for each in _PROPERTIES:
            argv = ("systemctl", "show", f"--property={each}", "--", self._unit)
            shown = _SHOWN.findall(self._run(argv, timeout=_TIMEOUT).stdout)
            if shown:
                break
        if len(shown) != 1:
            raise SafeUpdateError(
                f"{self._unit} does not start one program. Nothing was changed; give the minion a "
                "unit that does."
            )
        ((path, words, ignored, flags),) = shown
        if f"{words} ".startswith(f"{path} "):
            # There may be a blank in it.
            first, arguments = path, words[len(path) :].split()
        else:
            first, *arguments = words.split()
        told = [*flags.split(), *(["ignore-failure"] if ignored == "yes" else [])]
        odd = [each for each in told if each not in _PREFIXES]
        if odd:
            raise SafeUpdateError(
                f"{self._unit} has {odd[0]!r} for the minion, which this version does not know. "
                "Nothing was changed; leave that out of the unit."
            )
        prefixes = "".join(_PREFIXES[each] for each in told)
        if os.path.basename(first) != os.path.basename(path):
            # It gives the program another name (@).
            return _Started(f"{prefixes}@", path, [first, *arguments])
        return _Started(prefixes, path, arguments)

    def _reload(self) -> None:
        self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)


def _can_be_made(path: str) -> bool:
    """Tell whether a file can be made there, as far as that is known without doing it."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)
