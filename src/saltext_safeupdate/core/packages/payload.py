"""Single files out of package files that are not installed, with the tools that are there."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable, Sequence

from ..errors import CommandError
from ..host.command import Run
from . import cpio

log = logging.getLogger(__name__)

_TIMEOUT = 300.0
# Each prints the files of a package, and has another program take out those with certain names.
_DEB = """\
file=$1 into=$2; shift 2
dpkg-deb --fsys-tarfile "$file" | tar --extract --file=- --directory="$into" --no-same-owner \
--wildcards "$@"
"""
_RPM = """\
file=$1 into=$2 python=$3 program=$4; shift 4
rpm2cpio "$file" | "$python" -I "$program" "$into" "$@"
"""


def unpack(files: Iterable[str], patterns: Sequence[str], directory: str, run: Run) -> None:
    """
    Write those files of the packages whose names match the patterns below *directory*.

    A package that cannot be read is logged, and nothing of it is written.
    """
    for path in files:
        deb = path.endswith(".deb")
        reader = () if deb else (sys.executable, os.path.abspath(cpio.__file__))
        script = _DEB if deb else _RPM
        argv = ("sh", "-c", script, "sh", os.path.abspath(path), directory, *reader, *patterns)
        try:
            # A pattern that nothing matches is an error for tar.
            told = run(argv, timeout=_TIMEOUT, ok=None)
        except CommandError as err:
            log.warning("%s cannot be looked into: %s", path, err)
            continue
        if told.returncode:
            log.debug("%s: %s", path, told.stderr.strip())
