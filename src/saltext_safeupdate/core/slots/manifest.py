"""
The content of a build of Salt: the manifest next to its files.

Anybody who can put a file into a source may have written it. So nothing in it is trusted before it
was checked, and any deviation from this description refuses it as a whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from ..errors import VerificationError, one_line
from ..frozen import frozen

FORMAT = 1
SUFFIX = ".json"
# Limits far above any honest manifest. Salt's own builds are one file of 60 to 100 MiB with 14,000
# entries of 400 MiB; a set of wheels is about 60 files.
LONGEST = 256 << 10
MOST_FILES = 500
LARGEST = 4 << 30

KINDS = ("onedir", "wheels")
# A build of pure Python fits every machine.
ANY_MACHINE = "any"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}", re.ASCII)
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~-]{0,63}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_MACHINE = re.compile(r"[a-z0-9_]{1,32}", re.ASCII)
_PYTHON = re.compile(r"3\.[0-9]{1,2}", re.ASCII)
_KEYS = {
    *("format", "name", "version", "kind", "machine", "python"),
    *("files", "unpacked", "extension"),
}
_FILE_KEYS = {"sha256", "size"}
# Digits of the digest in the name of a slot: if somebody could find another manifest with the same
# digits, they could as well write a manifest with another name.
_DIGITS = 16
# How many of them are shown with a version.
_SHOWN = 8


@frozen
class Part:
    """A file of a build: its digest as hexadecimal SHA-256, and its size in bytes."""

    sha256: str
    size: int


@frozen
class Manifest:
    """
    One build of Salt.

    name
        Its name in its source: letters, digits and ``._+~-``.
    version
        The version of Salt, such as ``3008.3``.
    kind
        ``onedir``, one tarball with its own interpreter, or ``wheels``.
    machine
        The machine that it runs on, as shown by ``uname -m``, or ``any``.
    python
        The version of Python, such as ``3.11``, that wheels are made for; empty for ``onedir``.
    files
        Its files, by name.
    unpacked
        The most bytes of its whole content.
    extension
        The oldest version of this extension that can update to it.
    digest
        SHA-256 of the manifest itself, as hexadecimal.
    """

    name: str
    version: str
    kind: str
    machine: str
    python: str
    files: Mapping[str, Part]
    unpacked: int
    extension: str
    digest: str

    @property
    def ident(self) -> str:
        """The name of its slot, different for each manifest."""
        return f"{self.name}-{self.digest[:_DIGITS]}"

    @property
    def build_version(self) -> str:
        """The version in a record: the part after the hyphen distinguishes builds."""
        return shown(self.version, self.ident)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(part.size for part in self.files.values())


def shown(version: str, ident: str) -> str:
    """Return a version with the first digits of the digest in the name of its slot."""
    return f"{version}-{ident.rpartition('-')[2][:_SHOWN]}"


def parse(content: bytes) -> Manifest:
    """Return the manifest with that content. Raise VerificationError if it is not valid."""
    if len(content) > LONGEST:
        _refuse(f"it is longer than {LONGEST} bytes")
    try:
        given = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=_once,
            parse_constant=_refuse_number,
            parse_float=_refuse_number,
        )
    except (ValueError, RecursionError) as err:
        raise VerificationError(_told(f"it is not JSON: {err}")) from err
    if not isinstance(given, dict):
        _refuse("it is not a mapping")
    if given.get("format") != FORMAT or isinstance(given["format"], bool):
        _refuse(f"its format is not {FORMAT}; a later version of safeupdate may read it")
    if given.keys() != _KEYS:
        odd = sorted(given.keys() ^ _KEYS)
        _refuse(f"it has too many keys, or too few: {', '.join(map(repr, odd))}")
    kind = _word("kind", given["kind"])
    python = _python(given["python"], kind)
    return Manifest(
        name=_text("name", given["name"], _NAME),
        version=_text("version", given["version"], _VERSION),
        kind=kind,
        machine=_text("machine", given["machine"], _MACHINE),
        python=python,
        files=_files(given["files"], kind),
        unpacked=_count("unpacked", given["unpacked"]),
        extension=_text("extension", given["extension"], _VERSION),
        digest=hashlib.sha256(content).hexdigest(),
    )


def _files(given: object, kind: str) -> dict[str, Part]:
    if not isinstance(given, dict) or not given:
        _refuse("'files' is not a mapping with a file")
    if len(given) > MOST_FILES:
        _refuse(f"it has more than {MOST_FILES} files")
    if kind == "onedir" and len(given) != 1:
        _refuse("a build of kind 'onedir' is one file")
    found = {}
    for name, part in given.items():
        _text("name of a file", name, _NAME)
        if kind == "wheels" and not name.endswith(".whl"):
            _refuse(f"{name!r} is not a wheel")
        if not isinstance(part, dict) or part.keys() != _FILE_KEYS:
            _refuse(f"the file {name!r} does not have 'sha256' and 'size', and no more")
        found[name] = Part(
            sha256=_text("sha256", part["sha256"], _SHA256), size=_count("size", part["size"])
        )
    if sum(part.size for part in found.values()) > LARGEST:
        _refuse(f"its files are larger than {LARGEST} bytes")
    return found


def _text(key: str, given: object, form: re.Pattern[str]) -> str:
    if not isinstance(given, str) or not form.fullmatch(given):
        _refuse(f"its {key} is {given!r}, which is not of the form {form.pattern}")
    return given


def _word(key: str, given: object) -> str:
    if not isinstance(given, str) or given not in KINDS:
        _refuse(f"its {key} is {given!r}, and not one of {', '.join(KINDS)}")
    return given


def _python(given: object, kind: str) -> str:
    """Check the Python: wheels need the interpreter they are made for, a onedir brings its own."""
    if kind == "wheels":
        return _text("python", given, _PYTHON)
    if given != "":
        _refuse("its python is not empty, and a build of kind 'onedir' brings its own")
    return ""


def _count(key: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 < given <= LARGEST:
        _refuse(f"its {key} is not a whole number from 1 to {LARGEST}")
    return given


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that is there twice: two readers may use different values."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _refuse_number(given: str) -> NoReturn:
    raise ValueError(f"{given} is not a whole number")


def _refuse(reason: str) -> NoReturn:
    raise VerificationError(_told(reason))


def _told(reason: str) -> str:
    # Parts of it come from the author of the manifest.
    return one_line(f"The manifest is refused: {reason[:500]}.")
