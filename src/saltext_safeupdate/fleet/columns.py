"""Lines that fit a terminal: a longer one continues in the next line, and nothing is lost."""

from __future__ import annotations

import itertools
import unicodedata

# Parts of a line with their kinds, as in :mod:`.text`.
Line = list[tuple[str, str]]

# Columns that each terminal has.
WIDTH = 80
# Indentation of continued lines. Our own lines have less, so no text of a minion looks like one.
INDENT = 8


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes, at most."""
    return sum(2 if unicodedata.east_asian_width(char) in "WFA" else 1 for char in text)


def fitting(text: str, width: int) -> str:
    """Return the beginning of a text that fits into so many columns."""
    if columns(text) <= width:
        return text
    end = 0
    while columns(text[: end + 1]) <= width:
        end += 1
    return text[:end]


def wrapped(line: Line, width: int = WIDTH) -> list[Line]:
    """Return a line as lines that fit, broken after a comma or a word if possible."""
    cells = [(char, kind) for part, kind in line for char in part]
    result = []
    while columns(_text(cells).rstrip()) > width:
        fits = len(fitting(_text(cells), width))
        # The part that fits may end just before a space.
        told = _text(cells)[: fits + 1]
        comma = told.rfind(", ") + 1
        space = comma if comma > fits // 2 else told.rfind(" ")
        end = space if told[: max(space, 0)].strip() else fits
        result.append(cells[:end])
        rest = _text(cells)[end:]
        cells = [(" ", "")] * INDENT + cells[end + len(rest) - len(rest.lstrip()) :]
    return [_joined(each) for each in (*result, cells)]


def wrapped_text(text: str, width: int = WIDTH) -> str:
    """Return the lines of a text as lines that fit."""
    lines = (each for line in text.splitlines() for each in wrapped([(line, "")], width))
    return "\n".join("".join(part for part, _ in each).rstrip() for each in lines)


def _text(cells: Line) -> str:
    return "".join(char for char, _ in cells)


def _joined(cells: Line) -> Line:
    groups = itertools.groupby(cells, key=lambda cell: cell[1])
    return [("".join(char for char, _ in each), kind) for kind, each in groups]
