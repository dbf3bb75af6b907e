"""What makes an updated minion healthy, and what shows that it is not; and the way back."""

import os
from dataclasses import replace

import pytest

from saltext_safeupdate.core.errors import CommandError, RecordError
from saltext_safeupdate.core.generations.generation import Report
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.host.service import LastRun
from saltext_safeupdate.core.jobs.ledger import State
from saltext_safeupdate.core.record.facts import RESTART
from saltext_safeupdate.core.record.owner import OWNER, Owner
from saltext_safeupdate.core.record.parts import Owed, Progress, WayBack
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.supervisor import probe, restarting
from saltext_safeupdate.core.supervisor.verdict import KEY_REFUSED

from ..conftest import NEW, OLD

# The master got a return of the minion before the update.
HEARD = Progress(master=True)


def _installed(host, phase=Phase.DELIVERING, **changes):
    """The job has installed and ended, and the old packages are secured."""
    host.keep_tree()
    parts = {"way_back": host.secured()}
    host.packages.versions.update(NEW)
    host.services.refuses = True
    return host.record(phase, versions_to=dict(NEW), **{**parts, **changes})


def _assert_back(host, reason, *, quarantined=True):
    assert host.last.phase is Phase.ROLLED_BACK, host.last
    assert reason in host.last.reason
    assert host.packages.versions == OLD
    assert host.services.active == "active"
    kept = {row.package: row.version for row in host.store.quarantined()}
    assert kept == (NEW if quarantined else {})
    assert host.kept() == []
    host.assert_at_peace()


def _fails(host, tmp_path):
    """The probe fails, and its return arrives."""
    program = tmp_path / "salt-minion"
    program.write_text("#!/opt/python\n")
    host.services.program = lambda unit: str(program)
    host.master = True
    host.answering(retcode=254)
    _installed(host)


def _imports(host, says):
    """Return what runs programs; a Python that is asked what it can import says this."""

    def run(argv, **kwargs):
        done = host.command(argv, **kwargs)
        return replace(done, stdout=says) if probe.MODULE in argv else done

    return run


class TestHealthy:
    def test_its_process_stays_the_same_for_a_while(self, host):
        _installed(host)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.clock.passed >= host.settings.stable_interval
        assert host.kept() == ["u1"]
        host.assert_at_peace()

    def test_jobs_run_meanwhile(self, host):
        _installed(host)
        held = []
        host.clock.after(2.5, lambda: held.append(locks.held(host.settings.run_dir, "drain")))
        host.supervise()
        assert held == [False]

    def test_one_crash_is_no_loop(self, host):
        _installed(host)
        host.services.report = lambda: (host.report(), host.clock.after(2, again))

        def again():
            host.services.report = host.report
            host.services.run()
            host.report()

        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_one_that_something_else_kills_is_started_again(self, host):
        _installed(host)

        def kill():
            host.services.last = LastRun(killed=True, restarts=0)
            host.services.active, host.services.pid = "failed", 0

        host.clock.after(2, kill)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.services.active == "active"

    def test_a_service_that_somebody_stops_is_started_again(self, host):
        _installed(host)

        def stop():
            host.services.active, host.services.pid = "inactive", 0

        host.clock.after(2, stop)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.services.active == "active"

    def test_its_master_gets_the_return_of_a_job(self, host):
        host.master = True
        _installed(host)
        seen = []
        host.clock.each_second = lambda: (seen.append(host.asked), host.answer())
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        asked = next(item for item in seen if item)
        assert asked.fun == "test.echo"
        assert len(asked.jid) == 20

    def test_the_return_of_the_job_that_installed_tells_whether_it_hears(self, host):
        host.master = True
        host.ledger.add_undelivered(
            "2026:1", jid="2026", fun="state.apply", master="m", payload=b"x"
        )
        _installed(host)
        host.supervise()
        assert host.last.progress.master is False
        assert host.last.phase is Phase.COMMITTED

    def test_few_programs_are_started_while_it_lives_and_has_not_reported(self, host):
        _installed(host)
        asked, plain = [], host.services.state
        host.services.state = lambda unit: asked.append(host.clock.passed) or plain(unit)

        def live():
            host.services.pid = os.getpid()
            host.clock.after(10.2, report)

        def report():
            host.report()
            reported.append(host.clock.passed)

        reported = []
        host.services.report = live
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert len([at for at in asked if at < reported[0]]) < 30
        # Its report is seen at once.
        assert any(reported[0] <= at < reported[0] + 0.1 for at in asked)


