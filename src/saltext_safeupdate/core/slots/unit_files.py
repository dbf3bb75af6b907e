"""The program that files of a unit start, as systemd reads them (systemd.syntax(7))."""

from __future__ import annotations

from collections.abc import Iterable

_KEY = "ExecStart"
_SECTION = "[Service]"
_COMMENTS = ("#", ";")


def started(paths: Iterable[str]) -> list[str]:
    """
    Return the words of the only program that these files start, read in order; otherwise empty.

    Only spaces separate words: quotes and specifiers are not interpreted.
    """
    found: list[list[str]] = []
    try:
        for path in paths:
            with open(path, encoding="utf-8") as file:
                for value in _values(file.read()):
                    # An empty value removes the earlier ones.
                    found = [*found, value.split()] if value else []
    except (OSError, UnicodeDecodeError):
        return []
    return found[0] if len(found) == 1 and ";" not in found[0] else []


def _values(text: str) -> Iterable[str]:
    section, line = "", ""
    for part in text.splitlines():
        if part.lstrip().startswith(_COMMENTS):
            # Comments are also allowed between continuation lines.
            continue
        line += part
        if part.endswith("\\"):
            line = f"{line[:-1]} "
            continue
        whole, line = line.strip(), ""
        key, equals, value = whole.partition("=")
        if whole.startswith("["):
            section = whole
        elif section == _SECTION and equals and key.strip() == _KEY:
            yield value.strip()
