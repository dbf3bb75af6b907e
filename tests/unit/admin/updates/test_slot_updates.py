"""What an administrator asks of slots, with real builds, a real record, and a simulated systemd."""

import functools
import json
import os
import pathlib
import shutil

import pytest

from saltext_safeupdate import factory
from saltext_safeupdate.admin.setup import taking_off
from saltext_safeupdate.admin.status import check, checks_of_slots, facts, status
from saltext_safeupdate.admin.updates import (
    available,
    installed,
    rollout_requests,
    slot_updates,
    slots,
    updated,
    updating,
)
from saltext_safeupdate.core.errors import InputError, LockHeldError, SafeUpdateError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.prepare.staging import SLOT
from saltext_safeupdate.core.record.facts import UNSLOTTED
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.slots.installer import NAME, SlotInstaller, program
from saltext_safeupdate.core.slots.kept import KeptUnit
from saltext_safeupdate.core.slots.unit import SlotUnit
from tests.support import builds
from tests.support.simulated import FakePackages, FakeServices, FakeTransactional
from tests.unit.core.slots.test_unit import Systemd

from .test_updating import SimulatedHost

OLD = "3007.15"
MINION = "salt-minion"


class Made(SimulatedHost):
    """A minion from a package, with a systemd that starts what its unit says."""

    def prepare(self, top):
        self.package = top / "usr" / "bin" / "salt-minion"
        self.package.parent.mkdir(parents=True)
        self.package.touch(0o755)
        self.source = top / "builds"
        self.source.mkdir()
        self.systemd = Systemd(top / "units", f"{self.package} -c {top}/etc")
        self.says = f"salt-minion {OLD} (Argon)\n"
        self.units = str(top / "units")

    def run(self, argv, *, timeout, **kwargs):
        """Return what programs say: systemctl, and a salt-minion of its version."""
        if argv[0] == "systemctl":
            return self.systemd(argv, timeout=timeout)
        assert argv == (str(self.package), "--version")
        return Result(argv=argv, returncode=0, stdout=self.says, stderr="")

    def unit(self):
        where = program(self.settings.slots_dir, MINION)
        return SlotUnit(MINION, where, run=self.run, units=self.units)

    def installer(self):
        before = self.store.fact(UNSLOTTED)
        made = factory.slots(self)
        version = before.version if before else ""
        return SlotInstaller(made, MINION, self.unit(), before=version)

    def build(self, version, *entries, **said):
        name = said.get("name", f"salt-{version}")
        path = builds.tarball(self.source / f"{name}.tar.xz", [*builds.onedir(version), *entries])
        told = builds.described(path, **{"name": name, "version": version, **said})
        (self.source / f"{name}.json").write_text(json.dumps(told))

    def install(self):
        """Do what the supervisor does with the newest request."""
        record = self.store.latest()
        files = [slot_updates.revisions.files([row])[0] for row in record.staged.files]
        self.installer().verify(files)
        self.installer().install(files)
        for phase in ("CHECKING", "STAGING", "WAITING", "INSTALLING", "DELIVERING"):
            record = self.store.save(record.advance(Phase[phase]))
        for phase in ("STEPPING", "RESTARTING", "WATCHING", "COMMITTED"):
            record = self.store.save(record.advance(Phase[phase]))
        self.store.drop_fact(SLOT)
        self.supervisor.release()

    @property
    def runs(self):
        slot = factory.active_slot(self)
        return slot.version if slot else "package"

    def update(self, version, **kwargs):
        asked = updating.update(self, {}, version, source=str(self.source), **kwargs)
        self.install()
        return asked


def _furnish(tree, *args, **kwargs):
    place = pathlib.Path(tree, "lib", "python3.11", "site-packages", "saltext_safeupdate")
    place.mkdir()
    (place / "__init__.py").touch()


