"""What a rollout asks of a minion, with a real record and simulated packages."""

import os
import random
from dataclasses import replace

import pytest
import salt.payload
import salt.version

from saltext_safeupdate import factory
from saltext_safeupdate.admin.status import facts
from saltext_safeupdate.admin.updates import rollout_requests, updating
from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.extensions import ourselves
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.prepare.revisions import PREVIOUS, Previous
from saltext_safeupdate.core.record import fence
from saltext_safeupdate.core.record.parts import ASKING, Request
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.fleet.inventory import from_answer
from saltext_safeupdate.this_host import Host
from tests.support.forked import forked
from tests.support.simulated import FakePackages, FakeServices
from tests.support.this_host import SimulatedHost, opts, record

OLD, NEW = "3007.15", "3008.3"
# 28 May 2026.
N = 1_780_000_000_000_000


class Minion(SimulatedHost):
    """One whose supervisor is started, and does nothing."""

    launched = 0

    def roots(self):
        return ()

    def launch(self):
        self.launched += 1
        self.supervisor = locks.Lock(self.settings.run_dir, "supervisor")
        self.supervisor.try_exclusive()

    def dies(self):
        self.supervisor.close()


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "state_uses", lambda opts, functions: set())
    monkeypatch.setattr(facts, "master_version", lambda functions, pillar: NEW)
    monkeypatch.setattr(salt.version, "__version__", OLD)
    made = Minion(opts(tmp_path))
    made.manager = FakePackages(**{"salt": OLD, "salt-minion": OLD})
    made.manager.offers = {name: [NEW, "3008.2", OLD] for name in ("salt", "salt-minion")}
    made.services = FakeServices()
    monkeypatch.setattr(factory, "launch", lambda host: host.launch())
    return made


def _ask(made, number, version=NEW, **kwargs):
    return rollout_requests.request(made, {}, number, version, **kwargs)


def _at_once(work):
    work()


OLDEST = "3006.28"


class TestWayBack:
    @pytest.fixture
    def kept(self, made, tmp_path):
        """A minion that keeps packages which nobody offers any more."""
        path = tmp_path / "salt.deb"
        path.write_text("")
        packages = ("salt", "salt-minion")
        files = tuple((name, OLDEST, str(path), "") for name in packages)
        versions = dict.fromkeys(packages, OLDEST)
        made.store.set_fact(PREVIOUS, Previous(update="u0", versions=versions, files=files))
        return made

    def test_it_goes_back_by_the_packages_that_are_kept(self, kept):
        plan = updating.plan(kept, {}, OLDEST, back=True)
        assert not [each for each in plan["findings"] if each["blocking"]]
        assert plan["targets"] == {"salt": OLDEST, "salt-minion": OLDEST}
        told = _ask(kept, N, OLDEST, back=True)
        assert (told["phase"], told["refused"], told["number"]) == ("requested", "", N)
        update = kept.store.latest()
        assert (update.request.back, update.versions_to["salt"]) == (True, OLDEST)

    def test_without_the_word_it_is_refused(self, kept):
        assert "is older than the installed" in updating_refusal(kept, OLDEST)
        assert kept.store.latest() is None

    def test_what_is_not_kept_has_to_be_on_offer(self, made):
        told = _ask(made, N, OLDEST, back=True)
        assert "[target-unavailable]" in told["refused"]
        assert (told["number"], made.launched) == (0, 0)

    def test_one_that_is_held_does_not_go_back_either(self, kept):
        kept.opts["safeupdate"]["hold"] = "ask Jo"
        assert _ask(_again(kept), N, OLDEST, back=True)["held"] == "ask Jo"
        assert kept.store.latest() is None

    def test_a_downgrade_has_to_be_meant(self, made):
        for versions in made.manager.offers.values():
            versions.append(OLDEST)
        assert "say 'allow_downgrade=True'" in _ask(made, N, OLDEST)["refused"]
        assert _ask(made, N, OLDEST, allow_downgrade=True)["phase"] == "requested"
        assert made.store.latest().versions_to["salt"] == OLDEST


