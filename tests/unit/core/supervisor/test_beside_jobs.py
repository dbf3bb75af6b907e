"""Packages that change while jobs run, which read their own code."""

import dataclasses
import os

import pytest

from saltext_safeupdate.core.errors import LockHeldError
from saltext_safeupdate.core.generations import meeting, own_tree
from saltext_safeupdate.core.generations.generation import Report, Standing
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.host.files import text
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.supervisor import beside_jobs
from saltext_safeupdate.core.supervisor.quiet_transaction import PostponedError

from ..conftest import NEW, OLD


@pytest.fixture
def host(host, monkeypatch):
    """A minion that is handed over, and reads its own tree."""
    alive, dead = processes.alive, set()
    monkeypatch.setattr(
        processes, "alive", lambda who: alive(who) or (who.startswith("main:") and who not in dead)
    )
    monkeypatch.setattr(own_tree, "_held", [])
    host.dead, trees = dead, {}
    host.trees = trees
    monkeypatch.setattr(own_tree, "of", lambda roots, process: trees.get(process, {}))
    monkeypatch.setattr(meeting, "can_be_asked", lambda run_dir, process: host.can_be_asked)
    host.can_be_asked = True
    host.old = have_own_tree(host, trees)
    # What this process is in these tests: a job of that minion.
    own_tree._held.append(-1)
    return host


def have_own_tree(host, trees):
    """Have the minion that runs read its own tree; return its process."""
    host.reported_with(hands_over=True, own_tree=True)
    process = host.generations.serving().process
    trees[process] = {str(host.root): "a copy"}
    return process


def whose(host, *, replaces=True, **kwargs):
    given = {"roots": [str(host.root)], "others": (), "before": OLD, "after": NEW, **kwargs}
    return beside_jobs.whose(host.initiator(), *given.values(), replaces=replaces)


def hands_over(host):
    """Have the restart of the service leave the minion before outside of the unit."""

    def restart(unit):
        host.services._do("restart")
        host.generations.stands(host.old, Standing.OVERLAPPING)
        host.services._up()

    host.services.begin_restart = restart


class TestWhose:
    def test_that_of_the_minion_that_reads_its_own_tree(self, host):
        assert whose(host) == (host.old,)

    def test_not_if_restarts_are_to_wait(self, host):
        host.settings = dataclasses.replace(host.settings, restart="wait")
        assert whose(host) == ()

    @pytest.mark.parametrize("lacks", ["hands_over", "own_tree"])
    def test_not_if_it_cannot(self, host, lacks):
        host.reported_with(**{lacks: False})
        assert whose(host) == ()

    def test_not_if_one_before_it_has_no_own_tree(self, host):
        host.generations.stands(host.old, Standing.LEAVING)
        assert whose(host) == (host.old,)
        host.generations.reports("main:before", Report(at=1.0))
        host.generations.stands("main:before", Standing.LEAVING)
        host.generations.reports(host.old, host.generations.of(host.old).report)
        assert whose(host) == ()
        host.dead.add("main:before")
        assert whose(host) == (host.old,)

    def test_not_while_one_has_not_reported_yet(self, host):
        host.generations.begins("main:next")
        assert whose(host) == ()

    def test_not_if_the_tree_does_not_have_all_of_the_code(self, host):
        other = host.root.parent / "other"
        other.mkdir()
        assert whose(host, roots=[str(host.root), str(other)]) == ()
        assert whose(host, roots=[]) == ()
        assert whose(host, roots=[], replaces=False) == (host.old,), "a slot replaces none"

    def test_not_beside_other_minions_of_the_host(self, host):
        assert whose(host, others=("another",)) == ()

    def test_not_if_nothing_runs(self, host):
        host.dead.add(host.old)
        assert whose(host) == ()

    def test_not_if_an_upgrade_step_lies_on_the_way(self, host):
        host.steps("3007-rename")
        assert whose(host) == ()
        assert whose(host, after={}) == (), "it is not known how far it goes"
        assert whose(host, before=NEW) == (host.old,)

    def test_not_if_what_runs_cannot_be_read(self, host):
        with host.store.transaction() as db:
            db.execute("UPDATE generations SET report = '{'")
        assert whose(host) == ()