def _compiles_nothing(argv, *, timeout, **kwargs):
    assert argv[3].endswith("confining.py")
    return Result(argv=argv, returncode=0, stdout="", stderr="")


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "state_uses", lambda opts, functions: set())
    monkeypatch.setattr(facts, "master_version", lambda functions, pillar: "3008.3")
    # The interpreter of a simulated slot compiles nothing.
    monkeypatch.setattr(slot_updates, "run_command", _compiles_nothing)
    jids = iter(range(20260101120000000000, 20260101120000009999))
    monkeypatch.setattr(updating, "_jid", lambda host: str(next(jids)))
    made = Made(
        {
            "id": "minion",
            "cachedir": str(tmp_path / "cache"),
            "pki_dir": str(tmp_path / "pki"),
            "conf_file": str(tmp_path / "etc" / "minion"),
            "safeupdate": {
                "state_dir": str(tmp_path / "state"),
                "run_dir": str(tmp_path / "run"),
                "slots_dir": str(tmp_path / "slots"),
                "slots_sources": [str(tmp_path / "builds"), "index", "salt://builds"],
            },
        }
    )
    made.prepare(tmp_path)
    made.manager = FakePackages(**{"salt-minion": OLD})
    made.manager.offers = {"salt-minion": ["3008.3", OLD]}
    made.services = FakeServices()
    monkeypatch.setattr(factory, "launch", lambda host: host.launch())
    monkeypatch.setattr(factory, "slot_unit", lambda host: host.unit())
    monkeypatch.setattr(factory, "slot_installer", lambda host: host.installer())
    monkeypatch.setattr(slots, "run_command", made.run)
    monkeypatch.setattr(slot_updates, "furnish_from", _furnish)
    return made


def _codes(plan):
    return sorted(finding["code"] for finding in plan["findings"] if finding["blocking"])


def _plan(made, version=None, **kwargs):
    return updating.plan(made, {}, version, source=str(made.source), **kwargs)


# -- what it comes to ----------------------------------------------------------------------


def test_a_plan_tells_and_makes_no_slot(made):
    made.build("3008.3")
    plan = _plan(made, "3008.3")
    (change,) = plan["changes"].values()
    assert (change["old"], change["new"].partition("-")[0]) == (OLD, "3008.3")
    assert (plan["staged"], plan["reboot"], _codes(plan)) == (False, False, [])
    (told,) = [each for each in plan["findings"] if each["code"] == "signature-policy"]
    assert "slots_keyring" in told["fix"]
    assert not os.path.exists(made.settings.slots_dir)


@pytest.mark.parametrize(
    ("asked", "meant"),
    [(None, "3008.3"), ("3007", "3007.20"), ("3007.9", "3007.9"), ("3008", "3008.3")],
)
def test_a_series_is_its_newest_version_and_the_record_has_the_exact_one(made, asked, meant):
    for version in ("3007.9", "3007.20", "3008.3"):
        made.build(version)
    made.update(asked, allow_downgrade=True)
    record = made.store.latest()
    assert record.request.version.partition("-")[0] == meant
    assert record.request.source == str(made.source)
    assert made.runs == meant


def test_of_a_series_what_is_staged_counts_only_if_the_source_cannot_be_asked(made):
    made.build("3007.16")
    updating.stage(made, {}, "3007", source=str(made.source))
    made.build("3007.20")
    assert _plan(made, "3007")["targets"][NAME].startswith("3007.20-")
    shutil.rmtree(made.source)
    assert _plan(made, "3007")["targets"][NAME].startswith("3007.16-")


def test_of_one_version_what_fits_is_taken(made):
    made.build("3008.3", machine="s390x", name="other")
    made.build("3008.3")
    made.update("3008.3")
    assert made.runs == "3008.3"


def test_what_is_not_there_or_does_not_fit_is_told_with_the_reason(made):
    made.build("3007.20")
    made.build("3008.3", machine="s390x")
    assert _codes(_plan(made, "3008.3")) == ["target-unavailable"]
    with pytest.raises(
        SafeUpdateError, match=r"on offer: 3008\.3, 3007\.20.*is for s390x.*Nothing was changed"
    ):
        made.update("3008.3")
    assert made.launched == 0


def test_a_build_that_is_damaged_changes_nothing(made):
    made.build("3008.3")
    with open(made.source / "salt-3008.3.tar.xz", "ab") as file:
        file.write(b"x")
    with pytest.raises(SafeUpdateError, match=r"not the file that the manifest.*Nothing was"):
        made.update("3008.3")
    assert made.launched == 0
    assert factory.slots(made).slots() == []