def updating_refusal(made, version):
    """Return why a request without a word about going back is refused, if somebody offers that."""
    for versions in made.manager.offers.values():
        versions.append(version)
    return _ask(made, N, version)["refused"]


class TestFence:
    def test_a_request_begins_an_update(self, made):
        told = _ask(made, N, question=7)
        assert (told["number"], told["phase"], told["question"]) == (N, "requested", 7)
        assert (told["refused"], told["again"], made.launched) == ("", False, 1)
        update = made.store.latest()
        assert (update.request.serial, update.request.when) == (N, "now")
        # Its number is a time that nobody can read.
        assert told["reason"] == "The master asked for it at 2026-05-28 20:26:40 UTC."

    def test_it_says_for_how_many_jobs_it_waits(self, made, monkeypatch):
        monkeypatch.setattr(made, "awaited_jobs", lambda but: ["5 test.sleep", "6 state.apply"])
        assert _ask(made, N)["waits_for"] == 0
        made.store.save(made.store.latest().advance(Phase.WAITING))
        assert _ask(made, N)["waits_for"] == 2

    def test_a_host_that_is_held_takes_no_request_and_says_why(self, made):
        made.opts["safeupdate"]["hold"] = "ask Jo"
        assert rollout_requests.report(made)["held"] == "ask Jo"
        for asked in ({"version": NEW}, {"version": "", "extension": "9.9"}):
            told = rollout_requests.request(made, {}, N, **asked)
            assert (told["refused"], told["held"], told["again"]) == ("ask Jo", "ask Jo", False)
            assert (told["number"], told["phase"], made.launched) == (0, "idle", 0)

    def test_a_lock_of_the_package_manager_holds_it_as_well(self, made):
        made.manager.lock_versions(["salt-minion"], True)
        assert rollout_requests.report(made)["held"] == "", "only who asks has to wait for that"
        told = _ask(made, N)
        assert "keeps the version of salt-minion locked" in told["held"]
        assert (told["refused"], told["again"]) == (told["held"], False)
        assert (told["number"], made.launched, made.store.exists()) == (0, 0, False)
        assert made.manager.version_locked(["salt-minion"]) == {"salt-minion"}
        assert _ask(made, N, OLD)["refused"] == "", "what is installed is kept"

    def test_the_same_number_is_answered_and_not_begun_again(self, made):
        _ask(made, N)
        first = made.store.latest()
        made.store.save(first.advance(Phase.CANCELLED, reason="called off"))
        told = _ask(made, N)
        assert (told["phase"], told["reason"], told["refused"]) == ("cancelled", "called off", "")
        assert len(made.store.updates()) == 1

    def test_a_higher_number_takes_the_place_of_what_has_not_begun(self, made):
        _ask(made, N)
        assert _ask(made, N + 1, "3008.2")["phase"] == "requested"
        newest, first = made.store.updates()
        assert (first.phase, newest.versions_to["salt"]) == (Phase.CANCELLED, "3008.2")

    @pytest.mark.parametrize("restarted", [False, True])
    def test_a_lower_number_is_refused_and_changes_nothing(self, made, restarted):
        _ask(made, N)
        if restarted:
            supervisor, made = made, _again(made)
        before = made.store.updates()
        told = _ask(made, N - 1, "3008.2")
        assert told["refused"] == (
            f"This request, of 2026-05-28 20:26:39 UTC, is older than update {before[0].id}, of "
            "2026-05-28 20:26:40 UTC. Nothing was changed."
        )
        assert (told["again"], told["number"]) == (False, N)
        assert made.store.updates() == before
        if restarted:
            supervisor.dies()

    def test_the_fence_outlives_the_records(self, made):
        _ask(made, N)
        first = record(made, Phase.COMMITTED, id="later")
        made.store.save(*(replace(first, id=f"later{number}") for number in range(120)))
        assert N not in {each.request and each.request.serial for each in made.store.updates(200)}
        assert made.store.taken().number == N
        assert _ask(made, N - 1)["refused"]

    def test_a_person_is_newer_than_a_rollout_before(self, made, monkeypatch):
        """The numbers are times, as JIDs are."""
        _ask(made, N)
        from saltext_safeupdate.admin.updates import updating

        monkeypatch.setattr(updating, "_jid", lambda host: "20260528202640000005")
        updating.update(made, {}, "3008.2")
        assert rollout_requests.report(made)["number"] == N + 5
        assert _ask(made, N + 4)["refused"]
        monkeypatch.setattr(updating, "_jid", lambda host: "20260528202640000004")
        with pytest.raises(InputError, match="is older than update"):
            updating.update(made, {}, NEW)
        assert _ask(made, N + 6)["phase"] == "requested"

    def test_after_a_clock_that_was_ahead_a_person_can_still_update(self, made, monkeypatch):
        """Nobody could, until that time: neither from the master nor on the host."""
        ahead = N + 10 * 365 * 86_400_000_000
        monkeypatch.setattr(fence.time, "time", lambda: N / 1e6)
        _ask(made, ahead)
        refused = _ask(made, N + 1, "3008.2")["refused"]
        assert ", of 2036-05-25 20:26:40 UTC. Nothing was changed." in refused
        assert "The later time is by a clock that was ahead." in refused
        assert refused.endswith("'safeupdate.update' of a person is taken.")
        monkeypatch.setattr(updating, "_jid", lambda host: "20260528202640000005")
        assert updating.update(made, {}, "3008.2")["phase"] == "requested"
        # What is sent again of before is older than that.
        assert (made.store.taken().number, _ask(made, ahead)["number"]) == (ahead + 1, ahead + 1)
        # By a clock of this host that is behind, nobody is ahead.
        monkeypatch.setattr(fence.time, "time", lambda: 0.0)
        with pytest.raises(InputError, match="is older than update"):
            updating.update(made, {}, NEW)

    def test_a_lost_database_answers_honestly(self, made):
        _ask(made, N)
        made.dies()
        with open(made.store.path, "wb") as file:
            file.write(b"no database" * 1000)
        for suffix in ("-wal", "-shm"):
            if os.path.exists(made.store.path + suffix):
                os.unlink(made.store.path + suffix)
        told = rollout_requests.report(made)
        assert (told["number"], told["phase"], told["last_result"]) == (0, "idle", "failed")

    def test_a_database_that_cannot_be_read_is_no_idle_minion(self, made):
        _ask(made, N)
        with made.store.transaction() as db:
            db.execute("UPDATE facts SET value = '{\"number\": \"many\"}' WHERE name = 'request'")
        told = rollout_requests.report(made, 3)
        assert (told["number"], told["phase"], told["question"]) == (0, "unknown", 3)
        assert "not readable" in told["reason"]
        refused = _ask(made, N + 1)
        assert "not readable" in refused["refused"]
        assert (refused["again"], len(made.store.updates())) == (False, 1)

    @pytest.mark.parametrize("asked", [(N, N + 1), (N, N), (N + 3, N + 2)])
    def test_two_masters_at_once(self, made, asked):
        """Each number begins one update at most, and the highest that was not refused stays."""

        def other(hear, say):
            hear()
            told = _ask(_again(made), asked[1], "3008.2")
            say("refused" if told["refused"] else str(told["number"]))

        made.store.clear([])
        with forked(other) as child:
            child.say()
            told = _ask(made, asked[0])
            answers = ["refused" if told["refused"] else str(told["number"]), child.hear()]
        taken, begun = made.store.taken(), made.store.updates()
        assert len({each.request.serial for each in begun}) == len(begun)
        assert taken.number == max(each.request.serial for each in begun)
        assert taken.update == max(begun, key=lambda each: each.request.serial).id
        for number, answer in zip(asked, answers, strict=True):
            assert (answer == "refused") or number <= int(answer) <= taken.number
        assert str(taken.number) in answers
        assert [each.phase.final for each in begun] == [False, True][: len(begun)]

    @pytest.mark.parametrize("seed", range(4))
    def test_whatever_comes_in_whatever_order(self, made, seed):
        """The number never falls, what is refused changes nothing, none is begun twice."""
        chance = random.Random(seed)
        highest, begun = 0, []
        for _ in range(15):
            number = N + chance.randrange(8)
            before, rows = made.store.taken() if made.store.exists() else None, _rows(made)
            what = chance.choice(("request", "request", "withdraw", "end"))
            if what == "end":
                last = made.store.latest() if made.store.exists() else None
                if last is not None and not last.phase.final:
                    made.store.save(last.advance(Phase.CANCELLED))
                continue
            version = chance.choice((NEW, "3008.2", OLD, "9999"))
            told = (
                _ask(made, number, version)
                if what == "request"
                else rollout_requests.withdraw(made, number)
            )
            if told["refused"]:
                assert made.store.taken() == before if before else not _rows(made)
                assert _rows(made) == rows
            else:
                assert told["number"] == number >= highest
                highest = number
            begun = [each.request.serial for each in made.store.updates() if each.request]
            assert len(begun) == len(set(begun))
            assert told["number"] == (made.store.taken().number if made.store.exists() else 0)


