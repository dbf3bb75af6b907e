"""
Copies of files that a new version of the minion may change, to be restored on a rollback.

A backup is a directory with the copies and a manifest, which says where each copy belongs.
The manifest is written last. A backup without one is incomplete, and nothing is restored from
it. Messages name files but never show their contents.

The update notes its own changes of these files when it has made them (:func:`mark`). Later
differences come from others: a job, or the administrator. A rollback keeps them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import IO

from ..errors import SafeUpdateError, VerificationError
from . import newer
from .file_state import CHUNK, Entry, attributes, digest, each_of, of_entry, open_file, read, walk
from .files import anchored, remove, sync_directory, sync_files, write_atomic

_MANIFEST = "manifest.json"
_COPIES = "files"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The contents of a finished backup. A path below *roots* without an entry did not exist."""

    directory: str
    roots: tuple[str, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True)
class Restored:
    """
    What :func:`restore` did: paths that it restored, and paths that it removed.

    ``newer`` are paths that somebody else has changed since and that were left as they are,
    ``aside`` the copies of such versions of paths that were restored or removed.
    """

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()


def size(paths: Iterable[str]) -> int:
    """Return about how many bytes a backup of *paths* takes."""
    return sum(seen.st_size for _, seen in each_of(_roots(paths), os.lstat))


def save(paths: Iterable[str], directory: str, *, anew: bool = False) -> Manifest:
    """
    Copy *paths*, and everything below them, into *directory*; return the manifest.

    The manifest also says which paths did not exist. Sockets and the like are left out.
    Idempotent: a finished backup is returned unchanged, unless *anew* is true. An incomplete one
    is made again.
    """
    if not anew and os.path.exists(os.path.join(directory, _MANIFEST)):
        return load(directory)
    try:
        remove(os.path.join(directory, _MANIFEST))
        shutil.rmtree(directory, ignore_errors=True)
        copies = os.path.join(directory, _COPIES)
        for each in (directory, copies):
            os.mkdir(each, 0o700)
        roots = _roots(paths)
        numbers = itertools.count()

        def copied(path: str) -> Entry:
            entry = read(path)
            if not stat.S_ISREG(entry.mode):
                return entry
            name = f"{next(numbers):06}"
            with open_file(path) as file:
                # Somebody may have put another file there since.
                seen = os.fstat(file.fileno())
                found = _copy(file, os.path.join(copies, name))
            return replace(
                entry,
                mode=seen.st_mode,
                uid=seen.st_uid,
                gid=seen.st_gid,
                changed_ns=seen.st_mtime_ns,
                content=name,
                digest=found,
            )

        entries = [replace(entry, path=path) for path, entry in each_of(roots, copied)]
        sync_files([os.path.join(copies, each.content) for each in entries if each.digest])
        sync_directory(copies)
        manifest = Manifest(directory=directory, roots=roots, entries=tuple(entries))
        write_atomic(os.path.join(directory, _MANIFEST), json.dumps(asdict(manifest), indent=1))
        sync_directory(os.path.dirname(directory))
    except OSError as err:
        raise SafeUpdateError(
            f"The backup in {directory} could not be made: {err}. Nothing was changed; "
            "check the free space and the permissions there."
        ) from err
    return manifest


def load(directory: str) -> Manifest:
    """Return the manifest of a finished backup, or raise VerificationError."""
    try:
        with open(os.path.join(directory, _MANIFEST), encoding="utf-8") as file:
            given = json.load(file)
        return Manifest(
            directory=directory,
            roots=tuple(given["roots"]),
            entries=tuple(Entry(**entry) for entry in given["entries"]),
        )
    except FileNotFoundError as err:
        raise VerificationError(
            f"The backup in {directory} is incomplete: it has no manifest. Nothing is restored "
            "from it; the files that it was made of have not been changed since."
        ) from err
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise VerificationError(
            f"The manifest of the backup in {directory} cannot be read ({type(err).__name__}). "
            "Nothing is restored from it; the copies are in that directory."
        ) from err


