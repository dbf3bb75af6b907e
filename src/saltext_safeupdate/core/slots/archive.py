"""
Unpack a tarball into a tree, with our own checks.

Python's ``tarfile`` reads it, but does not unpack it: its filters are missing in the first versions
of Python 3.10 and 3.11, change entries instead of refusing them, and have been circumvented. An
entry that they would refuse or change is refused here. The archive is read only forwards and in
small pieces, so that no header makes the reader loop or fill the memory.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from ..errors import VerificationError, one_line
from . import inside
from .tree import Tree

_CHUNK = 256 << 10
# The longest single read: the header of a long name has some kilobytes.
_LONGEST_READ = 1 << 20
# The most bytes of an entry besides its content: its headers, and the padding of its last block.
_HEADERS = 4096
# Bytes of the end of an archive, which programs pad to the size of their writes.
_END = 1 << 20
_SPECIAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_LONGEST_MAGIC = 6
# Bytes of memory that xz may use. At its highest level (-9), it takes 65 MiB.
_XZ_MEMORY = 128 << 20
# The errors of the standard library for bytes that are not an archive.
_UNREADABLE = (
    *(tarfile.TarError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError),
    *(ValueError, OverflowError, LookupError, TypeError, AttributeError, RecursionError),
)


def unpack(path: str, tree: Tree, *, size: int, entries: int) -> None:
    """
    Fill the tree with the content of the single directory of the tarball.

    *size* is the most bytes of its files, *entries* the most entries. Raise VerificationError if an
    entry is not allowed, or the archive cannot be read to its end, and OSError.
    """
    most = size + entries * _HEADERS + _END
    try:
        with open(path, "rb") as file, _opened(file) as content:
            forwards = _Forwards(content, most)
            # It has everything that the reader needs of a file.
            given: Any = forwards
            with tarfile.open(fileobj=given, mode="r:", encoding="utf-8") as reader:
                archive: Any = reader
                top = ""
                while (member := archive.next()) is not None:
                    top = _put(archive, member, tree, top)
                    # The reader would remember all of them: 15 MiB for Salt.
                    archive.members.clear()
                forwards.finish()
    except _UNREADABLE as err:
        raise VerificationError(
            one_line(
                f"The archive is refused: it cannot be read to its end ({str(err)[:200]}). Nothing "
                "of it was kept; use a build that was made as the documentation says."
            )
        ) from err


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, tree: Tree, top: str) -> str:
    """Put an entry into the tree; return the name of the directory that contains all entries."""
    name = member.name
    if archive.pax_headers.keys() - {"comment"}:
        raise inside.refused(name, "a header applies to all entries after it")
    if member.issparse() or any(key.startswith("GNU.sparse") for key in member.pax_headers):
        raise inside.refused(name, "it has holes")
    first, _, below = inside.path(name).partition("/")
    if first == "." and member.isdir():
        return top
    if top not in ("", first):
        raise inside.refused(name, f"it is not in the same directory as the others, {top}")
    if not below and not member.isdir():
        raise inside.refused(name, "it is not in a directory")
    if member.mode & _SPECIAL and not member.issym():
        raise inside.refused(name, "it would run as another user, or be shared (setuid)")
    if member.isdir():
        tree.directory(below or ".")
    elif member.issym():
        tree.symlink(below, member.linkname)
    elif member.islnk():
        tree.hard_link(below, _below(member, first))
    elif member.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
        executable = bool(member.mode & stat.S_IXUSR)
        content = _content(archive, member)
        tree.file(below, content, size=member.size, executable=executable, changed=member.mtime)
    else:
        raise inside.refused(name, "it is not a file, a directory or a link")
    return first


def _below(member: tarfile.TarInfo, top: str) -> str:
    """Return the target of a hard link, as a path in the tree."""
    first, _, below = inside.path(member.linkname).partition("/")
    if first != top or not below:
        raise inside.refused(member.name, "it is a hard link that leads out of the tree")
    return below


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    file = archive.extractfile(member)
    if file is not None:
        while block := file.read(_CHUNK):
            yield block


class _Xz:
    """Reads the output of xz, within a limit for memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decoder = _xz_decoder()
        self._given = b""

    def read(self, size: int) -> bytes:
        found = b""
        while len(found) < size and (not self._decoder.eof or self._has_more()):
            given, self._given = self._given, b""
            if self._decoder.needs_input and not given and not (given := self._file.read(_CHUNK)):
                raise EOFError("it is cut off")
            found += self._decoder.decompress(given, size - len(found))
        return found

    def _has_more(self) -> bool:
        """Tell whether another stream follows: some programs write several, separated by zeros."""
        rest = self._decoder.unused_data.lstrip(b"\0")
        while not rest and (block := self._file.read(_CHUNK)):
            rest = block.lstrip(b"\0")
        if rest:
            self._decoder, self._given = _xz_decoder(), rest
        return bool(rest)


def _xz_decoder() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


# The first bytes of each known compression, and its reader.
_COMPRESSED: dict[bytes, Callable[[Any], Any]] = {
    b"\xfd7zXZ\x00": lambda file: contextlib.nullcontext(_Xz(file)),
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
}


def _opened(file: IO[bytes]) -> Any:
    """Return a reader of the content, whatever its compression."""
    magic = file.read(_LONGEST_MAGIC)
    file.seek(0)
    for begin, opener in _COMPRESSED.items():
        if magic.startswith(begin):
            return opener(file)
    return file


class _Forwards:
    """A file that is read once, from start to end, and not beyond *most* bytes."""

    def __init__(self, file: Any, most: int) -> None:
        self._file = file
        self._most = most
        self._place = 0
        self._last = b""

    def read(self, size: int) -> bytes:
        if not 0 <= size <= _LONGEST_READ:
            raise ValueError("a header is too long")
        self._last = self._read(size)
        return self._last

    def tell(self) -> int:
        return self._place

    def seek(self, place: int, whence: int = 0) -> int:
        if whence or place < self._place:
            raise ValueError("an entry leads back")
        if place > self._most:
            raise ValueError("it is larger than its manifest says")
        while self._place < place:
            if not self._read(min(_CHUNK, place - self._place)):
                break
        return self._place

    def finish(self) -> None:
        """Raise ValueError unless the archive has ended correctly: nothing may follow."""
        if len(self._last) != tarfile.BLOCKSIZE or any(self._last):
            raise ValueError("an entry is damaged, or it is cut off")
        while block := self._read(_CHUNK):
            if any(block):
                raise ValueError("something follows its end")

    def _read(self, size: int) -> bytes:
        found: bytes = self._file.read(size)
        self._place += len(found)
        if self._place > self._most:
            raise ValueError("it is larger than its manifest says")
        return found
