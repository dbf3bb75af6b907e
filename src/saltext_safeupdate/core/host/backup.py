"""
Copies of files that a new version of the minion may change, to be restored on a rollback.

A backup is a directory with the copies and a manifest, which says where each copy belongs.
The manifest is written last. A backup without one is incomplete, and nothing is restored from
it. Messages name files but never show their contents.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from ..errors import SafeUpdateError, VerificationError
from .files import sync_directory, write_atomic

_MANIFEST = "manifest.json"
_COPIES = "files"
_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Entry:
    """
    One file, directory or link, as it was.

    ``content`` is the name of the copy of a file, or the target of a link; ``digest`` the
    SHA-256 of a file; ``attributes`` are the extended ones, with access lists and labels.
    """

    path: str
    mode: int
    uid: int
    gid: int
    changed_ns: int
    content: str = ""
    digest: str = ""
    attributes: dict[str, str]

    @property
    def kind(self) -> int:
        return stat.S_IFMT(self.mode)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a finished backup contains. A path below *roots* without an entry did not exist."""

    directory: str
    roots: tuple[str, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What :func:`restore` changed: paths that it restored, and paths that it removed."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def minion_paths(
    *, config_file: str, pki_dir: str, cache_dir: str, include: str = "minion.d"
) -> list[str]:
    """
    Return what is backed up of a minion: configuration with the saved schedule and beacons,
    ID, static grains, keys, cached grains. Files of a master on the same host are left alone.
    """
    config_dir = os.path.dirname(config_file)
    return [
        config_file,
        os.path.join(config_dir, include),
        os.path.join(config_dir, "minion_id"),
        os.path.join(config_dir, "grains"),
        pki_dir,
        os.path.join(cache_dir, "grains.cache.p"),
    ]


def size(paths: Iterable[str]) -> int:
    """Return about how many bytes a backup of *paths* takes."""
    return sum(os.lstat(path).st_size for path in _walk(_roots(paths)))


def save(paths: Iterable[str], directory: str) -> Manifest:
    """
    Copy *paths*, and everything below them, into *directory*; return the manifest.

    The manifest also says which paths did not exist. Sockets and the like are left out.
    Idempotent: a finished backup is returned as it is, an incomplete one is made again.
    """
    if os.path.exists(os.path.join(directory, _MANIFEST)):
        return load(directory)
    try:
        shutil.rmtree(directory, ignore_errors=True)
        copies = os.path.join(directory, _COPIES)
        for each in (directory, copies):
            os.mkdir(each, 0o700)
        roots = _roots(paths)
        entries = []
        for number, path in enumerate(_walk(roots)):
            entry = _entry(path)
            if stat.S_ISREG(entry.mode):
                name = f"{number:06}"
                digest = _copy(path, os.path.join(copies, name))
                entry = replace(entry, content=name, digest=digest)
            entries.append(entry)
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


def restore(manifest: Manifest) -> Restored:
    """
    Restore everything below the roots; return what was changed for that.

    All copies are verified before anything is changed. Idempotent: files that have not changed
    are not touched. Raises VerificationError or SafeUpdateError.
    """
    _verify(manifest)
    known = {entry.path for entry in manifest.entries}
    written, removed = [], []
    path = manifest.directory
    try:
        for path in _walk(manifest.roots):
            if path not in known and os.path.lexists(path):
                _remove(path)
                removed.append(path)
        for entry in manifest.entries:
            path = entry.path
            if _differs(entry):
                _put_back(entry, os.path.join(manifest.directory, _COPIES, entry.content))
                written.append(path)
        # Putting a file into a directory changes the directory's times, so these come last.
        for entry in reversed(manifest.entries):
            path = entry.path
            if stat.S_ISDIR(entry.mode):
                _settle(path, entry)
    except OSError as err:
        raise SafeUpdateError(
            f"{path} could not be restored: {err.strerror or err}. What comes before it in the "
            f"backup was restored; the copies stay in {manifest.directory}."
        ) from err
    return Restored(written=tuple(written), removed=tuple(removed))


