"""A drop-in of a minion's unit that makes systemd start it from its active slot."""

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
# How many last parts of a program's path are the same in any directory of slots: see
# .installer.program.
_PARTS = 5
_PATHS = ("FragmentPath", "DropInPaths")
# How systemctl shows a program: "{ path=... ; argv[]=... ; flags=privileged ; ...". Before version
# 243 it only has "ignore_errors=no", and not the other "flags".
_SHOWN = re.compile(r"path=(.*?) ; argv\[\]=(.*?) ; (?:ignore_errors=(\w+)|flags=([\w -]*?)) ;")
_PROPERTIES = ("ExecStartEx", "ExecStart")
# The prefix of a program for each flag (systemd.service(5)).
_PREFIXES = {
    "ignore-failure": "-",
    "no-env-expand": ":",
    "privileged": "+",
    "no-setuid": "!",
    "ambient": "!!",
    "via-shell": "|",
}
# The prefix of a program in a unit, and the program.
_WORDS = re.compile(r"([-:+!|@]*)(/\S+)")
# systemctl shows arguments without their quotes.
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
    """The command of a unit: the prefixes of the program, its path, and its arguments."""

    prefixes: str
    path: str
    arguments: list[str]


class Unit(Protocol):
    """
    Something that starts a minion, from a slot or not.

    Each method may be repeated. It raises CommandError, OSError, or SafeUpdateError if the unit
    cannot be taken over.
    """

    @property
    def program(self) -> str:
        """The path of the program that it starts now."""
        ...

    @property
    def arguments(self) -> list[str]:
        """The arguments of the program."""
        ...

    @property
    def follows(self) -> bool:
        """Whether it starts the program of the slot."""
        ...

    @property
    def named(self) -> str:
        """The path of the program that it starts without a slot; empty if unknown."""
        ...

    @property
    def elsewhere(self) -> str:
        """The path of the program of a slot in another directory, if it starts that, or empty."""
        ...

    @property
    def drop_in(self) -> str:
        """The path of the file that makes it start the slot."""
        ...

    @property
    def without_slot(self) -> str:
        """Instructions for an administrator to make it start the original program."""
        ...

    def check(self) -> None:
        """Raise SafeUpdateError if it cannot be taken over."""
        ...

    def follow(self) -> None:
        """Make it start the program of the slot, with its present arguments."""
        ...

    def leave(self) -> None:
        """Make it start the original program."""
        ...


class SlotUnit:
    """
    The drop-in of one unit; *program* is the path of the minion's program by the link of its slot.

    Each method may be repeated. It raises CommandError, OSError, or SafeUpdateError if the unit
    cannot be taken over.
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
        """The arguments of the program that systemd starts."""
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
        """The path of the program of a slot elsewhere, if systemd starts that, or empty."""
        if not os.path.lexists(self.drop_in):
            return ""
        path, tail = self.program, self._program.split(os.sep)[-_PARTS:]
        return path if path != self._program and path.split(os.sep)[-_PARTS:] == tail else ""

    @property
    def without_slot(self) -> str:
        """Instructions for an administrator to make it start the original program."""
        return f"remove {self.drop_in}, run 'systemctl daemon-reload'"

    def check(self) -> None:
        """Raise SafeUpdateError if the unit cannot be taken over."""
        if self.elsewhere:
            raise SafeUpdateError(
                f"{self._unit} starts {self.elsewhere}, a slot that is not below "
                "'safeupdate:slots_dir'. Nothing was changed; restore that setting, leave the slot "
                "with 'safeupdate.rollback to=without_slot', and change the setting then."
            )
        if self._taken_over().path != self._program and not _can_be_made(self.drop_in):
            raise SafeUpdateError(
                f"{self.drop_in}, by which {self._unit} would start a slot, cannot be written. "
                "Nothing was changed; make that file system writable."
            )

    def follow(self) -> None:
        """Make systemd start the program of the slot, with the present arguments of the unit."""
        wanted = self._wanted()
        command = wanted.prefixes + " ".join(map(quoted, (self._program, *wanted.arguments)))
        # The slots may be on a file system that a boot mounts late.
        # Here, unlike in a command, nothing is replaced after a dollar sign.
        place = quoted(self._program).replace("$$", "$")
        text = _TEXT.format(place=place, command=command)
        is_new = files.text(self.drop_in) != text
        if is_new:
            os.makedirs(os.path.dirname(self.drop_in), mode=0o755, exist_ok=True)
            write_atomic(self.drop_in, text, mode=0o644)
        started = self._started()
        if is_new or (started.path, started.arguments) != (self._program, wanted.arguments):
            # The process that wrote it may have died before this.
            self._reload()
        if not self.follows:
            self.leave()
            raise CommandError(
                ("systemctl",),
                f"{self._unit} still starts {self.program}: look for a drop-in after "
                f"{self.drop_in} that sets 'ExecStart='",
            )

    def leave(self) -> None:
        """Make systemd start the program that the unit itself names."""
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
            # Its package may have been removed meanwhile.
            return True

    def _wanted(self) -> _Started:
        """Return the present command of the unit, also if it already follows its slot."""
        started = self._taken_over()
        return (self._named() or started) if started.path == self._program else started

    def _named(self) -> _Started | None:
        """Return what the unit starts without our drop-in; None if unknown."""
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
        """Return the command of the unit. Raise SafeUpdateError if a slot cannot replace it."""
        started = self._started()
        if _PROGRAM not in os.path.basename(started.path):
            raise SafeUpdateError(
                f"{self._unit} starts {started.path}, and not the program {_PROGRAM} itself. "
                "Nothing was changed; make it start that program."
            )
        odd = [each for each in started.arguments if not _PLAIN.fullmatch(each)]
        if odd:
            raise SafeUpdateError(
                f"{self._unit} starts the minion with {odd[0]!r}, which cannot be copied into a "
                "drop-in. Nothing was changed; remove that argument from the unit."
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
                f"{self._unit} does not start exactly one program. Nothing was changed; give the "
                "minion a unit that does."
            )
        ((path, words, ignored, flags),) = shown
        if f"{words} ".startswith(f"{path} "):
            # The path may contain a blank.
            first, arguments = path, words[len(path) :].split()
        else:
            first, *arguments = words.split()
        told = [*flags.split(), *(["ignore-failure"] if ignored == "yes" else [])]
        odd = [each for each in told if each not in _PREFIXES]
        if odd:
            raise SafeUpdateError(
                f"{self._unit} has {odd[0]!r} for the minion, which this version does not know. "
                "Nothing was changed; remove that from the unit."
            )
        prefixes = "".join(_PREFIXES[each] for each in told)
        if os.path.basename(first) != os.path.basename(path):
            # The unit gives the program another name (@).
            return _Started(f"{prefixes}@", path, [first, *arguments])
        return _Started(prefixes, path, arguments)

    def _reload(self) -> None:
        self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)


def _can_be_made(path: str) -> bool:
    """Tell whether a file can be made there, as far as that can be known without doing it."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK)