def _again(made):
    """Return the same minion in another process."""
    again = Minion(made.opts)
    again.manager, again.services = made.manager, made.services
    return again


def _rows(made):
    return made.store.updates() if made.store.exists() else []


class TestRefused:
    @pytest.mark.parametrize("phase", [Phase.INSTALLING, Phase.WATCHING, Phase.ROLLING_BACK])
    def test_another_update_is_soon_over(self, made, phase):
        record(made, phase, request=Request())
        told = _ask(made, N)
        assert "under way" in told["refused"]
        assert (told["again"], told["number"]) == (True, 0)

    def test_a_job_that_installs_is_soon_over(self, made):
        holder = locks.acquire(made.settings.run_dir, "update", "")
        told = _ask(made, N)
        assert (told["again"], told["number"]) == (True, 0)
        holder.close()

    def test_what_stays(self, made, monkeypatch):
        monkeypatch.setattr(facts, "master_version", lambda functions, pillar: "3007.1")
        told = _ask(made, N)
        assert "master-older" in told["refused"]
        assert (told["again"], told["number"]) == (False, 0)
        for version, why in (("9999", "not on offer"), ("3006.1", "not on offer")):
            told = _ask(made, N, version)
            assert why in told["refused"]
            assert told["again"] is False
        assert _rows(made) == []

    def test_a_version_in_quarantine(self, made):
        made.store.quarantine({"salt": NEW}, "u1", "it died")
        told = _ask(made, N)
        assert ("quarantine" in told["refused"], told["again"]) == (True, False)
        assert told["quarantined"] == [NEW]
        assert made.store.latest() is None

    @pytest.mark.parametrize(
        "number", [True, 0, -1, 1.5, None, "x", "", "-1", 10**17, str(10**17), [1], "１"]
    )
    def test_what_is_no_number(self, made, number):
        for ask in (lambda: _ask(made, number), lambda: rollout_requests.withdraw(made, number)):
            with pytest.raises(InputError, match=r"17 digits.*Nothing was changed"):
                ask()
        assert not made.store.exists()

    @pytest.mark.parametrize(
        ("version", "extension"),
        [("", ""), (NEW, "1.2"), (3008.3, ""), (True, ""), ("-rf", ""), ("", "a b"), (["3"], "")],
    )
    def test_what_is_no_version(self, made, version, extension):
        with pytest.raises(InputError, match="Nothing was changed"):
            rollout_requests.request(made, {}, N, version, extension)
        with pytest.raises(InputError):
            rollout_requests.prefetch(made, {}, version, extension)

    def test_a_number_passes_the_bus_and_a_command_line(self, made):
        sent = salt.payload.loads(salt.payload.dumps({"number": fence.MOST - 1}))["number"]
        assert sent == fence.MOST - 1
        assert _ask(made, str(N))["number"] == N
        assert _ask(made, N)["refused"] == ""


