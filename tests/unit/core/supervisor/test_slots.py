"""An update to a slot: the phases of every update, through the supervisor as it is."""

import os
import pathlib
import shutil

import pytest

from saltext_safeupdate.core.errors import VerificationError
from saltext_safeupdate.core.generations import replaced
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.packages.request import File
from saltext_safeupdate.core.prepare import revisions
from saltext_safeupdate.core.prepare.revisions import PREVIOUS, Previous
from saltext_safeupdate.core.prepare.staging import Staging
from saltext_safeupdate.core.record.parts import Code, Request, Staged
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.slots import installer
from saltext_safeupdate.core.slots.installer import NAME, SlotInstaller
from saltext_safeupdate.core.slots.store import Slots
from saltext_safeupdate.core.slots.unit import SlotUnit
from tests.support import builds
from tests.support.builds import member

from ..conftest import OLD
from ..slots.test_unit import Systemd

MINION = "salt-minion"
SITE = "salt/lib/python3.11/site-packages"


class Slotted:
    """The host, with a unit that systemd starts, builds, and slots."""

    def __init__(self, host, top):
        self.host = host
        self.directory = str(top / "slots")
        self.slots = Slots(self.directory, clock=host.clock)
        self.package = top / "usr" / "bin" / "salt-minion"
        self.package.parent.mkdir(parents=True)
        self.package.touch(0o755)
        self.units = top / "units"
        self.systemd = Systemd(self.units, str(self.package))
        self._source = top / "source"
        self._source.mkdir()
        self.before = "3006.28"
        # Whether systemd says nothing of what the unit starts.
        self.is_odd = lambda: False
        context = host.context
        host.context = lambda taken, **kwargs: context(
            taken, **{"slots": lambda update: self.installer(), **kwargs}
        )

    def installer(self, **kwargs):
        unit = SlotUnit(MINION, self.program, run=self._run, units=str(self.units))
        return SlotInstaller(self.slots, MINION, unit, before=self.before, **kwargs)

    @property
    def versions(self):
        return [slot.version for slot in self.slots.slots()]

    def _run(self, argv, *, timeout, **kwargs):
        # A process that is dead tells systemd nothing.
        self.host.services.alive()
        if argv[1] == "show" and self.is_odd():
            return Result(argv=argv, returncode=0, stdout="", stderr="")
        return self.systemd(argv, timeout=timeout, **kwargs)

    @property
    def program(self):
        return installer.program(self.directory, MINION)

    @property
    def runs(self):
        """The version of the Salt that systemd would start now."""
        started = self.systemd.argv.partition(" ")[0]
        assert os.access(started, os.X_OK), f"{started} is not there"
        if started == str(self.package):
            return "package"
        return self.slots.get(self.slots.active(MINION)).version

    def build(self, version, *entries):
        """Return the slot of a build of a version, as whoever asks for it makes it."""
        name = f"salt-{version}.tar.xz"
        found = [*builds.onedir(version), *entries]
        path = builds.tarball(self._source / name, found)
        manifest = builds.parsed(path, version=version, name=f"salt-{version}")
        return self.slots.stage(manifest, {name: path}, furnish=self.furnish)

    def furnish(self, tree):
        """Put this extension into it."""
        place = pathlib.Path(tree, "lib/python3.11/site-packages/saltext_safeupdate")
        place.mkdir()
        (place / "__init__.py").touch()

    def ask(self, version, *entries, id="u1", back=False):
        """Ask for it, as somebody does who has staged it."""
        slot = self.build(version, *entries)
        made = self.installer(stage=lambda wanted: slot)
        targets = {NAME: slot.build_version}
        if not back:
            Staging(self.host.settings.state_dir, self.host.store, made).stage(targets)
        return self.host.record(
            Phase.REQUESTED,
            id=id,
            jid="",
            request=Request(version=version, when="now", source="salt://builds"),
            code=Code(own=(NAME,)),
            versions_from=made.installed([NAME]),
            versions_to=targets,
        )

    def only_works(self, *versions):
        """Have a minion report only if it is of one of these versions."""

        def report():
            if self.runs in versions:
                self.host.report()

        self.host.services.report = report


@pytest.fixture
def slotted(host, tmp_path):
    return Slotted(host, tmp_path)


