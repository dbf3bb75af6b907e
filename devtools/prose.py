"""``python -m devtools.prose``: sentences that a reader stumbles over.

The rules are in ``devtools/prose.txt``. Words that the glossary replaces are found, too. The
linter is our own: Vale's packages of PyPI and npm fetch a program from GitHub when they are
installed or run, and the rules of proselint are in its own code.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from devtools.command import REPO

RULES = REPO / "devtools" / "prose.txt"
GLOSSARY = REPO / "docs" / "ref" / "glossary.md"
PLACES = ("README.md", "benchmarks", "devtools", "docs", "src")
# Written by programs: the pages of ``docs/make_ref.py``, and the changelog.
GENERATED = re.compile(r"docs/(_build/|changelog\.md|ref/\w+/all/)")
# Characters of a row of a table, and words of a sentence, that can still be read at once.
ROW = 400
SENTENCE = 45
# Blocks of a page, except those that hold prose.
CODE = re.compile(
    r"^```(?!{(?:glossary|note|warning|tip))[^\n]*\n.*?^```$", flags=re.MULTILINE | re.DOTALL
)
# A text of fewer words in the code is a name, not prose.
WORDS = 4
# Words of the glossary's "Not" that also have a meaning of their own in this project.
AMBIGUOUS = {
    "artefact",
    "bundle",
    "canary",
    "confirm",
    "deployment",
    "facts",
    "fetch",
    "flag",
    "flip",
    "freeze",
    "held",
    "hint",
    "hold",
    "image",
    "instance",
    "issue",
    "journal",
    "keep",
    "launcher",
    "ledger",
    "marker",
    "mend",
    "monitor",
    "move",
    "partition",
    "pause",
    "ping",
    "plugins",
    "prepare",
    "queue",
    "record",
    "save",
    "side",
    "stage",
    "state",
    "status",
    "switch",
    "undo",
    "updater",
    "upgrade",
    "watcher",
    "wrapper",
}


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    advice: str


class Text(NamedTuple):
    """One paragraph, with the number of its first line."""

    line: int
    text: str


class Finding(NamedTuple):
    path: str
    line: int
    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: '{self.found}': {self.advice}"


def rules(text: str, glossary: str) -> list[Rule]:
    """Read the rules: a pattern, a tab, the advice. A space stands for any white space."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [(pattern, advice) for pattern, _, advice in (line.partition("\t") for line in lines)]
    found += [
        (rf"\b{re.escape(word)}\b", f"the glossary says '{term}'")
        for word, term in unwanted(glossary).items()
        if word not in AMBIGUOUS
    ]
    return [
        Rule(re.compile(re.sub(r"(\\ | )", r"\\s+", pattern), re.DOTALL), advice.strip())
        for pattern, advice in found
    ]


