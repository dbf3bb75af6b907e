import contextlib
import errno
import os
import pathlib
import shutil

import pytest

from saltext_safeupdate.core.errors import (
    CommandError,
    InputError,
    SafeUpdateError,
    VerificationError,
)
from saltext_safeupdate.core.packages.request import File
from saltext_safeupdate.core.slots import installer
from saltext_safeupdate.core.slots import unit as unit_module
from saltext_safeupdate.core.slots.commands import Commands
from saltext_safeupdate.core.slots.installer import NAME, SlotInstaller
from saltext_safeupdate.core.slots.store import Slots
from saltext_safeupdate.core.slots.unit import SlotUnit
from tests.support.failing_disk import FailingDisk
from tests.support.simulated import Killed

from .test_unit import Systemd

MINION = "salt-minion"


class Place:
    """A host that runs from a package, with two slots."""

    def __init__(self, top, builds=()):
        self.top = top
        self.package = top / "salt-minion"
        self.units = top / "units"
        self.directory = str(top / "slots")
        self.slots = Slots(self.directory)
        self.systemd = Systemd(self.units, str(self.package))
        unit = SlotUnit(
            MINION,
            installer.program(self.directory, MINION),
            run=self.systemd,
            units=str(self.units),
        )
        self.bin = top / "bin"
        self.bin.mkdir(exist_ok=True)
        programs = os.path.dirname(installer.program(self.directory, MINION))
        commands = Commands(programs, str(self.bin))
        self.it = SlotInstaller(self.slots, MINION, unit, before="3006.28", commands=commands)
        for build in builds:
            self.slots.stage(*build, furnish=_furnish)

    def file(self, version):
        """Return what the record has of a version; of none, what stands for the package."""
        if version is None:
            return File(NAME, "3006.28", str(self.package), "")
        (slot,) = [slot for slot in self.slots.slots() if slot.version == version]
        return File(NAME, slot.build_version, os.path.dirname(slot.tree), slot.inventory)

    def install(self, version):
        self.it.install([self.file(version)])

    @property
    def installed(self):
        return self.it.installed([NAME])[NAME].partition("-")[0]

    def boot(self):
        """Start what a boot would start: systemd reads what is on the disk."""
        self.systemd(("systemctl", "daemon-reload"), timeout=1)
        started = self.systemd.argv.partition(" ")[0]
        assert os.access(started, os.X_OK), f"{started} is not there"
        return started

    def copy(self, top):
        shutil.copytree(self.top, top, symlinks=True)
        # A drop-in and the commands name programs by their absolute paths.
        for path in (top / "bin").iterdir():
            target = str(path.readlink()).replace(str(self.top), str(top))
            path.unlink()
            path.symlink_to(target)
        found = Place(top)
        for path in found.units.rglob("*.conf"):
            path.write_text(path.read_text().replace(str(self.top), str(top)))
        found.systemd(("systemctl", "daemon-reload"), timeout=1)
        return found


def _furnish(tree):
    place = pathlib.Path(tree, "lib", "saltext_safeupdate")
    place.mkdir(exist_ok=True)
    (place / "__init__.py").touch()


@pytest.fixture
def place(tmp_path, build):
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "salt-minion").touch(0o755)
    return Place(tmp_path / "place", [build("3007.15"), build("3008.3")])


def test_it_goes_from_the_package_to_slots_and_back(place):
    assert place.installed == "3006.28"
    for version in ("3007.15", "3008.3", "3007.15", "3008.3"):
        place.install(version)
        assert place.installed == version
        assert place.boot() == installer.program(place.directory, MINION)
    typed = place.bin / "salt-call"
    assert typed.resolve().is_relative_to(place.file("3008.3").path)
    place.install(None)
    assert place.installed == "3006.28"
    assert not os.path.lexists(typed)
    assert place.boot() == str(place.package)
    assert place.slots.active(MINION) is None
    assert len(place.slots.slots()) == 2, "they may be used again"


def test_a_link_that_systemd_does_not_follow_is_not_installed(place):
    """Nothing is reported that has no effect."""
    place.slots.activate(MINION, os.path.basename(place.file("3008.3").path))
    assert place.installed == "3006.28"