class TestHard:
    """What cannot become good ends the watch at once."""

    def test_the_unit_has_failed(self, host):
        _installed(host)
        host.services.dies_while = lambda: host.packages.versions == NEW
        host.supervise()
        _assert_back(host, "salt-minion has failed")
        assert host.clock.passed < 10

    def test_it_dies_after_it_has_reported(self, host):
        _installed(host)

        def die():
            if host.packages.versions == NEW:
                host.services.active, host.services.pid = "failed", 0

        host.services.report = lambda: (host.report(), host.clock.after(2, die))
        host.supervise()
        _assert_back(host, "salt-minion has failed")
        assert host.clock.passed < 20

    def test_it_is_killed_again_and_again(self, host):
        _installed(host)

        def kill():
            if host.packages.versions == NEW:
                host.services.active, host.services.pid = "failed", 0

        host.services.last = LastRun(killed=True, restarts=0)
        host.services.report = lambda: (host.report(), host.clock.after(2, kill))
        host.supervise()
        _assert_back(host, "started 4 times")

    def test_systemd_starts_it_again_and_again(self, host):
        _installed(host)
        host.clock.each_second = lambda: (
            (host.services.run(), host.report()) if host.packages.versions == NEW else None
        )
        host.supervise()
        _assert_back(host, "in a row")
        assert host.clock.passed < 20

    def test_it_starts_itself_again_and_again(self, host):
        _installed(host)
        host.clock.each_second = lambda: host.report() if host.packages.versions == NEW else None
        host.supervise()
        _assert_back(host, "in a row")

    def test_the_probe_fails_because_salt_cannot_load_it(self, host, tmp_path):
        _fails(host, tmp_path)
        bad = f"bad {probe.MODULE} SyntaxError: '(' was never closed"
        host.supervise(command=_imports(host, f"good salt\n{bad}"))
        _assert_back(host, "failed with code 254, and /opt/python cannot load it")
        assert "'(' was never closed" in host.last.reason
        assert host.clock.passed < 15

    @pytest.mark.parametrize("known", [True, False])
    def test_this_extension_does_not_know_the_new_salt(self, host, known):
        """Without the hooks; *known* tells whether the minion before had them."""
        host.reported_with(hooked=known)
        _installed(host)

        def report():
            host.report()
            hooked = host.packages.versions == OLD and known
            host.reported_with(hooked=hooked)

        host.services.report = report
        host.supervise()
        if known:
            _assert_back(host, "stands down there, so restarts would lose jobs")
        else:
            assert host.last.phase is Phase.COMMITTED, host.last
            assert host.store.quarantined() == []

    def test_the_extension_cannot_be_carried_along(self, host, monkeypatch):
        monkeypatch.setattr(restarting, "bring_along", lambda *args: "It cannot be loaded.")
        _installed(host)
        host.supervise()
        _assert_back(host, "It cannot be loaded")
        assert host.restarts().count("restart") == 0, "the new one never ran"