def _roots(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths, and the targets of links among them, without those below others."""
    wanted = {os.path.abspath(path) for path in paths}
    wanted |= {os.path.realpath(path) for path in wanted if os.path.islink(path)}
    return tuple(
        path
        for path in sorted(wanted)
        if not any(path.startswith(other + os.sep) for other in wanted)
    )


def _walk(roots: Sequence[str]) -> Iterator[str]:
    """Yield the paths that exist, each directory before its contents."""
    for root in roots:
        try:
            mode = os.lstat(root).st_mode
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(mode):
            yield root
            yield from _walk([os.path.join(root, name) for name in sorted(os.listdir(root))])
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            yield root


def _entry(path: str) -> Entry:
    found = os.lstat(path)
    return Entry(
        path=path,
        mode=found.st_mode,
        uid=found.st_uid,
        gid=found.st_gid,
        changed_ns=found.st_mtime_ns,
        content=os.readlink(path) if stat.S_ISLNK(found.st_mode) else "",
        attributes=_attributes(path),
    )


def _attributes(path: str) -> dict[str, str]:
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError:
        return {}  # a file system without them
    return {name: os.getxattr(path, name, follow_symlinks=False).hex() for name in names}


def _copy(source: str, target: str, mode: int = 0o600) -> str:
    """Copy the content of a file to the disk; return its digest."""
    digest = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    with open(source, "rb") as old, open(os.open(target, flags, mode), "wb") as new:
        while block := old.read(_CHUNK):
            digest.update(block)
            new.write(block)
        new.flush()
        os.fsync(new.fileno())
    return digest.hexdigest()


def _digest(path: str) -> str:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def _verify(manifest: Manifest) -> None:
    for entry in manifest.entries:
        if not stat.S_ISREG(entry.mode):
            continue
        copy = os.path.join(manifest.directory, _COPIES, entry.content)
        try:
            good = _digest(copy) == entry.digest
        except OSError:
            good = False
        if not good:
            raise VerificationError(
                f"The copy of {entry.path} in {manifest.directory} is damaged or gone. Nothing "
                "was restored; restore by hand what is intact."
            )


def _differs(entry: Entry) -> bool:
    try:
        now = _entry(entry.path)
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
        now = replace(now, content=entry.content, digest=_digest(entry.path))
    return now != entry


def _put_back(entry: Entry, copy: str) -> None:
    there = os.path.lexists(entry.path)
    if there and stat.S_IFMT(os.lstat(entry.path).st_mode) != entry.kind:
        _remove(entry.path)
    directory = os.path.dirname(entry.path)
    os.makedirs(directory, exist_ok=True)
    if stat.S_ISDIR(entry.mode):
        with contextlib.suppress(FileExistsError):
            os.mkdir(entry.path, 0o700)
        _settle(entry.path, entry)
        return
    part = os.path.join(directory, f".{os.path.basename(entry.path)}.safeupdate")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)
    if stat.S_ISLNK(entry.mode):
        os.symlink(entry.content, part)
    else:
        _copy(copy, part)
    _settle(part, entry)
    os.replace(part, entry.path)
    sync_directory(directory)


def _settle(path: str, entry: Entry) -> None:
    """Give *path* the owner, mode, attributes and time of the entry."""
    os.chown(path, entry.uid, entry.gid, follow_symlinks=False)
    if not stat.S_ISLNK(entry.mode):
        os.chmod(path, stat.S_IMODE(entry.mode))
    now = _attributes(path)
    for name in now.keys() - entry.attributes.keys():
        os.removexattr(path, name, follow_symlinks=False)
    for name, value in entry.attributes.items():
        if now.get(name) != value:
            os.setxattr(path, name, bytes.fromhex(value), follow_symlinks=False)
    times = (entry.changed_ns, entry.changed_ns)
    os.utime(path, ns=times, follow_symlinks=False)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    sync_directory(os.path.dirname(path))
