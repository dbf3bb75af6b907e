"""
The byte code of a slot, written while it is made, so that a minion which starts from it does not
have to compile.

It covers the modules that minions start with. The many others are compiled at their first use.
Nothing of the slot is run for that.
"""

from __future__ import annotations

import glob
import logging
import os

from ..errors import CommandError
from ..extensions import interpreter
from ..host.command import Run
from .layout import PROGRAM

log = logging.getLogger(__name__)

_TIMEOUT = 600.0
# Modules that minions load at their start, as seen with Salt 3008: a quarter of all byte code.
_PACKAGES = (
    *("salt", "tornado", "zmq", "msgpack", "yaml", "jinja2", "markupsafe", "requests", "urllib3"),
    *("idna", "charset_normalizer", "certifi", "cryptography", "OpenSSL", "psutil", "distro"),
    *("packaging", "dateutil", "jmespath", "git", "gitdb", "smmap", "truststore"),
)
_LEFT_OUT = r"/(tests?|salt/(states|cloud|pillar|runners|proxy|client|netapi))/"


def write(tree: str, run: Run) -> None:
    """Write it. A slot without it also works, but starts later: that is logged."""
    python = interpreter.named_by(os.path.join(tree, PROGRAM))
    if python is None:
        return
    library = os.path.join(tree, "lib")
    places = [library, *glob.glob(os.path.join(glob.escape(library), "python3*", "site-packages"))]
    found = [os.path.join(place, name) for place in places for name in _PACKAGES]
    paths = [path for path in found if os.path.isdir(path)]
    if not paths:
        return
    argv = (python, "-I", "-m", "compileall", "-q", "-x", _LEFT_OUT, *paths)
    try:
        # Files for other versions of Python cannot be compiled, and are not needed.
        run(argv, timeout=_TIMEOUT, ok=None)
    except CommandError as err:
        log.warning("a minion that starts from a new slot has to compile it: %s", err)
