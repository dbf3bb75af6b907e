"""The table of promises names tests that exist, and everything that only the soak runs in full."""

import ast
import functools
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[3]
TESTS = REPO / "tests"
TABLE = (REPO / "docs/contributing/promises.md").read_text()
NAMES = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TABLE)


@functools.cache
def functions(path):
    """Return the decorators of each test in a file, by its name."""
    return {
        node.name: [ast.unparse(each) for each in node.decorator_list]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def in_soak():
    """Return the tests with a mark of the soak's among their decorators."""
    return [
        (str(path.relative_to(REPO)), name)
        for path in sorted(TESTS.rglob("test_*.py"))
        for name, decorators in functions(path).items()
        if any("mark.soak" in each for each in decorators)
    ]


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMES)))
def test_what_the_table_names_exists(file, name):
    path = REPO / file
    assert path.is_file()
    assert not name or name in functions(path)


@pytest.mark.parametrize(("file", "name"), in_soak())
def test_what_only_the_soak_runs_in_full_is_in_the_table(file, name):
    rows = [line.strip("| ").split(" | ") for line in TABLE.splitlines() if line.startswith("|")]
    (row,) = [row for row in rows if f"`{file}::{name}`" in row[-1]]
    promise, short, _ = row
    assert promise
    assert re.search(r"`[\w/]+\.py", short)


def test_every_family_of_system_tests_guards_something():
    families = {path.name.split("_")[1].removesuffix(".py") for path in TESTS.glob("lab/test_*.py")}
    files = [Path(file).name for file, _ in NAMES if file.startswith("tests/lab/")]
    named = {file.split("_")[1].removesuffix(".py") for file in files}
    assert named >= families - {"extension"}
