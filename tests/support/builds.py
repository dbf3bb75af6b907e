"""Builds of Salt for the tests of slots: tarballs and wheels that are some bytes long."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
import zipfile

from saltext_safeupdate.core.slots import manifest

MACHINE = os.uname().machine
PYTHON = "/usr/bin/python3"
# A program that starts the interpreter beside it, as those of the Salt project do.
BESIDE = b'#!/bin/sh\n"exec" "$(dirname "$(readlink -f "$0")")/bin/python3" "$0" "$@"\n'


def member(name, content=b"", **attributes):
    """Return an entry of a tarball, and its content."""
    found = tarfile.TarInfo(name)
    found.size = len(content)
    found.mtime = 1_700_000_000
    found.mode = 0o644
    for key, value in attributes.items():
        setattr(found, key, value)
    return found, content


def directory(name):
    return member(name, type=tarfile.DIRTYPE, mode=0o755)


def symlink(name, target):
    return member(name, type=tarfile.SYMTYPE, linkname=target)


def hard_link(name, target):
    return member(name, type=tarfile.LNKTYPE, linkname=target)


def onedir(version="3008.3"):
    """Return the entries of a build as Salt publishes it: its programs are at its top."""
    return [
        directory("salt"),
        directory("salt/bin"),
        member("salt/bin/python3.11", b"ELF" * 5000, mode=0o755),
        symlink("salt/bin/python3", "python3.11"),
        member("salt/salt-minion", BESIDE, mode=0o755),
        member("salt/salt-call", BESIDE, mode=0o755),
        member("salt/lib/python3.11/site-packages/salt/version.py", version.encode()),
        hard_link("salt/lib/again.py", "salt/lib/python3.11/site-packages/salt/version.py"),
    ]


def tarball(path, entries, *, mode="w:xz", **options):
    with tarfile.open(path, mode, **options) as archive:
        for found, content in entries:
            archive.addfile(found, io.BytesIO(content))
    return str(path)


def wheel(path, files, *, info="salt-3008.3.dist-info", entry_points="", record=None):
    """Write a wheel; *record* changes the lines of its RECORD."""
    files = dict(files)
    if entry_points:
        files[f"{info}/entry_points.txt"] = entry_points.encode()
    lines = [f"{name},sha256={_b64(content)},{len(content)}" for name, content in files.items()]
    lines.append(f"{info}/RECORD,,")
    lines = record(lines) if record else lines
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.writestr(f"{info}/RECORD", "\n".join(lines) + "\n")
    return str(path)


def salt_wheel(path):
    return wheel(
        path,
        {"salt/__init__.py": b"", "salt/version.py": b"3008.3", "salt/scripts.py": b"x = 1\n"},
        entry_points="[console_scripts]\nsalt-minion = salt.scripts:salt_minion\n",
    )


def described(*paths, **said):
    """Return the manifest of these files, as a mapping that becomes JSON."""
    files = {}
    for path in paths:
        with open(path, "rb") as file:
            content = file.read()
        digest = hashlib.sha256(content).hexdigest()
        files[os.path.basename(path)] = {"sha256": digest, "size": len(content)}
    return {
        "format": 1,
        "name": "salt-3008.3-onedir-linux",
        "version": "3008.3",
        "kind": "onedir",
        "machine": MACHINE,
        "python": "",
        "files": files,
        "unpacked": 1 << 20,
        "extension": "0.1.0",
        **said,
    }


def parsed(*paths, **said):
    return manifest.parse(json.dumps(described(*paths, **said)).encode())


def _b64(content):
    digest = hashlib.sha256(content).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
