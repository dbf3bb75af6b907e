import shutil
from dataclasses import replace

import pytest

from saltext_safeupdate.core.errors import VerificationError
from saltext_safeupdate.core.extensions.carry import carry_extensions
from saltext_safeupdate.core.host.command import run

from .pythons import MINOR, NEXT, compiled, inventory, stage


def test_pure_ones_are_copied_and_can_be_imported_in_the_new_place(old, new, staged):
    old.add("saltext-safeupdate", point="saltext_safeupdate")
    old.add("saltext.zfs", files={"saltext/zfs/__init__.py": "x = 1"}, point="saltext.zfs")
    old.add("saltext.mysql", files={"saltext/mysql/__init__.py": ""}, point="saltext.mysql")
    assert stage(inventory(old), staged, old.path) == []
    shutil.rmtree(old.place.parents[2])
    put = carry_extensions(new.path, run, staged)
    assert put == ["saltext-safeupdate", "saltext.mysql", "saltext.zfs"]
    assert {each.name for each in inventory(new)} == set(put)
    assert (new.place / "saltext" / "zfs" / "__init__.py").read_text() == "x = 1"
    assert not list(new.place.rglob("*.part"))


def test_what_is_there_already_is_left_alone(old, new, staged):
    old.add("mine")
    new.add("mine", "2.0")
    stage(inventory(old), staged, old.path)
    assert carry_extensions(new.path, run, staged) == []
    assert [each.version for each in inventory(new)] == ["2.0"]


def test_where_nothing_was_staged_nothing_is_asked(staged):
    def runner(*_, **__):
        pytest.fail("no program is needed")

    assert carry_extensions("/none", runner, staged) == []


def test_carrying_again_after_a_cut_completes_it(old, new, staged):
    old.add("mine", files={"mine/a.py": "", "mine/b.py": ""})
    stage(inventory(old), staged, old.path)
    # Cut before the metadata was there.
    (new.place / "mine").mkdir()
    (new.place / "mine" / "a.py.part").write_text("half")
    carry_extensions(new.path, run, staged)
    assert sorted(path.name for path in (new.place / "mine").iterdir() if path.is_file()) == [
        "__init__.py",
        "a.py",
        "b.py",
    ]


def test_what_cannot_be_imported_there_is_told_with_the_others_in_place(old, new, staged):
    old.add("needy", files={"needy/__init__.py": "import needed"})
    old.add("needed", files={"needed/__init__.py": "x = 1"})
    found = [each for each in inventory(old) if each.name == "needy"]
    assert found[0].modules == ("needy",)
    old.add("zfine")
    found += [each for each in inventory(old) if each.name == "zfine"]
    stage(found, staged, old.path)
    with pytest.raises(VerificationError, match=r"needy 1\.0 .*No module named 'needed'"):
        carry_extensions(new.path, run, staged)
    assert (new.place / "zfine" / "__init__.py").exists()


def test_the_place_of_salt_pip_has_its_successor(old, new, staged, tmp_path):
    for python, name in ((old, "extras-3.1"), (new, "extras-3.2")):
        extras = tmp_path / python.place.parents[2].name / name
        (python.place / "extras.pth").write_text(
            f"import sys; sys.path.insert(0, {str(extras)!r})\n"
        )
    old.add("beside", place=tmp_path / "old" / "extras-3.1")
    old.add("inside")
    stage(inventory(old), staged, old.path)
    carry_extensions(new.path, run, staged)
    assert (tmp_path / "new" / "extras-3.2" / "beside" / "__init__.py").exists()
    assert (new.place / "inside" / "__init__.py").exists()


def test_what_has_no_build_is_not_put_there_and_told(old, new, staged):
    found = [replace(compiled(old), python=NEXT)]
    (problem,) = stage(found, staged, old.path, MINOR)
    assert problem.extension == "fastext"
    with pytest.raises(VerificationError, match=r"fastext 1\.0 \(no build"):
        carry_extensions(new.path, run, staged)
    assert not (new.place / "fastext").exists()
