import pytest

from saltext_safeupdate.core.packages import detect
from saltext_safeupdate.core.packages.dnf5 import Dnf5
from saltext_safeupdate.core.packages.own import Own, OwnFinder, find_own
from tests.support.fakes import FakeRunner
from tests.support.simulated import FakePackages


class Counted(FakePackages):
    """Owns its paths, and counts how often it is asked."""

    asked = 0
    stamped = 1

    def owners(self, paths):
        self.asked += 1
        return {path.strip("/") for path in paths if path.startswith("/salt")}

    def siblings(self, names):
        return {*names, "salt-common"}

    def stamp(self):
        return (self.stamped,)


@pytest.mark.parametrize(
    ("programs", "name"),
    [
        ({"dpkg-query", "apt-get"}, "apt"),
        ({"dpkg-query", "apt-get", "rpm", "dnf"}, "apt"),
        ({"rpm", "dnf", "yum"}, "dnf"),
        ({"rpm", "yum"}, "yum"),
        ({"rpm", "dnf5"}, "dnf5"),
        ({"rpm", "zypper"}, "zypper"),
        ({"dpkg-query"}, None),
        ({"rpm"}, None),
        (set(), None),
    ],
)
def test_the_package_manager_is_recognised_by_its_programs(monkeypatch, programs, name):
    monkeypatch.setattr(detect.shutil, "which", lambda each: each if each in programs else None)
    found = detect.detect(FakeRunner())
    assert (found and found.name) == name


def test_own_are_the_owners_and_their_siblings():
    own = find_own(Counted(), ["/salt-minion", "/elsewhere"])
    assert own == Own(frozenset({"salt-minion", "salt-common"}), False)


def test_what_belongs_to_no_package_has_no_siblings_either():
    assert find_own(Counted(), ["/opt/venv"]) == Own(frozenset(), False)


def test_what_is_configured_is_not_asked():
    manager = Counted()
    find = OwnFinder(manager, ["/salt"], ["mine"])
    assert find() == Own(frozenset({"mine"}), True)
    assert manager.asked == 0


def test_it_is_asked_again_only_when_the_database_has_changed():
    manager = Counted()
    find = OwnFinder(manager, ["/salt-minion"])
    assert find() == find()
    assert manager.asked == 1
    manager.stamped = 2
    find()
    assert manager.asked == 2


@pytest.mark.parametrize("name", ["dnf", "yum"])
def test_the_fifth_dnf_is_recognised_by_what_its_other_names_point_to(tmp_path, monkeypatch, name):
    (tmp_path / "dnf5").touch()
    (tmp_path / name).symlink_to("dnf5")
    programs = {"rpm": "/usr/bin/rpm", name: str(tmp_path / name)}
    monkeypatch.setattr(detect.shutil, "which", programs.get)
    found = detect.detect(FakeRunner())
    assert isinstance(found, Dnf5)
    assert found.name == name
