"""One look of the engine: what it sends, starts, reports, and leaves for later."""

import os
from dataclasses import replace

import pytest

from saltext_safeupdate.core.errors import LockUnavailableError
from saltext_safeupdate.core.generations.generation import Probe, Report
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs import ticker
from saltext_safeupdate.core.jobs.delivering import Answer
from saltext_safeupdate.core.jobs.ledger import UNKNOWN, Ledger, State
from saltext_safeupdate.core.jobs.recovery import MOST_STARTS
from saltext_safeupdate.core.jobs.suspension import SUSPENDED, Suspension, Suspensions
from saltext_safeupdate.core.jobs.ticker import Ticker
from saltext_safeupdate.core.record.facts import STEPS_BEGUN, Begun
from saltext_safeupdate.core.record.parts import Boot, Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.settings import Settings


class World:
    """A minion whose main process is ``main``, with masters that may be away."""

    def __init__(self, tmp_path):
        self.now = 1_000_000.0
        self.settings = Settings(
            state_dir=str(tmp_path / "state"), run_dir=str(tmp_path / "run"), rerun=("test.echo",)
        )
        self.ledger = Ledger(self.settings.database, clock=lambda: self.now)
        self.store = Store(self.settings.database, clock=lambda: self.now)
        self.generations = Generations(self.store)
        self.generations.reports("main", Report(at=1.0))
        self.living = {"main"}
        self.away, self.refused = set(), set()
        self.sent, self.published, self.started, self.probes = [], [], [], []
        self.handed_over, self.awaited = [], []
        self.keeps = set()
        self.launched = 0
        self.connected = True
        self.ticker = Ticker(
            settings=self.settings,
            store=self.store,
            ledger=self.ledger,
            delivery=self,
            launch=self.launch,
            owner="main",
            clock=lambda: self.now,
            monotonic=lambda: self.now,
        )
        recovery = self.ticker._recovery
        object.__setattr__(recovery, "alive", lambda who: who in self.living)

    def launch(self):
        self.launched += 1

    def publish(self, row, update):
        self.published.append(row.phase)
        return "m" not in self.away

    def send(self, job):
        if job.master in self.away:
            return Answer.NONE
        if job.jid in self.refused:
            return Answer.FAILED
        self.sent.append((job.jid, job.payload))
        return Answer.TAKEN

    def run(self, job):
        self.started.append(job.jid)
        self.awaited.append(job.awaits)

    def probe(self, wanted):
        self.probes.append(wanted.jid)
        return self.connected

    def queued(self):
        return self.started

    def kept(self):
        return self.keeps

    @staticmethod
    def call(job):
        return {"arg": []}

    @staticmethod
    def describe(job, text):
        return text.encode()

    def hand_over(self, job, payload):
        self.handed_over.append((job.jid, job.call, payload))

    def job(self, jid, *, owner="gone", runner="gone child", fun="cmd.run", master="m"):
        self.ledger.accept(jid, jid=jid, fun=fun, master=master, call=b"call", owner=owner)
        if runner:
            self.ledger.begin(jid, runner)

    def ask(self, jid, of="main"):
        self.generations.ask(of, Probe(jid=jid, fun="test.echo", arg=("here",)))

    def state(self, jid):
        return self.ledger.full(jid).state

    def tick(self, seconds=5.0):
        self.now += seconds
        self.ticker.tick()


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_finished_return_is_sent_and_wiped(world):
    world.job("1")
    world.ledger.finish("1", b"return")
    world.tick()
    assert world.sent == [("1", b"return")]
    assert world.state("1") is State.DELIVERED
    world.tick()
    assert len(world.sent) == 1


def test_a_state_run_that_somebody_has_killed_before_a_restart_does_not_come_back(world):
    """The restart waited for it, and the engine looks at no job meanwhile."""
    for jid in ("installs", "killed", "looks"):
        world.job(jid, fun="state.apply" if jid != "looks" else "safeupdate.wait")
    world.job("elsewhere", fun="state.apply", owner="one before")
    world.generations.note_idle("gone", "installs")
    world.tick()
    assert sorted(world.started) == ["elsewhere", "installs", "looks"]
    ((jid, _, payload),) = world.handed_over
    assert jid == "killed"
    assert b"'saltutil.kill_job'" in payload


