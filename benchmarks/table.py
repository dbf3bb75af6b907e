"""The one table that every benchmark prints its figures into."""

from __future__ import annotations

_HEADER = """\
| What | Plain Salt | With the extension | Ratio | Asked for |
| --- | --- | --- | --- | --- |"""
_begun: list[bool] = []


def row(what: str, plain: str = "", ours: str = "", ratio: str = "", asked: str = "") -> None:
    """Print a row; the first one with the header before it."""
    if not _begun:
        print(_HEADER)
        _begun.append(True)
    print(f"| {what} | {plain} | {ours} | {ratio} | {asked} |", flush=True)