def test_where_it_is_not_known_what_runs_without_a_slot_nothing_is_installed(place):
    unit = SlotUnit(MINION, "/none", run=place.systemd, units=str(place.units))
    assert SlotInstaller(place.slots, MINION, unit, before="").installed([NAME]) == {}


def test_what_is_neither_needed_nor_to_be_kept_is_removed(place, build):
    place.slots.stage(*build("3006.1"), furnish=_furnish)
    place.install("3007.15")
    place.install("3008.3")
    place.it.tidy()
    assert len(place.slots.slots()) == 3, "one is kept"
    unit = SlotUnit(MINION, "/none", run=place.systemd, units=str(place.units))
    SlotInstaller(place.slots, MINION, unit, before="", keep=0).tidy()
    assert {slot.version for slot in place.slots.slots()} == {"3007.15", "3008.3"}


def test_where_commands_cannot_be_changed_the_minion_is_all_the_same(place, monkeypatch, caplog):
    """Such as below a /usr that is mounted read-only."""
    make = os.symlink

    def symlink(target, path):
        if os.fspath(path).startswith(str(place.bin)):
            raise OSError(errno.EROFS, "Read-only file system", path)
        make(target, path)

    monkeypatch.setattr(os, "symlink", symlink)
    place.install("3008.3")
    assert place.installed == "3008.3"
    assert "is not the minion's" in caplog.text


def test_other_packages_are_not_its_own(place):
    assert place.it.installed(["vim"]) == {}


def test_a_version_has_to_be_named(place):
    assert place.it.targets([NAME], "3008.3") == {NAME: "3008.3"}
    with pytest.raises(InputError, match="version of the build is missing"):
        place.it.targets([NAME], None)


def test_what_nobody_has_staged_is_not_found_by_itself(place):
    with pytest.raises(SafeUpdateError, match=r"is not staged .* request the update again"):
        place.it.download({NAME: "3009.1"}, "/d")


@pytest.mark.parametrize("version", [None, "3007.15"])
def test_what_is_secured_leads_back(place, version):
    place.install(version)
    secured = place.it.secure([NAME], "/d")
    assert secured == [place.file(version)]
    place.install("3008.3")
    place.it.verify(secured)
    place.it.install(secured)
    assert place.installed == (version or "3006.28")


def test_who_leaves_slots_goes_back_to_one_that_others_do_not_need(place):
    """Another minion of the host ends an update meanwhile. The way back of before is it again."""
    place.install("3007.15")
    place.install("3008.3")
    place.it.tidy([place.file("3007.15")])
    secured = place.it.secure([NAME], "/d")
    place.install(None)
    assert place.slots.prune(0) == []
    for _ in range(2):
        place.it.install(secured)
        assert place.installed == "3008.3"
    place.it.tidy()
    previous = os.path.basename(place.file("3007.15").path)
    assert place.slots.previous(MINION) == previous
    place.install(None)
    place.it.tidy([place.file("3008.3")])
    assert (place.slots.previous(MINION), len(place.slots.prune(0))) == (None, 1)


def test_where_the_unit_cannot_follow_back_the_slot_that_was_left_stays(place):
    place.install("3008.3")
    file = place.file("3008.3")
    place.install(None)
    place.systemd.behind = "/opt/other"
    with pytest.raises(CommandError, match="look for a drop-in after"):
        place.it.install([file])
    place.slots.prune(0)
    place.systemd.behind = ""
    place.boot()
    place.it.install([file])
    assert place.installed == "3008.3"


def test_what_does_not_lead_back_any_more_is_told_before(place):
    place.install("3007.15")
    _, path = place.file("3007.15"), pathlib.Path(place.file("3007.15").path)
    (path / "tree" / "salt-call").write_text("changed")
    with pytest.raises(VerificationError, match="has changed since it was made"):
        place.it.secure([NAME], "/d")


def test_nor_a_package_that_is_gone(place):
    place.package.unlink()
    with pytest.raises(VerificationError, match="runs from without a slot, is gone"):
        place.it.secure([NAME], "/d")


