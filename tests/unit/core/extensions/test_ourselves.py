import json
import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError, VerificationError
from saltext_safeupdate.core.extensions import ourselves
from saltext_safeupdate.core.host.command import Result

PYTHON = "/opt/salt/bin/python3"


class Interpreter:
    """A Python that can load the extension once it is in its place."""

    def __init__(self, place, *, loads=lambda place: (place / "saltext_safeupdate").is_dir()):
        self.place, self.loads = place, loads
        self.error = None

    def __call__(self, argv, *, timeout, ok=(0,), env=None, stdin=None, keep=None):
        assert argv[:3] == (PYTHON, "-I", "-c")
        if self.error is not None:
            raise self.error
        if "sysconfig" in argv[3]:
            told = {"purelib": str(self.place), "python": [3, 11], "paths": [], "names": []}
            return Result(argv=argv, returncode=0, stdout=json.dumps(told), stderr="")
        assert argv[4:] == ("saltext_safeupdate",)
        if not self.loads(self.place):
            raise CommandError(argv, "exit status 1", returncode=1)
        return Result(argv=argv, returncode=0, stdout="", stderr="")


@pytest.fixture
def old(tmp_path):
    """Return the extension's home in an old tree."""
    home = tmp_path / "old" / "lib" / "saltext_safeupdate"
    (home / "core" / "__pycache__").mkdir(parents=True)
    (home / "__init__.py").write_text("v1")
    (home / "core" / "__pycache__" / "x.pyc").write_text("")
    metadata = home.parent / "saltext_safeupdate-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[salt.loader]\n")
    return home


@pytest.fixture
def new(tmp_path):
    place = tmp_path / "new"
    place.mkdir()
    return Interpreter(place)


def test_where_it_can_be_loaded_nothing_is_done(old, new):
    new.loads = lambda place: True
    assert ourselves.carry(PYTHON, new, str(old), {}) is None
    assert list(new.place.iterdir()) == []


def test_the_package_goes_along_with_its_metadata(old, new):
    assert ourselves.carry(PYTHON, new, str(old), {}) == str(new.place)
    assert (new.place / "saltext_safeupdate" / "__init__.py").read_text() == "v1"
    assert (new.place / "saltext_safeupdate-0.1.0.dist-info" / "entry_points.txt").exists()
    assert not list(new.place.rglob("__pycache__"))
    assert not list(new.place.glob("*.part"))


def test_it_is_read_from_the_copy_where_the_old_tree_is_gone(tmp_path, old, new):
    root, copy = tmp_path / "old", tmp_path / ".copy"
    root.rename(copy)
    ourselves.carry(PYTHON, new, str(old), {str(root): str(copy)})
    assert (new.place / "saltext_safeupdate" / "__init__.py").read_text() == "v1"


def test_it_may_be_done_again_after_a_crash(old, new):
    part = new.place / "saltext_safeupdate.part"
    part.mkdir()
    (part / "rubbish").write_text("")
    ourselves.carry(PYTHON, new, str(old), {})
    assert not part.exists()
    assert not (new.place / "saltext_safeupdate" / "rubbish").exists()


def test_what_still_cannot_be_loaded_is_an_error_that_says_what_to_do(old, new):
    new.loads = lambda place: False
    with pytest.raises(VerificationError, match="pip install"):
        ourselves.carry(PYTHON, new, str(old), {})


def test_an_interpreter_that_cannot_be_started_is_its_own_error(old, new):
    new.error = CommandError((PYTHON,), "cannot be started: No such file or directory")
    with pytest.raises(CommandError, match="cannot be started"):
        ourselves.carry(PYTHON, new, str(old), {})


def test_home_is_where_this_package_is():
    assert pathlib.Path(ourselves.home(), "core", "extensions", "ourselves.py").samefile(
        ourselves.__file__
    )
    assert os.path.basename(ourselves.home()) == "saltext_safeupdate"
