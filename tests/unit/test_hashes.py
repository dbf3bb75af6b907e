"""What the page on hardened hosts says of FIPS: SHA-256, and what the administrator has chosen."""

import ast
import pathlib

PACKAGE = pathlib.Path(__file__).parents[2] / "src" / "saltext_safeupdate"
# Of a file of a package, as the package manager has it: it says that it is not for security.
OF_PACKAGES = "core/packages/files.py"
# By the name that Salt's configuration has for it, as Salt itself does it.
AS_CONFIGURED = "minion/own_bus.py"


def calls():
    """Return each use of hashlib: the file, what is called, and the call."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.module != "hashlib", path
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and ast.unparse(called.value) == "hashlib":
                yield str(path.relative_to(PACKAGE)), called.attr, node


def test_nothing_but_sha_256_is_for_security():
    found = list(calls())
    assert len(found) > 10
    assert {name for _, name, _ in found} == {"sha256", "new"}
    assert sorted(file for file, name, _ in found if name == "new") == [OF_PACKAGES, AS_CONFIGURED]


def test_what_is_not_for_security_says_so():
    (call,) = (call for file, name, call in calls() if (file, name) == (OF_PACKAGES, "new"))
    assert [(each.arg, ast.unparse(each.value)) for each in call.keywords] == [
        ("usedforsecurity", "False")
    ]