def mark(manifest: Manifest) -> None:
    """Note the present state as the result of the update. Raises SafeUpdateError."""
    newer.mark(manifest.directory, manifest.roots)


def restore(
    manifest: Manifest,
    *,
    present: Manifest | None = None,
    keep: Sequence[str] = (),
    grows: Sequence[str] = (),
    gone: Collection[str] = (),
    suffix: str = ".safeupdate-newer",
) -> Restored:
    """
    Restore everything below the roots; return the changes for that.

    All copies are verified before anything is changed. Idempotent: files that have not changed
    are not touched. *present* is a backup from the beginning of the rollback. With it, changes by
    somebody else since :func:`mark` are kept below *keep*, unless the update had changed the same
    file. Elsewhere such a version is put aside, under its name with *suffix*. Below *grows*, all
    new files stay. Files that others have removed (*gone*) are not restored.
    Raises VerificationError or SafeUpdateError.
    """
    _verify(manifest)
    wanted = {entry.path: (entry, manifest) for entry in manifest.entries}
    others, aside = _judged(manifest, present, keep)
    others |= dict.fromkeys(gone)
    for path, entry in others.items():
        wanted.pop(path, None)
        if entry is not None and present is not None:
            wanted[path] = (entry, present)
    wanted |= {
        f"{entry.path}{suffix}": (replace(entry, path=f"{entry.path}{suffix}"), present)
        for entry in aside
        if present is not None
    }
    written, removed = [], []
    path = manifest.directory
    try:
        # The contents of a directory come before the directory.
        unwanted = [path for path in walk(manifest.roots) if path not in wanted]
        for path in reversed(unwanted):
            if not newer.is_below(path, grows):
                with anchored(path) as place:
                    if _remove_alone(place):
                        removed.append(path)
        parts = []
        for path, (entry, source) in sorted(wanted.items()):
            _make_above(path)
            with anchored(path) as place:
                there = replace(entry, path=place)
                if _differs(there):
                    written.append(path)
                    if not stat.S_ISDIR(entry.mode):
                        parts.append(entry)
                    _write(there, os.path.join(source.directory, _COPIES, entry.content))
        sync_files([_part(each.path) for each in parts if stat.S_ISREG(each.mode)])
        for entry in parts:
            path = entry.path
            with anchored(path) as place:
                _put_in_place(replace(entry, path=place))
        for path in sorted({os.path.dirname(entry.path) for entry in parts}):
            sync_directory(path)
        # Putting a file into a directory changes the directory's times, so these come last.
        directories = (each for each in wanted if stat.S_ISDIR(wanted[each][0].mode))
        for path in sorted(directories, reverse=True):
            with anchored(path) as place:
                _settle(place, wanted[path][0])
    except OSError as err:
        raise SafeUpdateError(
            f"{path} could not be restored: {err.strerror or err}. The files before it in "
            f"the backup were restored; the copies stay in {manifest.directory}."
        ) from err
    return Restored(
        written=tuple(written),
        removed=tuple(removed),
        newer=tuple(sorted(others)),
        aside=tuple(f"{entry.path}{suffix}" for entry in aside),
    )


def _judged(
    manifest: Manifest, present: Manifest | None, keep: Sequence[str]
) -> tuple[dict[str, Entry | None], list[Entry]]:
    """Return the versions of somebody else that stay (None: it is gone), and the others."""
    left = newer.marked(manifest.directory)
    if present is None or left is None:
        return {}, []
    _verify(present)
    before = {entry.path: of_entry(entry) for entry in manifest.entries}
    now = {entry.path: of_entry(entry) for entry in present.entries}
    judge = newer.Judge(before=before, left=left, present=now, keep=keep)
    found = {entry.path: entry for entry in present.entries}
    others = {path: found.get(path) for path in {*before, *now} if judge.stays(path)}
    aside = [
        entry
        for path, entry in found.items()
        if not stat.S_ISDIR(entry.mode) and judge.is_newer(path)
    ]
    return others, aside