class TestARequest:
    def test_is_installed_beside_a_job(self, host):
        job, seen = host.job(), []
        hands_over(host)

        def look(files):
            names = ("drain", "packages", "update")
            seen.extend(locks.held(host.settings.run_dir, name) for name in names)
            assert host.services.refuses

        host.packages.installs = look
        host.ask()
        host.supervise()
        assert seen == [False, True, True]
        assert host.last.phase is Phase.COMMITTED
        assert host.last.progress.beside == (host.old,)
        assert host.restarts() == ["restart"]
        job.close()

    def test_leaves_the_processors_to_the_jobs_first(self, host):
        hands_over(host)
        before, nice = os.getpriority(os.PRIO_PROCESS, 0), []
        download = host.packages.download

        def look(*_):
            nice.append(os.getpriority(os.PRIO_PROCESS, 0))

        host.packages.installs = look
        host.packages.download = lambda *args: look() or download(*args)
        host.ask()
        host.supervise()
        assert nice == [min(before + 5, 19)] * 2
        assert os.getpriority(os.PRIO_PROCESS, 0) == before

    def test_installs_as_fast_as_it_can_while_jobs_wait(self, host):
        host.settings = dataclasses.replace(host.settings, restart="wait")
        before, nice = os.getpriority(os.PRIO_PROCESS, 0), []
        host.packages.installs = lambda files: nice.append(os.getpriority(os.PRIO_PROCESS, 0))
        host.ask()
        host.supervise()
        assert nice == [before]

    def test_waits_for_what_reads_the_packages(self, host):
        hands_over(host)
        reader = locks.share(host.settings.run_dir, "packages")
        waited = []

        def each_second():
            waited.append(host.last.phase)
            assert not locks.held(host.settings.run_dir, "drain")
            if len(waited) == 100:
                reader.close()

        host.clock.each_second = each_second
        host.ask()
        host.supervise()
        assert waited[:100] == [Phase.WAITING] * 100
        assert host.last.phase is Phase.COMMITTED

    def test_is_postponed_if_that_takes_too_long(self, host):
        reader = locks.share(host.settings.run_dir, "packages")
        host.ask("3007.15", when="now")
        host.supervise()
        assert host.last.phase is Phase.POSTPONED
        assert host.packages.versions == OLD
        reader.close()

    def test_waits_for_jobs_if_another_minion_runs_by_then(self, host):
        """That one may read no tree of its own."""
        job, seen = host.job(), []
        reader = locks.share(host.settings.run_dir, "packages")

        def restarted():
            if reader.fd and host.last.phase is Phase.WAITING and not seen:
                seen.append("restarted")
                host.reported_with(own_tree=False)
                reader.release()
            elif seen == ["restarted"] and locks.held(host.settings.run_dir, "drain"):
                seen.append("held")
                job.close()

        host.clock.each_second = restarted
        host.ask()
        host.supervise()
        assert seen == ["restarted", "held"]
        assert host.last.phase is Phase.COMMITTED
        assert host.last.progress.beside == ()
        reader.close()

    def test_may_be_cancelled_while_it_waits(self, host):
        reader = locks.share(host.settings.run_dir, "packages")

        def cancel():
            if host.last.phase is Phase.WAITING:
                host.store.save(host.last.advance(Phase.CANCELLED))

        host.clock.each_second = cancel
        host.ask()
        host.supervise()
        assert host.last.phase is Phase.CANCELLED
        assert host.packages.versions == OLD
        reader.close()


