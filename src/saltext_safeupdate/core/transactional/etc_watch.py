"""
Edits of the live /etc while a transaction runs.

If a transaction changed only /etc, the tool drops it and copies its /etc over the live one, with
deletion: edits that somebody else made there meanwhile are undone. This module watches for such
edits, keeps a copy of them, puts an edit back if the transaction itself did not change the file,
and names the others.
"""

from __future__ import annotations

import logging
import os
import re
import stat
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

log = logging.getLogger(__name__)

# Bytes of an edited file up to which a copy is kept.
COPY_LIMIT = 1024 * 1024
# Files of which a copy is kept, at most.
COPY_COUNT = 100
# rsync writes into such a file first.
_TEMPORARY = re.compile(r"/\.[^/]+\.[A-Za-z0-9]{6}$")


@dataclass(frozen=True)
class Entry:
    """Values that show whether a file is still the same."""

    mode: int
    owner: tuple[int, int]
    size: int
    mtime: int
    changed: int

    @property
    def kept(self) -> tuple[object, ...]:
        """Return what a copy of the file has in common with it: all but the change time."""
        return self.mode, self.owner, self.size, self.mtime


def manifest(root: Path, unread: set[str]) -> dict[str, Entry]:
    """
    Look at every file below *root*; directories count by their names only.

    Files that exist but cannot be read are added to *unread*.
    """
    found: dict[str, Entry] = {}
    todo = [str(root)]
    while todo:
        directory = todo.pop()
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    _look_at(entry, found, todo, unread)
        except (FileNotFoundError, NotADirectoryError):
            continue  # it went away while it was looked at
        except OSError as err:
            log.warning("%s cannot be watched for edits: %s", directory, err)
            unread.add(directory)
    return found


def _look_at(
    entry: os.DirEntry[str], found: dict[str, Entry], todo: list[str], unread: set[str]
) -> None:
    try:
        info = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return  # the others in its directory are still there
    except OSError as err:
        log.warning("%s cannot be watched for edits: %s", entry.path, err)
        unread.add(entry.path)
        return
    if stat.S_ISDIR(info.st_mode):
        todo.append(entry.path)
        return
    found[entry.path] = Entry(
        mode=info.st_mode,
        owner=(info.st_uid, info.st_gid),
        size=info.st_size,
        mtime=info.st_mtime_ns,
        changed=info.st_ctime_ns,
    )


