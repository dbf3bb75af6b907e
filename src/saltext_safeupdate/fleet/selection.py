"""Which rows of the inventory somebody wants to see."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping
from typing import Any

from ..core.errors import InputError
from . import inventory
from .inventory import REPORT
from .versions import same

Row = Mapping[str, Any]
# A version of Salt, or the beginning of one.
_VERSION = re.compile(r"\d[\w.+~-]*")
_KINDS: dict[str, Callable[[Row], bool]] = {
    "busy": lambda row: row["heard"] == REPORT and row["phase"] not in inventory.QUIET,
    "held": lambda row: row["heard"] == REPORT and bool(row["held"]),
    "plain": lambda row: row["heard"] == "plain",
    "silent": lambda row: row["heard"] in ("silent", "unknown"),
    "unsupported": lambda row: row["heard"] == "unsupported",
}
WORDS = ("drift", "outdated", *_KINDS)


def parse(only: object) -> tuple[str, ...]:
    """
    Return what is to be shown, from a text with commas or a list. Raises InputError.

    Each is one of ``WORDS``, or a version of Salt or the beginning of one, such as ``3007``.
    """
    if only is None:
        return ()
    listed = only if isinstance(only, list | tuple) else str(only).split(",")
    words = tuple(str(word).strip() for word in listed)
    for word in words:
        if word not in WORDS and not _VERSION.fullmatch(word):
            raise InputError(
                f"There is nothing to show only for {word!r}. Give a version or a series, such as "
                f"3007, or one of {', '.join(WORDS)}. Nothing was asked."
            )
    return words


def chosen(
    rows: Mapping[str, Row], only: tuple[str, ...], *, master: str, drifted: Container[str]
) -> dict[str, Row]:
    """Return the rows that one of the words means. *master* is the version of the master."""
    if not only:
        return dict(rows)
    return {
        minion: row
        for minion, row in rows.items()
        if any(_is(word, minion, row, master, drifted) for word in only)
    }


def _is(word: str, minion: str, row: Row, master: str, drifted: Container[str]) -> bool:
    if word == "drift":
        return minion in drifted
    if word in _KINDS:
        return _KINDS[word](row)
    if row["heard"] != REPORT:
        return False
    running = row["running"]
    if word == "outdated":
        return inventory.newer(master, running)
    return same(word, running) or same(running, word) or running.startswith(f"{word}.")
