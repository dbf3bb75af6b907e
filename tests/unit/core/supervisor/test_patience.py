"""A slow host is not a broken one, and a broken minion is found out on a slow host, too."""

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.supervisor.patience import MOST, Patience
from tests.support.simulated import Clock

from ..conftest import NEW, OLD

# What the minion of these tests needs of the host's time until it reports, in seconds. It has 30.
WORK = 10


def _installed(host, **changes):
    host.keep_tree()
    parts = {"way_back": host.secured()}
    host.packages.versions.update(NEW)
    host.services.refuses = True
    host.record(Phase.DELIVERING, versions_to=dict(NEW), **parts, **changes)


def _works(host, work=WORK, *, only=None):
    """Have the minions report when the host has had so much time for them."""
    host.services.report = lambda: (
        host.clock.after(work / host.share, host.report)
        if only is None or host.packages.versions == only
        else None
    )


class TestSlowHost:
    @pytest.mark.parametrize("share", [1.0, 0.3, 0.1])
    def test_a_minion_that_makes_progress_is_waited_for(self, host, share):
        host.share = share
        _works(host)
        _installed(host)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.clock.passed >= WORK / share

    def test_so_is_its_answer_to_the_master(self, host):
        host.share, host.master = 0.3, True
        _installed(host)
        host.clock.after(60, lambda: setattr(host.clock, "each_second", host.answer))
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.clock.passed >= 60

    def test_so_is_the_old_one_after_a_rollback(self, host):
        host.share = 0.3
        _works(host, only=OLD)
        host.services.dies_while = lambda: host.packages.versions == NEW
        _installed(host)
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK

    def test_and_a_minion_that_only_restarts(self, host):
        host.share = 0.3
        _works(host)
        host.record(Phase.DELIVERING, kind="restart", versions_from={})
        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_a_host_that_stood_still_has_had_no_time_for_it(self, host):
        _installed(host)
        host.services.report = lambda: host.clock.after(5, wake)

        def wake():
            host.clock.work(1000)
            host.clock.after(5, host.report)

        host.supervise()
        assert host.last.phase is Phase.COMMITTED

    def test_systemd_that_does_not_answer_in_time_is_asked_again(self, host, monkeypatch):
        _installed(host)
        state, failing = host.services.state, []

        def answer(unit):
            if len(failing) < 10 and host.last.phase is Phase.WATCHING:
                failing.append(unit)
                raise CommandError(("systemctl",), "did not end within 30 s")
            return state(unit)

        monkeypatch.setattr(host.services, "state", answer)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert len(failing) == 10

    def test_the_minion_before_it_shows_what_is_usual_here(self, host):
        host.services.run()
        host.reported(took=25.0)
        _works(host, 70)
        _installed(host)
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.last.former.took == 25.0

    @pytest.mark.parametrize("took", [None, 9e9])
    def test_what_is_known_of_it_has_a_bound(self, host, took):
        host.services.run()
        host.reported(took=took)
        host.services.report = lambda: host.report() if host.packages.versions == OLD else None
        _installed(host)
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        assert host.clock.passed < MOST * 30 + 10


class TestBroken:
    """Every kind of it ends the watch in a time that is known before."""

    def _silent(self, host):
        host.services.report = lambda: host.report() if host.packages.versions == OLD else None
        _installed(host)
        host.supervise()
        assert host.last.phase is Phase.ROLLED_BACK
        return next(row.at for row in host.store.history("u1") if row.phase == "rolling_back")

    def test_one_that_hangs_on_a_healthy_host_has_its_time_and_no_more(self, host):
        assert 30 <= self._silent(host) - host.last.created < 35
        assert host.last.reason.count("within 30 s.") == 1

    def test_one_that_spins_on_a_host_with_half_the_time_has_twice_that(self, host):
        host.share = 0.5
        assert 60 <= self._silent(host) - host.last.created < 70

    def test_one_on_a_host_without_any_time_has_a_bound_all_the_same(self, host):
        host.share = 0.0
        assert MOST * 30 <= self._silent(host) - host.last.created < MOST * 30 + 10

    def test_it_says_what_was_missing_and_what_was_seen_instead(self, host):
        host.share = 0.5
        self._silent(host)
        assert (
            "no minion with this extension reported within 30 s of the host's" in host.last.reason
        )
        assert "s the host had 30 s for it). Process 102 was there." in host.last.reason
        reasons = {row.phase: row.reason for row in host.store.history("u1")}
        assert reasons["rolling_back"] == host.last.reason

    def test_one_without_a_process(self, host, monkeypatch):
        host.services.stop("salt-minion")
        monkeypatch.setattr(host.services, "start", lambda unit: None)
        host.record(Phase.WATCHING, versions_to=dict(NEW))
        host.supervise()
        assert host.last.phase is Phase.FAILED
        assert "is inactive, but" in host.last.reason
        assert "No process of it runs." in host.last.reason


class TestPatience:
    def _patience(self, waited=lambda pid: 0.0, **kwargs):
        self.clock = Clock()
        return Patience(10.0, self.clock.monotonic, waited, **kwargs)

    def _look(self, patience, seconds, step=0.5):
        for _ in range(int(seconds / step)):
            self.clock.sleep(step)
            patience.look(1)

    def test_it_is_over_when_the_minion_has_had_its_time(self):
        patience = self._patience()
        self._look(patience, 9)
        assert not patience.over
        self._look(patience, 1)
        assert patience.over
        assert patience.spent == "within 10 s"

    def test_what_it_has_had_before_counts(self):
        patience = self._patience(had=8.0)
        self._look(patience, 2)
        assert patience.over

    def test_no_wait_gives_time_back(self):
        patience = self._patience(lambda pid: 100.0)
        self._look(patience, 10 * MOST - 1)
        assert not patience.over
        self._look(patience, 1)
        assert patience.over
        assert (
            patience.spent
            == "within 10 s of the host's time for it (in 60 s the host had 0 s for it)"
        )


def test_the_time_in_which_the_one_before_still_stops_is_not_the_new_ones():
    clock = Clock()
    patience = Patience(10, clock.monotonic, lambda pid: 0.0)

    def pass_by(seconds, **how):
        for _ in range(seconds):
            clock.sleep(1)
            patience.look(7, **how)

    pass_by(40, stops=True)
    assert not patience.over
    pass_by(9)
    assert not patience.over
    pass_by(1)
    assert patience.over
    # One that never goes is not waited for without end.
    forever = Patience(10, clock.monotonic, lambda pid: 0.0)
    while not forever.over:
        clock.sleep(1)
        forever.look(7, stops=True)
    assert clock.passed <= 50 + MOST * 10 + 1