class TestSoft:
    """What is only not heard of gets its time."""

    def test_no_report(self, host):
        _installed(host)
        host.services.report = lambda: host.report() if host.packages.versions == OLD else None
        host.supervise()
        _assert_back(host, "no minion with this extension reported within 30 s")
        assert host.clock.passed >= 30

    @pytest.mark.parametrize(("began", "phase"), [(-1, Phase.ROLLED_BACK), (60, Phase.COMMITTED)])
    def test_a_report_of_one_that_began_before_the_restart_does_not_count(self, host, began, phase):
        """Somebody has started it just then, and it reports before it ends."""
        _installed(host)
        boot, _, ticks = processes.moment().split(":")
        start = int(ticks) + began * os.sysconf("SC_CLK_TCK")

        def report():
            host.clock.work(1)
            new = host.packages.versions == NEW
            said = Report(at=host.clock(), boot=boot)
            host.generations.reports(f"{boot}:1:{start}" if new else "main:back", said)

        host.services.report = report
        host.supervise()
        assert host.last.phase is phase, host.last

    @pytest.mark.parametrize("old_is_heard", [True, False])
    @pytest.mark.parametrize("answers", ["never", "not delivered"])
    def test_no_word_from_the_master(self, host, answers, old_is_heard):
        host.master = True

        def answer():
            if host.packages.versions == OLD:
                host.answer(delivered=old_is_heard)
            elif answers == "not delivered":
                host.answer(delivered=False)

        host.clock.each_second = answer
        _installed(host, progress=HEARD)
        host.supervise()
        reason = "did not end" if answers == "never" else "did not reach its master"
        _assert_back(host, reason, quarantined=old_is_heard)
        assert ("does not hear the old minion either" in host.last.reason) is not old_is_heard
        assert host.clock.passed >= 30

    def test_without_a_way_back_it_fails_and_says_so(self, host):
        _installed(host)
        way_back = WayBack(missing="no copy can be had")
        host.record(Phase.DELIVERING, versions_to=dict(NEW), way_back=way_back, code=host.last.code)
        host.reports = False
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "There is no way back: no copy can be had." in host.last.reason
        assert host.packages.versions == NEW
        host.assert_at_peace()


