"""
The byte code of a slot, written while it is made: a minion that starts from it has not to compile.

That of the modules that minions start with is: the others are many, and are compiled when they are
first used. Nothing of the slot is run for that.
"""

from __future__ import annotations

import logging
import os

from ..errors import CommandError
from ..extensions import interpreter
from ..host.command import Run
from .layout import PROGRAM

log = logging.getLogger(__name__)

_TIMEOUT = 600.0
# Half of all byte code, of which a minion needs a few at its start.
_LEFT_OUT = r"/(tests?|salt/(modules|states|cloud|pillar|runners|renderers|proxy))/"


def write(tree: str, run: Run) -> None:
    """Write it. A slot without it works, too, and starts later: that is logged."""
    python = interpreter.named_by(os.path.join(tree, PROGRAM))
    if python is None:
        return
    argv = (python, "-I", "-m", "compileall", "-q", "-x", _LEFT_OUT, os.path.join(tree, "lib"))
    try:
        # What is for other versions of Python cannot be compiled, and is not needed.
        run(argv, timeout=_TIMEOUT, ok=None)
    except CommandError as err:
        log.warning("a minion that starts from a new slot has to compile it: %s", err)
