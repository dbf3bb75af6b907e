"""Files of rpm packages on the disk: which were altered, and which a killed rpm left behind."""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Iterator, Sequence

from ..host.command import Run
from .files import digest
from .request import File

log = logging.getLogger(__name__)

_QUERY_TIMEOUT = 60.0
# How rpm names a file until all files of its package are there.
_STRAY = re.compile(r";[0-9a-f]{8}$")
# What rpm knows of each file of a package: lines for :func:`line_tells_altered`.
_FILES = r"[%{FILESTATES}\t%{FILEFLAGS}\t%{=FILEDIGESTALGO}\t%{FILEDIGESTS}\t%{FILENAMES}\n]"
_TABS = 4
_NORMAL = "0"
# Configuration, and files that a package owns but does not contain.
_MAY_DIFFER = 1 | 64
# RPM's numbers. If it names none, it means the oldest.
_DIGESTS = {"(none)": "md5", "1": "md5", "2": "sha1", "8": "sha256", "9": "sha384", "10": "sha512"}


def is_altered(name: str, run: Run) -> bool:
    """
    Tell whether files of a package are not as packaged; its configuration may differ.

    This does not use ``rpm --verify``, which looks up each missing file in its whole database.
    For the many files of another version of Salt, that takes minutes.
    """
    argv = ("rpm", "-q", "--qf", _FILES, "--", name)
    return bool(run(argv, timeout=_QUERY_TIMEOUT, keep=line_tells_altered).stdout)


def line_tells_altered(line: str) -> bool:
    """
    Tell whether the file of this line of :data:`_FILES` is missing, or has other contents.

    Byte code does not count: scriptlets of Salt's packages compile it again. Nor do files that
    were never installed, and files that the administrator has replaced by a link.
    """
    if line.count("\t") < _TABS:
        return False
    state, flags, algorithm, wanted, path = line.rstrip("\n").split("\t", _TABS)
    if state != _NORMAL or int(flags) & _MAY_DIFFER or path.endswith(".pyc"):
        return False
    return _differs(path, _DIGESTS.get(algorithm, ""), wanted)


def _differs(path: str, algorithm: str, wanted: str) -> bool:
    try:
        regular = stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return True
    return bool(wanted and algorithm and regular) and digest(path, algorithm) != wanted


def remove_strays(files: Sequence[File], run: Run) -> None:
    """
    Remove the temporary files that a killed rpm has not renamed.

    Within the same second, the next rpm would choose the same names for its own, and fail.
    """
    installed = _list(run, "--", *(file.package for file in files))
    offered = _list(run, "--nosignature", "--package", "--", *(file.path for file in files))
    strays = sorted(_strays(installed | offered))
    for path in strays:
        os.unlink(path)
    if strays:
        log.info("removed %d files that rpm has left behind", len(strays))


def _list(run: Run, *words: str) -> set[str]:
    """
    Return the paths of packages, but no file below a directory that is among them.

    Packages that are not installed have none.
    """
    folders = set()

    def keep(line: str) -> bool:
        path = line.rstrip("\n")
        if _folder(path):
            folders.add(path)
            return True
        return path.startswith("/") and os.path.dirname(path) not in folders

    argv = ("rpm", "-q", "--list", *words)
    return set(run(argv, timeout=_QUERY_TIMEOUT, ok=None, keep=keep).stdout.splitlines())


def _strays(paths: set[str]) -> Iterator[str]:
    """Find temporary files of rpm among the *paths* of packages."""
    folders = set(filter(_folder, paths))
    for folder in folders:
        if os.path.dirname(folder) not in folders:
            # Search below it, because only the version that was cut off may have a directory there.
            for path, below, names in os.walk(folder):
                links = (name for name in below if os.path.islink(os.path.join(path, name)))
                found = (name for name in (*links, *names) if _STRAY.search(name))
                yield from (os.path.join(path, name) for name in found)
    for folder in {os.path.dirname(path) for path in paths} - folders:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            if _STRAY.search(name) and _STRAY.sub("", path) in paths:
                yield path


def _folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
