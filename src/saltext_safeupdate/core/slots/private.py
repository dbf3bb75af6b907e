"""Whether only root can write to a directory: the code in it runs as root."""

from __future__ import annotations

import os
import stat

from ..errors import SafeUpdateError
from ..host import files
from ..host.room import Statvfs


def make(path: str) -> None:
    """
    Make a directory, and missing ones above it, readable for all and writable for this user.

    Jobs that run as another user start the interpreter in it. Raise OSError.
    """
    files.make_each(path, _open_to_all)


def _open_to_all(path: str) -> None:
    """Let all users read a directory that was just made, whatever the umask is."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Somebody may have put another directory in its place.
        if os.fstat(fd).st_uid == os.geteuid():
            os.fchmod(fd, 0o755)
    finally:
        os.close(fd)


def make_top(directory: str) -> None:
    """
    Make the directory of all slots if it is missing and nobody else can write to its parent.

    Raise SafeUpdateError if somebody can, and OSError.
    """
    if not os.path.lexists(directory):
        check(directory)
    make(directory)


def let_all_read(tree: str) -> None:
    """
    Let all users read a tree of ours and start its programs, whatever the umask was.

    Jobs of other users import from it. Raise OSError.
    """
    for place, names, found in os.walk(tree):
        for path in (os.path.join(place, name) for name in (*names, *found)):
            mode = os.lstat(path).st_mode
            wanted = mode | 0o444 | (0o111 if mode & stat.S_IXUSR else 0)
            if wanted != mode and not stat.S_ISLNK(mode):
                os.chmod(path, stat.S_IMODE(wanted))


def check(directory: str, statvfs: Statvfs = os.statvfs) -> None:
    """
    Raise SafeUpdateError unless only root, or this user, can write to the directory.

    The same must be true of the directories above it: anybody who can rename one of them can
    replace it. No program starts from a file system that is mounted ``noexec``. If the directory
    does not exist, the ones above it decide. Raise OSError if one cannot be read.
    """
    path = there = os.path.abspath(directory)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if statvfs(there).f_flag & os.ST_NOEXEC:
        raise _refused(directory, "its file system is mounted 'noexec'; choose another place")
    if not path.isprintable() or any(map(str.isspace, path)):
        raise _refused(directory, "its name has a blank or an invisible character; choose another")
    if os.path.realpath(path) != path:
        raise _refused(directory, f"its real path is {os.path.realpath(path)}; use that")
    if there == path:
        seen = os.lstat(path)
        if seen.st_uid != os.geteuid() or stat.S_IMODE(seen.st_mode) & 0o022:
            raise _refused(
                directory, f"others can write to it; 'chown root {path} && chmod 755 {path}'"
            )
        there = os.path.dirname(path)
    above = [there]
    while above[-1] != "/":
        above.append(os.path.dirname(above[-1]))
    for path in above:
        seen = os.lstat(path)
        others_write = seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if seen.st_uid not in (0, os.geteuid()) or (
            others_write and not seen.st_mode & stat.S_ISVTX
        ):
            raise _refused(directory, f"others can write to {path}; choose another place")


def _refused(directory: str, why: str) -> SafeUpdateError:
    return SafeUpdateError(
        f"Slots cannot be in {directory}: {why}. Nothing was changed, and the minion runs as "
        "before."
    )
