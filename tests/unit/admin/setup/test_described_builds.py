"""What the state does that keeps builds described on a master."""

import os
import pathlib

import pytest

from saltext_safeupdate.admin.setup.described_builds import described
from saltext_safeupdate.core.errors import InputError, VerificationError
from saltext_safeupdate.core.slots import offers
from tests.support import builds

FILE = "salt-3008.3.tar.xz"


@pytest.fixture
def place(tmp_path):
    builds.tarball(tmp_path / FILE, builds.onedir())
    return tmp_path


def _offered(place):
    return [
        (each.manifest.version if each.manifest else "", each.problem)
        for each in offers.offers(offers.Directory(str(place)), keyring="", run=None)
    ]


def test_a_build_gets_its_manifest_once(place):
    told = described(str(place), "3008.3", [FILE], test=True)
    assert (told["result"], os.listdir(place)) == (None, [FILE])
    (path,) = told["changes"]
    told = described(str(place), "3008.3", [FILE])
    assert told["result"] is True
    assert list(told["changes"]) == [path]
    assert _offered(place) == [("3008.3", "")]
    written = os.stat(path).st_ino
    assert described(str(place), "3008.3", FILE)["changes"] == {}
    assert os.stat(path).st_ino == written


def test_a_file_that_is_another_one_is_described_anew(place):
    described(str(place), "3008.3", [FILE])
    builds.tarball(place / FILE, [*builds.onedir(), builds.member("salt/more", b"x")])
    assert described(str(place), "3008.3", [FILE], test=True)["result"] is None
    (change,) = described(str(place), "3008.3", [FILE])["changes"].values()
    assert change["old"] == "another one"
    assert described(str(place), "3008.3", [FILE])["changes"] == {}


def test_a_manifest_that_is_damaged_is_written_anew(place):
    (path,) = described(str(place), "3008.3", [FILE])["changes"]
    pathlib.Path(path).write_text("{")
    assert described(str(place), "3008.3", [FILE])["changes"]
    assert _offered(place) == [("3008.3", "")]


def test_wheels_may_be_named_by_a_pattern(place):
    builds.salt_wheel(place / "salt-3008.3-py3-none-any.whl")
    builds.wheel(place / "b-1.0-py3-none-any.whl", {"b.py": b"x"}, info="b-1.0.dist-info")
    given = {"python": "3.11", "machine": "any"}
    described(str(place), "3008.3", ["*.whl"], **given)
    assert described(str(place), "3008.3", ["salt*.whl", "b-1.0*"], **given)["changes"] == {}


def test_what_a_minion_would_refuse_is_not_described(place):
    builds.tarball(place / FILE, [*builds.onedir(), builds.symlink("salt/x", "/etc/passwd")])
    with pytest.raises(VerificationError, match="absolute path"):
        described(str(place), "3008.3", [FILE])
    assert os.listdir(place) == [FILE]


@pytest.mark.parametrize(
    ("directory", "files", "said"),
    [
        ("builds", [FILE], "the absolute path"),
        (None, [], "'files' in it"),
        (None, None, "'files' in it"),
        (None, ["other.tar"], "no file other.tar"),
        (None, ["../x/it.tar"], "no file ../x/it.tar"),
    ],
)
def test_what_is_not_there_is_told(place, directory, files, said):
    with pytest.raises(InputError, match=said):
        described(directory or str(place), "3008.3", files)


def test_a_version_that_may_have_lost_a_zero_is_refused(place):
    with pytest.raises(InputError, match="in quotes"):
        described(str(place), 3007.1, [FILE])
