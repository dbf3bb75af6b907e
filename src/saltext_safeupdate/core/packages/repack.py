"""
A Debian package file built from what is installed.

It is the way back if neither the cache nor a repository has the installed version. It contains
what is on the disk now: changed configuration files as they are, and no removed ones. Only the
control data are as packaged, with dpkg's own checksums.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import logging
import os
import re
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from typing import IO

from ..host.command import Run

log = logging.getLogger(__name__)

_TIMEOUT = 60.0
# Fields that dpkg adds to the control data of an installed package.
_OF_DPKG = ("status", "conffiles", "config-version", "triggers-pending", "triggers-awaited")
_DIVERSION = re.compile(
    r"^(?:local )?diversion of (?P<path>/.*) to (?P<to>/.*?)(?: by (?P<by>\S+))?$"
)
_MEMBER = "{name:<16}{mtime:<12}{uid:<6}{gid:<6}{mode:<8}{size:<10}`\n"
_HEADER_LENGTH = 60
# It is read once at most, and an update waits until it is written.
_COMPRESSION = 1


def repack(run: Run, name: str, target: str) -> None:
    """Write the installed package *name* as the package file *target*."""
    listed = _ask(run, "--listfiles", name).splitlines()
    conffiles = parse_conffiles(_ask(run, "-W", "-f", "${Conffiles}", name))
    diverted = parse_diversions(run(("dpkg-divert", "--list"), timeout=_TIMEOUT).stdout, name)
    # Lines about a diversion do not begin with a slash.
    paths = [path for path in listed if path.startswith("/") and conffiles.get(path, True)]
    there = [path for path in paths if os.path.lexists(diverted.get(path, path))]
    if len(there) < len(paths):
        log.warning("%s lacks %d of its files; so will its copy", name, len(paths) - len(there))
    kept = [path for path in there if path in conffiles]
    fields = own_fields(_ask(run, "-s", name))
    scripts = {
        script: _ask(run, "--control-path", name, script).strip()
        for script in _ask(run, "--control-list", name).split()
        if script not in ("control", "conffiles")
    }
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "r+b") as out:
        out.write(b"!<arch>\n")
        with _member(out, "debian-binary"):
            out.write(b"2.0\n")
        with _member(out, "control.tar.gz"), _tar(out) as tar:
            _add_text(tar, "control", fields)
            if kept:
                _add_text(tar, "conffiles", "".join(f"{path}\n" for path in kept))
            for script, path in scripts.items():
                _add_file(tar, path, f"./{script}")
        with _member(out, "data.tar.gz"), _tar(out) as tar:
            _add_files(tar, there, diverted)


def _ask(run: Run, *words: str) -> str:
    return run(("dpkg-query", *words), timeout=_TIMEOUT).stdout


@contextlib.contextmanager
def _member(out: IO[bytes], name: str) -> Iterator[None]:
    """Write the header of an ar member once its size is known, and pad the member."""
    start = out.tell()
    out.seek(_HEADER_LENGTH, os.SEEK_CUR)
    yield
    end = out.tell()
    if (end - start) % 2:
        out.write(b"\n")
    header = _MEMBER.format(
        name=name, mtime=0, uid=0, gid=0, mode=100644, size=end - start - _HEADER_LENGTH
    )
    out.seek(start)
    out.write(header.encode())
    out.seek(0, os.SEEK_END)


@contextlib.contextmanager
def _tar(out: IO[bytes]) -> Iterator[tarfile.TarFile]:
    with (
        gzip.GzipFile("", "wb", _COMPRESSION, out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        yield tar


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    info = tarfile.TarInfo(f"./{name}")
    info.size = len(text.encode())
    info.uname = info.gname = "root"
    tar.addfile(info, io.BytesIO(text.encode()))


def _add_files(tar: tarfile.TarFile, paths: Iterable[str], diverted: Mapping[str, str]) -> None:
    paths = list(paths)
    parents = {os.path.dirname(path) for path in paths}
    for path in paths:
        source = diverted.get(path, path)
        # A link where the package has a directory: the administrator's, or a merged /usr.
        if path in parents and os.path.islink(source):
            source = os.path.realpath(source)
        _add_file(tar, source, f".{path}" if path != "/." else ".")


def _add_file(tar: tarfile.TarFile, source: str, name: str) -> None:
    info = tar.gettarinfo(source, name)
    if info is None:
        # A socket: no package has one.
        return
    if info.isreg():
        with open(source, "rb") as file:
            tar.addfile(info, file)
    else:
        tar.addfile(info)


def own_fields(text: str) -> str:
    """Return the control data of an installed package without what dpkg has added."""
    kept = []
    keep = True
    for line in text.splitlines():
        if not line.startswith((" ", "\t")):
            keep = line.partition(":")[0].lower() not in _OF_DPKG
        if keep and line.strip():
            kept.append(line)
    return "\n".join(kept) + "\n"


def parse_conffiles(text: str) -> dict[str, bool]:
    """Return the configuration files, and whether they still belong to the package."""
    found = {}
    for line in text.splitlines():
        path, _, rest = line.strip().rpartition(" ")
        flags = []
        while path and not re.fullmatch(r"[0-9a-f]{32}|newconffile", rest):
            flags.append(rest)
            path, _, rest = path.rpartition(" ")
        if path:
            found[path] = not {"obsolete", "remove-on-upgrade"} & set(flags)
    return found


def parse_diversions(text: str, name: str) -> dict[str, str]:
    """Return where the files of package *name* are that others have moved away."""
    found = {}
    for line in text.splitlines():
        match = _DIVERSION.match(line)
        if match and match["by"] != name:
            found[match["path"]] = match["to"]
    return found
