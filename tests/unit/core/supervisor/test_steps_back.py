"""Programs of upgrade steps that run before an update, and on the way back."""

import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.prepare.upgrade_steps import Steps
from saltext_safeupdate.core.record.facts import STEPS_BEGUN, STEPS_TAKEN
from saltext_safeupdate.core.record.phase import Phase
from tests.support.simulated import DyingStore, FakeTransactional, Killed

from ..conftest import NEW, OLD
from .test_reboot import Machine

FORWARD, BACK = (OLD["salt"], NEW["salt"]), (NEW["salt"], OLD["salt"])
STEP = ("3007-a.before", "3007-a", "3007-a.revert")


class DyingAtFacts(DyingStore):
    """Dies at the writes of facts as well."""

    def set_fact(self, fact, value):
        self._written(lambda: super(DyingAtFacts, self).set_fact(fact, value))

    def drop_fact(self, fact):
        self._written(lambda: super(DyingAtFacts, self).drop_fact(fact))

    def _written(self, write):
        self.check()
        self.writes += 1
        if self.writes == self.kill_at and self.when == "before":
            self.die()
        write()
        if self.writes == self.kill_at:
            self.die()


def _fails(host, *names):
    host.failing = {os.path.join(host.settings.steps_dir, name) for name in names}


def _fail(*args):
    raise CommandError(("apt-get",), "no network")


def _does_not_work(host):
    """Have no minion of the new version come up."""
    host.services.dies_while = lambda: host.packages.versions == NEW


def _ran(host):
    """Return the programs that were called, with their arguments."""
    calls = [argv for argv in host.commands if argv[0].startswith(host.settings.steps_dir)]
    return [(os.path.basename(argv[0]), *argv[1:]) for argv in calls]


def _names(host):
    return [name for name, *_ in _ran(host)]


def _settled(host):
    assert host.store.fact(STEPS_BEGUN) is None
    host.assert_at_peace()