def test_with_keys_a_build_that_nobody_has_signed_is_not_taken(made):
    made.__dict__.pop("settings", None)
    made.opts["safeupdate"]["slots_keyring"] = "/etc/salt/builds.gpg"
    made.build("3008.3")
    plan = _plan(made, "3008.3")
    assert _codes(plan) == ["target-unavailable"]
    assert "signature-policy" not in [each["code"] for each in plan["findings"]]
    with pytest.raises(SafeUpdateError, match=r"'safeupdate:slots_keyring' requires one.*Nothing"):
        made.update("3008.3")
    assert made.launched == 0


class Pip:
    """What pip says and fetches: the wheels of a version of Salt."""

    def __init__(self, top):
        self.versions = ["3008.3", "3007.20", "3007.9"]
        self.top = top
        self.content = b"x = 1\n"

    def __call__(self, argv, *, timeout, ok=(0,), env=None, **_):
        said = ""
        if "index" in argv:
            said = f"salt ({self.versions[0]})\nAvailable versions: {', '.join(self.versions)}\n"
        elif "download" in argv:
            version = argv[-1].partition("==")[2] or "3008.3"
            wheel = self.top / self.content.hex() / f"salt-{version}-py3-none-any.whl"
            if not wheel.exists():
                wheel.parent.mkdir(exist_ok=True)
                self.make(wheel, version)
            shutil.copy(wheel, argv[argv.index("--dest") + 1])
        return Result(argv=argv, returncode=0, stdout=said, stderr="")

    def make(self, wheel, version):
        builds.wheel(
            wheel,
            {"salt/__init__.py": b"", "salt/version.py": self.content},
            info=f"salt-{version}.dist-info",
            entry_points="[console_scripts]\nsalt-minion = salt.scripts:salt_minion\n",
        )


@pytest.fixture
def pip(made, tmp_path, monkeypatch):
    found = Pip(tmp_path)

    def furnish(tree, *args, **kwargs):
        place = pathlib.Path(tree, "lib", "saltext_safeupdate")
        place.mkdir()
        (place / "__init__.py").touch()

    monkeypatch.setattr(slot_updates, "furnish_from", furnish)
    monkeypatch.setattr(slot_updates.builds, "interpreter", lambda version: builds.PYTHON)
    monkeypatch.setattr(slot_updates.builds.command, "run", found)
    monkeypatch.setattr(slot_updates, "run_command", found)
    made.source = "index"
    return found


def test_an_index_is_a_source_and_the_record_has_the_build_that_was_fetched(made, pip):
    offered = available.avail(made, {}, "index", refresh=False)["versions"]
    assert [each["version"] for each in offered["3007"] if each["source"] == "index"] == [
        "3007.20",
        "3007.9",
    ]
    plan = _plan(made, "3007", allow_downgrade=True)
    assert (plan["targets"], _codes(plan)) == ({NAME: "3007.20"}, [])
    assert not os.path.exists(made.settings.slots_dir), "nothing is fetched for a plan"
    made.update("3007", allow_downgrade=True)
    record = made.store.latest()
    assert record.request.version.startswith("3007.20-")
    assert record.versions_to == {NAME: record.request.version}
    assert made.runs == "3007.20"
    asked = updating.update(made, {}, "3007", source="index")
    assert asked["comment"] == "It is installed; nothing to do."
    made.update("3008.3")
    assert made.runs == "3008.3"
    assert [each for each in os.listdir(made.settings.state_dir) if "index" in each] == []


def test_a_build_of_an_index_that_was_rolled_back_is_not_taken_again(made, pip):
    made.update("3007.20")
    quarantined = made.store.latest().versions_to
    updating.rollback(made, slots.WITHOUT)
    made.install()
    made.store.quarantine(quarantined, "x", "it was broken")
    with pytest.raises(InputError, match="was rolled back on this minion"):
        made.update("3007.20")
    pip.content = b"x = 2\n"
    made.update("3007.20")
    assert made.runs == "3007.20"


def test_wheels_of_a_manifest_that_is_alone_come_from_an_index(made, pip, tmp_path):
    made.source = tmp_path / "builds"
    wheel = tmp_path / pip.content.hex() / "salt-3008.3-py3-none-any.whl"
    wheel.parent.mkdir()
    pip.make(wheel, "3008.3")
    told = builds.described(str(wheel), name="wheels", kind="wheels", python="3.11")
    (made.source / "wheels.json").write_text(json.dumps(told))
    made.update("3008.3")
    assert made.runs == "3008.3"
    assert made.store.latest().request.source == str(made.source)