class TestNoFault:
    """What looks ill, and is nothing that the new minion has done: it stays."""

    def _assert_kept(self, host, reason=""):
        assert host.last.phase is Phase.COMMITTED, host.last
        assert reason in host.last.reason
        assert host.packages.versions == NEW
        assert host.store.quarantined() == []
        host.assert_at_peace()

    @pytest.mark.parametrize("says", [f"good salt\ngood {probe.MODULE}", "bad salt no", ""])
    def test_the_probe_fails_for_another_reason(self, host, tmp_path, says):
        """A blackout, a list of modules; or this Python is asked in a way that it does not like."""
        _fails(host, tmp_path)
        host.supervise(command=_imports(host, says))
        self._assert_kept(host)

    def test_its_master_is_there_and_cannot_store_returns(self, host):
        host.master = True
        host.clock.each_second = lambda: host.answer(delivered=False, refused=True)
        _installed(host, progress=HEARD)
        host.supervise()
        self._assert_kept(host)
        assert host.clock.passed < 15

    def test_nobody_on_this_host_reaches_the_master(self, host):
        host.master, host.reachable = True, False
        _installed(host, progress=HEARD)
        host.supervise()
        self._assert_kept(host, "this host does not reach its master")
        assert host.clock.passed >= 30

    @pytest.mark.parametrize("signed_in", [True, False])
    def test_a_function_names_its_master(self, host, signed_in):
        """As with 'master_type: func': its address is only known once a minion has signed in."""
        host.master = True

        def report():
            host.report()
            host.reported_with(masters=())
            if signed_in:
                process = host.generations.serving().process
                host.generations.notes_masters(process, (("m", True),))

        host.services.report = report
        asked = []
        _installed(host, progress=HEARD)
        host.supervise(reaches=lambda known: asked.append(known) is not None)
        assert {tuple(each) for each in asked} == ({(("m", 4506, False),)} if signed_in else set())
        told = "this host does not reach" if signed_in else "address of its master is not known"
        self._assert_kept(host, told)

    def test_the_master_comes_back(self, host):
        """The time without it does not count."""
        host.master, host.reachable = True, False
        host.clock.after(28, lambda: setattr(host, "reachable", True))
        host.clock.after(50, host.answering)
        _installed(host, progress=HEARD)
        host.supervise()
        self._assert_kept(host)
        assert "nobody" not in host.last.reason

    def test_it_is_not_known_whether_a_master_heard_the_one_before(self, host):
        """As after 'salt-call --local pkg.install', or a run by schedule."""
        host.master = True
        _installed(host)
        host.supervise()
        self._assert_kept(
            host, "it is not known whether a master got a return of it before the update"
        )

    def test_the_one_before_had_not_reported_either(self, host):
        with host.store.transaction() as db:
            db.execute("DELETE FROM generations")
        host.reports = False
        _installed(host)
        host.supervise()
        self._assert_kept(host, "nor did one before the update")

    @pytest.mark.parametrize("listed", [True, False])
    def test_its_configuration_does_not_name_the_engine_any_more(self, host, tmp_path, listed):
        for name in ("salt-minion", "minion"):
            (tmp_path / name).write_text("#!/opt/python\n")
        host.services.program = lambda unit: str(tmp_path / "salt-minion")
        config = str(tmp_path / "minion")
        host.store.set_fact(OWNER, Owner(config, "minion"))
        host.reports = False

        def run(argv, **kwargs):
            done = host.command(argv, **kwargs)
            words = "listed\n" if listed else "A warning\nnot listed\n"
            return replace(done, stdout=words) if config in argv else done

        _installed(host)
        host.supervise(command=run)
        if listed:
            assert "no minion with this extension reported" in host.last.reason
            assert host.packages.versions == OLD
        else:
            self._assert_kept(host, "does not name the engine 'safeupdate' any more")

    def test_salt_sleeps_before_it_starts(self, host):
        """As with 'random_startup_delay'."""
        host.reported_with(startup_delay=600.0)
        host.services.report = lambda: host.clock.after(400, host.report)
        _installed(host)
        host.supervise()
        self._assert_kept(host)

    def test_its_master_refuses_its_key(self, host):
        _installed(host)
        host.services.dies_while = lambda: True
        host.services.last = LastRun(status=KEY_REFUSED)
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "its master refuses its key" in host.last.reason
        assert host.packages.versions == NEW
        assert host.store.quarantined() == []
        host.assert_at_peace()

    def test_its_master_refuses_its_key_and_systemd_starts_it_again(self, host):
        """The exit status is only known while no process is there."""
        _installed(host)
        host.reports = False
        services = host.services

        def alternate():
            if "restart" not in host.restarts():
                return
            if services.pid:
                services.active, services.pid = "activating", 0
                services.last = LastRun(status=KEY_REFUSED, restarts=1)
            else:
                services.run()
                services.last = LastRun(restarts=1)

        host.clock.each_second = alternate
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "its master refuses its key" in host.last.reason
        assert host.packages.versions == NEW
        assert host.store.quarantined() == []

    def test_salt_has_ended_its_engine(self, host):
        """As it does if the master is away when the minion starts; it runs on without it."""
        host.master = True
        _installed(host, progress=HEARD)
        host.clock.after(5, lambda: setattr(host, "engine", False))
        host.supervise()
        self._assert_kept(host, "Salt has ended its engine")

    def test_this_extension_came_after_its_start(self, host):
        _installed(host)

        def report():
            host.report()
            host.reported_with(hooked=None)

        host.services.report = report
        host.supervise()
        self._assert_kept(host, "was not installed yet when it started")