def test_from_a_package_to_a_slot_it_goes_the_way_of_every_update(slotted):
    host = slotted.host
    host.store.set_fact(PREVIOUS, Previous(update="u0", versions={}))
    slotted.ask("3008.3")
    assert slotted.runs == "package", "it is only staged"
    host.supervise()
    assert host.phases() == [
        *("requested", "checking", "staging", "waiting", "installing"),
        *("delivering", "stepping", "restarting", "watching", "committed"),
    ]
    assert slotted.runs == "3008.3"
    assert host.packages.versions == OLD, "the package stays, as the last resort"
    assert host.restarts() == ["restart"]
    (slot,) = slotted.slots.slots()
    assert host.last.versions_to == {NAME: slot.build_version}
    assert host.store.fact(PREVIOUS).update == "u0", "the way back of the packages stays"
    host.assert_at_peace()


def test_from_slot_to_slot_and_the_one_before_is_previous(slotted):
    for number, version in enumerate(("3007.15", "3008.3")):
        slotted.ask(version, id=f"u{number}")
        slotted.host.supervise()
        assert slotted.host.last.phase is Phase.COMMITTED
        assert slotted.runs == version
    previous = slotted.slots.get(slotted.slots.previous(MINION))
    assert previous.version == "3007.15"
    slotted.slots.activate(MINION, previous.ident)
    assert slotted.runs == "3007.15", "that is one link"


def test_an_update_that_goes_back_leaves_the_way_back_of_before(slotted):
    host = slotted.host
    for number, version in enumerate(("3006.1", "3006.2")):
        slotted.ask(version, id=f"u{number}")
        host.supervise()
    first = slotted.slots.previous(MINION)
    slotted.only_works("3006.2")
    slotted.ask("3008.3", id="u2")
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert slotted.runs == "3006.2"
    assert slotted.slots.previous(MINION) == first
    assert slotted.slots.get(first).version == "3006.1"


def test_an_update_to_the_previous_slot_leads_back_to_what_it_left(slotted):
    for number, version in enumerate(("3006.1", "3006.2", "3006.1")):
        slotted.ask(version, id=f"u{number}")
        slotted.host.supervise()
        assert slotted.runs == version
    assert slotted.slots.get(slotted.slots.previous(MINION)).version == "3006.2"


@pytest.mark.parametrize("works", [True, False])
def test_upgrade_steps_run_before_it_and_are_taken_back_with_it(slotted, works):
    host = slotted.host
    host.steps("3008-a.before", "3008-a", "3008-a.revert")
    slotted.only_works("package", *["3008.3"] * works)
    slotted.ask("3008.3")
    host.supervise()
    assert host.last.phase is (Phase.COMMITTED if works else Phase.ROLLED_BACK)
    ran = [os.path.basename(argv[0]) for argv in host.commands if "steps" in argv[0]]
    assert ran == ["3008-a.before", "3008-a"] + ["3008-a.revert"] * (not works)
    host.assert_at_peace()


@pytest.mark.parametrize("first", [False, True], ids=["package", "slot"])
def test_a_slot_that_does_not_come_up_goes_back_to_what_ran(slotted, first):
    host, before = slotted.host, "package"
    if first:
        slotted.ask("3007.15", id="u0")
        host.supervise()
        before = "3007.15"
    slotted.only_works(before)
    slotted.ask("3008.3")
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert slotted.runs == before
    (row,) = host.store.quarantined()
    assert (row.package, row.version.partition("-")[0]) == (NAME, "3008.3")
    assert (list(slotted.units.iterdir()) == []) is (not first), "the unit is as it was"
    host.assert_at_peace()


@pytest.mark.parametrize("healthy", [True, False], ids=["healthy", "silent"])
@pytest.mark.parametrize("first", [False, True], ids=["package", "slot"])
@pytest.mark.parametrize("kill_at", range(1, 13))
def test_killed_at_any_write_of_the_record_then_recovered(slotted, kill_at, first, healthy):
    host, before = slotted.host, "package"
    if first:
        slotted.ask("3007.15", id="u0")
        host.supervise()
        before = "3007.15"
    if not healthy:
        slotted.only_works(before)
    slotted.ask("3008.3")
    host.kill_then_recover(kill_at, "after")
    assert host.last.phase is (Phase.COMMITTED if healthy else Phase.ROLLED_BACK)
    assert slotted.runs == ("3008.3" if healthy else before)


