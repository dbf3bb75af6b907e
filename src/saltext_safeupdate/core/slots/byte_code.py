"""
The byte code of a slot, written while it is made, so that a minion which starts from it does not
have to compile.

It covers the modules that minions start with. The many others are compiled at their first use.
The interpreter of the slot only prints it.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import logging
import os
import re

from ..errors import CommandError
from ..extensions import interpreter
from ..host.command import Run
from .layout import PROGRAM, is_below

log = logging.getLogger(__name__)

# Modules that minions load at their start, as seen with Salt 3008: a quarter of all byte code.
_PACKAGES = (
    *("salt", "tornado", "zmq", "msgpack", "yaml", "jinja2", "markupsafe", "requests", "urllib3"),
    *("idna", "charset_normalizer", "certifi", "cryptography", "OpenSSL", "psutil", "distro"),
    *("packaging", "dateutil", "jmespath", "git", "gitdb", "smmap", "truststore"),
    *("saltext", "saltext_safeupdate"),
)
_LEFT_OUT = r"/(tests?|salt/(states|cloud|pillar|runners|proxy|client|netapi))/"
_LINE = re.compile(r"([a-z]+-\d+) ([A-Za-z0-9+/]+=*) (/.+)\.py\n", re.ASCII)


def write(tree: str, look: Run) -> None:
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
    try:
        interpreter.compiled(python, look, _LEFT_OUT, paths, lambda line: _take(tree, line))
    except (CommandError, OSError, ValueError) as err:
        log.warning("a minion that starts from a new slot has to compile it: %s", err)


def _take(tree: str, line: str) -> None:
    """Write what a line has, next to the source in the tree that it names."""
    found = _LINE.fullmatch(line)
    if found is None or not os.path.isfile(f"{found[3]}.py"):
        return
    directory, name = os.path.split(found[3])
    # Somebody could change a link on the way before it is followed again. Only root writes here.
    if os.path.realpath(directory) != directory or not is_below(tree, f"{found[3]}.py"):
        return
    path = os.path.join(directory, "__pycache__", f"{name}.{found[1]}.pyc")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if is_below(tree, path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "xb") as file:
            file.write(base64.b64decode(found[2]))
