import os
import pathlib
import subprocess
import sys

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.extensions import supervisor_copy
from tests.support.fakes import FakeRunner


def _copies(directory):
    return sorted(path.name for path in directory.iterdir() if path.name.startswith("supervisor-"))


def test_the_core_is_copied_and_nothing_else(tmp_path):
    launcher = pathlib.Path(supervisor_copy.make(str(tmp_path / "state")))
    package = launcher.parents[1]
    assert launcher.name == "launch.py"
    assert sorted(path.name for path in package.iterdir()) == ["__init__.py", "core"]
    source = pathlib.Path(supervisor_copy.__file__).parents[1]
    assert {path.relative_to(package / "core") for path in package.rglob("core/**/*.py")} == {
        path.relative_to(source) for path in source.rglob("*.py")
    }
    assert os.stat(tmp_path / "state").st_mode & 0o777 == 0o700


def test_it_is_copied_once(tmp_path):
    first = supervisor_copy.make(str(tmp_path))
    made = os.stat(first).st_ino
    assert supervisor_copy.make(str(tmp_path)) == first
    assert os.stat(first).st_ino == made
    assert len(_copies(tmp_path)) == 1


def test_copies_of_other_versions_and_halves_of_copies_go(tmp_path):
    (tmp_path / "supervisor-0123").mkdir()
    (tmp_path / "supervisor-4567.part").mkdir()
    (tmp_path / "safeupdate.db").write_text("")
    supervisor_copy.make(str(tmp_path))
    assert len(_copies(tmp_path)) == 1
    assert (tmp_path / "safeupdate.db").exists()


@pytest.mark.usefixtures("real_process")
def test_the_copy_runs_without_the_package_it_came_from(tmp_path):
    launcher = supervisor_copy.make(str(tmp_path))
    # Nothing but the standard library is on its path, and settings that are none end it.
    argv = [sys.executable, "-I", "-S", "-B", launcher, str(tmp_path / "none.json")]
    ended = subprocess.run(
        argv, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
    )
    assert ended.returncode == 1
    assert "The supervisor has no settings" in ended.stderr


class TestInterpreter:
    PROBE = (supervisor_copy._SYSTEM_PYTHON, "-I", "-S", "-c", supervisor_copy._FITS)

    def test_the_system_one_where_it_fits(self):
        assert (
            supervisor_copy.interpreter(FakeRunner({self.PROBE: (0, "", "")}), {})
            == supervisor_copy._SYSTEM_PYTHON
        )

    def test_else_ours_in_the_linked_copy_of_its_tree(self, monkeypatch):
        monkeypatch.setattr(sys, "executable", "/opt/tree/bin/python3")
        too_old = FakeRunner({self.PROBE: (1, "", "")})
        found = supervisor_copy.interpreter(
            too_old, {"/opt/other": "/x", "/opt/tree": "/opt/.copy"}
        )
        assert found == "/opt/.copy/bin/python3"

    def test_else_the_one_that_runs(self, monkeypatch):
        monkeypatch.setattr(sys, "executable", "/usr/local/bin/python3")
        gone = FakeRunner({self.PROBE: CommandError(self.PROBE, "cannot be started")})
        assert supervisor_copy.interpreter(gone, {"/opt/tree": "/x"}) == "/usr/local/bin/python3"
