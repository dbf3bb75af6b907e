"""The documentation and the code say the same."""

import dataclasses
import importlib.util
import pathlib
import re

import pytest

from saltext_safeupdate.core.settings import Settings

REPO = pathlib.Path(__file__).parents[2]
PAGE = (REPO / "docs" / "ref" / "configuration" / "index.md").read_text(encoding="utf-8")
FIELDS = {field.name: field.default for field in dataclasses.fields(Settings)}


def _sections():
    """Return the text of each section of the configuration page, by its key."""
    parts = re.split(r"^## `([a-z_]+)`$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_key_has_a_section_in_the_order_of_the_dataclass():
    assert list(_sections()) == list(FIELDS)


@pytest.mark.parametrize("key", FIELDS)
def test_the_default_and_its_unit_are_told(key):
    default = FIELDS[key]
    (told,) = re.findall(r"^Default: (.*)$", _sections()[key], flags=re.MULTILINE)
    if isinstance(default, tuple):
        assert (default, told) == ((), "none")
    elif isinstance(default, float):
        assert told == f"`{default:g}` second{'' if default == 1 else 's'}"
    else:
        assert told == f"`{default}`"


@pytest.mark.parametrize("key", FIELDS)
def test_every_section_can_be_linked_to_and_explains(key):
    assert f"({key})=\n## `{key}`" in PAGE
    explained = re.sub(r"Default: .*|\(\w+\)=", "", _sections()[key]).strip()
    assert len(explained) > 40


def _make_ref():
    spec = importlib.util.spec_from_file_location("make_ref", REPO / "docs" / "make_ref.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_a_reference_page_for_every_file_of_a_loader(tmp_path):
    make_ref = _make_ref()
    gone = tmp_path / "modules" / "all" / "gone.rst"
    gone.parent.mkdir(parents=True)
    gone.write_text("")
    make_ref.write(tmp_path)
    for kind in make_ref.KINDS:
        names = {path.stem for path in (make_ref.SOURCE / kind).glob("*.py")} - {"__init__"}
        pages = {path.stem for path in (tmp_path / kind / "all").glob("*.rst")} - {"index"}
        assert names == pages
    assert "automodule:: saltext_safeupdate.modules.safeupdate" in (
        tmp_path / "modules" / "all" / "safeupdate.rst"
    ).read_text(encoding="utf-8")


def test_every_kind_of_reference_is_in_the_index():
    index = (REPO / "docs" / "index.md").read_text(encoding="utf-8")
    for kind in _make_ref().KINDS:
        assert f"ref/{kind}/all/index" in index


def test_every_change_is_of_a_known_type():
    pyproject = (REPO / "pyproject.toml").read_text(encoding="utf-8")
    types = set(re.findall(r'^directory = "(\w+)"$', pyproject, flags=re.MULTILINE)) - {"changelog"}
    fragments = list((REPO / "changelog").glob("*.md"))
    assert fragments
    for path in fragments:
        assert path.suffixes[-2].lstrip(".") in types, path
        assert path.read_text(encoding="utf-8").strip()


DECISIONS = sorted((REPO / "docs" / "adr").glob("[0-9]*.md"))


def test_decisions_are_numbered_without_a_gap_or_a_double():
    assert [path.name[:4] for path in DECISIONS] == [
        f"{number:04}" for number in range(1, len(DECISIONS) + 1)
    ]


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_every_decision_has_a_head_and_the_same_parts(path):
    text = path.read_text(encoding="utf-8")
    title = rf"# {int(path.name[:4])}\. .+\n\n"
    head = title + r"- Status: (.+(?:\n  .+)*)\n- Date: \d{4}-\d\d-\d\d\n\n##"
    (status,) = re.findall(head, text[: text.index("##") + 2])
    assert status.startswith(("accepted", "superseded by "))
    for linked in re.findall(r"\]\((.+?)\)", status):
        assert (path.parent / linked).exists()
    assert re.findall("^## (.*)$", text, flags=re.MULTILINE) == [
        "Context",
        "Decision",
        "Consequence",
    ]


def test_the_index_of_the_decisions_has_each_of_them_in_order():
    index = (REPO / "docs" / "adr" / "index.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| {doc}`(.+?)` \| (\w+).* \| (.+?) \|$", index, re.MULTILINE)
    assert rows == [
        (str(int(path.name[:4])), path.stem, *_head(path.read_text(encoding="utf-8")))
        for path in DECISIONS
    ]


def _head(text):
    """Return the first word of the status, and the date."""
    return re.findall(r"^- (?:Status|Date): ([\w-]+)", text, flags=re.MULTILINE)