class TestAJob:
    def change(self, host, jobs, packages=None, work=None):
        def upgrade():
            assert not locks.held(host.settings.run_dir, "drain")
            assert locks.held(host.settings.run_dir, "packages")
            host.packages.versions.update(NEW)

        transaction = host.transaction(launch=host.launches_beside)
        transaction.change(work or upgrade, jobs, packages, jid="2026")
        return transaction

    @pytest.fixture(autouse=True)
    def _launch(self, host):
        def launch():
            host.launched += 1
            host.waiting = [host.lock("supervisor")]
            assert host.waiting[0].try_exclusive()

        host.launches_beside = launch

    def test_changes_them_beside_another_one(self, host):
        hands_over(host)
        own, other = host.job(), host.job()
        done = self.change(host, own)
        assert host.last.phase is Phase.DELIVERING
        assert host.redirected == [], "it reads its own tree"
        assert locks.held(host.settings.run_dir, "packages"), "until its end"
        host.end_supervisor()
        ended = []

        def end():
            if not ended:
                ended.append(host.last.phase)
                done.packages.close()

        host.clock.each_second = end
        host.supervise()
        assert ended == [Phase.DELIVERING]
        assert host.last.phase is Phase.COMMITTED
        assert host.restarts() == ["restart"]
        own.close()
        other.close()

    @pytest.mark.parametrize("in_time", [True, False])
    @pytest.mark.parametrize(
        ("kind", "beside"), [("update", True), ("update", False), ("restart", False)]
    )
    def test_waits_for_an_update_that_ends_while_it_runs(self, host, kind, beside, in_time):
        """
        ================================  ==========================================
        Under way is                      This job
        ================================  ==========================================
        an update by another run          finds what that one brought
        an update whose new minion runs   the same: only earlier jobs were waited for
        a restart that a state asked for  changes the packages after it
        ================================  ==========================================
        """
        hands_over(host)
        packages = locks.share(host.settings.run_dir, "packages")
        progress = Progress(beside=(host.old,)) if beside else Progress()
        host.record(Phase.WATCHING, kind=kind, progress=progress)
        supervisor = host.lock("supervisor")
        assert supervisor.try_exclusive()
        other = host.last

        def end():
            # It does not wait for the job that waits for it.
            assert not locks.held(host.settings.run_dir, "packages")
            host.packages.versions.update(NEW)
            host.store.save(other.advance(Phase.COMMITTED))
            supervisor.close()

        if in_time:
            host.clock.after(30, end)
            self.change(host, host.job(), packages, work=lambda: None)
            assert host.last.phase is Phase.COMMITTED
            assert host.last.id != other.id
        else:
            with pytest.raises(LockHeldError, match=f"{kind} of the minion is under way"):
                self.change(host, host.job(), packages)
            assert host.clock.passed >= host.settings.jobs_timeout
        packages.close()

    def test_of_salt_call_reads_a_copy(self, host):
        own_tree._held.clear()
        packages = locks.share(host.settings.run_dir, "packages")
        self.change(host, host.job(), packages)
        assert list(host.redirected[0]) == [str(host.root)]
        packages.close()

    def test_does_nothing_while_something_reads_them(self, host):
        reader = locks.share(host.settings.run_dir, "packages")
        with pytest.raises(PostponedError, match=r"salt-call.*Nothing was changed"):
            self.change(host, host.job())
        assert host.packages.versions == OLD
        assert not locks.held(host.settings.run_dir, "packages")
        reader.close()

    def test_does_nothing_if_another_minion_runs_by_then(self, host):
        reader = locks.share(host.settings.run_dir, "packages")

        def restarted():
            host.reported_with(own_tree=False)
            reader.release()

        host.clock.each_second = restarted
        with pytest.raises(PostponedError, match=r"started meanwhile.*Nothing was changed"):
            self.change(host, host.job())
        assert host.packages.versions == OLD
        reader.close()

    @pytest.mark.parametrize("later", [0, 3])
    def test_takes_in_a_minion_that_serves_by_then_or_is_being_started(self, host, later):
        """An update right behind another one, for example, or a restart in the background."""
        reader = locks.share(host.settings.run_dir, "packages")
        begun = []

        def restarted():
            if not begun:
                hands_over(host)
                host.services.begin_restart("salt-minion")
                reader.close()
            begun.append(1)
            if len(begun) == 1 + later:
                have_own_tree(host, host.trees)

        host.clock.each_second = restarted
        self.change(host, host.job())
        assert host.packages.versions == NEW
        assert len(host.last.progress.beside) == 2
        assert host.old in host.last.progress.beside

    def test_takes_no_notice_of_a_minion_that_has_ended_by_then(self, host):
        reader = locks.share(host.settings.run_dir, "packages")
        hands_over(host)
        host.services.begin_restart("salt-minion")
        have_own_tree(host, host.trees)

        def ended():
            host.dead.add(host.old)
            reader.release()

        host.clock.each_second = ended
        self.change(host, host.job())
        assert host.packages.versions == NEW
        assert host.old not in host.last.progress.beside
        reader.close()

    def test_has_its_share_again_if_nothing_has_changed(self, host):
        packages = locks.share(host.settings.run_dir, "packages")
        self.change(host, host.job(), packages, work=lambda: None)
        assert host.last.phase is Phase.COMMITTED
        assert locks.share(host.settings.run_dir, "packages") is not None
        packages.close()