class TestSomebody:
    """What an administrator does during the watch is a decision."""

    def test_a_stop_is_left(self, host):
        _installed(host)

        def stop():
            host.services.active, host.services.pid = "inactive", 0
            host.services.last = LastRun(stopped=True)

        host.clock.after(2, stop)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert "Somebody has stopped salt-minion" in host.last.reason
        assert host.services.active == "inactive"
        assert host.restarts() == ["restart"]
        assert host.store.quarantined() == []
        host.assert_at_peace()

    @pytest.mark.parametrize("ends", ["inactive", "failed"])
    def test_a_stop_that_waits_for_jobs_is_left_however_long_that_takes(self, host, ends):
        """The stop guard holds new jobs meanwhile, also the one that would show that it works."""
        host.master = True
        _installed(host, progress=HEARD)
        host.services.report = host.report

        def asked():
            host.services.active = "deactivating"
            host.clock.after(10 * host.settings.watch_timeout, stop)

        def stop():
            host.services.active, host.services.pid = ends, 0
            host.services.last = LastRun(stopped=True)

        host.clock.after(2, asked)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert "Somebody has stopped salt-minion" in host.last.reason
        assert host.services.active == ends
        assert host.restarts() == ["restart"]
        assert host.store.quarantined() == []

    def test_a_stop_is_left_though_the_unit_calls_it_a_failure(self, host):
        """As Salt's does, until the minion has a handler for that."""
        _installed(host)

        def stop():
            host.services.active, host.services.pid = "failed", 0
            host.services.last = LastRun(stopped=True, status=15)

        host.clock.after(2, stop)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert host.services.active == "failed"
        assert host.restarts() == ["restart"]

    def test_a_stop_is_left_while_the_unit_prepares_its_start(self, host):
        _installed(host)
        host.services.report = lambda: None

        def prepare():
            host.services.active, host.services.pid = "activating", 0

        def stop():
            host.services.active = "inactive"
            host.services.last = LastRun(stopped=True)

        host.services.report = prepare
        host.clock.after(3, stop)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert host.restarts() == ["restart"]

    @pytest.mark.parametrize("ends", ["inactive", "failed"])
    def test_a_stop_in_the_place_of_our_own_restart_is_left(self, host, ends):
        """systemd replaces the restart: the minion before it stops, and none is started."""
        _installed(host)
        services = host.services

        def stopping(unit):
            services._do("restart")
            services.active = "deactivating"
            host.clock.after(20, stop)

        def stop():
            services.active, services.pid = ends, 0
            services.last, services.left = LastRun(stopped=True), True

        services.begin_restart = stopping
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert "Somebody has stopped salt-minion" in host.last.reason
        assert services.active == ends
        assert host.restarts() == ["restart"]
        assert host.store.quarantined() == []
        host.assert_at_peace()

    @pytest.mark.parametrize("known", [{"left": False}, {"last": LastRun()}])
    def test_a_minion_whose_start_came_to_nothing_is_started(self, host, known):
        """A unit that it needs has failed, or it had ended by itself before the restart came."""
        _installed(host)
        services = host.services

        def stopping(unit):
            services._do("restart")
            services.active, services.pid = "inactive", 0
            services.last, services.left = LastRun(stopped=True), True
            vars(services).update(known)

        services.begin_restart = stopping
        services.report = host.report
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert services.active == "active"
        assert host.restarts() == ["restart", "start"]

    def test_its_restarts_are_no_loop(self, host):
        _installed(host)
        host.services.last = LastRun(restarts=0)
        times = []

        def restart():
            if len(times) < 6:
                times.append(host.clock())
                host.services.run()
                host.report()

        host.clock.each_second = restart
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert len(times) == 6

    def test_a_restart_late_in_the_watch_gets_all_of_the_time(self, host):
        host.master = True
        _installed(host, progress=HEARD)
        host.services.last = LastRun(restarts=0)

        def restart():
            host.services.run()
            host.report()
            host.clock.after(10, host.answering)

        host.clock.after(28, restart)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert host.clock.passed > host.settings.watch_timeout

    def test_jobs_run_while_the_unit_prepares_its_start(self, host):
        """As 'ExecStartPre=salt-call ...' of the new minion does."""
        held = []

        def prepare():
            host.services.active, host.services.pid = "activating", 0
            host.clock.after(2, look)

        def look():
            held.append(locks.held(host.settings.run_dir, "drain"))
            host.services.run()
            host.report()

        _installed(host)
        host.services.report = prepare
        host.supervise()
        assert held == [False]
        assert host.last.phase is Phase.COMMITTED


class TestNoService:
    def test_an_update_by_a_state_stands_and_says_what_is_left_to_do(self, host):
        host.services.hinders = "this host has neither systemd nor the program 'service'"
        _installed(host)
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "installed, but salt-minion cannot be restarted" in host.last.reason
        assert host.packages.versions == NEW
        assert host.restarts() == []
        assert host.store.quarantined() == []
        host.assert_at_peace()