def unwanted(glossary: str) -> dict[str, str]:
    """Return the words that the glossary lists as "Not", each with the term to use."""
    found: dict[str, str] = {}
    for term, text in re.findall(r"^(\S.*)\n((?:  .*\n)+)", glossary, flags=re.MULTILINE):
        for listed in re.findall(r"\*Not:\*\s+(.*?)\.(?:\s|$)", text, flags=re.DOTALL):
            words = re.sub(r"\([^)]*\)", "", " ".join(listed.split()))
            found |= {word.strip(): term for word in words.split(",")}
    return found


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield each sentence of a paragraph with its place in it."""
    for found in re.finditer(r"\S.*?(?:[.!?:][)*\"]*(?=\s|$)|$(?!.))", text, flags=re.DOTALL):
        yield found.start(), found.group()


def markdown(source: str) -> Iterator[Text]:
    """Yield the paragraphs, the items, and the cells of tables, without code and quotations."""

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "", found.group())

    source = CODE.sub(blank, source)
    source = re.sub(r"^```.*$", "", source, flags=re.MULTILINE)
    # Labels of sections.
    source = re.sub(r"^\([\w-]+\)=$", "", source, flags=re.MULTILINE)
    source = re.sub(r"<!--.*?-->", blank, source, flags=re.DOTALL)
    source = re.sub(r"(?:{\w+})?`[^`]*`", lambda found: "`X`" + blank(found), source)
    source = re.sub(r"\]\([^)]*\)", "]", source)
    # Words in italics after "Not:" or in quotes are mentioned, not used.
    source = re.sub(r"\*Not:\*[^.]*\.", blank, source)
    source = re.sub(r'"[^"\n]{1,80}"', '"X"', source)
    begin, lines = 0, list[str]()
    for number, line in enumerate([*source.splitlines(), ""], start=1):
        is_new = not line.strip() or re.match(r"\s*([-*#|]|\d+\.)\s", line) or line[:1] == "|"
        if lines and (is_new or line[:1] != lines[0][:1] == " "):
            yield Text(begin, "\n".join(lines))
            lines = []
        if line[:1] == "|":
            yield from (Text(number, cell) for cell in line.strip("| ").split(" | "))
        elif line.strip():
            begin, lines = begin if lines else number, [*lines, re.sub(r"^\s*[-*#]+\s", "", line)]


def rows(source: str) -> Iterator[Text]:
    """Yield the rows of tables."""
    for number, line in enumerate(source.splitlines(), start=1):
        if line.startswith("|"):
            yield Text(number, line)


def python(source: str) -> Iterator[Text]:
    """Yield the comments and the texts: docstrings, messages, log lines."""
    yield from _comments(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [getattr(part, "value", "X") for part in node.values]
            text = "".join(part if isinstance(part, str) else "X" for part in parts)
            yield from _paragraphs(node.lineno, text)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _paragraphs(node.lineno, node.value)


def _comments(source: str) -> Iterator[Text]:
    begin, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.start[0]
        if lines and line != last + 1:
            yield from _paragraphs(begin, "\n".join(lines))
            lines = []
        begin, last = begin if lines else line, line
        lines.append(token.string.lstrip("#: "))
    yield from _paragraphs(begin, "\n".join(lines))


def _paragraphs(line: int, text: str) -> Iterator[Text]:
    # Code, and names of parameters.
    text = re.sub(r"(?::\w+(?::\w+)?:)?(?<!\w)``?[^`]*``?|\*\w+\*", "X", text)
    for found in re.finditer(r"\S.*?(?=\n\s*\n|$(?!.))", text, flags=re.DOTALL):
        # A section of a spec file is no prose.
        if len(found.group().split()) >= WORDS and not found.group().startswith("%"):
            yield Text(line + text[: found.start()].count("\n"), found.group())


def check(path: str, source: str, known: list[Rule]) -> list[Finding]:
    """Return the findings in one file, by line."""
    is_code = path.endswith(".py")
    found = []
    for begin, text in python(source) if is_code else markdown(source):
        for place, sentence in sentences(text):
            for rule in known:
                if match := rule.pattern.search(sentence):
                    line = begin + text[: place + match.start()].count("\n")
                    found.append(Finding(path, line, " ".join(match[0].split())[:50], rule.advice))
            # A list of names, or a statement of SQL, has no end of a sentence.
            is_whole = sentence.rstrip("*)")[-1:] in ".:!?" or not is_code
            if is_whole and (count := len(sentence.split())) > SENTENCE:
                line = begin + text[:place].count("\n")
                said = " ".join(sentence.split()[:4])
                found.append(Finding(path, line, said, f"{count} words; at most {SENTENCE}"))
    for line, row in () if is_code else rows(source):
        if len(row) > ROW:
            found.append(Finding(path, line, row[:40], f"a row of {len(row)}; at most {ROW}"))
    return sorted(set(found))


def files() -> list[Path]:
    """Return the files that hold prose."""
    found = [path for place in PLACES for path in _below(REPO / place)]
    return [path for path in found if not GENERATED.match(str(path.relative_to(REPO)))]


def _below(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    return sorted(path for path in place.rglob("*") if path.suffix in (".md", ".py"))


def main(arguments: list[str]) -> int:
    """Check the named files, or all of them; return 1 if something is found."""
    known = rules(RULES.read_text(encoding="utf-8"), GLOSSARY.read_text(encoding="utf-8"))
    names = arguments or [str(path.relative_to(REPO)) for path in files()]
    findings = [
        finding
        for name in names
        for finding in check(name, (REPO / name).read_text(encoding="utf-8"), known)
    ]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