class TestBefore:
    def test_it_runs_while_nothing_has_changed_and_jobs_run(self, host):
        host.steps(*STEP, "3006.1.before", "3008.before")
        seen, run = [], host.command

        def look(argv, **kwargs):
            if argv[0].startswith(host.settings.steps_dir):
                seen.append((host.last.phase, dict(host.packages.versions)))
            return run(argv, **kwargs)

        host.command = look
        host.ask()
        job = host.job()
        host.clock.after(100, job.close)
        host.supervise()
        assert _ran(host) == [("3007-a.before", *FORWARD), ("3007-a", *FORWARD)]
        assert seen == [(Phase.CHECKING, OLD), (Phase.STEPPING, NEW)]
        assert host.last.phase is Phase.COMMITTED
        assert host.last.progress.steps == ("3007-a.before", "3007-a")
        assert host.store.fact(STEPS_TAKEN) == ("3007-a",)
        _settled(host)

    def test_what_it_has_offered_is_what_is_installed(self, host):
        host.steps("3007-repo.before")
        host.ask("3007.15", resolved=False)
        offers, host.packages.offers = host.packages.offers, {}
        host.packages.refresh = lambda: setattr(host.packages, "offers", offers)
        host.supervise()
        assert _ran(host) == [("3007-repo.before", *FORWARD)]
        assert host.last.phase is Phase.COMMITTED
        assert host.packages.versions == NEW

    def test_what_leads_further_has_what_comes_before_that_as_well(self, host):
        """Without a version, the newest is meant: nobody knew of it."""
        host.steps("3007-repo.before", "3008-dump.before")
        host.ask(resolved=False)
        newer = {name: ["3008.3", *offers] for name, offers in host.packages.offers.items()}
        host.packages.refresh = lambda: setattr(host.packages, "offers", newer)
        host.supervise()
        assert _names(host) == ["3007-repo.before", "3008-dump.before"]
        assert host.packages.versions == dict.fromkeys(OLD, "3008.3")
        assert host.last.phase is Phase.COMMITTED

    def test_the_newest_of_a_series_is_the_one_that_it_brings(self, host):
        host.steps("3008-repo.before")
        host.ask("3008", resolved=False)
        newer = {name: ["3008.3", *offers] for name, offers in host.packages.offers.items()}
        host.packages.refresh = lambda: setattr(host.packages, "offers", newer)
        host.supervise()
        assert _names(host) == ["3008-repo.before"]
        assert host.packages.versions == dict.fromkeys(OLD, "3008.3")
        assert host.last.phase is Phase.COMMITTED

    def test_an_index_that_cannot_be_refreshed_is_the_known_one(self, host):
        host.steps("3007-repo.before")
        host.ask("3007.15", resolved=False)

        host.packages.refresh = _fail
        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_if_it_fails_nothing_is_installed_and_what_has_run_is_taken_back(self, host):
        host.steps(*STEP, "3007-b.before", "3007-b.revert", "3007-c.before", "3007-c.revert")
        _fails(host, "3007-b.before")
        host.ask()
        host.supervise()
        assert _ran(host) == [
            ("3007-a.before", *FORWARD),
            ("3007-b.before", *FORWARD),
            ("3007-b.revert", *BACK),
            ("3007-a.revert", *BACK),
        ]
        assert host.last.phase is Phase.FAILED
        assert "made to fail" in host.last.reason
        assert host.last.reason.count("othing was changed") == 1
        assert host.packages.versions == OLD
        assert host.restarts() == []
        assert host.last.progress.steps == ("3007-a.before", "3007-b.revert", "3007-a.revert")
        assert host.store.fact(STEPS_TAKEN) is None
        _settled(host)

    @pytest.mark.parametrize("why", ["not on offer", "no download"])
    def test_it_is_taken_back_if_there_is_no_update_after_all(self, host, why):
        host.steps(*STEP)
        host.ask("3007.15", resolved=False)
        if why == "not on offer":
            host.packages.refresh = host.packages.offers.clear
        else:
            host.packages.download = _fail
        host.supervise()
        assert _names(host) == ["3007-a.before", "3007-a.revert"]
        assert host.last.phase is Phase.FAILED
        _settled(host)

    def test_called_off_in_its_midst_it_is_taken_back(self, host):
        host.steps(*STEP, "3007-b.before")
        host.ask()
        run = host.command

        def cancelling(argv, **kwargs):
            if argv[0].endswith("3007-a.before"):
                host.store.save(host.last.advance(Phase.CANCELLED, reason="cancelled"))
            return run(argv, **kwargs)

        host.command = cancelling
        host.supervise()
        assert host.last.phase is Phase.CANCELLED
        assert _names(host) == ["3007-a.before", "3007-a.revert"]
        _settled(host)

    def test_postponed_it_is_taken_back(self, host):
        host.steps(*STEP)
        host.ask(when="now")
        host.job()
        host.supervise()
        assert host.last.phase is Phase.POSTPONED
        assert _names(host) == ["3007-a.before", "3007-a.revert"]
        assert host.store.fact(STEPS_BEGUN) is None

    def test_if_it_is_not_known_what_is_installed_what_has_run_stays(self, host):
        host.steps(*STEP)
        host.ask()
        with pytest.raises(Killed):
            host.supervise(host.dying(4, "before"))
        host.all_die()
        host.cancel()
        host.all_die()
        host.packages.installed = _fail
        host.supervise()
        assert _names(host) == ["3007-a.before"]
        assert host.store.fact(STEPS_BEGUN) is None
        assert host.store.fact(STEPS_TAKEN) == ("3007-a",)

    @pytest.mark.parametrize("then", ["cancel", "ask"])
    def test_called_off_while_nobody_supervises_a_supervisor_is_started_for_it(self, host, then):
        host.steps(*STEP)
        host.ask()
        with pytest.raises(Killed):
            host.supervise(host.dying(3, "before"))
        host.all_die()
        assert host.last.phase is Phase.CHECKING
        if then == "cancel":
            host.cancel()
        else:
            host.record(Phase.CANCELLED, id="u1", request=host.last.request)
            host.clock.now += 10
            host.record(Phase.REQUESTED, id="u2", versions_to=dict(OLD), request=host.last.request)
        assert host.launched == (then == "cancel")
        host.all_die()
        host.supervise()
        assert _names(host) == ["3007-a.before", "3007-a.revert"]
        _settled(host)

    def test_a_job_that_installs_cannot_have_it_run_and_the_record_says_so(self, host):
        host.steps(*STEP)
        way_back = host.secured()
        host.packages.versions.update(NEW)
        host.record(Phase.DELIVERING, versions_to=dict(NEW), way_back=way_back)
        host.supervise()
        assert _names(host) == ["3007-a"]
        assert host.last.phase is Phase.COMMITTED
        assert "have not run" in host.last.reason
        assert "3007-a.before" in host.last.reason


