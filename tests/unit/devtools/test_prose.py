"""The linter for prose sees the stumbles where people read, and nothing else."""

import pytest

from devtools import prose
from devtools.command import REPO

GLOSSARY = (REPO / "docs/ref/glossary.md").read_text(encoding="utf-8")
KNOWN = prose.rules((REPO / "devtools/prose.txt").read_text(encoding="utf-8"), GLOSSARY)


def found(source, path="page.md"):
    return [(finding.line, finding.found) for finding in prose.check(path, source, KNOWN)]


@pytest.mark.parametrize(
    ("sentence", "stumble"),
    [
        ("What a job has waited is kept.", "What a job has waited is kept."),
        ("It waits. Who asks is told.", "Who asks is told."),
        ("Of which it has two.", "Of which"),
        ("Of the master, a minion sees its version.", "Of the"),
        ("There is none.", "is none"),
        ("The record goes.", "goes"),
        ("It goes on with the next.", "goes on"),
        ("It is that of the master.", "that of"),
        ("It runs beside Salt.", "beside"),
        ("All but for one.", "but for"),
        ("It has nothing but a name.", "nothing but"),
        ("It was heard of.", "was heard of"),
        ("The states behind the update run.", "behind the update"),
        ("Say what becomes of it.", "becomes of"),
        ("The version is on the blacklist.", "blacklist"),
        ("A watch is a probation.", "probation"),
        ("```{note}\nUse `one` beside `two`.\n```", "beside"),
    ],
)
def test_a_stumble_is_found(sentence, stumble):
    assert stumble in [said for _, said in found(sentence + "\n")]


@pytest.mark.parametrize(
    "sentence",
    [
        "What does it do?",
        "## What it holds",
        "| What it does | `beside.py` |",
        "The update goes to the next host, and the rest of it follows.",
        "Run `systemctl beside`, and see [the page](beside.md).",
        'Do not write "beside".',
        "*Not:* probation, blacklist.",
        "Nobody holds the lock of the update.",
        "```shell\nsalt beside none but for\n```",
        "```{note}\nThe word is `beside`.\n```",
        "(beside-jobs)=\n## While jobs run",
    ],
)
def test_plain_sentences_and_quotations_pass(sentence):
    assert found(sentence + "\n") == []


def test_a_finding_has_its_line_on_a_page():
    assert found("# Title\n\nOne line,\nand one\nbeside it.\n\n- a\n- beside b\n") == [
        (5, "beside"),
        (8, "beside"),
    ]


def test_docstrings_comments_and_messages_are_read_and_names_are_not():
    source = '''"""It runs beside Salt."""
beside = "beside"
# It is far
# too long: it goes on.
log.error("It is beside the host %s", f"{beside} is none of the four")
'''
    assert found(source, "code.py") == [
        (1, "beside"),
        (4, "goes on"),
        (5, "beside"),
        (5, "is none"),
    ]


def test_names_of_parameters_and_lists_of_names_are_no_prose_of_code():
    source = f'"""Do it with *beside* as well."""\nNAMES = "{"name " * 50}"\n'
    assert found(source, "code.py") == []


def test_long_sentences_and_long_rows_are_found():
    assert found("word " * 46 + "\n") == [(1, "word word word word")]
    assert found("word " * 45 + "\n") == []
    (row,) = found("| " + "word " * 22 + "| " + "word. " * 60 + " |\n")
    assert row[0] == 1


def test_a_word_that_the_glossary_has_another_word_for_names_that_word():
    (finding,) = prose.check("page.md", "It is on the blacklist.\n", KNOWN)
    assert str(finding) == "page.md:1: 'blacklist': the glossary says 'quarantine'"


def test_every_word_with_two_meanings_is_a_word_of_the_glossary():
    assert set(prose.unwanted(GLOSSARY)) >= prose.AMBIGUOUS


def test_the_prose_of_the_project_is_checked():
    names = {str(path.relative_to(REPO)) for path in prose.files()}
    assert names >= {"README.md", "docs/index.md", "src/saltext_safeupdate/hooks.py"}