@pytest.mark.parametrize("fun", ["cmd.run", "test.echo"], ids=["reported", "run again"])
def test_a_job_whose_return_is_kept_beside_the_ledger_has_ended(world, fun):
    """The ledger could not be written when it did."""
    world.job("1", fun=fun)
    world.keeps = {"1"}
    world.tick()
    assert (world.started, world.handed_over) == ([], [])
    assert world.state("1") is State.RUNNING
    world.keeps = set()
    world.tick()
    assert bool(world.started) is not bool(world.handed_over), "so the test can fail"


def _is_at_rest(world):
    for _ in range(20):
        world.tick()
    return (world.ticker.is_quiet(), world.ticker.is_done())


def test_it_has_nothing_to_do_when_all_is_delivered(world):
    assert not world.ticker.is_quiet(), "it has not looked yet"
    assert _is_at_rest(world) == (True, True)
    world.living.add("child")
    world.job("1", owner="main", runner="child")
    assert not world.ticker.is_quiet()
    assert not world.ticker.is_done()
    assert _is_at_rest(world) == (False, False)
    world.ledger.finish("1", b"return")
    world.living.discard("child")
    world.away = {"m"}
    assert _is_at_rest(world) == (False, False)
    world.away = set()
    world.now += 600
    assert _is_at_rest(world) == (True, True)


@pytest.mark.parametrize("what", ["phase", "orphan", "steps", "supervisor"])
def test_an_update_is_something_to_do(world, what):
    assert _is_at_rest(world) == (True, True)
    lock = locks.Lock(world.settings.run_dir, "supervisor")
    phase = Phase.WAITING if what == "orphan" else Phase.COMMITTED
    if what == "supervisor":
        assert lock.try_exclusive()
    else:
        world.store.save(Update(id="u1", kind="update", phase=phase, created=1.0))
    if what == "steps":
        world.store.set_fact(STEPS_BEGUN, Begun(update="u1", versions=("1", "2")))
    world.away = {"m"} if what == "phase" else set()
    assert _is_at_rest(world)[1] is False
    if what == "phase":
        world.away = set()
        world.now += 600
        assert _is_at_rest(world) == (True, True)
    lock.close()


def test_a_return_that_its_own_process_sends_is_left_to_it(world):
    world.job("1", owner="main", runner="child")
    world.living.add("child")
    world.ledger.finish("1", b"return")
    world.tick()
    assert world.sent == []
    world.living.remove("child")
    world.tick(400)
    assert world.sent == [("1", b"return")]


def test_what_ends_while_others_are_sent_is_sent_next(world, monkeypatch):
    world.job("1")
    world.ledger.finish("1", b"return")
    world.job("2", owner="main", runner="child")
    world.living.add("child")
    send = world.send

    def end_meanwhile(job):
        world.ledger.finish("2", b"return")
        world.living.clear()
        return send(job)

    monkeypatch.setattr(world, "send", end_meanwhile)
    world.tick()
    world.tick()
    assert [jid for jid, _ in world.sent] == ["1", "2"]


def test_a_master_that_is_away_gets_everything_when_it_is_back(world):
    world.away = {"m"}
    for jid in ("1", "2"):
        world.job(jid)
        world.ledger.finish(jid, b"return")
    for _ in range(20):
        world.tick(60)
    tries = world.ledger.full("1").sends
    assert 3 <= tries <= 12, "it backs off"
    assert world.ledger.full("2").sends == 0, "one try tells that the master is away"
    world.away = set()
    world.tick(ticker._LAST_BACKOFF)
    assert [jid for jid, _ in world.sent] == ["1", "2"]