def test_what_somebody_has_to_sign_does_not_come_from_an_index(made, pip):
    made.__dict__.pop("settings", None)
    made.opts["safeupdate"]["slots_keyring"] = "/etc/salt/builds.gpg"
    assert _codes(_plan(made, "3008.3")) == ["target-unavailable"]
    assert "nobody has signed" in available.avail(made, {}, "index", refresh=False)["problems"][0]


# -- from a package to slots and back -------------------------------------------------------


def test_from_a_package_to_slots_and_back_to_it(made):
    for version in ("3007.20", "3008.3"):
        made.build(version)
        asked = made.update(version)
        assert asked["phase"] == "requested"
        assert made.runs == version
    found = updating.revisions(made)
    assert found["active"][NAME].startswith("3008.3-")
    assert found["previous"][NAME].startswith("3007.20-")
    assert found["without_slot"] == {"version": OLD, "program": str(made.package)}
    shown = {each["version"]: (each["active"], each["previous"]) for each in found["slots"]}
    assert shown == {"3008.3": (True, False), "3007.20": (False, True)}
    assert all(each["size"] > 1000 for each in found["slots"])
    updating.rollback(made)
    assert made.store.latest().request.back
    made.install()
    assert made.runs == "3007.20"
    with pytest.raises(InputError, match=r"There is no such version.*without_slot"):
        updating.rollback(made, "3006.1")
    # Before that slot there was none.
    updating.rollback(made)
    made.install()
    assert made.runs == "package"
    assert updating.revisions(made)["active"] == {"salt-minion": OLD}


def test_who_went_back_from_a_slot_by_an_earlier_extension_goes_back_without_one(made):
    """It has left 'previous' where 'active' is."""
    made.build("3008.3")
    made.update("3008.3")
    links = pathlib.Path(made.settings.slots_dir, "minions", MINION)
    (links / "previous").symlink_to((links / "active").readlink())
    assert updating.revisions(made)["previous"] == {NAME: OLD}
    updating.rollback(made)
    made.install()
    assert made.runs == "package"


def test_the_first_slot_goes_back_to_the_package(made):
    made.build("3008.3")
    made.update("3008.3")
    assert updating.revisions(made)["previous"] == {NAME: OLD}
    assert _codes(updating.plan(made, {}, back=True)) == []
    updating.rollback(made)
    made.install()
    assert made.runs == "package"


def test_a_package_of_the_same_version_is_another_thing(made):
    """Otherwise nobody could leave a slot any more."""
    made.build(OLD)
    made.update(OLD)
    assert made.runs == OLD
    updating.rollback(made, slots.WITHOUT)
    made.install()
    assert made.runs == "package"


def test_a_package_that_is_updated_below_a_slot_is_told_and_is_what_it_goes_back_to(made):
    made.build("3008.3")
    made.update("3008.3")
    made.says = "salt-minion 3007.16 (Chlorine)\n"
    assert updating.revisions(made)["without_slot"]["version"] == "3007.16"
    assert made.runs == "3008.3"
    asked = updating.rollback(made)
    assert asked["to"] == {NAME: "3007.16"}
    assert asked["reason"] == "'safeupdate.rollback' asked for it.", "nothing is rolled back yet"
    made.install()
    assert made.runs == "package"


def test_a_package_that_is_gone_below_a_slot_is_told_and_not_gone_back_to(made):
    made.build("3008.3")
    made.update("3008.3")
    made.says = ""
    assert updating.revisions(made)["without_slot"]["version"] == ""
    with pytest.raises(InputError, match="There is no such version to go back to"):
        updating.rollback(made)
    assert made.runs == "3008.3"


def test_what_is_active_is_not_asked_for_again_and_another_build_of_it_is(made):
    made.build("3008.3")
    made.update("3008.3")
    asked = updating.update(made, {}, "3008.3", source=str(made.source))
    assert asked["comment"] == "It is installed; nothing to do."
    made.build("3008.3", builds.member("salt/mended", b"x"))
    made.update("3008.3")
    assert len(factory.slots(made).slots()) == 2


