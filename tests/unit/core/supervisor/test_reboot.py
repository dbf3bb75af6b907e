"""Updates that a boot activates, on a simulated transactional system."""

import dataclasses

import pytest

from saltext_safeupdate.core.errors import InputError, LockHeldError, SafeUpdateError
from saltext_safeupdate.core.generations import meeting
from saltext_safeupdate.core.host import processes, room
from saltext_safeupdate.core.record.parts import ASKING, Code, Owed, WayBack
from saltext_safeupdate.core.record.phase import Phase
from tests.support.simulated import FakeTransactional, Killed

from ..conftest import NEW, OLD

NEWER = dict.fromkeys(OLD, "3008.3")


class Machine:
    """The host of the other tests, with snapshots and reboots."""

    def __init__(self, host, monkeypatch):
        self.host = host
        self.boots = 0
        monkeypatch.setattr(processes, "boot", lambda: f"boot-{self.boots}")
        host.packages = FakeTransactional(**OLD)
        self.snapshots = host.packages.snapshots
        host.services.dies_while = self.broken
        self.bad = None

    def broken(self):
        return self.running == self.bad

    @property
    def running(self):
        return self.snapshots.contents[self.snapshots.now]

    def set(self, **settings):
        self.host.settings = dataclasses.replace(self.host.settings, **settings)

    def ask(self, *args, **kwargs):
        """Write down that somebody has asked for an update, and see to it."""
        self.host.ask(*args, **kwargs)
        self.host.supervise()
        return self.host.last

    def power(self):
        """Lose all that runs, and boot the default snapshot: its minion starts."""
        self.boots += 1
        self.host.all_die()
        self.snapshots.now = self.snapshots.next
        self.host.services.refuses = self.host.services.rests = False
        self.host.services._up()

    def boot(self):
        """Boot, and let the supervisor of the boot do what there is to do."""
        self.power()
        self.host.supervise()
        return self.host.last


@pytest.fixture
def machine(host, monkeypatch):
    made = Machine(host, monkeypatch)
    host.reported()
    return made


def test_it_waits_for_the_boot_watches_and_commits(machine, host):
    last = machine.ask()
    assert (last.phase, last.awaits_boot) == (Phase.WAITING_FOR_BOOT, True)
    assert (machine.running, host.packages.versions) == (OLD, NEW)
    # The minion has not been touched, nothing is held back, and no process waits.
    assert (host.restarts(), host.services.refuses, host.services.rests) == ([], False, True)
    assert host.services.armed
    assert machine.boot().phase is Phase.COMMITTED
    assert host.phases()[-5:] == [
        "waiting_for_boot",
        "stepping",
        "restarting",
        "watching",
        "committed",
    ]
    assert (machine.running, host.restarts()) == (NEW, [])
    host.assert_at_peace()


def test_the_running_system_may_be_read_only(machine, host, monkeypatch):
    monkeypatch.setattr(room, "is_read_only", lambda directory: True)
    assert machine.ask().phase is Phase.WAITING_FOR_BOOT


def test_a_supervisor_that_is_started_before_the_boot_has_nothing_to_do(machine, host):
    before = machine.ask()
    for _ in range(20):
        host.supervise()
    assert dataclasses.replace(host.last, changed=before.changed) == before
    assert machine.boot().phase is Phase.COMMITTED


@pytest.mark.parametrize(
    ("policy", "there", "back"), [("manual", 0, 0), ("rollback", 0, 1), ("always", 1, 2)]
)
def test_who_asks_for_the_reboots(machine, host, policy, there, back):
    machine.set(transactional_reboot=policy)
    machine.bad = NEW
    machine.ask()
    host.supervise()
    assert machine.snapshots.reboots == there
    assert machine.boot().phase is Phase.ROLLING_BACK
    host.supervise()
    assert machine.snapshots.reboots == back
    assert machine.boot().phase is Phase.ROLLED_BACK


def test_a_reboot_that_cannot_be_asked_for_is_told(machine, host):
    def reboot():
        raise SafeUpdateError("no method works")

    machine.set(transactional_reboot="always")
    machine.snapshots.reboot = reboot
    assert "no method works" in machine.ask().boot.reboot
    assert machine.boot().phase is Phase.COMMITTED