class TestHealthCheck:
    def _check(self, host, *words):
        object.__setattr__(host.settings, "health_check", words)

    @pytest.mark.parametrize("fails", [True, False])
    def test_a_program(self, host, fails):
        self._check(host, "/usr/bin/check", "--all")
        host.failing = {"/usr/bin/check"} if fails else set()
        _installed(host)
        host.supervise()
        assert host.commands.count(("/usr/bin/check", "--all")) == 1
        if fails:
            _assert_back(host, "The health check failed")
        else:
            assert host.last.phase is Phase.COMMITTED

    @pytest.mark.parametrize("retcode", [2, 0])
    def test_an_sls(self, host, retcode):
        self._check(host, "checks.minion")
        asked = []

        def answer():
            asked.extend(filter(None, [host.asked]))
            host.answer(retcode, delivered=False)

        host.clock.each_second = answer
        _installed(host)
        host.supervise()
        sls, options = asked[-1].arg
        assert (sls, options["queue"]) == ("checks.minion", True)
        if retcode:
            _assert_back(host, "(state.apply) of the watch failed with code 2")
        else:
            assert host.last.phase is Phase.COMMITTED

    def test_an_sls_fails_where_there_is_no_master(self, host):
        """Salt has a name for one all the same, which nobody reaches."""
        self._check(host, "checks.minion")
        serving = host.generations.serving().process
        host.generations.notes_masters(serving, (("salt", False),))
        host.reachable = False
        host.answering(retcode=2, delivered=False)
        _installed(host)
        host.supervise()
        _assert_back(host, "(state.apply) of the watch failed with code 2")

    def test_an_sls_fails_beside_a_master_that_missed_one_look(self, host):
        self._check(host, "checks.minion")
        host.master = True
        _installed(host, progress=HEARD)
        looks = []

        def reaches(known):
            looks.append(known)
            return len(looks) != 2

        def answer():
            if not host.asked_sls:
                host.answer()
            elif len(looks) > 4:
                host.answer(2)

        host.clock.each_second = answer
        host.supervise(reaches=reaches)
        _assert_back(host, "(state.apply) of the watch failed with code 2")

    @pytest.mark.parametrize("hears", [True, None, False])
    @pytest.mark.parametrize("why", ["blackout", "away", "silent", "no engine"])
    def test_an_sls_that_cannot_be_run_is_no_evidence(self, host, why, hears):
        """Whatever is known of the master: *hears* is whether it got a return before."""
        self._check(host, "checks.minion")
        host.master = True
        _installed(host, progress=Progress(master=hears))

        def answer():
            sls = host.asked_sls
            if why == "blackout":
                host.answer(2)
            elif why != "silent" and not sls:
                host.answer()
            elif why == "away":
                host.reachable = False
                host.clock.after(20, lambda: host.answer(2))
            elif why == "no engine":
                host.engine = False

        host.clock.each_second = answer
        if why == "silent":
            host.reachable = False
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert "its health check could not be run" in host.last.reason
        ran = hears is not False and why in ("away", "no engine")
        assert host.asked_sls == ran

    @pytest.mark.parametrize("begins", ["never", "late", "at once"])
    def test_an_sls_that_had_to_wait_for_others_is_no_evidence(self, host, begins):
        """As behind a long startup state; only one that had all of the time is too slow."""
        self._check(host, "checks.minion")
        host.master = True
        _installed(host, progress=HEARD)

        def held():
            asked = host.asked
            if not host.asked_sls:
                host.answer()
            elif host.ledger.outcome(asked.jid) is None:
                jid, described = asked.jid, {"fun": asked.fun, "master": "m", "call": b""}
                host.ledger.accept(jid, jid=jid, **described, owner="")
                host.ledger.begin(jid, "")
                if begins != "at once":
                    assert host.ledger.put_back(jid, "")
                if begins == "late":
                    over = (State.HELD,)
                    again = lambda: host.ledger.accept(  # noqa: E731
                        jid, jid=jid, **described, owner="", over=over
                    )
                    host.clock.after(20, lambda: (again(), host.ledger.begin(jid, "")))

        host.clock.each_second = held
        host.supervise()
        if begins == "at once":
            _assert_back(host, "(state.apply) of the watch did not end")
            return
        assert host.last.phase is Phase.COMMITTED, host.last
        assert "because other jobs came first" in host.last.reason
        assert host.store.quarantined() == []
        assert host.clock.passed >= host.settings.watch_timeout

    @pytest.mark.parametrize("hears", [True, None])
    def test_an_sls_fails_although_the_master_is_reached(self, host, hears):
        self._check(host, "checks.minion")
        host.master = True
        _installed(host, progress=Progress(master=hears))
        host.clock.each_second = lambda: host.answer(2 if host.asked_sls else 0)
        host.supervise()
        _assert_back(host, "(state.apply) of the watch failed with code 2")

    def test_a_master_that_stays_away_while_an_sls_runs(self, host):
        self._check(host, "checks.minion")
        host.master = True
        _installed(host, progress=HEARD)

        def answer():
            if host.asked_sls:
                host.reachable = False
            else:
                host.answer()

        host.clock.each_second = answer
        host.supervise()
        assert host.last.phase is Phase.COMMITTED, host.last
        assert "its health check could not be run" in host.last.reason