def _roots(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths, and the targets of links among them, without those below others."""
    wanted = {os.path.abspath(path) for path in paths}
    wanted |= {os.path.realpath(path) for path in wanted if os.path.islink(path)}
    return tuple(
        path
        for path in sorted(wanted)
        if not any(path.startswith(other + os.sep) for other in wanted)
    )


def _copy(old: IO[bytes], target: str) -> str:
    """Copy the content of a file, which is not synced; return its digest."""
    found = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with open(os.open(target, flags, 0o600), "wb") as new:
        while block := old.read(CHUNK):
            found.update(block)
            new.write(block)
    return found.hexdigest()


def _verify(manifest: Manifest) -> None:
    for entry in manifest.entries:
        if not stat.S_ISREG(entry.mode):
            continue
        copy = os.path.join(manifest.directory, _COPIES, entry.content)
        try:
            good = digest(copy) == entry.digest
        except OSError:
            good = False
        if not good:
            raise VerificationError(
                f"The copy of {entry.path} in {manifest.directory} is damaged or gone. Nothing "
                "was restored; restore by hand what is intact."
            )


def _differs(entry: Entry) -> bool:
    try:
        now = read(entry.path)
    except FileNotFoundError:
        return True
    if stat.S_ISDIR(entry.mode):
        return (now.mode, now.uid, now.gid, now.attributes) != (
            entry.mode,
            entry.uid,
            entry.gid,
            entry.attributes,
        )
    if stat.S_ISREG(entry.mode):
        if not stat.S_ISREG(now.mode):
            return True
        now = replace(now, content=entry.content, digest=digest(entry.path))
    return now != entry


def _make_above(path: str) -> None:
    """Make the directory of a path, and those above it that are not there."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        _make_above(directory)
        with anchored(directory) as place, contextlib.suppress(FileExistsError):
            os.mkdir(place)


def _write(entry: Entry, copy: str) -> None:
    """Make a directory again; or write a file, or a link, next to its place."""
    if stat.S_ISDIR(entry.mode):
        _make_room(entry)
        with contextlib.suppress(FileExistsError):
            os.mkdir(entry.path, 0o700)
        _settle(entry.path, entry)
        return
    part = _part(entry.path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)
    if stat.S_ISLNK(entry.mode):
        os.symlink(entry.content, part)
    else:
        with open(copy, "rb") as file:
            _copy(file, part)
    _settle(part, entry)


def _put_in_place(entry: Entry) -> None:
    """Put the written file into its place; its directory is not synced."""
    _make_room(entry)
    os.replace(_part(entry.path), entry.path)


def _make_room(entry: Entry) -> None:
    """Remove a path of another kind."""
    there = os.path.lexists(entry.path)
    if there and stat.S_IFMT(os.lstat(entry.path).st_mode) != entry.kind:
        _remove(entry.path)


def _part(path: str) -> str:
    return os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.safeupdate")


def _settle(path: str, entry: Entry) -> None:
    """Give *path* the owner, mode, attributes and time of the entry."""
    os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
    if not stat.S_ISLNK(entry.mode):
        # It may be a link of another user by now, which a change of the mode would follow.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.fchmod(fd, stat.S_IMODE(entry.mode))
        finally:
            os.close(fd)
    now = attributes(path)
    for name in now.keys() - entry.attributes.keys():
        os.removexattr(path, name, follow_symlinks=False)
    for name, value in entry.attributes.items():
        if now.get(name) != value:
            os.setxattr(path, name, bytes.fromhex(value), follow_symlinks=False)
    times = (entry.changed_ns, entry.changed_ns)
    os.utime(path, ns=times, follow_symlinks=False)


def _remove_alone(path: str) -> bool:
    """Remove a path; a directory stays while it is not empty. Return whether it is gone."""
    if os.path.isdir(path) and not os.path.islink(path):
        try:
            os.rmdir(path)
        except OSError as err:
            if err.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
    else:
        os.unlink(path)
    sync_directory(os.path.dirname(path))
    return True


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    sync_directory(os.path.dirname(path))
