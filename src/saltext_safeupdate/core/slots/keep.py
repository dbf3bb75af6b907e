"""
Put the keeper in place of the program that the minion is started with, or remove it again.

``python3 -m saltext_safeupdate.core.slots.keep /opt/venv/bin/salt-minion``

On a host without systemd, the minion is started by a path: the entry point of a container, a
supervisor, a script. The keeper is put at that path, and the original program next to it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from collections.abc import Sequence

from ..errors import InputError, SafeUpdateError
from ..extensions import interpreter
from ..host import files
from ..host.files import sync_directory
from ..host.keeper import PLACE
from ..settings import Settings
from . import private
from .installer import program as program_of

_BESIDE = ".{}.without-slot"
_SECOND = "# Written by safeupdate: the keeper of the minion. The original is {}."
_LONGEST = 120
_PLAIN = re.compile(r"/[\w./+@-]+", re.ASCII)
_CONSTANTS = ("DIRECTORY", "ACTIVE", "BEFORE")


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    given = _parser().parse_args(argv)
    program = os.path.abspath(given.program)
    try:
        if given.leave:
            leave(program)
            print(f"{program} is what it was before the keeper. Start the minion again.")
        else:
            put(program, unit=given.unit, slots_dir=given.slots_dir)
            print(f"The keeper is {program}. Start the minion again in the usual way.")
    except (SafeUpdateError, OSError) as err:
        print(f"{err}", file=sys.stderr)
        return 1
    return 0


def put(
    program: str,
    *,
    unit: str = Settings.service,
    slots_dir: str = Settings.slots_dir,
    place: str = PLACE,
) -> None:
    """
    Put the keeper in place of *program*, at once. Idempotent.

    The original is kept next to it. Raise InputError if it is not a Salt minion, and OSError.
    """
    before = _before(program)
    if not is_keeper(program):
        python = interpreter.named_by(program)
        if python is None or os.path.basename(program) != "salt-minion":
            raise InputError(
                f"{program} is not a program salt-minion that a Python interpreter runs. Nothing "
                "was changed; name the program that the minion is started with."
            )
        private.check(os.path.dirname(os.path.realpath(os.path.dirname(program))))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(before)
        os.link(program, before, follow_symlinks=False)
        sync_directory(os.path.dirname(program))
    python = interpreter.named_by(before)
    if python is None or len(python) > _LONGEST or not _PLAIN.fullmatch(python):
        raise InputError(
            f"{before} names no interpreter that the keeper could use. Nothing was changed; "
            "install the minion in a directory with a shorter path."
        )
    values = (os.path.join(place, unit), program_of(slots_dir, unit), before)
    files.write_atomic(program, _text(python, before, values), mode=0o755)


def leave(program: str) -> None:
    """Put back the original program at once. Raise InputError if *program* is not a keeper."""
    if not is_keeper(program):
        raise InputError(f"{program} is not a keeper. Nothing was changed.")
    os.replace(_before(program), program)
    sync_directory(os.path.dirname(program))


def is_keeper(program: str) -> bool:
    """Tell whether the keeper is in that place, and the original next to it."""
    said = files.text(program).splitlines()[1:2]
    return said == [_SECOND.format(_before(program))] and os.path.lexists(_before(program))


def _before(program: str) -> str:
    directory, name = os.path.split(program)
    return os.path.join(directory, _BESIDE.format(name))


def _text(python: str, before: str, values: Sequence[str]) -> str:
    source = os.path.join(os.path.dirname(__file__), "programs", "keeper.py")
    with open(source, encoding="utf-8") as file:
        text = file.read()
    for name, value in zip(_CONSTANTS, values, strict=True):
        text = text.replace(f'\n{name} = ""\n', f"\n{name} = {value!r}\n", 1)
    return f"#!{python} -IS\n{_SECOND.format(before)}\n{text}"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m saltext_safeupdate.core.slots.keep",
        description="Let a keeper, which follows slots, start a minion without systemd.",
    )
    parser.add_argument("program", metavar="PROGRAM", help="the program that starts the minion")
    parser.add_argument("--unit", default=Settings.service, help="the name of the minion")
    parser.add_argument("--slots-dir", default=Settings.slots_dir, help="as in its configuration")
    parser.add_argument("--leave", action="store_true", help="remove the keeper again")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