class TestWhatIsThere:
    def test_it_runs_already(self, made):
        told = _ask(made, N, OLD)
        assert (told["number"], told["phase"], told["refused"]) == (N, "idle", "")
        assert (told["version"], made.launched) == (OLD, 0)

    def test_what_waits_to_change_it_is_called_off(self, made):
        _ask(made, N)
        told = _ask(made, N + 1, OLD)
        assert (told["number"], told["phase"]) == (N + 1, "idle")
        assert made.store.latest().phase is Phase.CANCELLED

    def test_it_is_installed_and_does_not_run(self, made):
        made.manager.versions = {"salt": NEW, "salt-minion": NEW}
        told = _ask(made, N)
        assert (told["number"], told["phase"]) == (N, "waiting")
        assert made.store.latest().kind == "restart"
        assert (told["installed"], told["running"]) == (NEW, OLD)


class TestWithdraw:
    def test_what_has_not_begun_is_called_off(self, made):
        _ask(made, N)
        told = rollout_requests.withdraw(made, N + 1, 9)
        assert (told["number"], told["phase"], told["question"]) == (N + 1, "cancelled", 9)
        assert made.store.latest().phase is Phase.CANCELLED
        assert rollout_requests.withdraw(made, N + 1)["phase"] == "cancelled"

    def test_a_request_that_is_still_on_its_way_is_too_late(self, made):
        assert rollout_requests.withdraw(made, N + 1)["phase"] == "idle"
        assert _ask(made, N)["refused"]
        assert _rows(made) == []

    def test_what_has_begun_goes_on(self, made):
        _ask(made, N)
        update = made.store.latest()
        for phase in (Phase.CHECKING, Phase.STAGING, Phase.WAITING, Phase.INSTALLING):
            update = made.store.save(update.advance(phase))
        told = rollout_requests.withdraw(made, N + 1)
        assert (told["number"], told["phase"], told["refused"]) == (N + 1, "installing", "")

    def test_an_older_one_changes_nothing(self, made):
        _ask(made, N)
        told = rollout_requests.withdraw(made, N - 1)
        assert told["refused"]
        assert (told["number"], told["phase"]) == (N, "requested")


