"""
Inside a transaction: install package files, and the extensions with them.

Every module is imported before anything changes: the packages may contain the Python that
runs this.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import SafeUpdateError
from ..extensions import interpreter
from ..extensions.carry import carry_extensions
from ..host import command
from ..packages.rpm import UPGRADE

_TIMEOUT = 3000.0


def main(argv: Sequence[str], run: command.Run = command.run) -> int:
    """Return the exit status. If it is not 0, the snapshot is discarded."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="")
    parser.add_argument("--extensions", default="")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("files", nargs="+")
    given = parser.parse_args(argv)
    try:
        run((*UPGRADE, *given.files), timeout=_TIMEOUT)
        if given.extensions:
            _carry(given.program, given.extensions, run, strict=given.strict)
    except (OSError, SafeUpdateError) as err:
        print(err, file=sys.stderr)
        return 1
    return 0


def _carry(program: str, directory: str, run: command.Run, *, strict: bool) -> None:
    """Put it into the interpreter that the installed *program* names."""
    python = interpreter.named_by(program)
    if python is None:
        return
    try:
        carry_extensions(python, run, directory)
    except (OSError, SafeUpdateError) as err:
        if strict:
            raise
        print(err, file=sys.stderr)