class TestRollback:
    def _dies(self, host):
        host.services.dies_while = lambda: host.packages.versions == NEW

    def test_a_service_that_did_not_run_is_not_started(self, host):
        """As in elastic-agent #4443."""
        host.services.active, host.services.pid = "inactive", 0
        unit = {"active": "inactive", "enabled": "disabled", "file": host.services.file}
        _installed(host, Phase.ROLLING_BACK, unit=unit, reason="because.")
        host.services.enabled = "disabled"
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.services.active == "inactive"
        assert host.restarts() == []
        assert host.packages.versions == OLD

    def test_a_unit_that_a_scriptlet_disabled_is_enabled_again(self, host):
        """As in uyuni #8841."""
        _installed(host)
        host.services.enabled = "disabled"
        self._dies(host)
        host.supervise()
        assert host.services.enabled == "enabled"

    def test_a_minion_that_a_scriptlet_starts_too_early_is_restarted(self, host):
        _installed(host)
        self._dies(host)
        installs = []
        host.packages.installs = lambda files: (
            installs.append(files),
            host.packages.versions.update(OLD),
            host.services.run(),
        )
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.restarts()[-1] == "restart"

    def test_jobs_that_do_not_end_do_not_hold_it_up(self, host):
        _installed(host)

        def die():
            if host.packages.versions == NEW:
                host.job()
                host.services.active, host.services.pid = "failed", 0

        host.services.report = lambda: (host.report(), host.clock.after(2, die))
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.clock.passed < 30
        assert not os.path.exists(os.path.join(host.settings.run_dir, "bypass"))

    def test_packages_that_cannot_be_put_back_are_for_a_human(self, host):
        def installs(files):
            raise CommandError(("dpkg",), "exit status 1", stderr="disk broken")

        _installed(host)
        self._dies(host)
        host.packages.installs = installs
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "disk broken" in host.last.reason
        assert "By hand: install" in host.last.reason
        assert host.kept() == ["u1"], "what is needed for that stays"
        host.assert_at_peace()

    def test_an_old_minion_that_does_not_come_up_either(self, host):
        _installed(host)
        host.reports = False
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "And the rollback failed" in host.last.reason
        host.assert_at_peace()

    def test_one_that_supervisors_never_finish_is_given_up(self, host):
        _installed(host, Phase.WATCHING, progress=Progress(supervisors=99))
        host.supervise()
        _assert_back(host, "supervisors did not complete it")

    def test_and_so_is_a_rollback(self, host):
        _installed(host, Phase.ROLLING_BACK, reason="because.", progress=Progress(supervisors=99))
        host.supervise()
        assert host.last.phase is Phase.FAILED
        host.assert_at_peace()

    def test_half_done_in_a_run_is_rolled_back(self, host):
        _installed(host, reason="half done: salt", progress=Progress(unfinished=("salt",)))
        host.packages.half_done = ["salt"]
        host.supervise()
        _assert_back(host, "half done: salt")
        assert host.packages.half_done == []

    def test_a_job_that_was_killed_and_left_it_half_done_too(self, host):
        _installed(host, Phase.INSTALLING)
        host.packages.half_done = ["salt"]
        host.supervise()
        _assert_back(host, "half done: salt")