def test_nor_what_the_unit_would_not_start_without_a_slot(place):
    """Otherwise another version would run than is reported."""
    place.install("3008.3")
    place.systemd.fragment = str(place.top / "salt-minion.service")
    file = pathlib.Path(place.systemd.fragment)
    file.write_text(f"[Service]\nExecStart={place.package}\n")
    place.it.verify([place.file(None)])
    other = place.top / "other" / "salt-minion"
    other.parent.mkdir()
    other.touch(0o755)
    file.write_text(f"[Service]\nExecStart={other}\n")
    with pytest.raises(VerificationError, match=f"would run from {other}, .*Nothing was changed"):
        place.it.verify([place.file(None)])


def test_a_slot_that_was_made_anew_meanwhile_is_another(place, build):
    file = place.file("3008.3")
    place.slots.forget(os.path.basename(file.path))
    manifest, files = build("3008.3")

    def furnish(tree):
        _furnish(tree)
        pathlib.Path(tree, "more").touch()

    place.slots.stage(manifest, files, furnish=furnish)
    with pytest.raises(VerificationError, match="differs from its record"):
        place.it.verify([file])


def test_what_fails_fails_as_a_package_manager_does(place):
    os.chmod(place.directory, 0o775)
    with pytest.raises(CommandError, match="cannot be in"):
        place.install("3008.3")
    assert place.boot() == str(place.package)


def test_where_the_unit_cannot_follow_nothing_is_left(place, monkeypatch):
    """Such as below an /etc that is mounted read-only."""
    make = os.makedirs

    def makedirs(path, *args, **kwargs):
        if os.fspath(path).startswith(str(place.units)):
            raise OSError(errno.EROFS, "Read-only file system", path)
        make(path, *args, **kwargs)

    monkeypatch.setattr(os, "makedirs", makedirs)
    with pytest.raises(CommandError, match="Read-only file system"):
        place.install("3008.3")
    assert place.slots.active(MINION) is None
    assert place.boot() == str(place.package)


def test_where_the_unit_cannot_go_on_to_another_slot_the_one_before_stays(place, monkeypatch):
    """Its drop-in has to be written anew, as the unit has other arguments by now."""
    place.install("3007.15")
    place.systemd.fragment = str(place.top / "salt-minion.service")
    text = f"[Service]\nExecStart={place.package} -d\n"
    pathlib.Path(place.systemd.fragment).write_text(text)

    def write_atomic(path, text, **kwargs):
        raise OSError(errno.EROFS, "Read-only file system", path)

    with monkeypatch.context() as patch:
        patch.setattr(unit_module, "write_atomic", write_atomic)
        with pytest.raises(CommandError, match="Read-only file system"):
            place.install("3008.3")
    assert place.installed == "3007.15"
    assert place.slots.previous(MINION) is None
    assert place.boot() == installer.program(place.directory, MINION)


def test_links_that_nothing_follows_go_with_the_next_update(place):
    """Whoever activated them died before systemd was told."""
    ident = os.path.basename(place.file("3008.3").path)
    place.slots.activate(MINION, ident)
    place.it.tidy()
    assert place.slots.active(MINION) is None


def test_those_of_a_unit_that_somebody_has_taken_over_stay(place):
    """What is behind our drop-in may go again."""
    place.install("3008.3")
    place.systemd.behind = str(place.package)
    place.systemd(("systemctl", "daemon-reload"), timeout=1)
    place.it.tidy()
    place.systemd.behind = ""
    assert place.boot() == installer.program(place.directory, MINION)


@pytest.mark.parametrize("kind", ["kill", "full", "error"])
@pytest.mark.parametrize(
    ("before", "after"),
    [(None, "3008.3"), ("3007.15", "3008.3"), ("3007.15", None)],
    ids=["package to slot", "slot to slot", "slot to package"],
)
def test_a_fault_at_any_step_leaves_a_minion_to_start(
    place, tmp_path, monkeypatch, before, after, kind
):
    disk = FailingDisk(monkeypatch)
    place.install(before)
    whole = place.copy(tmp_path / "whole")
    with disk.at_work():
        whole.install(after)
    steps = disk.done
    assert steps > 3
    for at in range(1, steps + 1):
        faulty = place.copy(tmp_path / f"at{at}")
        with disk.at_work(kind, at), contextlib.suppress(Killed, CommandError):
            faulty.install(after)
        faulty.boot()
        assert faulty.installed in {version or "3006.28" for version in (before, after)}
        faulty.install(after)
        faulty.boot()
        assert faulty.installed == (after or "3006.28")
        shutil.rmtree(faulty.top)
