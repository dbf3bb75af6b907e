"""Write and remove files so that a crash leaves no half of one."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator

# Files up to which each is synced by itself: that waits for nothing that others have written.
_MOST_ALONE = 100
# Links on the way to a file, as in the kernel.
_MOST_LINKS = 40


def write_atomic(path: str, content: str | bytes, *, mode: int = 0o600) -> None:
    """Write *content* to the disk. A crash leaves either the old file or the new one."""
    directory = os.path.dirname(path)
    fd, temporary = tempfile.mkstemp(dir=directory, prefix=f".{os.path.basename(path)}.")
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    sync_directory(directory)


def make_private(path: str) -> None:
    """Make a directory, and those above it that are not there, for nobody else to look into."""
    make_each(path, give_to_owner)


def make_each(path: str, made: Callable[[str], object]) -> None:
    """
    Make a directory, and those above it that are not there, the upper ones first.

    *made* is called with each that was not there, which nobody else can look into yet. Raises
    OSError.
    """
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(each, 0o700)
            made(each)


def close_to_others(path: str) -> None:
    """
    Have nobody else write into a directory of ours that has nothing yet which is to be trusted.

    One of another user is left alone. Raises OSError.
    """
    found = os.stat(path)
    if found.st_uid == os.geteuid() and found.st_mode & 0o022:
        os.chmod(path, stat.S_IMODE(found.st_mode) & ~0o022)


def open_private(path: str) -> int:
    """
    Open a file for reading and writing; make it, for nobody else to look into, if need be.

    It is no link: the directory may be another user's, and to open a device may have effects.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, flags)
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        # Somebody else has made it meanwhile.
        return os.open(path, flags)
    give_to_owner(path)
    return fd


def open_regular(path: str) -> int | None:
    """
    Open a regular file for reading; None: it is something else, which is not opened.

    Opening a device may have effects, and a pipe has its reader wait. Raises OSError.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        return None
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    # It was replaced meanwhile.
    os.close(fd)
    return None


def who_else_writes(path: str) -> str:
    """
    Tell who else could have written a private file: empty if nobody could.

    Root uses what belongs to the owner of the directory, as :func:`give_to_owner` makes it. A file
    that others may only read is closed to them. Raises OSError.
    """
    directory = os.path.dirname(path)
    file, place = os.stat(path), os.stat(directory)
    for found, name in ((file, path), (place, directory)):
        if found.st_mode & 0o022:
            mode = stat.S_IMODE(found.st_mode)
            group = "" if mode & 0o002 else f" by their group (GID {found.st_gid})"
            return f"others may write {name}{group} (mode {mode:04o})"
    me = os.geteuid()
    for found, name, ours in (
        (file, path, (me, place.st_uid) if me == 0 else (me,)),
        (place, directory, (place.st_uid,) if me == 0 else (me, 0)),
    ):
        if found.st_uid not in ours:
            return f"{name} belongs to another user (UID {found.st_uid})"
    if file.st_mode & 0o055:
        # Where the file system does not let us, it is as it was.
        with contextlib.suppress(OSError):
            os.chmod(path, 0o600)
    return ""


def others_on_the_way(path: str, me: int | None = None) -> str:
    """
    Tell who else could replace what is at an absolute path; empty if only root and this user could.

    *me* is the UID of another user instead of this one. A link on the way counts as well: whoever
    may write where it leads could. Raises OSError.
    """
    below, me = "", os.geteuid() if me is None else me
    while path != below:
        seen = os.lstat(path)
        if stat.S_ISLNK(seen.st_mode):
            return f"{path} is a link; name the place where it leads"
        if seen.st_uid not in (0, me):
            return f"{path} belongs to another user (UID {seen.st_uid})"
        # In such a directory, nobody renames what belongs to others.
        shared = below and seen.st_mode & stat.S_ISVTX
        if seen.st_mode & 0o022 and not shared:
            return f"others can write to {path} (mode {stat.S_IMODE(seen.st_mode):04o})"
        below, path = path, os.path.dirname(path)
    return ""


@contextlib.contextmanager
def anchored(path: str) -> Iterator[str]:
    """
    Yield another path of the same file, which stays true if its directory is replaced meanwhile.

    So root can work in a directory of another user, who cannot lead it elsewhere: on the way, only
    links of root and of this user are followed. The file itself may be a link. Raises OSError.
    """
    directory, name = os.path.split(path)
    fd = _reached(directory)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def _reached(directory: str) -> int:
    """Open a directory, step by step."""
    rest, links = directory.split("/")[::-1], 0
    fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        while rest:
            name = rest.pop()
            if not name:
                continue
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            seen = os.fstat(below)
            if not stat.S_ISLNK(seen.st_mode):
                os.close(fd)
                fd = below
                continue
            target = os.readlink("", dir_fd=below)
            os.close(below)
            links += 1
            if seen.st_uid not in (0, os.geteuid()) or links > _MOST_LINKS:
                raise OSError(errno.ELOOP, f"{name} is a link of another user", directory)
            rest += target.split("/")[::-1]
            if target.startswith("/"):
                os.close(fd)
                fd = os.open("/", os.O_PATH | os.O_CLOEXEC)
    except BaseException:
        os.close(fd)
        raise
    return fd


def give_to_owner(path: str) -> None:
    """
    Have what root has made belong to the owner of the directory that it is in.

    A daemon that does not run as root has its own directory, and could not use it otherwise.
    """
    if os.geteuid() != 0:
        return
    owner = os.stat(os.path.dirname(path))
    if owner.st_uid == 0:
        return
    # A file that is gone, or that the file system does not let root give away, stays as it is.
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            made = os.fstat(fd)
            # The owner of the directory may have put a link to another file of root there.
            if made.st_uid == 0 and (stat.S_ISDIR(made.st_mode) or made.st_nlink == 1):
                os.fchown(fd, owner.st_uid, owner.st_gid)
        finally:
            os.close(fd)


def text(path: str) -> str:
    """
    Return what a file says, whatever its bytes are; empty if it cannot be read.

    Another user may have put a pipe there, and nobody waits for what comes out of it.
    """
    try:
        fd = open_regular(path)
        if fd is None:
            return ""
        with open(fd, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def remove(path: str) -> bool:
    """Remove a file; tell whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    sync_directory(os.path.dirname(path))
    return True


def remove_directory(path: str) -> bool:
    """Remove a directory if it only has compiled Python in it; tell whether it is gone now."""
    try:
        if os.listdir(path) == ["__pycache__"]:
            shutil.rmtree(os.path.join(path, "__pycache__"))
        os.rmdir(path)
    except OSError:
        # It is missing, or not a directory, or others have something in it.
        return False
    return True


def sync_files(paths: Collection[str]) -> None:
    """
    Have files on the disk that were written; many of them by one call for their file system.

    With ten thousand of them, such as the keys of a master, a call for each takes minutes. Raises
    OSError.
    """
    if len(paths) <= _MOST_ALONE:
        for path in paths:
            _with(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, os.fsync)
        return
    libc = ctypes.CDLL(None, use_errno=True)

    def sync(fd: int) -> None:
        device = os.fstat(fd).st_dev
        if device not in synced and libc.syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        synced.add(device)

    synced: set[int] = set()
    for directory in sorted({os.path.dirname(path) for path in paths}):
        _with(directory, os.O_RDONLY | os.O_DIRECTORY, sync)


def sync_directory(path: str) -> None:
    _with(path, os.O_RDONLY | os.O_DIRECTORY, os.fsync)


def _with(path: str, flags: int, use: Callable[[int], object]) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        use(fd)
    finally:
        os.close(fd)