def attributes(path: str) -> dict[str, bytes]:
    """Return the extended attributes of a file; none if it is gone or cannot have any."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
        return {name: os.getxattr(path, name, follow_symlinks=False) for name in names}
    except OSError:
        return {}


def lost_edits(
    before: Mapping[str, Entry], seen: Mapping[str, Entry | None], after: Mapping[str, Entry]
) -> dict[str, str]:
    """
    Return ``{path: what was lost}``.

    *seen* holds what was found different from *before* while the transaction ran
    (``None``: the file was gone).
    """
    lost: dict[str, str] = {}
    for path, edit in seen.items():
        now, then = after.get(path), before.get(path)
        if edit == now or (edit and now and edit.kept == now.kept):
            continue
        if edit is None:
            lost[path] = "was deleted meanwhile, and is there again"
        elif then is None:
            gone = "is gone" if now is None else "was replaced"
            lost[path] = f"was created meanwhile, and {gone}"
        elif now is not None and now.kept == then.kept:
            lost[path] = "was edited meanwhile, and is as it was before"
        else:
            lost[path] = "was edited meanwhile, and was replaced"
    for path in before.keys() - seen.keys():
        then, now = before[path], after.get(path)
        # The tool writes into the same file, so its inode says nothing.
        if now and now.changed != then.changed and now.kept == then.kept:
            lost[path] = "was edited or deleted meanwhile, and is as it was before"
    return lost


@dataclass
class EtcWatch:
    """
    Looks at the live /etc before, during and after a transaction.

    An edit is put back only if two looks have seen it alike: it may have been half done. A file
    that was deleted is only named: to delete it again would be worse than to leave it. A file that
    could not be read once is not judged.
    """

    root: Path
    copies: Path
    before: dict[str, Entry] = field(default_factory=dict)
    seen: dict[str, Entry | None] = field(default_factory=dict)
    put_back: list[str] = field(default_factory=list)
    _attributes: dict[str, dict[str, bytes]] = field(default_factory=dict)
    _edited: dict[str, dict[str, bytes]] = field(default_factory=dict)
    _steady: set[str] = field(default_factory=set)
    _unread: set[str] = field(default_factory=set)

    def start(self) -> None:
        """Take the state that later ones are compared with."""
        self.before = manifest(self.root, self._unread)
        self._attributes = {path: attributes(path) for path in self.before}

    def look(self, valid: Callable[[], bool] = lambda: True) -> None:
        """
        Note what differs by now, and keep a copy of it.

        *valid* is asked when all has been looked at; if it says no, nothing is noted: then what
        differs may be the tool's own work.
        """
        now = manifest(self.root, self._unread)
        changed = [
            path
            for path in now.keys() | self.before.keys() | self.seen.keys()
            if now.get(path) != self.seen.get(path, self.before.get(path))
            and not _TEMPORARY.search(path)
            and not self._is_unread(path)
        ]
        self._steady = {path for path in self.seen if path not in changed}
        if not changed or not valid():
            return
        for path in changed:
            entry = self.seen[path] = now.get(path)
            if entry is not None:
                try:
                    self._copy(path, entry)
                except OSError as err:
                    log.warning("no copy of the edited %s could be kept: %s", path, err)

    def changed(self) -> bool:
        """Tell whether it differs from how it was at the start."""
        now = manifest(self.root, self._unread)
        return any(
            now.get(path) != self.before.get(path)
            for path in now.keys() | self.before.keys()
            if not self._is_unread(path)
        )

    def finish(self, *, merged: bool) -> dict[str, str]:
        """
        Return the edits that the tool undid; *merged* says that it wrote to /etc at all.

        Those that can be put back are, and are not lost. The copies of what was not lost are
        removed.
        """
        after = manifest(self.root, self._unread) if merged else {}
        lost = lost_edits(self.before, self.seen, after) if merged else {}
        lost = {path: what for path, what in lost.items() if not self._is_unread(path)}
        for path in [path for path in lost if path not in self.seen]:
            if attributes(path) != self._attributes.get(path):
                del lost[path]  # the transaction changed them, and so the change time
        self.put_back = [path for path in lost if self._put_back(path, after.get(path))]
        for path in self.put_back:
            del lost[path]
        for path in self.seen:
            if path not in lost and not self._is_unread(path):
                self.copy_of(path).unlink(missing_ok=True)
        if self.copies.is_dir() and not any(self.copies.iterdir()):
            self.copies.rmdir()
        return lost

    def copy_of(self, path: str) -> Path:
        """Return the path that a copy of *path* has."""
        return self.copies / path.lstrip("/").replace("/", "%")

    def _is_unread(self, path: str) -> bool:
        return any(path == each or path.startswith(f"{each}/") for each in self._unread)

    def _put_back(self, path: str, now: Entry | None) -> bool:
        """Put an edit back if the transaction left the file alone; tell whether it is there."""
        edit, then = self.seen.get(path), self.before.get(path)
        untouched = (now and now.kept) == (then and then.kept)
        if edit is None or path not in self._steady or not untouched:
            return False
        try:
            _replace(path, self.copy_of(path), edit, self._edited.get(path, {}))
        except OSError as err:
            log.warning("the edit of %s cannot be put back: %s", path, err)
            return False
        return True

    def _copy(self, path: str, entry: Entry) -> None:
        self._edited[path] = attributes(path)
        if not stat.S_ISREG(entry.mode) or entry.size > COPY_LIMIT:
            return
        if len(self.seen) > COPY_COUNT:
            return
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # gone again
        with open(fd, "rb") as source:
            content = source.read(COPY_LIMIT)
        self.copies.mkdir(mode=0o700, parents=True, exist_ok=True)
        target = os.open(
            self.copy_of(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600
        )
        with open(target, "wb") as sink:
            sink.write(content)


def _replace(path: str, copy: Path, entry: Entry, xattrs: Mapping[str, bytes]) -> None:
    """Put the copy of a regular file in place of *path*, with what belongs to the file."""
    content = copy.read_bytes()
    fd, new = tempfile.mkstemp(prefix=".safeupdate-", dir=os.path.dirname(path))
    try:
        with open(fd, "wb") as sink:
            sink.write(content)
            sink.flush()
            os.fchown(fd, *entry.owner)
            os.fchmod(fd, stat.S_IMODE(entry.mode))
            for name, value in xattrs.items():
                os.setxattr(fd, name, value)
            os.utime(fd, ns=(entry.mtime, entry.mtime))
            os.fsync(fd)
        os.replace(new, path)
    except OSError:
        os.unlink(new)
        raise
