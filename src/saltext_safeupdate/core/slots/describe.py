"""
Write the manifest of a build next to its files, after unpacking all of them as a minion does.

``python3 -m saltext_safeupdate.core.slots.describe --version 3008.3 FILE...``
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from ..errors import SafeUpdateError, VerificationError
from ..host.files import write_atomic
from . import archive, manifest, wheels
from .tree import MOST_ENTRIES, Tree

_CHUNK = 1 << 20
# Bytes by which programs on a minion may be larger than here: Salt has a dozen of them.
_PROGRAMS = 1 << 20
# The first version of this extension that knows builds.
_EXTENSION = "0.1.0"


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    given = _parser().parse_args(argv)
    try:
        path = describe(
            given.files,
            version=given.version,
            name=given.name,
            machine=given.machine,
            python=given.python,
        )
    except (SafeUpdateError, OSError) as err:
        print(f"{err}", file=sys.stderr)
        return 1
    print(path)
    return 0


def describe(
    files: Sequence[str],
    *,
    version: str,
    name: str = "",
    machine: str = "",
    python: str = "",
) -> str:
    """
    Write the manifest; return its path. With *python* the files are wheels, otherwise one tarball.

    Raise VerificationError if a minion would refuse the build, and OSError.
    """
    told = _told(files, version=version, name=name, machine=machine, python=python)
    told["unpacked"] = _unpacked(files, told["kind"])
    content = json.dumps(told, indent=1).encode()
    path = path_of(files, version=version, name=name, machine=machine, python=python)
    manifest.parse(content)
    write_atomic(os.path.abspath(path), content, mode=0o644)
    return path


def path_of(
    files: Sequence[str], *, version: str, name: str = "", machine: str = "", python: str = ""
) -> str:
    """Return the path of the manifest that :func:`describe` writes."""
    found = _name(version, name, machine, python)
    return os.path.join(os.path.dirname(files[0]), f"{found}{manifest.SUFFIX}")


def is_described(
    files: Sequence[str], *, version: str, name: str = "", machine: str = "", python: str = ""
) -> bool:
    """
    Tell whether the files have the manifest that :func:`describe` would write.

    Raise VerificationError if it would refuse the arguments, and OSError.
    """
    told = _told(files, version=version, name=name, machine=machine, python=python)
    path = path_of(files, version=version, name=name, machine=machine, python=python)
    try:
        with open(path, "rb") as file:
            content = file.read(manifest.LONGEST + 1)
        manifest.parse(content)
    except (FileNotFoundError, VerificationError):
        return False
    # The files determine their unpacked size.
    return bool({**json.loads(content), "unpacked": manifest.LARGEST} == told)


def _name(version: str, name: str, machine: str, python: str) -> str:
    kind = "wheels" if python else "onedir"
    return name or f"salt-{version}-{kind}-{machine or os.uname().machine}"


def _told(
    files: Sequence[str], *, version: str, name: str, machine: str, python: str
) -> dict[str, Any]:
    """Return the manifest with the largest allowed content. Raise VerificationError."""
    told: dict[str, Any] = {
        "format": manifest.FORMAT,
        "name": _name(version, name, machine, python),
        "version": version,
        "kind": "wheels" if python else "onedir",
        "machine": machine or os.uname().machine,
        "python": python,
        "files": {os.path.basename(path): _described(path) for path in files},
        "unpacked": manifest.LARGEST,
        "extension": _EXTENSION,
    }
    # Report wrong arguments before the work.
    manifest.parse(json.dumps(told).encode())
    return told


def _described(path: str) -> dict[str, Any]:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return {"sha256": digest.hexdigest(), "size": os.path.getsize(path)}


def _unpacked(files: Sequence[str], kind: str) -> int:
    """Return the unpacked bytes of the files. They are unpacked next to them for a moment."""
    where = os.path.dirname(os.path.abspath(files[0]))
    with tempfile.TemporaryDirectory(dir=where, prefix=".describe-") as directory:
        tree = Tree(directory, size=manifest.LARGEST)
        if kind == "wheels":
            wheels.unpack(files, tree, python="/usr/bin/python3")
            # The path of the interpreter in programs may be longer on a minion.
            return tree.written + _PROGRAMS
        else:
            archive.unpack(files[0], tree, size=manifest.LARGEST, entries=MOST_ENTRIES)
        return tree.written


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python3 -m saltext_safeupdate.core.slots.describe",
        description="Write the manifest of a build of Salt next to its files.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="the tarball, or the wheels")
    parser.add_argument("--version", required=True, help="the version of Salt, such as 3008.3")
    parser.add_argument("--name", default="", help="the name of the build; made of the others")
    parser.add_argument("--machine", default="", help="as 'uname -m' says it; this machine, or any")
    parser.add_argument("--python", default="", help="for wheels: their version, such as 3.11")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
