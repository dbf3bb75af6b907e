import os
import pathlib

import pytest

from saltext_safeupdate.core.slots.commands import Commands


class Place:
    def __init__(self, top):
        self.programs = top / "active" / "bin"
        self.programs.mkdir(parents=True)
        self.bin = top / "bin"
        self.bin.mkdir()
        self.has("salt-call", "salt-pip", "salt-minion")
        self.it = Commands(str(self.programs), str(self.bin))

    def has(self, *names):
        for path in self.programs.iterdir():
            path.unlink()
        for name in names:
            (self.programs / name).touch(0o755)

    @property
    def links(self):
        return {path.name: str(path.readlink()) for path in self.bin.iterdir() if path.is_symlink()}


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_what_is_typed_is_of_the_slot_and_again_of_the_package(place):
    for _ in range(2):
        place.it.follow()
        assert place.links == {
            name: str(place.programs / name) for name in ("salt-call", "salt-pip")
        }
    for _ in range(2):
        place.it.leave()
        assert os.listdir(place.bin) == []


def test_what_a_slot_has_not_is_that_of_the_package(place):
    """One that was made of wheels has no salt-pip."""
    place.it.follow()
    place.has("salt-call", "salt-minion")
    place.it.follow()
    assert list(place.links) == ["salt-call"]


def test_what_somebody_else_has_put_there_stays(place):
    (place.bin / "salt-call").write_text("mine")
    (place.bin / "salt-pip").symlink_to("/opt/other/salt-pip")
    place.it.follow()
    place.it.leave()
    assert (place.bin / "salt-call").read_text() == "mine"
    assert place.links == {"salt-pip": "/opt/other/salt-pip"}


def test_without_such_a_directory_there_are_none(tmp_path):
    (tmp_path / "salt-call").touch(0o755)
    it = Commands(str(tmp_path), str(tmp_path / "none"))
    it.follow()
    it.leave()
    assert os.listdir(tmp_path) == ["salt-call"]
    assert pathlib.Path(tmp_path, "salt-call").exists()