def test_an_older_version(made):
    made.build("3006.28")
    assert _codes(_plan(made, "3006.28")) == ["downgrade"]
    with pytest.raises(InputError, match="allow_downgrade"):
        made.update("3006.28")
    made.update("3006.28", allow_downgrade=True)
    assert made.runs == "3006.28"


def test_a_build_that_was_rolled_back_is_not_taken_again(made):
    made.build("3008.3")
    made.update("3008.3")
    version = made.store.latest().versions_to[NAME]
    updating.rollback(made)
    made.install()
    made.store.quarantine({NAME: version}, "u1", "it died")
    assert _codes(_plan(made, "3008.3")) == ["quarantined"]
    with pytest.raises(InputError, match="was rolled back"):
        made.update("3008.3")
    made.build("3008.3", builds.member("salt/mended", b"x"))
    made.update("3008.3")
    assert made.runs == "3008.3"


# -- staging --------------------------------------------------------------------------------


def test_what_is_staged_needs_no_source(made):
    made.build("3008.3")
    staged = updating.stage(made, {}, "3008.3", str(made.source))
    (file,) = staged["files"]
    assert file["path"].startswith(made.settings.slots_dir)
    for path in made.source.iterdir():
        path.unlink()
    assert _plan(made, "3008.3")["staged"] is True
    made.update("3008.3")
    assert made.runs == "3008.3"


def test_staged_again_a_build_that_was_made_anew_counts(made):
    made.build("3008.3")
    first = updating.stage(made, {}, "3008.3", str(made.source))
    made.build("3008.3", builds.member("salt/mended", b"x"))
    second = updating.stage(made, {}, "3008.3", str(made.source))
    assert first["targets"] != second["targets"]
    made.update("3008.3")
    assert made.store.latest().versions_to == second["targets"]


def test_nothing_is_staged_while_an_update_is_under_way(made):
    made.build("3008.3")
    holder = locks.acquire(made.settings.run_dir, "update", "")
    with pytest.raises(LockHeldError, match="Nothing was done"):
        updating.stage(made, {}, "3008.3", str(made.source))
    holder.close()


# -- which source ---------------------------------------------------------------------------


def test_packages_are_what_a_minion_from_packages_is_updated_with(made):
    made.build("3008.3")
    made.opts["safeupdate"]["slots_source"] = str(made.source)
    asked = updating.update(made, {}, "3008.3")
    assert asked["to"] == {"salt-minion": "3008.3"}


def test_a_minion_that_runs_from_a_slot_stays_with_builds(made):
    made.build("3007.20")
    made.build("3008.3")
    made.update("3007.20")
    with pytest.raises(InputError, match=r"slots_source.*Nothing was changed; set that"):
        updating.update(made, {}, "3008.3")
    with pytest.raises(InputError, match=r"safeupdate\.rollback to=without_slot"):
        updating.update(made, {}, "3008.3", source="packages")
    made.__dict__.pop("settings")
    made.opts["safeupdate"]["slots_source"] = str(made.source)
    assert updating.update(made, {}, "3008.3")["to"][NAME].startswith("3008.3-")


@pytest.mark.parametrize("manager", [None, "of others"])
def test_a_minion_of_no_package_is_updated_with_builds_if_there_is_a_source(made, manager):
    if manager is None:
        made.manager = None
    else:
        made.manager.owners = lambda paths: {"python3" for path in paths if "salt" not in path}
    made.found = Own(frozenset(), False)
    with pytest.raises(SafeUpdateError, match="Nothing was changed"):
        updating.update(made, {}, "3008.3")
    made.build("3008.3")
    made.__dict__.pop("settings")
    made.opts["safeupdate"]["slots_source"] = str(made.source)
    updating.update(made, {}, "3008.3")
    made.install()
    assert made.runs == "3008.3"


def _requested(made, source):
    answer = rollout_requests.request(made, {}, 5, "3008.3", source=source)
    raise InputError(answer["refused"])


@pytest.mark.parametrize("source", ["", "builds", "http://x/y", 5, True, "/tmp/theirs"])
@pytest.mark.parametrize(
    "ask",
    [
        lambda made, source: updating.update(made, {}, "3008.3", source=source),
        lambda made, source: updating.plan(made, {}, "3008.3", source=source),
        lambda made, source: updating.stage(made, {}, "3008.3", source=source),
        _requested,
    ],
    ids=["update", "plan", "stage", "request"],
)
def test_a_source_that_the_minion_does_not_allow_is_refused(made, ask, source):
    with pytest.raises(InputError, match="not one that this minion allows"):
        ask(made, source)
    assert not os.path.exists(made.settings.slots_dir)