def test_a_reboot_is_written_down_before_it_is_asked_for(machine, host):
    """It may come at once: whoever asks meanwhile, such as a rollout, knows that it does."""
    written = []

    def reboot():
        written.append(host.last.boot)
        if len(written) == 1:
            raise Killed
        return "reboot requested"

    machine.set(transactional_reboot="always")
    machine.snapshots.reboot = reboot
    with pytest.raises(Killed):
        machine.ask()
    # It was killed, and no reboot came: the next one asks again.
    host.supervise()
    host.supervise()
    assert [boot.reboot for boot in written] == [ASKING, ASKING]
    assert all(boot.awaits for boot in written)
    assert host.last.boot.reboot == "reboot requested"
    assert machine.boot().phase is Phase.COMMITTED


def test_before_we_reboot_every_return_is_delivered(machine, host):
    machine.set(transactional_reboot="always", return_timeout=60.0)
    machine.snapshots.reboot = lambda: str(host.clock.passed)
    host.record(
        Phase.DELIVERING,
        versions_to=dict(NEW),
        way_back=WayBack(snapshot=machine.snapshots.running()),
    )
    machine.snapshots.add(1, NEW)
    host.ledger.add_undelivered("2026:1", jid="2026", fun="state.apply", master="m", payload=b"x")
    host.clock.after(15, lambda: host.ledger.delivered("2026:1"))
    host.supervise()
    assert float(host.last.boot.reboot) >= 15


class TestSteps:
    """Programs between the old version and the new one, whose files are there after the boot."""

    def _step(self, host, tmp_path):
        step = tmp_path / "steps" / "3007"
        step.parent.mkdir()
        step.write_text("")
        step.chmod(0o755)
        host.settings = dataclasses.replace(host.settings, steps_dir=str(step.parent))
        return str(step)

    def test_they_run_after_the_boot_and_before_the_minion_counts(self, machine, host, tmp_path):
        step = self._step(host, tmp_path)
        machine.ask()
        assert step not in [argv[0] for argv in host.commands]
        assert machine.boot().phase is Phase.COMMITTED
        assert [argv[0] for argv in host.commands].count(step) == 1
        assert host.restarts() == ["restart"]

    def test_one_that_fails_is_taken_back(self, machine, host, tmp_path):
        host.failing.add(self._step(host, tmp_path))
        machine.ask()
        assert machine.boot().phase is Phase.ROLLING_BACK
        assert "The upgrade step failed" in host.last.reason
        assert machine.boot().phase is Phase.ROLLED_BACK
        assert machine.running == OLD


class TestBack:
    def test_a_minion_that_fails_is_taken_back_by_another_boot(self, machine, host):
        machine.bad = NEW
        machine.ask()
        last = machine.boot()
        assert (last.phase, last.awaits_boot) == (Phase.ROLLING_BACK, True)
        assert (machine.running, host.packages.versions) == (NEW, OLD)
        assert {row.version for row in host.store.quarantined()} == {"3007.15"}
        assert machine.boot().phase is Phase.ROLLED_BACK
        assert machine.running == OLD
        host.assert_at_peace()

    def test_a_report_of_the_boot_before_proves_nothing(self, machine, host):
        machine.ask()
        # The old minion starts once more before the boot, and the new one is silent.
        host.services.begin_restart("salt-minion")
        host.reports = False
        assert machine.boot().phase is Phase.ROLLING_BACK
        assert "no minion with this extension reported" in host.last.reason

    def test_that_the_one_before_reported_counts_after_steps_as_well(self, machine, host):
        host.steps("3007-a")
        host.report()
        machine.ask()
        host.reports = False
        assert machine.boot().phase is Phase.ROLLING_BACK
        assert host.last.progress.steps == ("3007-a",)
        assert "no minion with this extension reported" in host.last.reason

    def test_a_snapshot_that_is_gone(self, machine, host):
        machine.bad = NEW
        machine.ask()
        machine.snapshots.gone = {1}
        last = machine.boot()
        assert last.phase is Phase.FAILED
        assert "run 'transactional-update rollback 1' and reboot" in last.reason

    def test_what_somebody_decides_meanwhile_stays(self, machine, host):
        machine.bad = NEW
        machine.ask()
        machine.boot()
        machine.snapshots.add(2, NEWER)
        last = machine.boot()
        assert last.phase is Phase.FAILED
        assert "Another snapshot has become the default since" in last.reason
        assert machine.snapshots.next == 3

    def test_by_request_it_is_the_snapshot(self, machine, host):
        machine.ask()
        machine.boot()
        host.clock.now += 10
        changes = {"request": _request(host, back=True), "code": Code(own=tuple(sorted(OLD)))}
        host.record(Phase.REQUESTED, id="u2", versions_from=dict(NEW), jid="", **changes)
        host.supervise()
        assert (machine.running, host.packages.versions) == (NEW, OLD)
        assert machine.boot().phase is Phase.COMMITTED
        assert (machine.snapshots.now, sorted(machine.snapshots.contents)) == (1, [1, 2])
        host.assert_at_peace()


