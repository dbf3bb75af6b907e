"""The page with the figures, as a benchmark that records its output leaves it."""

import re

from devtools import longrun

PAGE = """# Figures

What they are.

## bench_a, Salt 1

Measured on 2026-01-01, 1 processors.

| old |

## bench_c, Salt 1

Measured on 2026-01-02, 1 processors.

| stays |
"""


def test_figures_are_recorded_with_the_commit_and_all_others_stay(monkeypatch, tmp_path):
    page = tmp_path / "figures.md"
    page.write_text(PAGE)
    monkeypatch.setattr(longrun, "FIGURES", page)
    longrun._record({"bench_b, Salt 1": "| new |", "bench_a, Salt 1": "| newer |"}, "commit 12ab")
    head, *sections = page.read_text().split("\n## ")
    assert head == "# Figures\n\nWhat they are.\n"
    told = [section.partition("\n\n") for section in sections]
    assert [title for title, _, _ in told] == [f"bench_{each}, Salt 1" for each in "abc"]
    for (_, _, body), wanted in zip(told, ("| newer |", "| new |"), strict=False):
        measured, _, figures = body.partition("\n\n")
        assert figures.strip() == wanted
        assert re.fullmatch(r"Measured on [\d-]{10} at commit 12ab, \d+ processors\.", measured)
    assert told[2][2].strip().endswith("| stays |")