def test_a_build_is_not_staged_from_where_others_can_write(made):
    made.build("3008.3")
    made.source.chmod(0o777)
    with pytest.raises(SafeUpdateError, match=r"are not used: others can write to .*Nothing was"):
        updating.update(made, {}, "3008.3", source=str(made.source))
    made.source.chmod(0o755)
    (made.source / "salt-3008.3.tar.xz").chmod(0o666)
    with pytest.raises(SafeUpdateError, match=r"are not used: others can write to .*Nothing was"):
        updating.update(made, {}, "3008.3", source=str(made.source))
    assert made.store.latest() is None


# -- where there can be none -----------------------------------------------------------------


def _without_systemd(made, monkeypatch):
    """Nor has a keeper started it."""
    where = program(made.settings.slots_dir, MINION)
    made.unit = lambda: KeptUnit(MINION, where, lambda: None)


def _as_another_user(made, monkeypatch):
    made.opts["user"] = "salt"


def _transactional(made, monkeypatch):
    made.manager = FakeTransactional(**{"salt-minion": OLD})


def _others_write(made, monkeypatch):
    os.mkdir(made.settings.slots_dir)
    os.chmod(made.settings.slots_dir, 0o777)


def _others_write_above(made, monkeypatch):
    os.chmod(os.path.dirname(made.settings.slots_dir), 0o777)


def _odd_unit(made, monkeypatch):
    made.systemd.argv = f"{made.package} $OPTIONS"


def _another_configuration(made, monkeypatch):
    """As the bundle has it: built for another place."""
    made.systemd.argv = str(made.package)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without_systemd, "Neither systemd nor a keeper"),
        (_as_another_user, "runs as salt"),
        (_transactional, "snapshots"),
        (_others_write, "others can write to it"),
        (_others_write_above, "others can write to"),
        (_odd_unit, "cannot be copied into a drop-in"),
        (_another_configuration, "use /etc/salt"),
    ],
)
def test_where_there_can_be_no_slots_that_is_a_finding(made, monkeypatch, change, said):
    made.build("3008.3")
    change(made, monkeypatch)
    plan = _plan(made, "3008.3")
    assert "no-slots" in _codes(plan)
    with pytest.raises(SafeUpdateError, match=rf"\[no-slots\] .*{said}.*Nothing was changed"):
        made.update("3008.3")
    with pytest.raises(SafeUpdateError, match=rf"{said}.*Nothing was changed"):
        updating.stage(made, {}, "3008.3", str(made.source))
    assert made.launched == 0
    assert factory.slots(made).slots() == []


def test_where_slots_have_moved_below_an_active_one_nothing_begins(made, tmp_path):
    """Otherwise packages would change below it, or it would count as what runs without a slot."""
    made.build("3008.3")
    made.update("3008.3")
    before = made.opts["safeupdate"]["slots_dir"]
    _set_slots_dir(made, str(tmp_path / "moved"))
    noted, argv = made.store.fact(UNSLOTTED), made.systemd.argv
    assert "no-slots" in _codes(_plan(made, "3008.3"))
    for ask in (
        lambda: made.update("3008.3"),
        lambda: updating.update(made, {}, "3008.3"),
        lambda: updating.rollback(made),
        lambda: updating.rollback(made, slots.WITHOUT),
    ):
        with pytest.raises(SafeUpdateError, match=r"not below 'safeupdate:slots_dir'.*Nothing was"):
            ask()
    assert (made.store.fact(UNSLOTTED), made.systemd.argv) == (noted, argv)
    (problem,) = checks_of_slots.slot(made)
    assert "Set that back" in problem.fix
    _set_slots_dir(made, before)
    updating.rollback(made, slots.WITHOUT)
    made.install()
    assert made.runs == "package"


def _set_slots_dir(made, directory):
    made.__dict__.pop("settings", None)
    made.opts["safeupdate"]["slots_dir"] = directory