def _request(host, **changes):
    return dataclasses.replace(host.last.request, **changes)


class TestWhatElseHappensBeforeTheBoot:
    def test_a_later_transaction_without_it(self, machine, host):
        machine.ask()
        machine.snapshots.add(1, {})
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "did not start from it" in host.last.reason
        assert host.store.quarantined() == []
        host.assert_at_peace()

    def test_a_later_transaction_with_it(self, machine, host):
        machine.ask()
        machine.snapshots.add(2, {})
        host.supervise()
        assert host.last.phase is Phase.WAITING_FOR_BOOT
        assert machine.boot().phase is Phase.COMMITTED

    @pytest.mark.parametrize("booted", [True, False])
    def test_somebody_goes_back(self, machine, host, booted):
        machine.ask()
        if booted:
            machine.power()
        machine.snapshots.next = 1
        assert machine.boot().phase is Phase.FAILED
        assert "the host went back" in host.last.reason
        assert machine.running == OLD

    def test_a_pending_snapshot_of_others_is_not_lost(self, machine, host):
        machine.snapshots.add(1, {"vim": "9"})
        last = machine.ask()
        assert last.phase is Phase.FAILED
        assert "Snapshot 2 waits for a reboot" in last.reason
        assert machine.snapshots.next == 2

    def test_a_restart_of_the_minion(self, machine, host):
        machine.ask()
        host.clock.now += 10
        host.request_restart(reason="configuration")
        host.end_supervisor()
        assert host.last.kind == "restart"
        host.supervise()
        assert host.restarts() == ["restart"]
        # Afterwards the update waits as before.
        assert (host.last.id, host.last.phase) == ("u1", Phase.WAITING_FOR_BOOT)
        assert host.services.armed
        assert machine.boot().phase is Phase.COMMITTED
        assert host.restarts() == ["restart"]
        host.assert_at_peace()

    @pytest.mark.parametrize("pending", [False, True], ids=["nothing pending", "an update waits"])
    def test_a_restart_that_hands_over_waits_for_no_job(self, machine, host, monkeypatch, pending):
        """A plain restart runs the same snapshot: no boot is waited for, and no job."""
        monkeypatch.setattr(meeting, "can_be_asked", lambda run_dir, process: True)
        host.reported_with(hands_over=True)
        if pending:
            machine.ask()
        host.clock.now += 10
        job = host.job()
        host.request_restart(reason="configuration")
        host.end_supervisor()
        host.supervise()
        assert host.restarts() == ["restart"]
        last = host.store.latest()
        assert (last.kind == "update") is pending
        assert last.phase is (Phase.WAITING_FOR_BOOT if pending else Phase.COMMITTED)
        job.close()

    def test_an_update_waits_for_jobs_and_the_boot_though_the_minion_hands_over(
        self, machine, host, monkeypatch
    ):
        monkeypatch.setattr(meeting, "can_be_asked", lambda run_dir, process: True)
        host.reported_with(hands_over=True, own_tree=True)
        host.clock.after(20, host.job().close)
        last = machine.ask()
        assert host.clock.passed >= 20
        assert last.phase is Phase.WAITING_FOR_BOOT
        assert not last.beside_jobs
        assert host.restarts() == []

    def test_a_restart_that_had_given_way(self, machine, host):
        host.ask()
        owed = Owed(reason="configuration")
        host.store.save(dataclasses.replace(host.last, owed=owed))
        host.supervise()
        assert host.restarts() == ["restart"]
        assert machine.boot().phase is Phase.COMMITTED
        assert host.restarts() == ["restart"]

    def test_another_update_is_refused(self, machine, host):
        machine.ask()
        with pytest.raises(LockHeldError, match="waits for the reboot"):
            host.request_update(_request(host, version="3008.3"))

    def test_it_is_called_off(self, machine, host):
        machine.ask()
        host.cancel()
        host.end_supervisor()
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.last.reason == "It was cancelled with 'safeupdate.cancel', before the reboot."
        assert (host.packages.versions, host.restarts()) == (OLD, [])
        assert host.store.quarantined() == []
        host.assert_at_peace()