def test_what_happens_meanwhile_does_not_put_the_next_try_off(world):
    world.away = {"m"}
    world.job("1")
    world.ledger.finish("1", b"return")
    for number in range(20):
        world.job(f"new {number}", runner="")
        world.tick(0.1)
    tries = world.ledger.full("1").sends
    world.away = set()
    world.tick(2 * ticker._FIRST_BACKOFF)
    assert tries == 20
    assert ("1", b"return") in world.sent


def test_where_jobs_still_send_their_returns_no_long_pause_begins(world):
    world.away = {"m"}
    world.job("1")
    world.ledger.finish("1", b"return")
    world.job("2", owner="main", runner="child")
    world.living.add("child")
    world.ledger.finish("2", b"return")
    for _ in range(20):
        world.tick(60)
    world.ledger.delivered("2")
    world.tick(0.1)
    world.away = set()
    world.tick(2 * ticker._FIRST_BACKOFF)
    assert world.sent == [("1", b"return")]


def test_one_master_that_is_away_holds_up_no_other(world):
    world.away = {"m"}
    world.job("1", master="m")
    world.job("2", master="other")
    for jid in ("1", "2"):
        world.ledger.finish(jid, b"return")
    world.tick()
    assert world.sent == [("2", b"return")]


def test_a_return_that_its_master_cannot_keep_stays_and_holds_up_no_other(world):
    world.refused = {"1"}
    for jid in ("1", "2"):
        world.job(jid)
        world.ledger.finish(jid, b"return")
    world.tick()
    assert world.sent == [("2", b"return")]
    assert world.state("1") is State.FINISHED
    world.refused = set()
    world.tick(ticker._LAST_BACKOFF)
    assert world.sent[1:] == [("1", b"return")]


def _is_started_once(world):
    world.tick()
    assert world.started == ["1"]
    assert world.state("1") is State.HELD
    world.tick()
    assert world.started == ["1"], "it lies in the queue, and the minion has it"


def test_an_interrupted_state_run_is_started_again_under_its_jid(world):
    world.job("1", fun="state.apply")
    _is_started_once(world)


def test_an_interrupted_job_that_is_listed_runs_again(world):
    world.job("1", fun="test.echo")
    world.tick()
    assert world.started == ["1"]


def test_an_interrupted_job_is_reported_once(world):
    world.job("1")
    world.tick()
    world.tick()
    ((jid, payload),) = world.sent
    assert jid == "1"
    assert b"interrupted" in payload
    assert world.started == []
    assert world.handed_over == [("1", b"call", payload)], "and to its returners"


def test_a_report_is_sent_although_nothing_else_changes_the_database(world):
    world.job("1", owner="main", runner="child")
    world.living.add("child")
    world.tick()
    world.tick()
    assert world.sent == []
    world.living.remove("child")
    world.tick()
    assert [jid for jid, _ in world.sent] == ["1"]
    assert world.state("1") is State.DELIVERED


def test_a_job_that_was_only_accepted_runs(world):
    world.job("1", runner="")
    world.tick()
    assert world.started == ["1"]


def test_nothing_is_started_while_an_update_holds_the_jobs(world):
    world.job("1", fun="state.apply")
    drain = locks.acquire(world.settings.run_dir, "drain", "held")
    world.tick()
    assert world.started == []
    drain.close()
    world.tick()
    assert world.started == ["1"]


def test_a_job_that_cannot_be_queued_is_not_lost(world, monkeypatch, caplog):
    def full(job):
        raise OSError(28, "No space left on device")

    world.job("1", fun="state.apply")
    run = world.run
    monkeypatch.setattr(world, "run", full)
    world.tick()
    assert world.state("1") is State.HELD
    assert "free space" in caplog.text
    monkeypatch.setattr(world, "run", run)
    for _ in range(4):
        world.tick()
    assert world.started == ["1"]


def test_held_jobs_whose_queue_was_emptied_begin(world):
    """As by 'saltutil.clear_cache', under the minion that goes on; 11 of 12 never began."""
    for number in range(12):
        jid = str(number)
        world.ledger.hold(jid, jid=jid, fun="cmd.run", master="m", call=b"c", owner="main")
    for _ in range(4):
        world.tick()
    assert sorted(world.started, key=int) == [str(number) for number in range(12)]


