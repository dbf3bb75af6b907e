"""What may import what, seen in the source."""

import ast
import pathlib
import sys

import pytest

import saltext_safeupdate

ROOT = pathlib.Path(saltext_safeupdate.__file__).parent
CORE = sorted((ROOT / "core").rglob("*.py"))
FLEET = sorted((ROOT / "fleet").rglob("*.py"))
DUNDERS = {
    "__opts__",
    "__salt__",
    "__context__",
    "__grains__",
    "__pillar__",
    "__states__",
    "__runner__",
    "__utils__",
    "__proxy__",
    "__events__",
}


def _named(path):
    return str(path.relative_to(ROOT))


def _imports(path):
    """Yield the absolute name of everything that the file imports, wherever it does."""
    parts = ("saltext_safeupdate", *path.relative_to(ROOT).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parts[: -node.level]) if node.level else ""
            yield ".".join(filter(None, (base, node.module)))


@pytest.mark.parametrize("path", CORE, ids=_named)
def test_core_imports_only_the_standard_library_and_itself(path):
    foreign = [
        name
        for name in _imports(path)
        if name.partition(".")[0] not in sys.stdlib_module_names
        and name != "saltext_safeupdate.core"
        and not name.startswith("saltext_safeupdate.core.")
    ]
    assert foreign == []


@pytest.mark.parametrize("path", CORE + FLEET, ids=_named)
def test_no_dunders_of_the_loader_outside_the_shells(path):
    names = {
        node.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name)
    }
    assert names & DUNDERS == set()


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=_named)
def test_only_the_seam_starts_programs(path):
    if _named(path) == "core/host/command.py":
        return
    assert "subprocess" not in set(_imports(path))


def test_the_check_sees_a_foreign_import(tmp_path, monkeypatch):
    path = tmp_path / "core" / "bad.py"
    path.parent.mkdir()
    path.write_text("def f():\n    from ..minion import intake\n    import salt.utils\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert list(_imports(path)) == ["saltext_safeupdate.minion", "salt.utils"]
