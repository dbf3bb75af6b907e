"""Parsers for the output of apt and dpkg, and what their parts mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..errors import SafeUpdateError
from .request import Change

_INST = re.compile(r"^Inst (?P<name>\S+)(?: \[(?P<old>[^\]]*)\])? \((?P<new>\S+)")
_REMV = re.compile(r"^(?:Remv|Purg) (?P<name>\S+)(?: \[(?P<old>[^\]]*)\])?")
_EXACT = re.compile(r"^\s*(?P<name>[a-z0-9][a-z0-9+.-]*)(?::\S+)?\s*\(=\s*(?P<version>\S+)\s*\)")
_FIELD = re.compile(r"^(?P<name>Size|Installed-Size): (?P<value>\d+)$")
_CANDIDATE = re.compile(r"^(?P<name>\S+):\n  Installed: .*\n  Candidate: (?P<version>.*)$", re.M)


def parse_owners(text: str) -> set[str]:
    """Read ``dpkg-query -S``: ``a, b:amd64: /path``; diversions are no owners."""
    owners: set[str] = set()
    for line in text.splitlines():
        names, separator, _ = line.partition(": /")
        if not separator or line.startswith(("diversion by ", "local diversion ")):
            continue
        owners.update(name.strip().split(":")[0] for name in names.split(","))
    return owners


def parse_owned(text: str) -> set[str]:
    """Read ``dpkg-query -S``: the files that it found an owner for."""
    lines = (line.partition(": /") for line in text.splitlines())
    return {
        f"/{path}"
        for names, _, path in lines
        if path and not names.startswith(("diversion by ", "local diversion "))
    }


def parse_bonds(text: str) -> list[tuple[str, str]]:
    """Return the pairs (a, b) of installed packages of which a needs b in exactly its version."""
    versions = {}
    needs = []
    for line in text.splitlines():
        name, version, status, depends = line.split("\t", 3)
        if status[1:2] in ("n", "c"):
            continue
        versions[name] = version
        for dependency in depends.split(","):
            match = _EXACT.match(dependency)
            if match:
                needs.append((name, match["name"], match["version"]))
    return [(name, other) for name, other, version in needs if versions.get(other) == version]


def parse_simulation(text: str) -> dict[str, Change]:
    """Read the ``Inst``, ``Remv`` and ``Purg`` lines of ``apt-get --simulate``."""
    changes = {}
    for line in text.splitlines():
        match = _INST.match(line)
        if match:
            changes[match["name"].split(":")[0]] = Change(match["old"] or "", match["new"])
            continue
        match = _REMV.match(line)
        if match:
            changes[match["name"].split(":")[0]] = Change(match["old"] or "", "")
    return changes


def parse_madison(text: str) -> dict[str, list[str]]:
    """Read ``apt-cache madison``: the available versions, newest first, without sources."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, version, where = (part.strip() for part in line.split("|", 2))
        versions = found.setdefault(name, [])
        if not where.endswith(" Sources") and version not in versions:
            versions.append(version)
    return found


def parse_policy(text: str) -> dict[str, str]:
    """Read ``apt-cache policy``: what apt would install of each package."""
    return {
        match["name"]: match["version"]
        for match in _CANDIDATE.finditer(text)
        if match["version"] != "(none)"
    }


def parse_sizes(text: str) -> int:
    """Sum up ``apt-cache show``: bytes to download and, told in KiB, to install."""
    return parse_download(text) + 1024 * _sum(text, "Installed-Size")


def parse_download(text: str) -> int:
    """Sum up the bytes to download of ``apt-cache show``; 0 of what no repository has."""
    return _sum(text, "Size")


def _sum(text: str, field: str) -> int:
    fields = map(_FIELD.match, text.splitlines())
    return sum(int(each["value"]) for each in fields if each and each["name"] == field)


def refuse_removals(changes: Mapping[str, Change]) -> None:
    """Raise SafeUpdateError if a package would be removed."""
    removed = sorted(name for name, change in changes.items() if not change.new)
    if removed:
        raise SafeUpdateError(
            f"the update would remove {', '.join(removed)}. Nothing was changed: choose "
            "another version, or remove it first"
        )


def spellings(paths: Iterable[str]) -> list[str]:
    """Return the paths with and without /usr: dpkg may record either on a merged system."""
    asked = []
    for path in paths:
        asked.append(path)
        if path.startswith("/usr/"):
            asked.append(path.removeprefix("/usr"))
        elif path.startswith(("/bin/", "/sbin/", "/lib")):
            asked.append("/usr" + path)
    return sorted(set(asked))