class TestStaged:
    def test_it_tells_of_the_version_that_was_asked_for(self, made):
        assert rollout_requests.prefetch(made, {}, NEW, spawn=_at_once)["staged"] == "done"
        assert rollout_requests.prefetch(made, {}, "9999", spawn=_at_once)["staged"] == "failed"
        assert rollout_requests.prefetch(made, {}, NEW, spawn=lambda work: None)["staged"] == ""
        assert rollout_requests.prefetch(made, {}, OLD, spawn=_at_once)["staged"] == "done"

    def test_what_was_removed_since_is_not_there(self, made):
        rollout_requests.prefetch(made, {}, NEW, spawn=_at_once)
        factory.staging(made).drop()
        assert rollout_requests.report(made)["staged"] == ""

    def test_it_is_there_and_not_fetched_again(self, made):
        rollout_requests.prefetch(made, {}, NEW, spawn=_at_once)
        asked = []
        assert rollout_requests.prefetch(made, {}, NEW, spawn=asked.append)["staged"] == "done"
        assert asked == []

    def test_only_one_process_downloads(self, made):
        downloads = []
        download = made.manager.download

        def slow(targets, directory):
            downloads.append(targets)
            # The same again meanwhile, twice.
            assert rollout_requests.prefetch(made, {}, NEW, spawn=_at_once)["staged"] == ""
            return download(targets, directory)

        made.manager.download = slow
        assert rollout_requests.prefetch(made, {}, NEW, spawn=_at_once)["staged"] == "done"
        assert len(downloads) == 1

    def test_an_update_needs_no_more(self, made):
        rollout_requests.prefetch(made, {}, NEW, spawn=_at_once)
        made.manager.refresh = lambda: pytest.fail("the network was asked")
        assert _ask(made, N)["phase"] == "requested"


