"""Parsers for the output of rpm."""

from __future__ import annotations


def parse_bonds(text: str) -> list[tuple[str, str]]:
    """Return the pairs (a, b) of installed packages of which a needs b in exactly its version."""
    versions = {}
    needs = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 5:
            continue
        name, version, other, flags, wanted = fields
        versions[name] = version
        if "=" in flags and not set("<>") & set(flags):
            needs.append((name, other.partition("(")[0], wanted.rpartition(":")[2]))
    return [
        (name, other)
        for name, other, wanted in needs
        if other in versions and wanted in (versions[other], versions[other].rpartition("-")[0])
    ]


def parse_instances(text: str) -> dict[str, list[str]]:
    """Return the packages that are installed more than once, with their versions by age."""
    found: dict[str, list[tuple[int, str]]] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3:
            found.setdefault(fields[0], []).append((int(fields[2]), fields[1]))
    return {
        package: [version for _, version in sorted(instances, key=lambda each: each[0])]
        for package, instances in found.items()
        if len(instances) > 1
    }
