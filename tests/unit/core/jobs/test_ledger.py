"""The ledger: what each write makes of a job, and what is left in the file afterwards."""

import os
import stat

import pytest

from saltext_safeupdate.core.jobs.ledger import UNKNOWN, Ledger, State

CALL = b"what was published, with a SECRETCALL"
PAYLOAD = b"what is returned, with a SECRETRETURN"


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def ledger(tmp_path, clock):
    return Ledger(str(tmp_path / "state" / "safeupdate.db"), clock=clock)


def accept(ledger, key="1", *, over=(), owner="main", call=CALL):
    return ledger.accept(key, jid=key, fun="cmd.run", master="m", call=call, owner=owner, over=over)


def hold(ledger, key="1"):
    return ledger.hold(key, jid=key, fun="cmd.run", master="m", call=CALL, owner="main")


def state(ledger, key="1"):
    job = ledger.full(key)
    return None if job is None else job.state


def test_a_job_goes_its_way(ledger):
    assert accept(ledger) is None
    assert state(ledger) is State.ACCEPTED
    assert ledger.begin("1", "child") == 1
    assert state(ledger) is State.RUNNING
    assert ledger.finish("1", PAYLOAD)
    job = ledger.full("1")
    assert (job.state, job.payload, job.call) == (State.FINISHED, PAYLOAD, None)
    assert ledger.delivered("1")
    job = ledger.full("1")
    assert (job.state, job.payload, job.call) == (State.DELIVERED, None, None)


@pytest.mark.parametrize(
    ("prepare", "known"),
    [
        (accept, State.ACCEPTED),
        (hold, State.HELD),
        (lambda ledger: (accept(ledger), ledger.begin("1", "child")), State.RUNNING),
        (lambda ledger: (accept(ledger), ledger.finish("1", PAYLOAD)), State.FINISHED),
        (lambda ledger: (accept(ledger), ledger.delivered("1")), State.DELIVERED),
    ],
)
def test_a_known_job_does_not_run_again(ledger, prepare, known):
    prepare(ledger)
    assert accept(ledger) is known
    assert state(ledger) is known


@pytest.mark.parametrize("ended", [State.FINISHED, State.DELIVERED])
def test_an_ended_job_does_not_run_again_from_a_queue_either(ledger, ended):
    accept(ledger)
    ledger.finish("1", PAYLOAD)
    if ended is State.DELIVERED:
        ledger.delivered("1")
    assert accept(ledger, over=(State.HELD, State.RUNNING)) is ended


def test_a_held_job_runs_from_the_queue_with_what_was_published_first(ledger):
    assert hold(ledger) is None
    assert hold(ledger) is State.HELD
    assert accept(ledger, over=(State.HELD,), owner="next", call=b"from the queue") is None
    job = ledger.full("1")
    assert (job.state, job.owner, job.call) == (State.ACCEPTED, "next", CALL)


def test_a_state_run_that_queued_itself_may_come_back_before_it_has_said_so(ledger):
    accept(ledger)
    ledger.begin("1", "child")
    assert accept(ledger, over=(State.HELD,)) is State.RUNNING
    assert accept(ledger, over=(State.HELD, State.RUNNING)) is None
    assert not ledger.put_back("1", "child"), "the first process has no say any more"
    assert ledger.begin("1", "second") == 2


def test_a_job_that_went_to_a_queue_after_all_has_not_been_started(ledger):
    """One restart while it ran then was one too many, and it was reported instead of resumed."""
    for _ in range(3):
        accept(ledger, over=(State.HELD,))
        assert ledger.begin("1", "child") == 1
        assert ledger.put_back("1", "child")
    accept(ledger, over=(State.HELD,))
    assert ledger.put_back("1", ""), "its process could not be started"
    assert ledger.full("1").attempts == 0


def test_only_one_process_begins_a_job(ledger):
    accept(ledger)
    assert [ledger.begin("1", who) for who in ("one", "two")] == [1, 0]


def test_a_process_may_say_when_it_begins_the_function(ledger):
    accept(ledger)
    assert ledger.begin("1", "child", says=True) == 1
    assert not ledger.full("1").has_begun
    ledger.begin_function("1")
    assert ledger.full("1").has_begun


def test_a_process_that_does_not_say_it_may_have_begun(ledger):
    accept(ledger)
    ledger.begin("1", "child", says=True)
    ledger.take(ledger.full("1"), "engine")
    ledger.accept("1", jid="1", fun="f", master="m", call=b"", owner="o", over=(State.HELD,))
    ledger.begin("1", "another child")
    assert ledger.full("1").has_begun