def test_what_the_unit_names_by_now_is_what_it_goes_back_to(made, tmp_path):
    made.build("3008.3")
    made.update("3008.3")
    made.systemd.fragment = str(tmp_path / "salt-minion.service")
    made.package = tmp_path / "opt" / "salt-minion"
    made.package.parent.mkdir()
    made.package.touch(0o755)
    pathlib.Path(made.systemd.fragment).write_text(f"[Service]\nExecStart={made.package}\n")
    updating.rollback(made, slots.WITHOUT)
    (row,) = made.store.latest().staged.files
    assert str(made.package) in row


def test_what_does_not_tell_its_version_is_not_left(made):
    made.build("3008.3")
    made.says = "?"
    with pytest.raises(SafeUpdateError, match=r"does not say which version.*Nothing was changed"):
        made.update("3008.3")
    assert made.launched == 0


def test_room_is_looked_for_where_a_build_goes(made, monkeypatch):
    made.build("3008.3", unpacked=1 << 30)
    seen = []
    monkeypatch.setattr(slot_updates, "preflight", lambda known: seen.append(known) or [])
    _plan(made, "3008.3")
    (known,) = seen
    assert known.writes[made.settings.slots_dir] > 1 << 30
    assert known.writes[made.opts["cachedir"]] > 100, "where a file of the master goes"
    assert made.settings.state_dir in known.writes


# -- what is told of it ----------------------------------------------------------------------


def _problems(made):
    return [each for each in check.check(made, {}) if each["code"] in ("slot", "own-packages")]


def test_what_runs_is_told_and_no_package_is_missed(made):
    made.manager.owners = lambda paths: set()
    made.found = Own(frozenset(), False)
    made.build("3008.3")
    made.update("3008.3")
    (slot,) = factory.slots(made).slots()
    assert status.status(made)["installed"] == {NAME: slot.build_version}
    told = installed.installed(made)
    assert told == {"installed": slot.build_version, "build": slot.build_version, "way": "slot"}
    assert installed.known(made)["intended"] == slot.build_version, "that is no drift"
    assert _problems(made) == []
    updating.rollback(made)
    made.install()
    assert status.status(made)["installed"] == {"salt-minion": OLD}
    assert installed.installed(made)["way"] != "slot"


def test_a_salt_of_no_package_is_no_problem_if_it_has_a_source(made):
    made.manager.owners = lambda paths: set()
    (problem,) = _problems(made)
    assert "slots_source" in problem["fix"]
    made.__dict__.pop("settings", None)
    made.opts["safeupdate"]["slots_source"] = str(made.source)
    assert _problems(made) == []


def test_a_slot_that_does_not_run_is_told(made):
    made.build("3008.3")
    made.update("3008.3")
    made.systemd.argv = f"{made.package} -c /etc"
    (problem,) = _problems(made)
    assert "something else is started" in problem["problem"]


def test_a_slot_that_is_gone_is_told_before_the_minion_restarts(made):
    made.build("3008.3")
    made.update("3008.3")
    (slot,) = factory.slots(made).slots()
    shutil.rmtree(slot.tree)
    (problem,) = _problems(made)
    assert "cannot be used" in problem["problem"]
    assert status.status(made)["installed"] == {}
    # As it says: then what is not whole is made anew.
    drop_in = problem["fix"].partition("remove ")[2].partition(",")[0]
    os.unlink(drop_in)
    made.systemd(("systemctl", "daemon-reload"), timeout=1)
    assert made.runs == "package"
    made.update("3008.3")
    assert made.runs == "3008.3"


def test_a_slot_is_forgotten_unless_it_is_needed(made):
    for version in ("3007.20", "3008.3"):
        made.build(version)
        made.update(version)
    spare = updating.stage(made, {}, "3007.20", str(made.source))
    active, previous = (each["slot"] for each in updating.revisions(made)["slots"])
    for needed in (active, previous):
        with pytest.raises(InputError, match="is active or previous"):
            slots.forget(made, needed)
    made.build("3008.1")
    spare = updating.stage(made, {}, "3008.1", str(made.source))
    name = os.path.basename(spare["files"][0]["path"])
    assert slots.forget(made, name)["slot"] == name
    assert updating.revisions(made)["staged"] == {}
    for name in ("none", "../slots", "/etc"):
        with pytest.raises(InputError, match="There is no slot"):
            slots.forget(made, name)


