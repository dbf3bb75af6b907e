"""
Unpack wheels into a tree, each file as its RECORD says.

No code of a wheel runs, and no pip is needed: the format of wheels is specified, and so is the work
of an installer (packaging.python.org, "Binary distribution format").
"""

from __future__ import annotations

import base64
import binascii
import configparser
import csv
import errno
import hashlib
import io
import posixpath
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import IO, NamedTuple

from ..errors import VerificationError, one_line
from . import inside
from .tree import Tree

# The directories of modules and programs, below the tree.
LIBRARY = "lib"
PROGRAMS = "bin"
_CHUNK = 256 << 10
# A list of files, or of programs, is far shorter.
_LONGEST_LIST = 8 << 20
# The list of files in a wheel is read in one piece: 200 kB for the 2,000 files of Salt's.
_LONGEST_READ = 2 << 20
_LARGEST_PROGRAM = 1 << 20
_DIST_INFO = re.compile(r"[A-Za-z0-9._+!-]+\.dist-info", re.ASCII)
_PROGRAM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_ENTRY = re.compile(r"([A-Za-z_][\w.]*)\s*:\s*([A-Za-z_][\w.]*)\s*(\[.*\])?", re.ASCII)
# The targets of the directories in NAME.data. Nothing is compiled against headers here.
_DATA = {
    "purelib": LIBRARY,
    "platlib": LIBRARY,
    "scripts": PROGRAMS,
    "data": "",
    "headers": "include",
}
_SECTION = "console_scripts"
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),
    *(ValueError, LookupError, csv.Error, configparser.Error),
)
_START = """\
#!{python}
import os
import sys

tree = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path[0] = os.path.join(tree, "{library}")

from {module} import {first}

if __name__ == "__main__":
    sys.exit({function}())
"""


class _Recorded(NamedTuple):
    """The RECORD's entry of a file: its SHA-256, and its bytes."""

    digest: bytes
    size: int


def unpack(paths: Iterable[str], tree: Tree, *, python: str) -> None:
    """
    Fill the tree with the wheels; their programs start the interpreter with the path *python*.

    Raise VerificationError if a part of one is not allowed or differs from its RECORD, and OSError.
    Files that two wheels contain are refused.
    """
    for path in paths:
        try:
            with open(path, "rb") as file, zipfile.ZipFile(_Pieces(file)) as wheel:
                _Wheel(wheel, posixpath.basename(path), tree, python).unpack()
        except _UNREADABLE as err:
            raise _damaged(path, err) from err
        except OSError as err:
            # The wheel refers to a place before its start.
            if err.errno != errno.EINVAL:
                raise
            raise _damaged(path, err) from err