class TestReport:
    def test_a_commit_is_told_with_what_runs_now(self, made, monkeypatch):
        _ask(made, N)
        update = made.store.latest()
        way = "checking staging waiting installing delivering stepping restarting watching"
        for phase in way.split():
            update = made.store.save(update.advance(Phase(phase)))
            told = rollout_requests.report(made)
            assert (told["phase"], told["version"]) == (phase, OLD)
        made.store.save(update.advance(Phase.COMMITTED))
        made.manager.versions = {"salt": NEW, "salt-minion": NEW}
        assert rollout_requests.report(made)["version"] == OLD, "what is installed does not run"
        monkeypatch.setattr(salt.version, "__version__", NEW)
        told = rollout_requests.report(made)
        assert (told["phase"], told["version"], told["last_result"]) == (
            "committed",
            NEW,
            "committed",
        )
        assert set(told["phases"]) == {"requested", *way.split()}
        assert (told["intended"], told["installed"], told["way"]) == (NEW, NEW, made.manager.name)

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            ("", "awaited"),
            ("reboot requested (method rebootmgr)", "awaited"),
            ("the reboot could not be requested: busy", "awaited"),
            ("reboot requested (method systemd)", ""),
            (ASKING, ""),
        ],
    )
    def test_a_reboot_that_does_not_come_now_is_awaited(self, made, said, told):
        _ask(made, N)
        update = made.store.latest()
        for phase in [
            "checking",
            "staging",
            "waiting",
            "installing",
            "delivering",
            "waiting_for_boot",
        ]:
            update = made.store.save(update.advance(Phase(phase)))
            assert rollout_requests.report(made)["reboot"] == ""
        boot = replace(update.boot, awaits=update.this_boot, reboot=said)
        made.store.save(replace(update, boot=boot))
        assert rollout_requests.report(made)["reboot"] == told
        boot = replace(boot, awaits=("another", *boot.awaits[1:]))
        made.store.save(replace(update, boot=boot))
        assert rollout_requests.report(made)["reboot"] == ""

    def test_the_package_manager_is_asked_once(self, made, monkeypatch):
        made.store.clear([])
        rollout_requests.report(made)
        for name in ("installed", "owners", "siblings"):
            monkeypatch.setattr(made.manager, name, lambda *args: pytest.fail("asked again"))
        assert rollout_requests.report(made)["installed"] == OLD

    def test_it_is_what_an_inventory_takes(self, made):
        rollout_requests.prefetch(made, {}, NEW, spawn=_at_once)
        _ask(made, N)
        found = from_answer("web1", rollout_requests.report(made), 5.0)
        assert (found.running, found.installed, found.intended) == (OLD, OLD, NEW)
        assert found.extension == found.extension_on_disk == ourselves.running_version()

    def test_it_passes_over_the_bus(self, made):
        _ask(made, N)
        told = rollout_requests.report(made)
        assert salt.payload.loads(salt.payload.dumps(told)) == told

    def test_a_minion_that_was_never_asked_writes_nothing(self, made):
        told = rollout_requests.report(made)
        assert (told["number"], told["phase"], told["staged"]) == (0, "idle", "")
        assert not os.path.exists(made.settings.state_dir)


def test_inside_a_transaction_it_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("TRANSACTIONAL_UPDATE", "true")
    with pytest.raises(InputError):
        Host(opts(tmp_path))