def _emptied(world, seconds=300):
    """Look for a while, and take out at once what comes into the queue; return what did."""
    found = []
    for _ in range(seconds // 5):
        world.tick()
        found += world.started
        world.started.clear()
    return found


@pytest.mark.parametrize("fun", ["state.apply", "safeupdate.wait"])
def test_what_plain_salt_takes_out_of_its_queue_runs_once(world, caplog, fun):
    """It ran again every 14 s: without hooks nobody writes down that it begins."""
    world.ticker._held.plain = True
    world.job("1", fun=fun)
    assert _emptied(world) == ["1"]
    assert world.ledger.open() == []
    assert "left to plain Salt, without a record" in caplog.text
    assert "not known whether" not in caplog.text


def test_what_lies_in_no_queue_under_plain_salt_is_not_run_and_it_is_said(world, caplog):
    world.ticker._held.plain = True
    world.ledger.hold("1", jid="1", fun="cmd.run", master="m", call=b"c", owner="before")
    assert _emptied(world) == []
    assert world.ledger.open() == []
    assert "not known whether it ran" in caplog.text


def test_what_cannot_be_queued_under_plain_salt_is_not_lost(world, monkeypatch):
    world.ticker._held.plain = True
    run, tries = world.run, []

    def full(job):
        tries.append(job.jid)
        if len(tries) < 9:
            raise OSError(28, "No space left on device")
        run(job)

    monkeypatch.setattr(world, "run", full)
    world.job("1", fun="state.apply")
    assert _emptied(world) == ["1"]


def test_a_held_job_of_whose_beginning_nothing_is_heard_is_told_at_last(world):
    world.ledger.hold("1", jid="1", fun="cmd.run", master="m", call=b"c", owner="main")
    assert len(_emptied(world)) == MOST_STARTS
    ((jid, payload),) = world.sent
    assert jid == "1"
    assert b"is not started again" in payload


def test_phases_are_published_until_the_master_has_them(world):
    world.store.save(Update(id="1", kind="update", phase=Phase.FAILED, created=1.0))
    world.away = {"m"}
    world.tick()
    world.away = set()
    world.tick(10)
    world.tick(10)
    assert world.published == ["failed", "failed"]


def test_returns_are_sent_although_phases_are_not_taken(world):
    world.store.save(Update(id="1", kind="update", phase=Phase.FAILED, created=1.0))
    world.away = {"m"}
    world.job("1", master="other")
    world.ledger.finish("1", b"return")
    world.tick()
    assert world.sent == [("1", b"return")]


def test_what_is_kept_for_a_master_that_is_away_is_bounded_and_nothing_is_silent(world):
    world.away = {"m"}
    world.ticker.most_returns = 10_000
    for jid in ("1", "2", "3"):
        world.job(jid)
        world.now += 1
        world.ledger.finish(jid, jid.encode() * 6000)
    world.tick(100)
    kept = {jid: world.ledger.full(jid).payload for jid in ("1", "2", "3")}
    assert kept["3"] == b"3" * 6000
    assert b"was dropped" in kept["1"]
    assert b"was dropped" in kept["2"]
    world.away = set()
    world.tick(400)
    assert sorted(jid for jid, _ in world.sent) == ["1", "2", "3"]


def test_a_job_that_waits_for_an_update_runs_when_that_has_ended(world):
    update = Update(id="u1", kind="update", phase=Phase.WATCHING, created=1.0)
    world.store.save(update)
    call = {"jid": "1", "fun": "safeupdate.wait", "master": "m", "call": b"c", "owner": "main"}
    world.ledger.hold("1", **call)
    world.tick()
    assert world.started == []
    world.store.save(update.advance(Phase.COMMITTED))
    world.tick()
    assert world.started == ["1"]


def test_the_probe_of_the_supervisor_is_started_once_while_that_runs(world):
    world.ask("7")
    world.tick()
    assert world.probes == [], "nobody waits for it"
    supervisor = locks.acquire(world.settings.run_dir, "supervisor", "")
    world.tick()
    world.tick()
    supervisor.close()
    assert world.probes == ["7"]


def test_the_probe_waits_for_the_queue_of_a_master(world):
    world.ask("7")
    supervisor = locks.acquire(world.settings.run_dir, "supervisor", "")
    world.connected = False
    world.tick()
    world.connected = True
    world.tick()
    world.tick()
    supervisor.close()
    assert world.probes == ["7", "7"]


def test_an_update_without_a_supervisor_gets_one(world):
    world.store.save(Update(id="1", kind="update", phase=Phase.INSTALLING, created=1.0))
    world.tick()
    assert world.launched == 0, "it may be just starting"
    world.tick(11)
    assert world.launched == 1


def test_one_that_has_ended_and_left_steps_half_way_gets_one_as_well(world):
    world.store.save(Update(id="1", kind="update", phase=Phase.CANCELLED, created=1.0))
    world.store.set_fact(STEPS_BEGUN, Begun(update="1", versions=("3006.1", "3007.1")))
    world.tick()
    world.tick(11)
    assert world.launched == 1
    world.store.drop_fact(STEPS_BEGUN)
    world.tick(11)
    world.tick(11)
    assert world.launched == 1


@pytest.mark.parametrize("completed", [True, False])
def test_a_failed_update_gets_a_supervisor_once_to_look_what_it_left(world, completed):
    progress = Progress(completed=completed)
    failed = Update(id="u1", kind="update", phase=Phase.FAILED, created=1.0, progress=progress)
    world.store.save(failed)
    for _ in range(20):
        world.tick()
        world.now += 5
    assert (world.launched > 0) is not completed
    world.store.save(replace(failed, progress=Progress(completed=True)))
    launched = world.launched
    for _ in range(20):
        world.tick()
        world.now += 5
    assert world.launched == launched


@pytest.mark.parametrize("boot", ["this", "another"])
def test_an_update_that_waits_for_a_boot_needs_no_supervisor_before_it(world, monkeypatch, boot):
    monkeypatch.setattr(processes, "boot", lambda: "this")
    awaits = (boot, Phase.WAITING_FOR_BOOT.value)
    waits = {"phase": Phase.WAITING_FOR_BOOT, "boot": Boot(awaits=awaits)}
    world.store.save(Update(id="u1", kind="update", **waits))
    for _ in range(3):
        world.ticker.tick()
        world.now += 10
    assert (world.launched > 0) is (boot == "another")


def test_an_idle_database_is_not_opened(world, monkeypatch):
    world.job("1", owner="main", runner="child")
    world.living.add("child")
    world.tick(100)
    world.tick(100)
    opened = []
    original = Ledger._open
    monkeypatch.setattr(Ledger, "_open", lambda *args: opened.append(1) or original(*args))
    world.now += 1
    world.ticker._look_at = world.now + 10
    world.ticker.tick()
    assert opened == []


def test_without_an_open_job_the_database_is_opened_once_a_minute(world, monkeypatch):
    asked, plain = [], Ledger.open
    monkeypatch.setattr(Ledger, "open", lambda *args: asked.append(world.now) or plain(*args))

    def looks(seconds):
        asked.clear()
        for _ in range(seconds):
            world.tick(1)
        return len(asked)

    world.job("1", owner="main", runner="child")
    world.living.add("child")
    assert looks(90) > 25, "its process may be gone without a word"
    world.living.remove("child")
    assert looks(60) > 0
    assert world.sent
    assert looks(300) < 8
    world.job("2", owner="main", runner="child")
    assert looks(10) > 0, "a new job is seen at once"
    assert len(world.sent) == 2


@pytest.mark.parametrize("recording", [True, False])
def test_a_ledger_begins_with_its_file_and_only_under_a_minion_that_records(
    world, tmp_path, recording
):
    young = "30260101000000000000"
    knows = {} if recording else {young: UNKNOWN}
    world.ticker.recording = recording
    assert world.ledger.known([young]) == {young: UNKNOWN}
    world.ticker.tick()
    assert world.ledger.known([young]) == knows
    world.ledger.anchor()
    for name in os.listdir(world.settings.state_dir):
        os.unlink(os.path.join(world.settings.state_dir, name))
    assert world.ledger.known([young]) == {young: UNKNOWN}, "it was lost"
    world.ticker.tick()
    assert world.ledger.known([young]) == knows


def test_without_locks_returns_are_sent_and_jobs_recovered_and_it_is_said(world, tmp_path):
    told = []
    world.ticker.complain = told.append
    (tmp_path / "run").write_text("not a directory")
    world.store.save(Update(id="u1", kind="restart", phase=Phase.WAITING, created=1.0))
    world.job("1")
    world.ledger.finish("1", b"return")
    world.job("2", fun="state.apply")
    for _ in range(5):
        world.tick()
    assert [jid for jid, _ in world.sent] == ["1"]
    assert world.started == ["2"]
    assert {type(err) for err in told} == {LockUnavailableError}
    assert world.launched == 0, "no supervisor could take its locks"


def test_how_long_a_minion_took_is_that_of_its_first_engine(world):
    world.ticker.owner = "this one"
    world.ticker.started(Report(at=1.0, took=7.5))
    world.ticker.started(Report(at=2.0, took=900.0))
    assert world.generations.report() == Report(at=2.0, took=7.5)
    world.ticker.owner = "the next one"
    world.ticker.started(Report(at=3.0, took=3.0))
    assert world.generations.report() == Report(at=3.0, took=3.0)


def test_a_master_that_cannot_store_the_return_of_the_probe_has_heard_of_it(world):
    supervisor = locks.Lock(world.settings.run_dir, "supervisor")
    assert supervisor.try_exclusive()
    world.refused = {"1", "2"}
    for jid in ("1", "2"):
        world.job(jid)
        world.ledger.finish(jid, b"return")
    world.ask("2")
    for _ in range(3):
        world.tick()
    assert world.generations.is_refused("2")
    assert not world.generations.is_refused("1")
    assert world.state("2") is State.FINISHED
    supervisor.close()


def test_the_probe_of_another_minion_is_left_to_it(world):
    """The engine of the one before may still run: it would prove the wrong one healthy."""
    supervisor = locks.acquire(world.settings.run_dir, "supervisor", "")
    world.ask("7", of="the next one")
    world.tick()
    assert world.probes == []
    world.ticker.owner = "the next one"
    world.tick()
    assert world.probes == ["7"]
    supervisor.close()


def _suspended(world, process="boot:1:1"):
    world.living.add(process)
    world.job("1", fun="state.apply")
    waits = Suspension(process=process, until=processes.since_boot() + 600, timeout=600)
    Suspensions(world.settings.database).begin("1", f"{SUSPENDED}tag", waits)
    world.ledger.put_back("1", "gone child")


def test_a_suspended_job_goes_on_behind_the_restart_at_once(world):
    _suspended(world)
    assert _emptied(world) == []
    world.living.clear()
    _is_started_once(world)


def test_a_suspended_job_that_is_started_once_more_is_known_as_such(world):
    """It came out of the queue, and could not write that it begins."""
    _suspended(world)
    world.living.remove("boot:1:1")
    world.tick()
    world.started.clear()
    world.tick(60.0)
    world.tick(60.0)
    assert world.awaited == [world.awaited[0]] * 2
    assert "boot:1:1" in world.awaited[0]


def test_a_suspended_job_is_told_of_if_nobody_is_there_who_resumes_it(world):
    _suspended(world)
    world.living.clear()
    world.ticker._held.plain = True
    world.tick()
    world.tick()
    assert world.started == []
    ((jid, payload),) = world.sent
    assert jid == "1"
    assert b"continues" not in payload
    assert b"was to continue after a restart" in payload
