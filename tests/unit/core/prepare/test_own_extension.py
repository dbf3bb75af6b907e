"""This extension as a package: fetched, secured, installed and put back."""

import os
import shutil
import sys

import pytest

from saltext_safeupdate.core.errors import CommandError, SafeUpdateError, VerificationError
from saltext_safeupdate.core.host.command import Result, run
from saltext_safeupdate.core.packages.request import File
from saltext_safeupdate.core.prepare.own_extension import NAME, OwnExtension
from tests.support import wheels


class Pip:
    """A pip that finds what is in a directory."""

    def __init__(self, directory):
        self.directory, self.calls = directory, []

    def __call__(self, argv, *, timeout, env=None, **kwargs):
        self.calls.append((argv, env))
        version = argv[-1].partition("==")[2]
        found = self.directory / f"saltext_safeupdate-{version}-py3-none-any.whl"
        if not found.exists():
            raise CommandError(argv, "exit status 1", stderr="ERROR: No matching distribution")
        (dest,) = (each[7:] for each in argv if each.startswith("--dest="))
        shutil.copy(found, dest)
        return Result(argv=tuple(argv), returncode=0, stdout="", stderr="")


@pytest.fixture
def place(tmp_path):
    return wheels.install(tmp_path / "place", "1.1")


@pytest.fixture
def made(tmp_path, place):
    wheels.write(tmp_path / "wheels", "1.2")
    (tmp_path / "staged").mkdir()
    return OwnExtension(str(place), "/opt/salt/bin/python3", Pip(tmp_path / "wheels"))


def _fetch(made, tmp_path, version="1.2"):
    files = made.download({NAME: version}, str(tmp_path / "staged"))
    made.verify(files)
    return files


def test_it_is_replaced_as_a_whole_and_put_back(made, place, tmp_path):
    before = wheels.there(place)
    files = _fetch(made, tmp_path)
    (tmp_path / "old").mkdir()
    secured = made.secure([NAME], str(tmp_path / "old"))
    assert made.installed([NAME]) == {NAME: "1.1"}
    made.install(files)
    assert (made.installed([NAME]), wheels.there(place)) == ({NAME: "1.2"}, wheels.files("1.2"))
    made.verify(secured)
    made.install(secured)
    assert wheels.there(place) == before
    assert sorted(os.listdir(place)) == ["saltext_safeupdate", "saltext_safeupdate-1.1.dist-info"]


@pytest.mark.parametrize("verb", ["rmtree", "rename", "rmdir"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_killed_in_between_it_is_not_installed_and_done_again(
    made, place, tmp_path, monkeypatch, verb, nth
):
    class Died(BaseException):
        pass

    module, calls = (shutil if verb == "rmtree" else os), []
    real = getattr(module, verb)

    def dies(*args, **kwargs):
        calls.append(args)
        if len(calls) == nth:
            raise Died
        return real(*args, **kwargs)

    files = _fetch(made, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, verb, dies)
        try:
            made.install(files)
        except Died:
            assert made.installed([NAME]) in ({}, {NAME: "1.1"}, {NAME: "1.2"})
    made.install(files)
    assert wheels.there(place) == wheels.files("1.2")


def test_what_pip_leaves_of_an_earlier_version_is_in_nobodys_way(made, place, tmp_path):
    stale = place / "saltext_safeupdate-1.0.dist-info"
    stale.mkdir()
    (stale / "METADATA").write_text("Name: saltext-safeupdate\nVersion: 1.0\n")
    before = wheels.there(place)
    assert made.problem([made.file]) == ""
    assert made.installed([NAME]) == {NAME: "1.1"}
    (tmp_path / "old").mkdir()
    secured = made.secure([NAME], str(tmp_path / "old"))
    made.install(_fetch(made, tmp_path))
    assert wheels.there(place) == wheels.files("1.2")
    made.verify(secured)
    made.install(secured)
    assert wheels.there(place) == before


def test_altered_since_it_is_refused(made, tmp_path):
    files = _fetch(made, tmp_path)
    with open(files[0].path, "ab") as file:
        file.write(b"more")
    with pytest.raises(VerificationError, match="has changed"):
        made.verify(files)


@pytest.mark.parametrize(
    "name", ["../../etc/cron.d/x", "other/__init__.py", "/etc/x", "saltext_safeupdate/../../x"]
)
def test_what_lies_elsewhere_is_refused(made, place, tmp_path, name):
    wheels.write(tmp_path / "wheels", "1.2", **{name: ""})
    with pytest.raises(VerificationError, match="no package"):
        _fetch(made, tmp_path)
    files = made.download({NAME: "1.2"}, str(tmp_path / "staged"))
    with pytest.raises(CommandError):
        made.install(files)
    assert made.installed([NAME]) == {NAME: "1.1"}


def test_another_version_under_that_name_is_refused(made, tmp_path):
    wheels.write(tmp_path / "wheels", "1.3").rename(
        tmp_path / "wheels" / "saltext_safeupdate-1.2-py3-none-any.whl"
    )
    with pytest.raises(VerificationError, match=r"is saltext-safeupdate 1\.3"):
        _fetch(made, tmp_path)


def test_nobody_offers_it(made, tmp_path):
    with pytest.raises(SafeUpdateError, match=r"No matching distribution.*Nothing was changed"):
        _fetch(made, tmp_path, "1.9")


@pytest.mark.parametrize(
    ("source", "env"),
    [
        ("", {}),
        ("https://me:secret@index/simple", {"PIP_INDEX_URL": "https://me:secret@index/simple"}),
        ("/srv/wheels", {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/srv/wheels"}),
    ],
)
def test_where_it_comes_from_is_no_argument(made, tmp_path, source, env):
    pip = Pip(tmp_path / "wheels")
    asked = OwnExtension(str(tmp_path / "place"), "/python", pip, source)
    asked.download({NAME: "1.2"}, str(tmp_path / "staged"))
    ((argv, given),) = pip.calls
    assert given == env
    assert not any("secret" in each for each in argv)
    assert "--no-deps" in argv


def test_with_the_real_pip(place, tmp_path, real_process):
    wheels.write(tmp_path / "wheels", "1.2")
    (tmp_path / "staged").mkdir()
    made = OwnExtension(str(place), sys.executable, run, str(tmp_path / "wheels"))
    assert _fetch(made, tmp_path)[0].version == "1.2"
    with pytest.raises(SafeUpdateError, match=r"No matching distribution"):
        _fetch(made, tmp_path, "1.9")


def test_what_cannot_be_updated_says_why(made, place, tmp_path):
    assert made.problem([made.file]) == ""
    assert "part of a package" in made.problem([])
    shutil.rmtree(place / "saltext_safeupdate-1.1.dist-info")
    assert "not installed by pip" in made.problem([made.file])
    with pytest.raises(VerificationError):
        made.verify([File(NAME, "1.2", str(tmp_path / "missing"), "")])