class _Pieces(io.RawIOBase):
    """A file that is read in pieces of limited size: the wheel itself says how long they are."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        found = self._file.read(_LONGEST_READ + 1 if size < 0 else min(size, _LONGEST_READ + 1))
        if len(found) > _LONGEST_READ:
            raise ValueError("its list of files is too long")
        return found

    def seek(self, place: int, whence: int = 0) -> int:
        return self._file.seek(place, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


def _damaged(path: str, err: Exception) -> VerificationError:
    return VerificationError(
        one_line(
            f"The wheel {posixpath.basename(path)} is refused: it cannot be read "
            f"({str(err)[:200]}). Nothing of it was kept; download it again."
        )
    )


class _Wheel:
    """One open wheel."""

    def __init__(self, wheel: zipfile.ZipFile, name: str, tree: Tree, python: str) -> None:
        self._wheel = wheel
        self._tree = tree
        self._python = python
        self._files: dict[str, zipfile.ZipInfo] = {}
        for info in wheel.infolist():
            place = inside.path(info.filename)
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise inside.refused(place, "it is neither a file nor a directory")
            if (info.external_attr >> 16) & (stat.S_ISUID | stat.S_ISGID):
                raise inside.refused(place, "it would run as another user (setuid)")
            if info.flag_bits & 1:
                raise inside.refused(place, "it is encrypted")
            if info.is_dir():
                continue
            if place in self._files:
                raise inside.refused(place, "it is there twice")
            self._files[place] = info
        infos = {place.partition("/")[0] for place in self._files}
        found = [info for info in infos if _DIST_INFO.fullmatch(info)]
        if len(found) != 1:
            raise inside.refused(name, "it does not have exactly one .dist-info")
        (self._info,) = found
        self._data = self._info.removesuffix(".dist-info") + ".data"

    def unpack(self) -> None:
        recorded = self._record()
        described = dict(self._programs())
        for name, info in self._files.items():
            where, program = self._place(name)
            if program and posixpath.basename(where) in described:
                # Salt's wheels have both. As with pip, the description counts.
                continue
            if name == f"{self._info}/RECORD" or name in recorded:
                self._put(info, where, program, recorded.get(name))
        for name, text in described.items():
            self._write(f"{PROGRAMS}/{name}", text.encode(), executable=True)

    def _place(self, name: str) -> tuple[str, bool]:
        """Return the target of a file, and whether it is a program."""
        first, _, rest = name.partition("/")
        if first != self._data:
            return f"{LIBRARY}/{name}", False
        kind, _, below = rest.partition("/")
        if kind not in _DATA or not below:
            raise inside.refused(name, "a wheel has no data of that kind")
        return posixpath.join(_DATA[kind], below), kind == "scripts"

    def _put(
        self, info: zipfile.ZipInfo, where: str, program: bool, recorded: _Recorded | None
    ) -> None:
        if recorded is not None and recorded.size != info.file_size:
            raise inside.refused(info.filename, "its size differs from its RECORD")
        if program:
            content = self._read(info, _LARGEST_PROGRAM, recorded)
            self._write(where, _started(content, self._python), executable=True)
            return
        executable = bool((info.external_attr >> 16) & stat.S_IXUSR)
        content_of = self._content(info, recorded)
        self._tree.file(where, content_of, size=info.file_size, executable=executable)

    def _write(self, where: str, content: bytes, *, executable: bool) -> None:
        self._tree.file(where, [content], size=len(content), executable=executable)

    def _content(self, info: zipfile.ZipInfo, recorded: _Recorded | None) -> Iterator[bytes]:
        """Yield the content; at its end, raise VerificationError if it differs from the RECORD."""
        digest = hashlib.sha256()
        with self._wheel.open(info) as file:
            while block := file.read(_CHUNK):
                digest.update(block)
                yield block
        if recorded is not None and digest.digest() != recorded.digest:
            raise inside.refused(info.filename, "it is not what its RECORD says")

    def _read(self, info: zipfile.ZipInfo, most: int, recorded: _Recorded | None = None) -> bytes:
        if info.file_size > most:
            raise inside.refused(info.filename, "it is too long")
        found = b""
        for block in self._content(info, recorded):
            found += block
            if len(found) > most:
                raise inside.refused(info.filename, "it is longer than it says")
        return found

    def _record(self) -> dict[str, _Recorded]:
        """Return the entry of each file in the RECORD. All of the files must exist."""
        name = f"{self._info}/RECORD"
        if name not in self._files:
            raise inside.refused(name, "it is missing, and a wheel must have it")
        text = self._read(self._files[name], _LONGEST_LIST).decode("utf-8")
        own = {name, *(f"{self._info}/{each}" for each in _SIGNATURES)}
        found: dict[str, _Recorded] = {}
        for row in csv.reader(io.StringIO(text, newline="")):
            path, digest, size = row
            path = inside.path(path)
            if path in found:
                raise inside.refused(path, "its RECORD has it twice")
            if path not in own:
                found[path] = _Recorded(_digest(path, digest), int(size))
        odd = (self._files.keys() - own) ^ found.keys()
        if odd:
            raise inside.refused(min(odd), "it is in the wheel or in its RECORD, but not in both")
        return found

    def _programs(self) -> Iterator[tuple[str, str]]:
        """Yield the names of the programs in the metadata, and their texts."""
        name = f"{self._info}/entry_points.txt"
        if name not in self._files:
            return
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(self._read(self._files[name], _LONGEST_LIST).decode("utf-8"))
        if not parser.has_section(_SECTION):
            return
        for program, entry in parser[_SECTION].items():
            found = _ENTRY.fullmatch(entry.strip())
            if not _PROGRAM.fullmatch(program) or found is None:
                raise inside.refused(program, "it is not a valid entry point of a program")
            yield (
                program,
                _START.format(
                    python=self._python,
                    library=LIBRARY,
                    module=found[1],
                    function=found[2],
                    first=found[2].partition(".")[0],
                ),
            )


def _digest(path: str, told: str) -> bytes:
    kind, _, digest = told.partition("=")
    if kind != "sha256":
        raise inside.refused(path, "its RECORD has no SHA-256 of it")
    try:
        return base64.b64decode(digest + "=" * (-len(digest) % 4), altchars=b"-_", validate=True)
    except binascii.Error as err:
        raise inside.refused(path, "its RECORD has no SHA-256 of it") from err


def _started(content: bytes, python: str) -> bytes:
    """Return a program of a wheel with its interpreter filled in."""
    first, newline, rest = content.partition(b"\n")
    if first.rstrip() in (b"#!python", b"#!pythonw"):
        return f"#!{python}".encode() + newline + rest
    return content
