"""Whether the Salt in packages is one that the hooks know, read from its sources."""

import os
import pathlib

import pytest

from devtools import venvs
from saltext_safeupdate.core.generations.replaced import Row
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.prepare import known

METHOD = Row("salt.minion", "Minion", "_target", ("cls", "opts"))
FUNCTION = Row("salt.utils.state", "", "job_queue_dir", ("opts",))
WAITING = Row("salt.minion", "Minion", "_target", ("cls", "opts"), may_wait=True)
GOOD = {
    "salt.minion": "class Minion:\n    @classmethod\n    def _target(cls, opts): ...\n",
    "salt.utils.state": "def job_queue_dir(opts): ...\n",
}


def _method(text):
    return {**GOOD, "salt.minion": f"class Minion:\n    {text}\n"}


@pytest.mark.parametrize(
    "sources",
    [
        GOOD,
        _method("def _target(cls, opts, more=None, *rest, key=1, **others): ..."),
        _method("_target = something_else"),
        _method("if new:\n        def _target(cls, opts): ..."),
        {**GOOD, "salt.utils.state": "from salt.elsewhere import job_queue_dir\n"},
        {**GOOD, "salt.minion": "a syntax of tomorrow\n"},
    ],
)
def test_nothing_differs(sources):
    assert known.differences([METHOD, FUNCTION], sources.get) == []


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ({"salt.utils.state": GOOD["salt.utils.state"]}, "salt.minion is not there"),
        ({**GOOD, "salt.minion": "x = 1\n"}, "salt.minion.Minion is not there"),
        (_method("pass"), "salt.minion.Minion._target is not there"),
        (_method("def _target(cls, data): ..."), "salt.minion.Minion._target takes (cls, data)"),
        (
            _method("def _target(cls, opts, needed): ..."),
            "salt.minion.Minion._target takes (cls, opts, needed)",
        ),
        (
            _method("def _target(cls, opts, *, needed): ..."),
            "salt.minion.Minion._target takes (cls, opts, needed)",
        ),
        (
            _method("async def _target(cls, opts): ..."),
            "salt.minion.Minion._target is a coroutine function",
        ),
    ],
)
def test_what_differs_is_said(sources, said):
    assert known.differences([METHOD, FUNCTION], sources.get) == [said]


def test_what_may_be_a_coroutine_function():
    sources = _method("async def _target(cls, opts): ...")
    assert known.differences([WAITING], sources.get) == []


def test_the_tested_releases_are_those_of_the_tests():
    assert known.TESTED == venvs.SERIES


class Package:
    """A package file that a program takes Salt out of."""

    def __init__(self, sources, below="opt/salt/lib/python3.14/site-packages"):
        self.sources, self.below = sources, below
        self.asked = []

    def __call__(self, argv, **_):
        self.asked.append(argv)
        directory = pathlib.Path(argv[5])
        for module, text in self.sources.items():
            path = directory / self.below / f"{module.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if self.sources:
            (directory / self.below / "salt" / "__init__.py").touch()
        return Result(argv=argv, returncode=2, stdout="", stderr="a pattern was not found")


@pytest.mark.parametrize("below", ["opt/lib/python3.14/site-packages", "usr/lib/dist-packages"])
@pytest.mark.parametrize("path", ["/staged/salt_3009.deb", "/staged/salt-3009.rpm"])
def test_a_package_is_compared_and_leaves_nothing(tmp_path, path, below):
    package = Package(_method("pass"), below)
    rows, targets = [METHOD, FUNCTION], {"salt": "3009.1-1"}
    found = known.unknown(rows, targets, [path], str(tmp_path), package)
    assert found == ["salt.minion.Minion._target is not there"]
    (asked,) = package.asked
    assert path in asked
    assert "*/site-packages/salt/minion.py" in asked
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("targets", [{"salt": "1:3008.3-2"}, {"salt": "2"}])
def test_a_tested_release_is_not_read_nor_what_is_no_salt(tmp_path, targets):
    package = Package(_method("pass"))
    assert known.unknown([METHOD], targets, ["/x.deb"], str(tmp_path), package) == []
    assert package.asked == []


def test_a_package_that_cannot_be_read_stops_nothing_and_is_told(tmp_path, caplog):
    found = known.unknown([METHOD], {"salt": "3009.1"}, ["/x.deb"], str(tmp_path), Package({}))
    assert found == []
    assert "sources of Salt 3009.1 could not be read" in caplog.text


@pytest.mark.parametrize("place", ["lib/python3.14/site-packages", "lib"])
@pytest.mark.parametrize("good", [True, False])
def test_a_tree_is_read_as_it_is(tmp_path, place, good):
    """Nothing is unpacked, and no program runs."""
    tree = tmp_path / "slot[1]" / "tree"
    source = tree / place / "salt"
    source.mkdir(parents=True)
    (source / "__init__.py").touch()
    (source / "minion.py").write_text(GOOD["salt.minion"] if good else "x = 1\n")
    found = known.unknown([METHOD], {"salt": "3009.1"}, [str(tree.parent)], str(tmp_path), None)
    assert found == ([] if good else ["salt.minion.Minion is not there"])