def test_who_runs_from_a_slot_is_not_taken_off(made):
    made.build("3008.3")
    made.update("3008.3")
    with pytest.raises(SafeUpdateError, match=r"Leave it with 'safeupdate\.rollback"):
        taking_off.TakingOff(made)


def test_a_unit_whose_name_no_slot_can_have_is_updated_with_packages(made):
    made.__dict__.pop("settings", None)
    made.opts["safeupdate"]["service"] = "salt\\x2dminion"
    assert updating.update(made, {}, "3008.3")["to"] == {"salt-minion": "3008.3"}


# -- what a rollout asks ----------------------------------------------------------------------


def _ask(made, number, version, **kwargs):
    told = rollout_requests.request(made, {}, number, version, **kwargs)
    if not told["refused"] and made.store.latest() and not made.store.latest().phase.final:
        made.install()
    return told


NUMBER = 1_780_000_000_000_000


def test_a_rollout_brings_a_minion_from_a_package_to_slots_and_back(made):
    """The master has of each what it ran before, as it was told."""
    made.build("3007.20")
    made.build("3008.3")
    before = installed.installed(made)["installed"]
    for number, version in enumerate(("3007.20", "3008.3")):
        told = _ask(made, NUMBER + number, version, source=str(made.source))
        assert (told["refused"], told["phase"]) == ("", "requested")
        assert made.runs == version
    report = rollout_requests.report(made)
    assert (report["phase"], report["number"]) == ("committed", NUMBER + 1)
    assert report["installed"].startswith("3008.3-")
    kept = [each.build_version for each in factory.slots(made).slots()]
    (first,) = [version for version in kept if version.startswith("3007.20")]
    _ask(made, NUMBER + 2, first, back=True)
    assert made.runs == "3007.20"
    assert made.store.latest().request.back
    for name in (f"{before}-1", before):
        made.store.clear(made.store.quarantined())
        assert _ask(made, NUMBER + 3, name, back=True)["refused"] == ""
        assert made.runs == "package"


def test_a_rollout_by_version_alone_goes_on_with_what_a_minion_runs_from(made):
    made.build("3007.20")
    made.build("3008.3")
    made.update("3007.20")
    assert "slots_source" in _ask(made, NUMBER, "3008.3")["refused"]
    made.__dict__.pop("settings")
    made.opts["safeupdate"]["slots_source"] = str(made.source)
    assert _ask(made, NUMBER, "3008.3")["refused"] == ""
    assert made.runs == "3008.3"


def test_a_rollout_has_builds_fetched_ahead(made):
    made.build("3008.3")
    told = rollout_requests.prefetch(
        made, {}, "3008.3", "", str(made.source), spawn=lambda work: work()
    )
    assert told["staged"] == "done"
    for path in made.source.iterdir():
        path.unlink()
    _ask(made, NUMBER, "3008.3", source=str(made.source))
    assert made.runs == "3008.3"


def test_what_a_rollout_asks_for_is_refused_where_there_can_be_no_slots(made, monkeypatch):
    made.build("3008.3")
    _without_systemd(made, monkeypatch)
    told = _ask(made, NUMBER, "3008.3", source=str(made.source))
    assert "[no-slots]" in told["refused"]
    assert made.launched == 0


# -- the state --------------------------------------------------------------------------------


def test_the_state_brings_a_minion_to_a_slot_once(made):
    made.build("3008.3")
    functions = {
        f"safeupdate.{name}": functools.partial(getattr(updating, name), made, {})
        for name in ("plan", "update")
    }
    given = {"allow_downgrade": False, "source": str(made.source)}
    told = updated.updated(functions, "3008.3", test=True, **given)
    assert (told["result"], made.launched) == (None, 0)
    told = updated.updated(functions, "3008.3", test=False, **given)
    assert told["result"] is True
    assert told["changes"][NAME]["old"] == OLD
    made.install()
    assert made.runs == "3008.3"
    told = updated.updated(functions, "3008.3", test=False, **given)
    assert (told["result"], told["changes"]) == (True, {})
    # What stops it is told as by the function, with what to do.
    with pytest.raises(SafeUpdateError) as refused:
        functions["safeupdate.update"]("3099", source=given["source"])
    told = updated.updated(functions, "3099", test=False, **given)
    assert (told["result"], told["comment"]) == (False, str(refused.value))
