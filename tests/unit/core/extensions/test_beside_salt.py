import os
import shutil
import sys

import pytest

from saltext_safeupdate.core.errors import CommandError, SafeUpdateError
from saltext_safeupdate.core.extensions import beside_salt
from saltext_safeupdate.core.host.command import run

from .pythons import ABI, MINOR, NEXT, compiled, inventory, stage, write_wheel


def test_a_compiled_one_is_fetched_for_the_other_python(old, staged, tmp_path, index):
    write_wheel(tmp_path / "wheels", "fastext", NEXT)
    assert stage([compiled(old)], staged, sys.executable, NEXT, index) == []
    fetched = os.listdir(os.path.join(staged, f"3.{NEXT}", "fastext", "fastext"))
    assert sorted(fetched) == ["__init__.py", f"fast.cpython-3{NEXT}.so"]
    # What is there now stays at hand, for the way back.
    assert f"fast{ABI}" in os.listdir(os.path.join(staged, f"3.{MINOR}", "fastext", "fastext"))


def test_staging_again_fetches_nothing_again(old, staged, tmp_path, index):
    write_wheel(tmp_path / "wheels", "fastext", NEXT)
    each = compiled(old)
    stage([each], staged, sys.executable, NEXT, index)
    shutil.rmtree(tmp_path / "wheels")
    assert stage([each], staged, sys.executable, NEXT, index) == []


def test_what_has_no_build_for_the_other_python_is_a_problem_and_the_rest_is_staged(
    old, staged, tmp_path, index
):
    write_wheel(tmp_path / "wheels", "fastext", MINOR)
    old.add("pure")
    found = [compiled(old), *(each for each in inventory(old) if each.name == "pure")]
    (problem,) = stage(found, staged, sys.executable, NEXT, index)
    assert problem.extension == "fastext"
    assert f"no build of it for Python 3.{NEXT} could be fetched: ERROR" in problem.reason
    assert "fastext" in problem.fix
    assert [each.name for each in beside_salt.load_staged(staged)] == ["fastext", "pure"]


def test_without_pip_it_is_a_problem_too(old, staged):
    (problem,) = stage([compiled(old)], staged, old.path, NEXT)
    assert "could be fetched" in problem.reason


@pytest.mark.parametrize(
    ("file", "minor"), [("fast.abi3.so", NEXT), (f"fast{ABI}", MINOR), (f"fast{ABI}", None)]
)
def test_a_compiled_one_that_works_there_as_it_is_is_copied(old, staged, file, minor):
    old.add("fastext", files={f"fastext/{file}": "compiled"})
    assert stage(inventory(old), staged, "/no/python", minor) == []
    assert set(os.listdir(staged)) == {f"3.{MINOR}", "extensions.json"}


def test_no_space_is_an_error_that_says_what_is_safe(old, staged, monkeypatch):
    old.add("mine")
    found = inventory(old)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copy2", full)
    with pytest.raises(SafeUpdateError, match=r"No space left .* Nothing was changed"):
        stage(found, staged, old.path)


def test_the_list_is_the_last_that_is_written(old, staged, monkeypatch):
    old.add("mine")
    found = inventory(old)
    monkeypatch.setattr(beside_salt, "write_atomic", lambda path, text: None)
    stage(found, staged, old.path)
    assert beside_salt.load_staged(staged) == []


# -- beside the Salt that a program runs ---------------------------------------------------


@pytest.fixture
def program(old, tmp_path):
    path = tmp_path / "salt-minion"
    path.write_text(f"#!{old.path}\n")
    return str(path)


def test_what_a_record_carries(old, program, tmp_path):
    old.add("picky", requires=f"<3.{MINOR}")
    told = beside_salt.stage_beside_salt(program, str(tmp_path), unowned=set, run=run)
    assert told == (str(tmp_path / "extensions"), [])
    assert [each.name for each in beside_salt.load_staged(told[0])] == ["picky"]


def test_what_is_beside_a_salt_of_the_onedir_packages(old, tmp_path):
    """Their programs are started by a shell, so that their directory can be moved."""
    old.add("picky")
    program = tmp_path / "old" / "salt-minion"
    program.write_text(
        "#!/bin/sh\n\"true\" ''''\n"
        '"exec" "$(dirname "$(readlink -f "$0")")/bin/python3" "$0" "$@"\n'
        "' '''\n"
    )
    told = beside_salt.stage_beside_salt(str(program), str(tmp_path), unowned=set, run=run)
    assert [each.name for each in beside_salt.load_staged(told[0])] == ["picky"]


def test_without_room_none_is_copied(old, program, tmp_path, monkeypatch):
    old.add("picky")
    monkeypatch.setattr(beside_salt.room, "free", lambda *_: beside_salt.room.RESERVE)
    where, (said,) = beside_salt.stage_beside_salt(program, str(tmp_path), unowned=set, run=run)
    assert where == ""
    assert "There is no room to stage the extensions of Salt's Python: the file system of" in said
    assert not (tmp_path / "extensions").exists()


def test_who_does_not_fit_the_new_package_is_told(old, program, tmp_path):
    old.add("picky", requires=f"<3.{NEXT}")

    def runner(argv, **kwargs):
        if argv[0] != "dpkg-deb":
            return run(argv, **kwargs)
        path = f"./lib/python3.{NEXT}/site-packages/salt/__init__.py"
        return run(("echo", path), timeout=60)

    told = beside_salt.stage_beside_salt(
        program, str(tmp_path), files=["/x.deb"], unowned=set, run=runner
    )
    (said,) = told[1]
    assert said.startswith("picky 1.0 does not go with")
    assert "or remove it" in said


def test_a_program_of_another_kind_has_no_extensions(tmp_path):
    def runner(*_, **__):
        pytest.fail("no program is needed")

    for program in (None, "/bin/true"):
        assert beside_salt.stage_beside_salt(program, str(tmp_path), unowned=set, run=runner) == (
            "",
            [],
        )


def test_extensions_that_cannot_be_looked_at_are_in_nobodys_way(program, tmp_path):
    def runner(argv, **_):
        raise CommandError(argv, "cannot be started")

    assert beside_salt.stage_beside_salt(program, str(tmp_path), unowned=set, run=runner) == (
        "",
        [],
    )
