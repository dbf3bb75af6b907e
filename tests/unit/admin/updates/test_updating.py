"""What an administrator asks of updates, with a real record and simulated packages."""

import os
from dataclasses import replace

import pytest
import salt.utils.args

from saltext_safeupdate import factory
from saltext_safeupdate.admin.status import facts, status
from saltext_safeupdate.admin.updates import rollout_requests, updating
from saltext_safeupdate.core.errors import InputError, LockHeldError, SafeUpdateError
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.record.parts import Boot, WayBack
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.this_host import Host
from tests.support.simulated import FakePackages, FakeServices, FakeTransactional

OLD, NEW = "3007.15", "3008.3"


def _waiting(boot):
    """Return the record of an update that waits for the boot after *boot*."""
    return Update(
        id="u1",
        kind="update",
        phase=Phase.WAITING_FOR_BOOT,
        boot=Boot(awaits=(boot, Phase.WAITING_FOR_BOOT.value)),
        way_back=WayBack(snapshot={"number": 1, "ident": 257}),
    )


class SimulatedHost(Host):
    """The real one, with a simulated package manager and init system."""

    manager = None
    services = None
    launched = 0

    def own(self):
        return Own(frozenset({"salt-minion"}), False)

    def roots(self):
        return ()

    def awaited_jobs(self, but):
        return ["5 test.sleep"]

    def launch(self):
        self.launched += 1
        self.supervisor = locks.Lock(self.settings.run_dir, "supervisor")
        assert self.supervisor.try_exclusive()


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "state_uses", lambda opts, functions: set())
    monkeypatch.setattr(facts, "master_version", lambda functions, pillar: NEW)
    monkeypatch.setattr(updating, "_jid", lambda host: "20260101120000000000")
    made = SimulatedHost(
        {
            "id": "minion",
            "cachedir": str(tmp_path / "cache"),
            "pki_dir": str(tmp_path / "pki"),
            "conf_file": str(tmp_path / "etc" / "minion"),
            "safeupdate": {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")},
        }
    )
    made.manager = FakePackages(**{"salt-minion": OLD})
    made.manager.offers = {"salt-minion": [NEW, OLD]}
    made.services = FakeServices()
    monkeypatch.setattr(factory, "launch", lambda host: host.launch())
    return made


def _codes(plan):
    return [finding["code"] for finding in plan["findings"] if finding["blocking"]]


def test_a_plan_tells_and_changes_nothing(made):
    plan = updating.plan(made, {})
    assert plan["changes"] == {"salt-minion": {"old": OLD, "new": NEW}}
    assert (plan["staged"], plan["jobs"], _codes(plan)) == (False, ["5 test.sleep"], [])
    assert made.launched == 0


def test_a_plan_knows_what_the_repository_offers_now(made):
    now, made.manager.offers = made.manager.offers, {"salt-minion": [OLD]}
    made.manager.refresh = lambda: setattr(made.manager, "offers", now)
    assert _codes(updating.plan(made, {}, NEW, refresh=False)) == ["target-unavailable"]
    assert _codes(updating.plan(made, {}, NEW)) == []


def test_a_plan_tells_of_every_problem(made, monkeypatch):
    monkeypatch.setattr(facts, "master_version", lambda functions, pillar: "3006.28")
    made.store.quarantine({"salt-minion": NEW}, "u1", "it died")
    made.store.save(Update(id="u2", kind="restart", phase=Phase.WAITING, created=1.0))
    plan = updating.plan(made, {}, NEW)
    assert sorted(_codes(plan)) == ["master-older", "other-update-running", "quarantined"]


def test_a_version_that_is_not_on_offer(made):
    assert _codes(updating.plan(made, {}, "3099")) == ["target-unavailable"]
    with pytest.raises(SafeUpdateError, match=r"\[target-unavailable\].*Nothing was changed"):
        updating.update(made, {}, "3099")
    assert made.launched == 0


def test_an_older_version(made):
    made.manager.versions = {"salt-minion": NEW}
    assert _codes(updating.plan(made, {}, OLD)) == ["downgrade"]
    with pytest.raises(InputError, match="allow_downgrade"):
        updating.update(made, {}, OLD)
    assert updating.update(made, {}, OLD, allow_downgrade=True)["phase"] == "requested"


def test_an_update_is_asked_for(made):
    asked = updating.update(made, {}, NEW)
    assert (asked["phase"], asked["to"]) == ("requested", {"salt-minion": NEW})
    assert "It installs while jobs run if that is possible" in asked["comment"]
    assert made.launched == 1
    record = made.store.latest()
    assert record.reason == "'safeupdate.update' asked for it."
    assert record.request.serial == 1767268800000000
    assert os.path.join(made.opts["conf_file"]) in record.way_back.paths


def test_what_is_installed_is_not_asked_for(made):
    assert updating.update(made, {}, OLD)["comment"] == "It is installed; nothing to do."
    assert made.launched == 0


@pytest.mark.parametrize("version", [None, OLD, "9999.9"])
@pytest.mark.parametrize("asked", ["plan", "stage", "update", "rollback"])
def test_what_pip_has_installed_is_not_updated_by_packages(made, asked, version):
    """Its interpreter is of a package all the same."""
    made.manager.owners = lambda paths: {"python3" for path in paths if "salt" not in path}
    given = (made, version) if asked == "rollback" else (made, {}, version)
    with pytest.raises(InputError, match=r"No package owns Salt's code in .*Nothing was changed"):
        getattr(updating, asked)(*given)
    assert made.launched == 0


def test_without_a_previous_version_there_is_nothing_to_go_back_to(made):
    with pytest.raises(InputError, match="not kept on this minion"):
        updating.rollback(made)


def test_staged_twice_and_altered_between(made):
    first = updating.stage(made, {}, NEW)
    assert updating.plan(made, {}, NEW)["staged"] is True
    with open(first["files"][0]["path"], "w", encoding="utf-8") as file:
        file.write("altered")
    assert updating.stage(made, {}, NEW)["files"] == first["files"]
    made.manager.verify(factory.staging(made).stage({"salt-minion": NEW}))


def test_nothing_is_staged_while_an_update_is_under_way(made):
    holder = locks.acquire(made.settings.run_dir, "update", "")
    with pytest.raises(LockHeldError, match="Nothing was done"):
        updating.stage(made, {}, NEW)
    holder.close()


def test_revisions_and_quarantine(made):
    made.store.quarantine({"salt-minion": NEW}, "u1", "it died")
    found = updating.revisions(made)
    assert found["active"] == {"salt-minion": OLD}
    assert found["skipped"][0]["reason"] == "it died"
    with pytest.raises(InputError, match=f"there: {NEW}"):
        updating.unquarantine(made, "3009")
    assert updating.unquarantine(made, NEW) == [f"salt-minion {NEW}"]
    assert updating.revisions(made)["skipped"] == []


class TestTransactional:
    @pytest.fixture
    def made(self, made):
        made.manager = FakeTransactional(**{"salt-minion": OLD})
        made.manager.offers = {"salt-minion": [NEW, OLD]}
        return made

    def test_nothing_waits(self, made):
        assert _codes(updating.plan(made, {})) == []

    @pytest.mark.parametrize(
        ("policy", "said"),
        [("manual", "reboot when it suits you"), ("always", "it is asked for then")],
    )
    def test_that_a_reboot_activates_it_is_said_before(self, made, policy, said):
        made.settings = replace(made.settings, transactional_reboot=policy)
        assert updating.plan(made, {}, NEW)["reboot"] is True
        assert updating.plan(made, {}, OLD)["reboot"] is False
        comment = updating.update(made, {}, NEW)["comment"]
        assert f"A reboot of the host activates it: {said}." in comment
        assert "the minion restarts" not in comment

    def test_a_snapshot_of_others_waits_for_a_reboot(self, made):
        made.manager.snapshots.add(1, {"vim": "9"})
        with pytest.raises(SafeUpdateError, match="Snapshot 2 waits for a reboot"):
            updating.update(made, {}, NEW)
        assert made.launched == 0

    def test_what_waits_for_a_reboot_is_not_asked_for_again(self, made):
        made.manager.snapshots.add(1, {"salt-minion": NEW})
        made.store.save(_waiting(processes.boot()))
        asked = updating.update(made, {}, NEW)
        assert asked["comment"] == "It is installed; a reboot activates it."
        assert made.launched == 0
        plan = updating.plan(made, {}, NEW)
        assert (plan["changes"], plan["findings"], plan["reboot"]) == ({}, [], True)

    @pytest.mark.parametrize("boot", [processes.boot(), "another"])
    def test_the_status_tells_of_the_reboot(self, made, boot):
        made.store.save(_waiting(boot))
        told = status.status(made)["reboot"]
        assert told == ("" if boot == "another" else "pending: reboot the host when it suits")

    def test_only_snapshots_are_written_to(self, made):
        assert (Host.roots(made), made.written()) == ((), ("/.snapshots",))


@pytest.mark.parametrize(
    "ask",
    [
        lambda made, version: updating.plan(made, {}, version),
        lambda made, version: updating.stage(made, {}, version),
        lambda made, version: updating.update(made, {}, version),
        updating.rollback,
        updating.unquarantine,
        lambda made, version: rollout_requests.request(made, {}, 1_780_000_000_000_000, version),
        lambda made, version: rollout_requests.prefetch(made, {}, version),
    ],
)
def test_a_version_that_may_have_lost_a_zero_is_refused(made, ask):
    """Salt's command line makes 3007.1 of 3007.10, and both are there."""
    made.manager.offers = {"salt-minion": ["3007.1"]}
    with pytest.raises(InputError, match=r"3007\.10 would have|as a text"):
        ask(made, salt.utils.args.yamlify_arg("3007.10"))
    assert made.launched == 0
