"""IDs of minions, as an administrator writes them."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.errors import InputError


def named(setting: str, given: Iterable[object]) -> list[str]:
    """Return them as texts. Raises InputError for what YAML or a command line may have changed."""
    found: list[str] = []
    for each in given:
        if isinstance(each, bool) or not isinstance(each, str | int):
            raise InputError(
                f"'{setting}' has {each!r} in place of the ID of a minion: YAML takes no, on and "
                "3.10 for something else. Nothing was started; put it in quotes."
            )
        found.append(str(each))
    return found