class TestRevert:
    def _rolled_back(self, host, *steps, **kwargs):
        host.steps(*steps)
        _does_not_work(host)
        host.ask(**kwargs)
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK, host.last
        assert host.packages.versions == OLD

    def test_a_minion_that_does_not_work_has_its_steps_taken_back_last_one_first(self, host):
        versions, run = [], host.command

        def look(argv, **kwargs):
            if argv[0].startswith(host.settings.steps_dir):
                versions.append((host.packages.versions["salt"], host.services.active))
            return run(argv, **kwargs)

        host.command = look
        self._rolled_back(host, *STEP, "3007-b", "3007-b.revert", "3007-c")
        assert _ran(host)[4:] == [("3007-b.revert", *BACK), ("3007-a.revert", *BACK)]
        assert versions[4:] == [(OLD["salt"], "failed")] * 2, "before the old one starts"
        assert host.last.progress.steps[4:] == ("3007-b.revert", "3007-a.revert")
        assert host.services.active == "active"
        assert host.store.fact(STEPS_TAKEN) is None
        _settled(host)

    def test_what_has_not_begun_is_not_taken_back(self, host):
        host.steps("3007-b.revert", "3008.revert", "3007-c", "3007-c.revert", *STEP)
        _fails(host, "3007-a")
        host.ask()
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert _names(host) == ["3007-a.before", "3007-a", "3007-a.revert"]
        _settled(host)

    def test_one_that_fails_holds_nothing_up_and_is_told_of(self, host):
        _fails(host, "3007-b.revert")
        self._rolled_back(host, *STEP, "3007-b", "3007-b.revert")
        assert _names(host)[-2:] == ["3007-b.revert", "3007-a.revert"]
        assert "failed on the way back" in host.last.reason
        assert host.services.active == "active"
        _settled(host)

    def test_one_of_the_master_that_was_altered_is_not_run(self, host, tmp_path):
        for name in ("3007-m", "3007-m.revert"):
            (tmp_path / name).write_text("")
        steps = Steps(host.settings.steps_dir, host.store)
        steps.keep([str(tmp_path / name) for name in ("3007-m", "3007-m.revert")])
        (revert,) = steps.taking_back(["3007-m"])
        run = host.command

        def altering(argv, **kwargs):
            if argv[0].endswith("3007-m"):
                pathlib.Path(revert.path).write_text("altered")
            return run(argv, **kwargs)

        host.command = altering
        _does_not_work(host)
        host.ask()
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert not any(argv[0] == revert.path for argv in host.commands)
        assert "not taken back" in host.last.reason
        _settled(host)

    def test_a_boot_that_goes_back_takes_back_what_snapshots_share(self, host, monkeypatch):
        machine = Machine(host, monkeypatch)
        host.reported()
        host.steps(*STEP)
        machine.bad = NEW
        machine.ask()
        assert isinstance(host.packages, FakeTransactional)
        for _ in range(4):
            machine.boot()
        assert host.store.get("u1").phase is Phase.ROLLED_BACK
        assert machine.running == OLD
        assert _names(host) == [*STEP]
        assert host.last.reason == "upgrade steps were taken back"
        assert host.last.phase is Phase.COMMITTED
        assert host.store.fact(STEPS_BEGUN) is None


