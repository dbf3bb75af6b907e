"""The code blocks of the documents, and who vouches for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).parents[2]
COMMANDS = ("bash", "console", "sh", "shell")
_FENCE = re.compile(r"^( *)```(\S*)$")
_MARK = re.compile(r"<!-- (run|not run|output|no output|file): (.+) -->")


@dataclass(frozen=True)
class Block:
    """
    A block of code on a page.

    Its *mark* is the comment above it, and *said* what stands there behind it:

    - ``run``: the test that runs it
    - ``output``: the test that compares it with what the last command above it prints
    - ``file``: the path that the test of the page writes it to
    - ``not run``, ``no output``: the reason

    It is empty if there is none.
    """

    page: str
    line: int
    language: str
    text: str
    mark: str = ""
    said: str = ""

    @property
    def commands(self) -> list[str]:
        """Its commands: a line each, or more if a line ends with a backslash."""
        joined = self.text.replace("\\\n", " ")
        lines = (line.strip() for line in joined.splitlines())
        return [line for line in lines if line and not line.startswith("#")]


def pages() -> list[Path]:
    """Return everything that users and developers read, but the records of decisions."""
    found = [REPO / "README.md", *(REPO / "benchmarks").glob("*.md")]
    found += [path for path in (REPO / "docs").rglob("*.md") if "adr" not in path.parts]
    return sorted(found)


def blocks(path: Path) -> Iterator[Block]:
    """Return the blocks of a page in their order."""
    above, inside = "", None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is not None:
            indent, begun, language, lines, mark = inside
            if fence and not fence[2]:
                kind, said = mark.groups() if mark else ("", "")
                name = str(path.relative_to(REPO))
                yield Block(name, begun, language, "\n".join(lines), kind, said)
                above, inside = "", None
            else:
                lines.append(line.removeprefix(indent))
        elif fence and fence[2]:
            inside = (fence[1], number, fence[2], [], _MARK.fullmatch(above.strip()))
        elif line.strip():
            above = line
    if inside is not None:
        raise AssertionError(f"{path}: the block in line {inside[1]} has no end")


def shape(text: str) -> list[str]:
    """
    Return the lines of an output without what differs from run to run.

    That is times, durations, numbers of jobs and processes, and IDs of updates.
    """
    text = re.sub(r"\b[0-9a-f]{12}\b|\b[0-9a-f]{16,}\b", "ID", text)
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S*|\b\d\d:\d\d:\d\d[.\d]*", "TIME", text)
    text = re.sub(r"\b\d+(\.\d+)? m?s\b", "N s", text)
    text = re.sub(r"\b\d+(\.\d+)? (MB|seconds)\b", r"N \2", text)
    text = re.sub(r"\b\d{9,}(\.\d+)?\b", "N", text)
    return [" ".join(line.split()) for line in text.strip().splitlines()]