def test_a_decision_that_cannot_be_written_down_keeps_no_version_from_the_host(host, monkeypatch):
    """The next supervisor judges the minion anew; by then it is well."""
    _installed(host)
    host.services.dies_while = lambda: host.packages.versions == NEW
    save = host.store.save

    def busy(update, *others, **more):
        if update.phase is Phase.ROLLING_BACK:
            raise RecordError("database is locked")
        return save(update, *others, **more)

    with monkeypatch.context() as patch:
        patch.setattr(host.store, "save", busy)
        with pytest.raises(RecordError):
            host.supervise()
    assert host.last.phase is Phase.WATCHING
    host.services.dies_while = lambda: False
    host.services.run()
    host.report()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED, host.last
    assert host.store.quarantined() == []
    host.assert_at_peace()


class TestWhatOthersWrote:
    """A rollback undoes what the update has done, and nothing else."""

    def _broken(self, host, tmp_path):
        """A minion that reports, works for a while, and dies."""
        self.conf = tmp_path / "minion.d"
        self.conf.mkdir()
        (self.conf / "site.conf").write_text("old")
        self.paths = (str(tmp_path / "minion"), str(self.conf))

        def die():
            if host.packages.versions == NEW:
                (self.conf / "job.conf").write_text("by a job")
                (self.conf / "site.conf").write_text("by a job")
                host.services.active, host.services.pid = "failed", 0

        host.services.report = lambda: (host.report(), host.clock.after(2, die))

    def test_by_request(self, host, tmp_path):
        self._broken(host, tmp_path)
        host.ask()
        way_back = WayBack(paths=self.paths)
        host.store.save(replace(host.last, way_back=way_back))
        # A job that the update waits for.
        job = host.job()
        host.clock.after(3, lambda: (self.conf / "meanwhile.conf").write_text("by a job"))
        host.clock.after(5, job.close)
        host.packages.installs = lambda files: (self.conf / "site.conf").write_text(
            files[0].version
        )
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK, host.last
        assert f"left as they are: {self.conf}/job.conf." in host.last.reason
        aside = self.conf / "site.conf.safeupdate-u1"
        assert f"put back, and kept as: {aside}." in host.last.reason
        found = {path.name: path.read_text() for path in self.conf.iterdir()}
        assert found == {
            "job.conf": "by a job",
            "meanwhile.conf": "by a job",
            "site.conf": "old",
            aside.name: "by a job",
        }
        host.assert_at_peace()

    def test_by_a_state(self, host, tmp_path):
        self._broken(host, tmp_path)
        other = host.job()
        host.clock.after(5, lambda: (self.conf / "meanwhile.conf").write_text("by a job"))
        host.clock.after(6, other.close)
        job = host.job()
        host.transaction(backup_paths=self.paths).change(
            lambda: host.packages.versions.update(NEW), job
        )
        job.close()
        host.end_supervisor()
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK, host.last
        assert f"{self.conf}/job.conf, {self.conf}/site.conf." in host.last.reason
        assert (self.conf / "meanwhile.conf").exists()


class TestAskedMeanwhile:
    def test_a_restart_that_was_asked_for_follows(self, host):
        _installed(host)
        host.clock.after(2, lambda: host.store.set_fact(RESTART, Owed(reason="config")))
        host.supervise()
        assert host.store.get("u1").phase is Phase.COMMITTED
        assert (host.last.kind, host.last.phase, host.last.reason) == (
            "restart",
            Phase.COMMITTED,
            "config",
        )
        assert host.restarts() == ["restart", "restart"]
        assert host.store.fact(RESTART) is None
        host.assert_at_peace()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kill_at", range(1, 14))
def test_killed_at_any_write_then_rolled_back_all_the_same(host, kill_at, when):
    _installed(host)
    host.services.dies_while = lambda: host.packages.versions == NEW
    host.kill_then_recover(kill_at, when)
    _assert_back(host, "salt-minion has failed")
