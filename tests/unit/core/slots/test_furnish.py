import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError, VerificationError
from saltext_safeupdate.core.host.command import run
from saltext_safeupdate.core.slots import wheels
from saltext_safeupdate.core.slots.furnish import furnish, furnish_from
from saltext_safeupdate.core.slots.tree import Tree
from tests.support import builds

from ..extensions.pythons import ABI, MINOR, Python, inventory, stage

OURS = {"saltext_safeupdate/core/__init__.py": "x = 1", "saltext_safeupdate/__pycache__/a.pyc": ""}


@pytest.fixture
def old(tmp_path, real_process):
    """The interpreter that the minion runs with, which has this extension."""
    found = Python(tmp_path / "old")
    found.add("saltext_safeupdate", point="saltext_safeupdate", files=OURS)
    return found


@pytest.fixture
def home(old):
    return str(old.place / "saltext_safeupdate")


@pytest.fixture
def staged(tmp_path, old):
    """Stage what is beside Salt; return where."""
    place = str(tmp_path / "staged")

    def call():
        assert stage(inventory(old), place, old.path) == []
        return place

    return call


@pytest.fixture
def onedir(tmp_path, real_process):
    """A tree with an interpreter of its own."""
    made = Python(tmp_path / "tree")
    program = tmp_path / "tree" / "bin" / "salt-minion"
    program.write_text(f"#!{made.path}\n")
    program.chmod(0o755)
    made.tree = str(tmp_path / "tree")
    return made


@pytest.fixture
def library(tmp_path):
    """A tree that was made of wheels; where its modules are."""
    tree = tmp_path / "wheels"
    tree.mkdir()
    path = builds.salt_wheel(tmp_path / "salt.whl")
    wheels.unpack([path], Tree(str(tree), size=1 << 20), python=builds.PYTHON)
    return tree / "lib"


def _no_program(argv, **_):
    pytest.fail(f"it ran {argv}")


def test_a_onedir_gets_all_of_them(onedir, old, home, staged):
    old.add("saltext.zfs", files={"saltext/zfs/__init__.py": "x = 1"}, point="saltext.zfs")
    furnish(onedir.tree, home, staged(), run)
    assert {each.name for each in inventory(onedir)} == {"saltext_safeupdate", "saltext.zfs"}
    assert (onedir.place / "saltext_safeupdate" / "core" / "__init__.py").read_text() == "x = 1"


def test_a_onedir_gets_this_extension_also_if_nothing_is_staged(onedir, home, tmp_path):
    furnish(onedir.tree, home, str(tmp_path / "none"), run)
    assert {each.name for each in inventory(onedir)} == {"saltext_safeupdate"}


def test_what_a_onedir_cannot_load_is_told(onedir, old, home, staged):
    old.add("needed", files={"needed/__init__.py": ""})
    old.add("needy", files={"needy/__init__.py": "import needed"})
    place = staged()
    for path in pathlib.Path(place).rglob("needed/*.py"):
        path.write_text("import nothing_of_that_name")
    with pytest.raises(VerificationError, match="cannot import these extensions"):
        furnish(onedir.tree, home, place, run)


def test_an_interpreter_that_does_not_run_here_is_told(onedir, home, tmp_path):
    """Such as one for another machine."""
    python = pathlib.Path(onedir.path)
    python.unlink()
    python.write_bytes(b"\x7fELF")
    python.chmod(0o755)
    with pytest.raises(SafeUpdateError, match=r"does not work here: .* Nothing was changed"):
        furnish(onedir.tree, home, str(tmp_path / "none"), run)


def test_wheels_get_this_extension_beside_salt_and_nothing_runs(library, home, tmp_path):
    furnish(str(library.parent), home, str(tmp_path / "none"), _no_program)
    assert (library / "saltext_safeupdate" / "core" / "__init__.py").read_text() == "x = 1"
    assert not list(library.rglob("*.pyc"))
    assert "saltext_safeupdate-1.0.dist-info" in os.listdir(library)


def test_one_that_the_wheels_bring_stays(library, home, tmp_path):
    (library / "saltext_safeupdate").mkdir()
    furnish(str(library.parent), home, str(tmp_path / "none"), _no_program)
    assert os.listdir(library / "saltext_safeupdate") == []


