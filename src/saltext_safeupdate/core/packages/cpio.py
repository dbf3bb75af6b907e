"""
Take files out of the archive that ``rpm2cpio`` prints: not every host has ``cpio``.

It is a program, too: its arguments are the directory to write to, and patterns of names.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Sequence
from typing import IO

# Each header has this, and then thirteen numbers of eight hexadecimal digits.
_MAGIC = (b"070701", b"070702")
_HEADER, _DIGITS = 110, 8
_MODE, _SIZE, _NAME_LENGTH = 1, 6, 11
_END = "TRAILER!!!"
_REGULAR, _KIND = 0o100000, 0o170000
_BLOCK = 1 << 20


def extract(archive: IO[bytes], directory: str, patterns: Sequence[str]) -> int:
    """Write the regular files whose names match below *directory*; return how many there were."""
    written = 0
    while True:
        header = archive.read(_HEADER)
        if header[: len(_MAGIC[0])] not in _MAGIC or len(header) < _HEADER:
            raise ValueError("this is no archive of the kind that rpm packages have")
        digits = header[len(_MAGIC[0]) :]
        numbers = [int(digits[at : at + _DIGITS], 16) for at in range(0, len(digits), _DIGITS)]
        length = numbers[_NAME_LENGTH]
        name = archive.read(length)[:-1].decode(errors="replace")
        archive.read(-(_HEADER + length) % 4)
        size = numbers[_SIZE]
        if name == _END:
            return written
        path = os.path.normpath(os.path.join("/", name)).lstrip("/")
        regular = numbers[_MODE] & _KIND == _REGULAR
        wanted = regular and any(fnmatch.fnmatchcase(f"/{path}", each) for each in patterns)
        _pass(archive, size, os.path.join(directory, path) if wanted else os.devnull)
        written += wanted
        archive.read(-size % 4)


def _pass(archive: IO[bytes], size: int, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        while size:
            block = archive.read(min(size, _BLOCK))
            if not block:
                raise ValueError("the archive ends too early")
            file.write(block)
            size -= len(block)


if __name__ == "__main__":
    extract(sys.stdin.buffer, sys.argv[1], sys.argv[2:])
