"""Another version of this extension is noticed when its installation has ended, and once."""

import os

import pytest

from saltext_safeupdate.core.extensions.upgrade import Upgrade, stamp
from tests.support.simulated import Clock


class Installed:
    """What is installed in a directory, and who looks at it."""

    def __init__(self, path):
        self.path = path
        self.clock = Clock()
        self.put("1.0")
        self.upgrade = self.looks()

    def put(self, version):
        part = self.path / "part"
        part.write_text(f'__version__ = "{version}"\n')
        os.replace(part, self.path / "__init__.py")

    def looks(self, running="1.0", before=None):
        return Upgrade(str(self.path), running, before, monotonic=self.clock.monotonic)

    def later(self):
        self.clock.work(20)
        return self.upgrade.noticed()


@pytest.fixture
def installed(tmp_path):
    return Installed(tmp_path)


def test_nothing_is_noticed_if_nothing_was_installed(installed):
    assert [installed.later() for _ in range(3)] == ["", "", ""]


@pytest.mark.parametrize("version", ["2.0", "1.0"])
def test_what_was_installed_while_no_engine_ran_is_noticed(installed, version):
    before = stamp(str(installed.path))
    assert installed.upgrade.is_as_noted()
    installed.put(version)
    assert not installed.upgrade.is_as_noted()
    installed.upgrade = installed.looks(before=before)
    assert not installed.upgrade.is_as_noted()
    assert installed.later() == version
    installed.upgrade = installed.looks(running=version, before=stamp(str(installed.path)))
    assert installed.upgrade.is_as_noted()
    assert installed.later() == ""


@pytest.mark.parametrize("version", ["2.0", "0.9", "1.0"])
def test_another_installation_is_noticed_when_it_has_ended(installed, version):
    installed.later()
    installed.put(version)
    assert installed.later() == ""
    installed.put(version)
    assert installed.later() == ""
    assert installed.later() == version
    # Until the restart is asked for, again and again.
    assert installed.later() == version
    installed.upgrade.settle()
    assert installed.later() == ""
    installed.put("3.0")
    installed.later()
    assert installed.later() == "3.0"


def test_a_removed_one_is_none(installed):
    (installed.path / "__init__.py").unlink()
    assert [installed.later() for _ in range(3)] == ["", "", ""]


def test_what_came_before_the_engine_began_again_is_noticed(installed):
    installed.put("2.0")
    installed.upgrade = installed.looks()
    assert installed.later() == "2.0"


@pytest.mark.parametrize("now", ["0.9", "1.0", "2.0"])
def test_what_pip_leaves_of_earlier_versions_goes(tmp_path, now):
    """The bundle has pip install into a target: it replaces the files, and adds metadata."""
    home = tmp_path / "saltext_safeupdate"
    others = [tmp_path / name for name in ("saltext_other-1.0.dist-info", "x.pth")]
    for version in ("0.9", "1.0", "2.0"):
        metadata = tmp_path / f"saltext_safeupdate-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text("")
        os.utime(metadata, (9, 9) if version == now else (5, 5))
    for each in (home, *others):
        each.mkdir()
    Upgrade(str(home), now).tidy()
    Upgrade(str(home), now).tidy()
    kept = {"saltext_safeupdate", f"saltext_safeupdate-{now}.dist-info"}
    assert set(os.listdir(tmp_path)) == {*kept, *(each.name for each in others)}


def test_a_look_is_rare(installed):
    installed.upgrade = installed.looks(running="0")
    found = []
    for _ in range(19):
        installed.clock.work(1)
        found.append(installed.upgrade.noticed())
    assert found.count("1.0") == 1