def test_what_wheels_lack_is_named_and_nothing_is_put_beside_the_hosts_python(
    library, old, home, staged
):
    old.add("saltext.zfs", files={"saltext/zfs/__init__.py": "x = 1"}, point="saltext.zfs")
    place = staged()
    with pytest.raises(SafeUpdateError, match=r"does not have saltext\.zfs, .*add wheels of that"):
        furnish(str(library.parent), home, place, _no_program)
    (library / "saltext" / "zfs").mkdir(parents=True)
    (library / "saltext_zfs").mkdir()
    furnish(str(library.parent), home, place, _no_program)
    assert (library / "saltext_safeupdate").is_dir()


# -- all that is beside the Salt that runs -----------------------------------------------------


@pytest.fixture
def running(old, tmp_path):
    """The program of the minion; its Salt is of no package."""
    old.add("salt", "3007.15", needs=["jinja2"])
    old.add("jinja2")
    old.add("saltext.zfs", files={"saltext/zfs/__init__.py": "x = 1"}, point="saltext.zfs")
    path = tmp_path / "salt-minion"
    path.write_text(f"#!{old.path}\n")
    return str(path)


def _furnish_from(tree, home, running, strict=True):
    furnish_from(tree, home, running, unowned=set, run=run, look=run, strict=strict)


def test_from_no_package_a_slot_gets_what_is_beside_salt_and_not_salt(onedir, home, running):
    _furnish_from(onedir.tree, home, running)
    found = {each.name for each in inventory(onedir)}
    assert found == {"saltext_safeupdate", "saltext.zfs"}
    assert sorted(os.listdir(os.path.dirname(onedir.tree)))[-1] == "tree", "nothing is left"


def test_from_slot_to_slot_they_come_along_again(onedir, home, running, tmp_path):
    onedir.add("salt", "3008.3")
    _furnish_from(onedir.tree, home, running)
    following = Python(tmp_path / "next")
    program = tmp_path / "next" / "bin" / "salt-minion"
    program.write_text(f"#!{following.path}\n")
    here = str(onedir.place / "saltext_safeupdate")
    _furnish_from(str(tmp_path / "next"), here, str(tmp_path / "tree" / "bin" / "salt-minion"))
    assert {each.name for each in inventory(following)} == {"saltext_safeupdate", "saltext.zfs"}


def _for_another_python(onedir):
    """A build whose Python is a later one, for which pip has nothing."""
    path = onedir.place.parent
    path.rename(path.parent / f"python3.{MINOR + 1}")


def test_what_does_not_come_along_stops_it_unless_that_is_not_wanted(library, old, home, running):
    with pytest.raises(SafeUpdateError, match="does not have saltext"):
        _furnish_from(str(library.parent), home, running)
    assert not (library / "saltext_safeupdate").exists()
    _furnish_from(str(library.parent), home, running, strict=False)
    assert (library / "saltext_safeupdate").is_dir()


def test_what_is_beside_the_interpreter_that_both_run_with_is_there(library, home, running):
    """From slot to slot of wheels: the Python of the host has more than Salt needs."""
    program = library.parent / "bin" / "salt-minion"
    interpreter = pathlib.Path(running).read_text().partition("\n")[0]
    program.write_text(f"{interpreter}\n")
    _furnish_from(str(library.parent), home, running)
    assert (library / "saltext_safeupdate").is_dir()


def test_what_is_compiled_for_another_python_is_told(onedir, old, home, running):
    old.add("fastext", files={f"fastext/fast{ABI}": "compiled"})
    _for_another_python(onedir)
    with pytest.raises(SafeUpdateError, match=rf"compiled for Python 3\.{MINOR}.*'report'"):
        _furnish_from(onedir.tree, home, running)


def test_a_minion_whose_program_names_no_interpreter_has_this_extension(library, home, tmp_path):
    (tmp_path / "binary").write_bytes(b"\x7fELF")
    _furnish_from(str(library.parent), home, str(tmp_path / "binary"))
    assert (library / "saltext_safeupdate").is_dir()