def _cut(tree):
    path = next(tree.rglob("version.py"))
    path.write_text("3008")


BROKEN = {
    "a file was changed": _cut,
    "a file is gone": lambda tree: (tree / "bin" / "python3.11").unlink(),
    "all of it is gone": lambda tree: shutil.rmtree(tree.parent),
    "its mark is gone": lambda tree: (tree.parent / "complete.json").unlink(),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_slot_that_was_changed_since_is_not_installed(slotted, name):
    slotted.ask("3008.3")
    (slot,) = slotted.slots.slots()
    BROKEN[name](pathlib.Path(slot.tree))
    slotted.host.supervise()
    assert slotted.host.last.phase is Phase.FAILED
    assert "othing was changed" in slotted.host.last.reason
    assert slotted.runs == "package"
    assert slotted.host.restarts() == []
    slotted.host.assert_at_peace()


@pytest.mark.parametrize("name", list(BROKEN))
def test_with_a_way_back_that_is_broken_nothing_begins(slotted, name):
    slotted.ask("3007.15", id="u0")
    slotted.host.supervise()
    (old,) = slotted.slots.slots()
    slotted.ask("3008.3")
    tree = pathlib.Path(old.tree)
    if name != "all of it is gone":
        BROKEN[name](tree)
    else:
        shutil.rmtree(tree / "lib")
    slotted.host.supervise()
    assert slotted.host.last.phase is Phase.FAILED
    assert slotted.slots.active(MINION) == old.ident
    assert slotted.host.restarts() == ["restart"], "that was the first update"


@pytest.mark.parametrize("name", ["a file was changed", "a file is gone"])
def test_who_leaves_a_slot_that_is_broken_needs_no_way_back_to_it(slotted, name):
    host = slotted.host
    for number, version in enumerate(("3007.15", "3008.3")):
        slotted.ask(version, id=f"u{number}")
        host.supervise()
    active = slotted.slots.get(slotted.slots.active(MINION))
    before = slotted.slots.get(slotted.slots.previous(MINION))
    BROKEN[name](pathlib.Path(active.tree))
    host.record(
        Phase.REQUESTED,
        id="u2",
        jid="",
        request=Request(version=before.version, when="now", source="kept", back=True),
        code=Code(own=(NAME,)),
        versions_from={NAME: active.build_version},
        versions_to={NAME: before.build_version},
        staged=Staged(files=revisions.rows([installer.file_of(before)])),
    )
    host.supervise()
    assert host.last.phase is Phase.COMMITTED, host.last.reason
    assert slotted.runs == "3007.15"
    assert slotted.slots.previous(MINION) is None


def _leave(slotted):
    """Ask for the way from the active slot to none."""
    active = slotted.slots.get(slotted.slots.active(MINION))
    file = File(NAME, slotted.before, str(slotted.package), "")
    return slotted.host.record(
        Phase.REQUESTED,
        id="leave",
        jid="",
        request=Request(version=slotted.before, when="now", source="kept", back=True),
        code=Code(own=(NAME,)),
        versions_from={NAME: active.build_version},
        versions_to={NAME: slotted.before},
        staged=Staged(files=revisions.rows([file])),
    )


@pytest.mark.parametrize("works", [True, False])
def test_while_slots_are_left_another_minion_does_not_remove_the_way_back(slotted, works):
    host = slotted.host
    for number, version in enumerate(("3007.15", "3008.3")):
        slotted.ask(version, id=f"u{number}")
        host.supervise()
    first = slotted.slots.previous(MINION)
    removed = []

    def report():
        if slotted.runs == "package":
            # So does another minion of the host at the end of an update.
            removed.extend(slotted.slots.prune(0))
        if works or slotted.runs != "package":
            host.report()

    host.services.report = report
    _leave(slotted)
    host.supervise()
    assert removed == []
    if works:
        assert (host.last.phase, slotted.runs) == (Phase.COMMITTED, "package")
        assert slotted.slots.previous(MINION) is None
        assert slotted.versions == ["3008.3"], "nobody needs it, and one is kept"
    else:
        assert (host.last.phase, slotted.runs) == (Phase.ROLLED_BACK, "3008.3")
        assert slotted.slots.previous(MINION) == first
    host.assert_at_peace()


@pytest.mark.parametrize("first", [False, True], ids=["package", "slot"])
def test_what_is_to_be_done_by_hand_leads_back(slotted, first):
    host, before = slotted.host, "package"
    if first:
        slotted.ask("3007.15", id="u0")
        host.supervise()
        before = "3007.15"
        (old,) = slotted.slots.slots()
    slotted.only_works()
    slotted.ask("3008.3")
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert slotted.runs == before
    told = host.last.reason.partition("By hand: ")[2]
    if first:
        assert told.startswith(f"point the minion's link 'active' to {old.tree}, ")
    else:
        assert told.startswith("remove the drop-in '40-safeupdate-slot.conf' of the minion's unit,")
    assert "start the service" in told


def test_slots_that_nobody_needs_are_removed_when_an_update_has_ended(slotted):
    for number, version in enumerate(("3006.1", "3006.2", "3006.3", "3006.4")):
        slotted.ask(version, id=f"u{number}")
        slotted.host.supervise()
    assert slotted.versions == ["3006.4", "3006.3", "3006.2"], "one is kept besides the two"


def test_a_slot_without_this_extension_is_not_installed(slotted):
    slotted.furnish = lambda tree: None
    with pytest.raises(VerificationError, match="does not have this extension"):
        slotted.ask("3008.3")
    assert slotted.runs == "package"


def test_a_salt_that_the_hooks_do_not_know_is_not_installed(slotted):
    host = slotted.host
    row = replaced.Row("salt.minion", "Minion", "_target", ("cls", "opts"))
    replaced.note(host.store, [row])
    host.reported_with(hooked=True)
    slotted.ask("3009.1", member(f"{SITE}/salt/__init__.py"), member(f"{SITE}/salt/minion.py"))
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "does not know Salt 3009.1" in host.last.reason
    assert slotted.runs == "package"


def test_a_unit_that_cannot_follow_leaves_what_runs(slotted):
    slotted.systemd.behind = str(slotted.package)
    slotted.ask("3008.3")
    slotted.host.supervise()
    assert slotted.host.last.phase is Phase.FAILED
    assert "look for a drop-in after" in slotted.host.last.reason
    assert slotted.runs == "package"
    assert slotted.host.restarts() == []
    slotted.systemd.behind = ""
    slotted.ask("3007.15", id="u2")
    slotted.host.supervise()
    assert slotted.runs == "3007.15"
    assert slotted.slots.previous(MINION) is None, "the one that never ran is not it"


@pytest.mark.parametrize("first", [False, True], ids=["package", "slot"])
def test_a_unit_that_cannot_be_told_with_its_drop_in_leaves_what_runs(slotted, first):
    """The supervisor died of it each time, and what it had begun stayed for the next boot."""
    host, before = slotted.host, "package"
    if first:
        slotted.ask("3007.15", id="u0")
        host.supervise()
        before = "3007.15"
    slotted.ask("3008.3")
    there = slotted.units.rglob
    slotted.is_odd = lambda: host.last.phase is Phase.INSTALLING and any(there("*.conf"))
    host.supervise()
    assert host.last.phase is (Phase.ROLLED_BACK if first else Phase.FAILED)
    slotted.is_odd = lambda: False
    assert slotted.runs == before
    host.assert_at_peace()


def test_a_unit_that_vanishes_while_it_is_watched_ends_the_update(slotted):
    host = slotted.host
    slotted.ask("3007.15", id="u0")
    host.supervise()
    slotted.only_works("3007.15")
    slotted.ask("3008.3")
    slotted.is_odd = lambda: host.last.phase in (Phase.WATCHING, Phase.ROLLING_BACK)
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "does not start exactly one program" in host.last.reason
    assert "By hand: " in host.last.reason


def test_where_slots_are_not_known_no_package_changes_in_their_place(slotted):
    """A later version has asked for it; packages may have the same name."""
    host = slotted.host
    host.packages.offers = {"salt": ["3008.3"]}
    slotted.ask("3008.3")
    host.supervise(slots=None)
    assert host.last.phase is Phase.FAILED
    assert "othing was changed" in host.last.reason
    assert host.packages.versions == OLD
    assert host.restarts() == []


def test_a_record_of_before_has_no_source(host):
    host.record(Phase.COMMITTED, request=Request(version="3008.3"))
    assert not host.last.of_build
    host.record(Phase.COMMITTED, request=Request(version="3008.3", source="/srv/builds"))
    assert host.last.of_build
    assert host.last.request.source == "/srv/builds"
