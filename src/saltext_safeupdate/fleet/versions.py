"""When two versions are the same: packages add to the version of Salt."""

from __future__ import annotations

from collections.abc import Mapping


def same(running: str, wanted: str) -> bool:
    """Return whether the running version is the wanted one: ``3008.3`` may be ``3008.3-1``."""
    _, _, plain = wanted.rpartition(":")
    return running == wanted or (
        bool(running) and plain.startswith((f"{running}-", f"{running}+", f"{running}~"))
    )


def names(installed: str, wanted: str) -> bool:
    """Return whether *wanted* names the installed version: ``3008.3`` names ``1:3008.3-2``."""
    _, _, plain = installed.rpartition(":")
    return wanted in (installed, plain, plain.rpartition("-")[0])


def reached(running: str, installed: str, wanted: str) -> bool:
    """Return whether a minion has reached the wanted version, according to its own answer."""
    known = names(installed, wanted) if installed else True
    return known and (same(running, wanted) or names(running, wanted))


def kept_from_all(quarantined: Mapping[str, str], *versions: str) -> tuple[str, str]:
    """
    Return the one of some versions that is in quarantine, or one that it may stand for, and why.

    Both are empty if they may be installed.
    """
    for version, because in quarantined.items():
        if any(wanted and stand_for_each_other(version, wanted) for wanted in versions):
            return version, because or "nobody noted why"
    return "", ""


def stand_for_each_other(one: str, other: str) -> bool:
    """Return whether two versions may be the same: one may leave out a part."""
    if not one or not other:
        return False
    return names(one, other) or names(other, one) or same(one, other) or same(other, one)
