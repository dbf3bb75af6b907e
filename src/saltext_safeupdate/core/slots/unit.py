"""What has systemd start a minion from its active slot: a drop-in of its unit."""

from __future__ import annotations

import contextlib
import os
import re

from ..errors import CommandError, SafeUpdateError
from ..host import files
from ..host.command import Run
from ..host.files import remove, write_atomic
from ..host.systemd import quoted

_UNITS = "/etc/systemd/system"
_DROP_IN = "40-safeupdate-slot.conf"
_TIMEOUT = 30.0
# How systemctl shows a program: "{ path=... ; argv[]=... ; ignore_errors=no ; ...".
_SHOWN = re.compile(r"path=(\S+) ; argv\[\]=(.*?) ; ignore_errors=")
# It shows arguments without the quotes that they have.
_PLAIN = re.compile(r"[\w./:=@+,-]+", re.ASCII)
_TEXT = """\
# The minion runs from a slot that safeupdate has activated. Without this file it runs from the
# package, or from wherever its unit says.
[Service]
ExecStart=
ExecStart={command}
"""


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
        return self._started()[0]

    @property
    def follows(self) -> bool:
        """Whether systemd starts the program of the slot."""
        return self.program == self._program

    def follow(self) -> None:
        """Have systemd start the program of the slot, with the arguments that it has now."""
        _, arguments = self._started()
        odd = [each for each in arguments if not _PLAIN.fullmatch(each)]
        if odd:
            raise SafeUpdateError(
                f"{self._unit} starts the minion with {odd[0]!r}, which cannot be taken over into "
                "a drop-in. Nothing was changed; leave that argument out of the unit."
            )
        command = " ".join(map(quoted, (self._program, *arguments)))
        text = _TEXT.format(command=command)
        if files.text(self.drop_in) != text:
            os.makedirs(os.path.dirname(self.drop_in), mode=0o755, exist_ok=True)
            write_atomic(self.drop_in, text, mode=0o644)
        if not self.follows:
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
        if remove_it or self.follows:
            self._reload()

    def _started(self) -> tuple[str, list[str]]:
        argv = ("systemctl", "show", "--property=ExecStart", "--", self._unit)
        shown = _SHOWN.findall(self._run(argv, timeout=_TIMEOUT).stdout)
        if len(shown) != 1:
            raise SafeUpdateError(
                f"{self._unit} does not start one program. Nothing was changed; give the minion a "
                "unit that does."
            )
        ((path, words),) = shown
        return path, words.split()[1:]

    def _reload(self) -> None:
        self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)
