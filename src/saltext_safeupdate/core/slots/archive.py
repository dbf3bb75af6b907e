"""
Unpack a tarball into a tree, by checks of our own.

Python's ``tarfile`` reads it, and unpacks nothing: its filters are missing in the first versions of
Python 3.10 and 3.11, change what they do not like instead of refusing it, and have been got around.
Whatever they refuse is refused here, and what they would change. The archive is read forwards only
and in small pieces, so that no header makes the reader go round in circles or fill the memory.
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
# The longest that is read in one piece: the header of a long name has some kilobytes.
_LONGEST_READ = 1 << 20
# Bytes of an entry besides its content, at most: its headers, and what fills its last block.
_HEADERS = 4096
# Bytes of the end of an archive, which programs fill up to what they write at once.
_END = 1 << 20
_SPECIAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX
_LONGEST_MAGIC = 6
# Bytes of memory that xz gets. With its highest level (-9), it takes 65 MiB.
_XZ_MEMORY = 128 << 20
# What the standard library raises for bytes that are no archive.
_UNREADABLE = (
    *(tarfile.TarError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, EOFError),
    *(ValueError, OverflowError, LookupError, TypeError, AttributeError, RecursionError),
)


def unpack(path: str, tree: Tree, *, size: int, entries: int) -> None:
    """
    Fill the tree with what is in the one directory of the tarball.

    *size* is how many bytes its files have at most, *entries* how many there are. Raise
    VerificationError if anything of it may not be, or it cannot be read to its end, and OSError.
    """
    most = size + entries * _HEADERS + _END
    try:
        with open(path, "rb") as file, _opened(file) as content:
            forwards = _Forwards(content, most)
            # It has all that is asked of a file to be read from.
            given: Any = forwards
            with tarfile.open(fileobj=given, mode="r:", encoding="utf-8") as reader:
                archive: Any = reader
                top = ""
                while (member := archive.next()) is not None:
                    top = _put(archive, member, tree, top)
                    # It would remember all of them: 15 MiB for what Salt has.
                    archive.members.clear()
                forwards.finish()
    except _UNREADABLE as err:
        raise VerificationError(
            one_line(
                f"The archive is refused: it cannot be read to its end ({str(err)[:200]}). Nothing "
                "of it was kept; take a build that was made as the documentation says."
            )
        ) from err


def _put(archive: tarfile.TarFile, member: tarfile.TarInfo, tree: Tree, top: str) -> str:
    """Put an entry into the tree; return the name of the directory that all of them are in."""
    name = member.name
    if archive.pax_headers.keys() - {"comment"}:
        raise inside.refused(name, "a header says something of all that follows")
    if member.issparse() or any(key.startswith("GNU.sparse") for key in member.pax_headers):
        raise inside.refused(name, "it has holes")
    first, _, below = inside.path(name).partition("/")
    if first == "." and member.isdir():
        return top
    if top not in ("", first):
        raise inside.refused(name, f"not everything is in one directory, as {top} is")
    if not below and not member.isdir():
        raise inside.refused(name, "not everything is in one directory")
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
        raise inside.refused(name, "it is no file, no directory and no link")
    return first


def _below(member: tarfile.TarInfo, top: str) -> str:
    """Return what a hard link leads to, as a path in the tree."""
    first, _, below = inside.path(member.linkname).partition("/")
    if first != top or not below:
        raise inside.refused(member.name, "it is a hard link that leads out")
    return below


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    file = archive.extractfile(member)
    if file is not None:
        while block := file.read(_CHUNK):
            yield block


class _Xz:
    """Reads what xz has written, and takes no more memory than there is for it."""

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
        """Tell whether another stream follows: some programs write several, with zeros between."""
        rest = self._decoder.unused_data.lstrip(b"\0")
        while not rest and (block := self._file.read(_CHUNK)):
            rest = block.lstrip(b"\0")
        if rest:
            self._decoder, self._given = _xz_decoder(), rest
        return bool(rest)


def _xz_decoder() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


# How the compressions that there are begin, and what opens them.
_COMPRESSED: dict[bytes, Callable[[Any], Any]] = {
    b"\xfd7zXZ\x00": lambda file: contextlib.nullcontext(_Xz(file)),
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
}


def _opened(file: IO[bytes]) -> Any:
    """Return what reads the content, whatever it is compressed with."""
    magic = file.read(_LONGEST_MAGIC)
    file.seek(0)
    for begin, opener in _COMPRESSED.items():
        if magic.startswith(begin):
            return opener(file)
    return file


class _Forwards:
    """A file that is read once, from its begin to its end, and not beyond *most* bytes."""

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
        """Raise ValueError unless the archive has ended as it should: nothing may follow."""
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