class TestAdopted:
    """A transaction of somebody else that has changed the own packages."""

    def _adopt(self, machine, host, versions, base=1):
        before = host.initiator().versions()
        machine.snapshots.add(base, versions)
        host.adopt(
            before,
            base={"number": base, "ident": 256 + base},
            jid="2026",
            reason="transactional_update.dup",
            arm=lambda copies: host.services.arm("unit", ()),
        )
        if host.launched:
            host.end_supervisor()
            host.supervise()
        return host.store.latest()

    def test_it_is_watched_and_committed(self, machine, host):
        last = self._adopt(machine, host, NEW)
        assert (last.phase, last.versions_from, last.versions_to) == (
            Phase.WAITING_FOR_BOOT,
            OLD,
            NEW,
        )
        assert last.awaits_boot
        assert machine.boot().phase is Phase.COMMITTED

    def test_it_is_taken_back(self, machine, host):
        machine.bad = NEW
        self._adopt(machine, host, NEW)
        assert machine.boot().phase is Phase.ROLLING_BACK
        assert machine.boot().phase is Phase.ROLLED_BACK
        assert machine.running == OLD

    def _on_a_pending_one(self, machine, host, versions):
        """Adopt a transaction that started from a snapshot of others that waits for a boot."""
        machine.snapshots.add(1, {"vim": "9"})
        return self._adopt(machine, host, versions, base=2)

    def test_pending_changes_of_others_are_not_taken_back_with_it(self, machine, host):
        machine.bad = {**NEW, "vim": "9"}
        self._on_a_pending_one(machine, host, NEW)
        assert machine.boot().phase is Phase.ROLLING_BACK
        assert machine.boot().phase is Phase.ROLLED_BACK
        assert machine.running == {**OLD, "vim": "9"}

    def test_nor_if_it_is_called_off(self, machine, host):
        self._on_a_pending_one(machine, host, NEW)
        host.cancel()
        host.end_supervisor()
        host.supervise()
        assert (host.last.phase, machine.snapshots.next) == (Phase.ROLLED_BACK, 2)

    def test_somebody_goes_back_before_the_boot(self, machine, host):
        self._adopt(machine, host, NEW)
        machine.snapshots.next = 1
        host.initiator().have_supervised(host.last)
        host.end_supervisor()
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "the host went back to it" in host.last.reason

    def test_one_without_the_own_packages_is_not(self, machine, host):
        assert self._adopt(machine, host, {"vim": "9"}) is None
        assert host.launched == 0

    def test_one_that_starts_from_it_changes_nothing(self, machine, host):
        machine.ask()
        last = self._adopt(machine, host, {"vim": "9"}, base=2)
        assert (last.id, last.phase, host.launched) == ("u1", Phase.WAITING_FOR_BOOT, 0)

    def test_a_newer_one_takes_its_place(self, machine, host):
        machine.ask()
        host.clock.now += 10
        last = self._adopt(machine, host, NEWER)
        assert (last.versions_from, last.versions_to) == (OLD, NEWER)
        assert host.store.get("u1").phase is Phase.FAILED
        assert machine.boot().phase is Phase.COMMITTED

    def test_one_without_it_ends_it(self, machine, host):
        machine.ask()
        host.clock.now += 10
        assert self._adopt(machine, host, {}).phase is Phase.FAILED
        assert host.launched == 0


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kill_at", range(1, 20))
@pytest.mark.parametrize("healthy", [True, False])
def test_killed_at_any_write_of_the_record_then_recovered(
    machine, host, healthy, kill_at, when, power
):
    machine.bad = None if healthy else NEW
    host.ask()
    store = host.dying(kill_at, when)
    machine.snapshots.alive = store.check
    for _ in range(4):
        try:
            host.supervise(host.store if store.dead else store)
        except Killed:
            host.all_die()
            machine.snapshots.alive = lambda: None
            if power:
                machine.power()
            host.supervise()
        if host.last.phase.final:
            break
        assert host.last.awaits_boot
        machine.power()
        if not store.dead:
            host.services.alive = store.check
    wanted = (Phase.COMMITTED, NEW) if healthy else (Phase.ROLLED_BACK, OLD)
    assert (host.last.phase, machine.running) == wanted
    assert host.packages.versions == wanted[1]
    assert host.services.active == "active"
    assert len(host.kept()) == (1 if healthy else 0)
    host.assert_at_peace()


def test_the_range_of_writes_covers_it(machine, host):
    machine.bad = NEW
    host.ask()
    before = host.store.writes
    host.supervise()
    machine.boot()
    machine.boot()
    assert host.last.phase is Phase.ROLLED_BACK
    assert host.store.writes - before <= 19


def test_the_words_of_the_policy(host):
    from saltext_safeupdate.core.settings import from_mapping

    for word in ("manual", "rollback", "always"):
        assert from_mapping({"transactional_reboot": word}).transactional_reboot == word
    with pytest.raises(InputError, match="'manual', 'rollback' or 'always'"):
        from_mapping({"transactional_reboot": "never"})