class TestWayDown:
    """A downgrade, or a rollback by request, long after the update."""

    def _down(self, host, *steps):
        host.steps(*steps)
        host.ask()
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        host.commands.clear()
        host.clock.now += 10
        request = host.ask("3006.28", allow_downgrade=True).request
        host.store.save(host.record(Phase.CANCELLED, request=request))
        host.record(
            Phase.REQUESTED,
            id="u2",
            jid="",
            request=request,
            created=host.clock() + 10,
            versions_from=dict(NEW),
            versions_to=dict(OLD),
        )
        host.supervise()
        return host.store.get("u2")

    def test_it_takes_back_the_steps_that_have_run(self, host):
        last = self._down(host, *STEP, "3007-b", "3007-b.revert", "3007-c.revert", "3008.revert")
        assert last.phase is Phase.COMMITTED, last
        assert _ran(host) == [("3007-b.revert", *BACK), ("3007-a.revert", *BACK)]
        assert host.store.fact(STEPS_TAKEN) == ()
        _settled(host)

    def test_and_runs_them_again_if_it_is_itself_taken_back(self, host):
        _fails(host, "3007-a.revert")
        last = self._down(host, *STEP, "3007-b", "3007-b.revert")
        assert last.phase is Phase.ROLLED_BACK
        assert _names(host) == [
            *("3007-b.revert", "3007-a.revert"),
            *("3007-a.before", "3007-a", "3007-b"),
        ]
        assert host.packages.versions == NEW
        assert host.store.fact(STEPS_TAKEN) == ("3007-a", "3007-b")
        _settled(host)


def _good(host):
    host.ask()


def _bad(host):
    host.ask()
    _does_not_work(host)


def _before_fails(host):
    host.ask()
    _fails(host, "3007-b.before")


CRASHES = {"committed": _good, "rolled back": _bad, "failed": _before_fails}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("scenario", CRASHES)
def test_killed_at_any_write_each_program_has_its_effect_and_order(make_host, scenario, when):
    """One may run twice if its end was not noted. Nothing is left out, and the order holds."""
    kill_at = 0
    while True:
        kill_at += 1
        host = make_host()
        host.root.parent.mkdir(exist_ok=True, parents=True)
        host.steps(*STEP, "3007-b.before", "3007-b", "3007-b.revert")
        CRASHES[scenario](host)
        store = DyingAtFacts(host.settings.database, clock=host.clock, kill_at=kill_at, when=when)
        host.services.alive = store.check
        try:
            host.supervise(store)
        except Killed:
            pass
        else:
            break
        host.all_die()
        host.supervise()
        expected = {
            "committed": ["3007-a.before", "3007-b.before", "3007-a", "3007-b"],
            "rolled back": [
                *("3007-a.before", "3007-b.before", "3007-a", "3007-b"),
                *("3007-b.revert", "3007-a.revert"),
            ],
            "failed": ["3007-a.before", "3007-b.before", "3007-b.revert", "3007-a.revert"],
        }[scenario]
        ran = _names(host)
        once = [name for at, name in enumerate(ran) if not at or ran[at - 1] != name]
        assert once == expected, (kill_at, ran)
        assert len(ran) <= len(expected) + 1, (kill_at, ran)
        taken = host.store.fact(STEPS_TAKEN) or ()
        assert taken == (("3007-a", "3007-b") if scenario == "committed" else ())
        _settled(host)
    assert kill_at > 8
