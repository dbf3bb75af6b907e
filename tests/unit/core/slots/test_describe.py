import json
import os
import pathlib
import shlex

import pytest

from saltext_safeupdate.core.slots import describe, manifest, offers
from saltext_safeupdate.core.slots.store import Slots
from tests.support import builds, documents

PAGE = documents.REPO / "docs" / "ref" / "builds.md"
(COMMANDS,) = [block.text for block in documents.blocks(PAGE) if block.mark == "run"]
_, CALL, SIGN, _ = (shlex.split(line) for line in COMMANDS.splitlines())


@pytest.fixture
def here(tmp_path, monkeypatch):
    place = tmp_path / "builds"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_the_page_makes_a_build_that_a_minion_takes(here, tmp_path, capsys, monkeypatch):
    """Its commands, as they stand."""
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "r", "v", "x86_64")))
    assert CALL[:3] == ["python3", "-m", describe.__name__]
    builds.tarball(CALL[-1], builds.onedir())
    assert describe.main(CALL[3:]) == 0
    assert capsys.readouterr().out.strip() == SIGN[-1]
    (offer,) = offers.offers(offers.Directory(str(here)), keyring="", run=None)
    assert offer.problem == ""
    slots = Slots(str(tmp_path / "slots"))
    slot = slots.stage(offer.manifest, {CALL[-1]: str(here / CALL[-1])})
    assert slot.version == "3008.3"
    assert offer.manifest.unpacked == 15_000 + 2 * len(builds.BESIDE) + 6
    assert sorted(os.listdir(here)) == sorted([CALL[-1], SIGN[-1]]), "nothing is left"


def test_wheels_are_described_too(here, capsys, tmp_path):
    builds.salt_wheel("salt-3008.3-py3-none-any.whl")
    builds.wheel("b-1.0-py3-none-any.whl", {"b.py": b"x"}, info="b-1.0.dist-info")
    names = sorted(os.listdir(here))
    argv = [*names, "--version", "3008.3", "--python", "3.11", "--machine", "any"]
    assert describe.main(argv) == 0
    found = manifest.parse(pathlib.Path("salt-3008.3-wheels-any.json").read_bytes())
    assert (found.kind, found.python, found.machine) == ("wheels", "3.11", "any")
    assert sorted(found.files) == names
    # The interpreter of a minion has another path.
    files = {name: str(here / name) for name in names}
    slot = Slots(str(tmp_path / "slots")).stage(found, files, python="/opt" + "/python" * 20)
    assert slot.kind == "wheels"


@pytest.mark.parametrize(
    ("entries", "argv"),
    [
        ([*builds.onedir(), builds.symlink("salt/x", "/etc/passwd")], ["--version", "3008.3"]),
        (builds.onedir(), ["--version", "latest"]),
        (builds.onedir(), ["--version", "3008.3", "--machine", "a b"]),
        (builds.onedir(), ["--version", "3008.3", "--name", "../x"]),
    ],
    ids=["a link out", "no version", "no machine", "no name"],
)
def test_what_a_minion_would_refuse_gets_no_manifest(here, capsys, entries, argv):
    builds.tarball("salt.tar.xz", entries)
    assert describe.main(["salt.tar.xz", *argv]) == 1
    assert "is refused" in capsys.readouterr().err
    assert os.listdir(here) == ["salt.tar.xz"]
    assert os.listdir(here.parent) == ["builds"]


def test_a_file_that_is_not_there_is_told(here, capsys):
    assert describe.main(["nowhere.tar.xz", "--version", "3008.3"]) == 1
    assert "nowhere.tar.xz" in capsys.readouterr().err


def test_everybody_may_read_it(here):
    builds.tarball("salt.tar.xz", builds.onedir())
    path = describe.describe(["salt.tar.xz"], version="3008.3", name="salt")
    assert os.stat(path).st_mode & 0o777 == 0o644, "the file server does not run as root everywhere"
    assert json.loads(pathlib.Path(path).read_text())["name"] == "salt"