class TestGoingBack:
    def test_below_the_minion_that_was_not_restarted_touches_nothing_of_it(self, host):
        job = host.job()

        update = host.record(
            Phase.ROLLING_BACK,
            way_back=host.secured(),
            versions_to=dict(NEW),
            progress=Progress(beside=(host.old,)),
        )
        assert update.beside_jobs
        host.packages.versions.update(NEW)
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.packages.versions == OLD
        assert host.restarts() == []
        job.close()

    @pytest.mark.parametrize("dies", [False, True])
    def test_ends_the_new_minion_and_nothing_outside_of_the_unit(self, host, dies):
        job, seen = host.job(), []
        hands_over(host)
        report, stop = host.services.report, host.services.stop

        def end(unit):
            bypass = os.path.join(host.settings.run_dir, "bypass")
            seen.append((text(bypass), locks.held(host.settings.run_dir, "drain")))
            stop(unit)

        def reports():
            if host.packages.versions == OLD:
                report()
            elif dies:
                host.dead.add(host.old)

        host.services.report, host.services.end = reports, end
        host.ask()
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.packages.versions == OLD
        # If nobody else serves, new jobs are held until the old version is back.
        assert seen == [("unit\n", dies)]
        wanted = Standing.GONE if dies else Standing.OVERLAPPING
        assert host.generations.of(host.old).standing is wanted
        job.close()


@pytest.mark.parametrize("phase", Phase)
def test_the_new_minion_is_on_trial_from_the_restart_on(host, phase):
    progress = Progress(beside=("main:1",))
    wanted = phase in (Phase.RESTARTING, Phase.WATCHING, Phase.ROLLING_BACK)
    assert host.record(phase, progress=progress).on_trial is wanted
    assert not host.record(phase, id="u2").on_trial


def test_it_is_no_trial_any_more_when_the_new_one_has_shown_that_it_works(host):
    progress = Progress(beside=("main:1",), proven=1.0)
    assert not host.record(Phase.WATCHING, progress=progress).on_trial


@pytest.mark.parametrize("leaves", [True, False])
def test_it_is_committed_when_the_earlier_minion_takes_no_more_jobs(host, leaves):
    """Otherwise it would answer with the old version behind the end of the update."""
    job, ends = host.job(), []
    hands_over(host)

    def looks():
        trial_is_over = host.last.phase is Phase.WATCHING and not host.last.on_trial
        if leaves and trial_is_over:
            host.generations.stands(host.old, Standing.LEAVING)

    host.clock.each_second = looks
    save = host.store.save

    def saves(update):
        if update.phase is Phase.COMMITTED:
            ends.append((host.generations.overlapping(), update.progress.proven))
        return save(update)

    host.store.save = saves
    host.ask()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    ((serving, proven),) = ends
    assert serving == ([] if leaves else [host.old])
    waited = host.clock() - proven
    assert waited < 3 if leaves else 10 <= waited < 12
    job.close()


def test_one_that_cannot_be_asked_is_not_handed_over(host):
    assert whose(host) == (host.old,)
    assert host.context([None] * 4).hands_over
    host.can_be_asked = False
    assert whose(host) == ()
    assert not host.context([None] * 4).hands_over


def test_one_whose_unit_is_changed_while_it_runs_is_not_handed_over_any_more(host):
    """The guard would wait for jobs, and end them at the end of its patience."""
    assert whose(host) == (host.old,)
    host.obstacle = "salt-minion.service has 'PrivateTmp=', so its jobs would lose their /tmp"
    assert whose(host) == ()
    assert not host.context([None] * 4).hands_over
    host.obstacle = ""
    assert whose(host) == (host.old,)
    assert host.context([None] * 4).hands_over


def test_a_request_waits_for_jobs_then(host):
    job, seen = host.job(), []
    host.obstacle = "salt-minion.service has 'PrivateTmp='"
    host.ask()
    host.clock.after(20, job.close)
    host.packages.installs = lambda files: seen.append(host.clock.passed >= 20)
    host.supervise()
    assert seen == [True]
    assert host.last.phase is Phase.COMMITTED


@pytest.mark.parametrize("obstacle", ["unit", "earlier minions with jobs"])
def test_a_restart_that_waits_for_jobs_is_decided_again(host, monkeypatch, obstacle):
    """As when somebody ends one of two jobs that hang: the other one need not end then."""
    hands_over(host)
    job = host.job()
    if obstacle == "unit":
        host.obstacle = "salt-minion.service has 'PrivateTmp='"
    else:
        said = ["5 earlier minions still have jobs"]
        monkeypatch.setattr(Generations, "crowded", lambda self: said[0])

    def gone():
        assert host.last.phase is Phase.WAITING
        host.obstacle = ""
        if obstacle != "unit":
            said[0] = ""

    host.clock.after(200, gone)
    host.record(Phase.WAITING, kind="restart")
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert host.restarts() == ["restart"]
    job.close()
