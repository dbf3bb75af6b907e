"""When two versions are one: packaging adds to that of Salt."""

from __future__ import annotations

from collections.abc import Mapping


def same(running: str, wanted: str) -> bool:
    """Tell whether what runs is of the wanted version: ``3008.3`` may be ``3008.3-1``."""
    _, _, plain = wanted.rpartition(":")
    return running == wanted or (
        bool(running) and plain.startswith((f"{running}-", f"{running}+", f"{running}~"))
    )


def names(installed: str, wanted: str) -> bool:
    """Tell whether *wanted* names what is installed: ``3008.3`` names ``1:3008.3-2``."""
    _, _, plain = installed.rpartition(":")
    return wanted in (installed, plain, plain.rpartition("-")[0])


def reached(running: str, installed: str, wanted: str) -> bool:
    """Tell whether a minion is at the wanted version, by what it says of itself."""
    known = names(installed, wanted) if installed else True
    return known and (same(running, wanted) or names(running, wanted))


def kept_from_all(quarantined: Mapping[str, str], *versions: str) -> tuple[str, str]:
    """
    Return what is in quarantine of some versions, and why: one of them, or what it may stand for.

    Both are empty if they may be brought.
    """
    for version, because in quarantined.items():
        if any(wanted and stand_for_each_other(version, wanted) for wanted in versions):
            return version, because or "nobody noted why"
    return "", ""


def stand_for_each_other(one: str, other: str) -> bool:
    """Tell whether two versions are one, as far as they say: one may leave out a part."""
    if not one or not other:
        return False
    return names(one, other) or names(other, one) or same(one, other) or same(other, one)
