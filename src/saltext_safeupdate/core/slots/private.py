"""Whether a directory is what root alone can write to: what lies there is run as root."""

from __future__ import annotations

import os
import stat

from ..errors import SafeUpdateError
from ..host import files
from ..host.room import Statvfs


def make(path: str) -> None:
    """
    Make a directory, and those above it that are not there, that all may read and we may write to.

    Jobs that run as another user start the interpreter that lies in it. Raises OSError.
    """
    files.make_each(path, _open_to_all)


def _open_to_all(path: str) -> None:
    """Let all users read a directory that was just made, whatever the umask is."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Somebody may have put another one in its place.
        if os.fstat(fd).st_uid == os.geteuid():
            os.fchmod(fd, 0o755)
    finally:
        os.close(fd)


def make_top(directory: str) -> None:
    """
    Make the directory of all slots if it is not there, and if nobody else can write to its place.

    Raise SafeUpdateError if somebody can, and OSError.
    """
    if not os.path.lexists(directory):
        check(directory)
    make(directory)


def let_all_read(tree: str) -> None:
    """
    Let all users read a tree of ours, and start its programs, whatever umask made it.

    Jobs of other users import what is in it. Raises OSError.
    """
    for place, names, found in os.walk(tree):
        for path in (os.path.join(place, name) for name in (*names, *found)):
            mode = os.lstat(path).st_mode
            wanted = mode | 0o444 | (0o111 if mode & stat.S_IXUSR else 0)
            if wanted != mode and not stat.S_ISLNK(mode):
                os.chmod(path, stat.S_IMODE(wanted))


def check(directory: str, statvfs: Statvfs = os.statvfs) -> None:
    """
    Raise SafeUpdateError unless nobody but root, or this user, can write to the directory.

    That is true of those above it as well: whoever can rename one of them puts another in its
    place. Nothing is started from a file system that is mounted ``noexec``. If the directory is not
    there, those above it decide. Raises OSError if one cannot be looked at.
    """
    path = there = os.path.abspath(directory)
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if statvfs(there).f_flag & os.ST_NOEXEC:
        raise _refused(directory, "its file system is mounted 'noexec'; choose another place")
    if not path.isprintable() or any(map(str.isspace, path)):
        raise _refused(directory, "its name has a blank, or what nobody sees; choose another one")
    if os.path.realpath(path) != path:
        raise _refused(directory, f"it is {os.path.realpath(path)} in truth; name that")
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
        f"Slots cannot be in {directory}: {why}. Nothing was changed, and what runs goes on."
    )
