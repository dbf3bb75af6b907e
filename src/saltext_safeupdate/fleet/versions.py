"""When two versions are one: packaging adds to that of Salt."""

from __future__ import annotations


def same(version: str, wanted: str) -> bool:
    """Tell whether a version of Salt is the wanted one: ``3008.3`` is ``3008.3-1``, too."""
    return version == wanted or (
        bool(version) and wanted.startswith((f"{version}-", f"{version}+", f"{version}~"))
    )