def test_a_job_that_was_taken_does_not_begin(ledger):
    accept(ledger)
    assert ledger.take(ledger.full("1"), "next")
    assert ledger.begin("1", "late child") == 0
    assert state(ledger) is State.HELD


def test_taking_fails_where_somebody_was_faster(ledger):
    accept(ledger)
    seen = ledger.full("1")
    ledger.begin("1", "child")
    assert not ledger.take(seen, "next")
    assert state(ledger) is State.RUNNING


def test_the_first_end_of_a_job_counts(ledger):
    accept(ledger)
    assert ledger.finish("1", PAYLOAD)
    assert not ledger.finish("1", b"interrupted")
    assert ledger.full("1").payload == PAYLOAD


def test_a_return_without_a_record_is_kept_and_listed(ledger):
    ledger.add_undelivered("ping:1", jid="9", fun="test.ping", master="m", payload=PAYLOAD)
    (bare,) = ledger.undelivered()
    assert (bare.jid, bare.payload) == ("9", None)
    assert ledger.full("ping:1").payload == PAYLOAD


def test_several_returns_under_one_jid(ledger):
    for resource in ("a", "b"):
        ledger.accept(
            f"7/web:{resource}",
            jid="7",
            fun="state.apply",
            master="m",
            call=CALL,
            owner="main",
        )
    ledger.begin("7/web:a", "child")
    ledger.finish("7/web:a", PAYLOAD)
    assert {job.key: job.state for job in ledger.find("7")} == {
        "7/web:a": State.FINISHED,
        "7/web:b": State.ACCEPTED,
    }


def test_what_is_known_of_jids(ledger):
    accept(ledger, "1")
    accept(ledger, "2")
    ledger.delivered("2")
    known = ledger.known(["1", "2", "3"])
    assert known == {"1": "accepted", "2": "delivered", "3": UNKNOWN}


def test_delivered_jobs_are_remembered_up_to_a_number_and_open_ones_always(ledger):
    accept(ledger, "open")
    for number in range(30):
        accept(ledger, str(number))
        ledger.delivered(str(number))
    assert ledger.prune(keep=10) == 20
    assert ledger.known(["open", "0", "19", "20", "29"]) == {
        "open": "accepted",
        "20": "delivered",
        "29": "delivered",
        **dict.fromkeys(("0", "19"), UNKNOWN),
    }


def test_chunks_are_gone_with_the_end_of_the_job(ledger):
    accept(ledger)
    ledger.add_chunk("1", "tag", "digest", b"result")
    ledger.add_chunk("2", "tag", "other", b"other")
    assert ledger.chunks("1") == {"tag": ("digest", b"result")}
    ledger.finish("1", PAYLOAD)
    assert ledger.chunks("1") == {}
    assert ledger.chunks("2") == {"tag": ("other", b"other")}


@pytest.mark.parametrize("end", ["delivered", "forget"])
def test_nothing_of_a_job_is_left_in_the_files(ledger, end):
    ledger.anchor()
    accept(ledger)
    ledger.begin("1", "child")
    ledger.add_chunk("1", "tag", "digest", b"a SECRETCHUNK")
    ledger.finish("1", PAYLOAD)
    assert b"SECRETRETURN" in contents(ledger), "else this test would show nothing"
    getattr(ledger, end)("1")
    ledger.scrub()
    assert b"SECRET" not in contents(ledger)


def contents(ledger):
    directory = os.path.dirname(ledger.path)
    found = b""
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "rb") as file:
            found += file.read()
    return found


def test_nobody_else_can_read_the_files(ledger):
    ledger.anchor()
    accept(ledger)
    directory = os.path.dirname(ledger.path)
    assert stat.S_IMODE(os.stat(directory).st_mode) == 0o700
    modes = {
        name: stat.S_IMODE(os.stat(os.path.join(directory, name)).st_mode)
        for name in os.listdir(directory)
    }
    assert modes == dict.fromkeys(modes, 0o600)
    assert "safeupdate.db-wal" in modes


def test_a_large_return_comes_back_as_it_was_and_takes_little_space(ledger):
    accept(ledger)
    large = b"a line of text\n" * 100_000
    ledger.finish("1", large)
    assert ledger.full("1").payload == large
    ledger.scrub()
    assert os.path.getsize(ledger.path) < len(large) / 5
