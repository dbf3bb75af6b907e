"""Write the changelog page: what is released, and the fragments of what is not, by kind."""

from __future__ import annotations

import pathlib
import re

REPO = pathlib.Path(__file__).parents[1]
HEAD = "# Changelog\n\n"


def kinds() -> dict[str, str]:
    """Return the title of each kind of change, in the order in which they are shown."""
    text = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    rows = re.findall(r'^directory = "(\w+)"\nname = "(.+)"$', text, flags=re.MULTILINE)
    return dict(rows)


def text() -> str:
    """Return the page."""
    released = REPO / "CHANGELOG.md"
    done = released.read_text(encoding="utf-8").removeprefix(HEAD) if released.exists() else ""
    parts: list[str] = []
    for kind, title in kinds().items():
        fragments = sorted((REPO / "changelog").glob(f"*.{kind}.md"))
        if fragments:
            rows = "".join(f"- {_item(path)}\n" for path in fragments)
            parts.append(f"### {title}\n\n{rows}")
    head = HEAD + ("## Not released yet\n\n" if parts else "")
    return head + "\n".join([*parts, done])


def _item(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8").strip().replace("\n", "\n  ")


def write(directory: pathlib.Path) -> None:
    """Write the page, and only if it differs."""
    path = directory / "changelog.md"
    if not path.exists() or path.read_text(encoding="utf-8") != text():
        path.write_text(text(), encoding="utf-8")
