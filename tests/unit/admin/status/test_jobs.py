"""What may be done about single jobs, with a real ledger and a real queue on disk."""

import os
from datetime import datetime, timedelta, timezone

import pytest
import salt.payload

from saltext_safeupdate.admin.status import jobs
from saltext_safeupdate.core.errors import InputError, LockHeldError, SafeUpdateError
from saltext_safeupdate.core.generations import absence
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.ledger import State
from saltext_safeupdate.minion import queues, unrecorded

CALL = {"jid": "5", "fun": "state.apply", "arg": ["x"]}
PAYLOAD = salt.payload.dumps(CALL)
GONE = "boot:1:1"


@pytest.fixture
def made(made):
    made.opts["master"] = "m"
    return made


def _accept(made, owner=GONE, call=PAYLOAD, jid="5"):
    made.ledger.accept(jid, jid=jid, fun="state.apply", master="m", call=call, owner=owner)


def _state(made):
    (job,) = made.ledger.find("5")
    return job.state


def test_a_job_whose_process_is_gone_is_started_again(made):
    _accept(made)
    assert jobs.resume(made, "5") == {"5": "it is started again"}
    assert _state(made) is State.HELD
    queued = queues.read(queues.find(made.opts, "5"))
    assert {key: queued[key] for key in CALL} == CALL
    assert jobs.listed(made)["held"] == ["5 state.apply"]


def test_it_is_put_into_the_queue_once(made):
    _accept(made)
    jobs.resume(made, "5")
    jobs.resume(made, 5)
    assert len(queues.listed(made.opts)) == 1


def test_what_has_finished_is_only_sent(made):
    _accept(made)
    made.ledger.begin("5", GONE)
    made.ledger.finish("5", b"return")
    assert jobs.resume(made, "5") == {"5": "its return is sent"}
    assert queues.find(made.opts, "5") is None
    (row,) = jobs.listed(made)["undelivered"]
    assert (row["jid"], row["sends"]) == ("5", 1)
    # "attempts" are starts of a job, as in the glossary.
    assert "attempts" not in row


def test_without_its_call_it_cannot_be_started(made):
    _accept(made, call=None)
    with pytest.raises(SafeUpdateError, match=r"no longer has the call of job 5.*forget"):
        jobs.resume(made, "5")
    assert queues.find(made.opts, "5") is None


@pytest.mark.parametrize("act", [jobs.resume, jobs.forget])
@pytest.mark.parametrize("begun", [True, False])
def test_a_job_that_runs_is_left_alone(made, act, begun):
    _accept(made, owner=processes.me())
    if begun:
        made.ledger.begin("5", processes.me())
    with pytest.raises(LockHeldError, match="Job 5 is running"):
        act(made, "5")
    assert _state(made) is (State.RUNNING if begun else State.ACCEPTED)


@pytest.mark.parametrize("act", [jobs.resume, jobs.forget])
@pytest.mark.parametrize(("jid", "why"), [("6", "no open job 6"), (True, "job ID"), (None, "job")])
def test_a_job_that_is_not_open(made, act, jid, why):
    _accept(made)
    with pytest.raises(InputError, match=why):
        act(made, jid)
    made.ledger.begin("5", GONE)
    made.ledger.delivered("5")
    with pytest.raises(InputError, match="no open job 5"):
        act(made, "5")


def test_without_a_ledger_no_job_is_open(made):
    with pytest.raises(InputError, match="no open job 5"):
        jobs.resume(made, "5")
    assert not os.path.exists(made.settings.database)


def test_a_job_is_forgotten(made):
    _accept(made)
    jobs.resume(made, "5")
    assert jobs.forget(made, "5") == ["5"]
    assert queues.find(made.opts, "5") is None
    assert jobs.listed(made) == {
        "running": ["5 test.sleep"],
        "held": [],
        "undelivered": [],
        "recorded": [],
    }


def test_accepted_tells_what_the_ledger_and_the_queue_have(made):
    _accept(made)
    queues.put(made.opts, {**CALL, "jid": "7"})
    assert jobs.accepted(made, ["5", 6, "7"]) == {"5": "accepted", "6": "unknown", "7": "held"}


YOUNG = "29990101000000000000"


def test_a_minion_that_has_just_been_set_up_claims_to_have_missed_nothing(made):
    assert jobs.accepted(made, [YOUNG]) == {YOUNG: "unknown"}
    assert not made.ledger.exists(), "and makes no ledger for that"
    _accept(made)
    assert jobs.accepted(made, [YOUNG]) == {YOUNG: "unknown"}


def test_only_what_is_younger_than_the_ledger_was_missed(made):
    made.ledger.record_from_now()
    old = "20200101000000000000"
    assert jobs.accepted(made, [old, YOUNG, "req"]) == {old: "unknown", "req": "unknown"}
    queues.put(made.opts, {**CALL, "jid": YOUNG})
    assert jobs.accepted(made, [YOUNG]) == {YOUNG: "held"}


def test_while_jobs_have_run_without_a_record_nothing_is_claimed(made):
    made.ledger.record_from_now()
    os.makedirs(made.opts["cachedir"])
    unrecorded.note(made.opts)
    assert jobs.accepted(made, [YOUNG]) == {YOUNG: "unknown"}
    unrecorded.bring_in(made.opts, made.ledger)
    assert jobs.accepted(made, [YOUNG]) == {}


def test_a_minion_whose_jobs_run_as_with_plain_salt_claims_nothing_but_what_it_has(made):
    made.ledger.record_from_now()
    _accept(made)
    assert jobs.accepted(made, ["5", YOUNG], blind=True) == {"5": "accepted", YOUNG: "unknown"}


def test_the_clock_of_the_master_that_asks_counts(made):
    """Its query has just been made, so the time in its JID says how far it is ahead."""
    made.ledger.record_from_now()
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    current.begin(current.Job(jid=f"{soon:%Y%m%d%H%M%S%f}", lock=None))
    try:
        # Published while this minion did not record yet.
        jid = f"{soon - timedelta(minutes=1):%Y%m%d%H%M%S%f}"
        assert jobs.accepted(made, [jid]) == {jid: "unknown"}
        assert jobs.accepted(made, [YOUNG]) == {}
    finally:
        current.end()


def test_with_an_unusable_database_the_question_fails(made):
    os.makedirs(made.settings.database)
    with pytest.raises(SafeUpdateError, match="cannot be used"):
        jobs.accepted(made, [YOUNG])


def test_each_master_has_a_queue_of_its_own(made):
    _accept(made)
    made.opts["master"] = "another"
    jobs.resume(made, "5")
    assert "/queues/m/" in queues.find(made.opts, "5")
    assert jobs.forget(made, "5") == ["5"]
    assert queues.listed(made.opts) == []


def test_with_failover_the_present_master_has_all(made):
    _accept(made)
    made.opts |= {"master": "another", "master_type": "failover"}
    jobs.resume(made, "5")
    assert "/queues/another/" in queues.find(made.opts, "5")


def aim(jobs, tgt="*", tgt_type="glob", **more):
    return {"tgt": tgt, "tgt_type": tgt_type, "delimiter": ":", "jobs": jobs, **more}


@pytest.fixture
def restarted(made, monkeypatch):
    """A minion whose record says that it was restarted, from 40 until 20 seconds ago."""
    made.ledger.record_from_now()
    asked = []

    def of(store, services, unit, main):
        asked.append((unit, main))
        return [absence.Absence(40.0, 20.0)]

    monkeypatch.setattr(jobs.absence, "of", of)
    made.asked = asked
    return made


def test_only_what_came_while_it_was_restarted_was_missed(restarted):
    """Each publication is for itself, also if several have one target or one JID."""
    ages = {"1": 30.0, "2": 60.0, "3": 5, "4": None, "5": True, "6": "30"}
    aims = [
        aim({**dict.fromkeys((*ages, "7"), YOUNG)}, ages=ages),
        aim({"8": YOUNG}, "another*", ages={"8": 30.0}),
        aim({"9": YOUNG}, "minion", ages={"9": 30.0}),
        aim({"10": YOUNG}, "x", "list", ages={"10": 30.0}),
    ]
    assert jobs.accepted(restarted, [YOUNG], aims) == {
        **{"#1": "missed", "#2": "away", "#3": "away"},
        # A master that sends no ages cannot be told.
        **dict.fromkeys(("#4", "#5", "#6", "#7"), "undecided"),
        **{"#8": "not meant", "#9": "missed", "#10": "not meant"},
    }
    assert restarted.asked == [("salt-minion", processes.identity(os.getppid()))]
    assert jobs.accepted(restarted, [YOUNG], [aim({"1": YOUNG})]) == {"#1": "undecided"}


def test_a_target_that_it_cannot_decide_is_undecided(restarted, caplog):
    found = jobs.accepted(restarted, [YOUNG], [aim({"1": YOUNG}, 5, "pcre", ages={"1": 30.0})])
    assert found == {"#1": "undecided"}
    assert "it cannot be told" in caplog.text


def test_one_that_was_not_restarted_was_away(restarted, monkeypatch):
    monkeypatch.setattr(jobs.absence, "of", lambda *_: [])
    found = jobs.accepted(restarted, [YOUNG], [aim({"1": YOUNG}, ages={"1": 30.0})])
    assert found == {"#1": "away"}


def test_of_jobs_that_it_has_nothing_else_is_looked_up(restarted):
    _accept(restarted, jid=YOUNG)
    found = jobs.accepted(restarted, [YOUNG], [aim({"1": YOUNG}, ages={"1": 30.0})])
    assert found == {YOUNG: "accepted"}
    assert restarted.asked == []


def test_if_it_is_not_known_whether_it_was_restarted_the_question_fails(restarted, monkeypatch):
    def of(*_):
        raise SafeUpdateError("systemd does not answer")

    monkeypatch.setattr(jobs.absence, "of", of)
    with pytest.raises(SafeUpdateError, match="does not answer"):
        jobs.accepted(restarted, [YOUNG], [aim({"1": YOUNG}, ages={"1": 30.0})])


@pytest.mark.parametrize(
    "aims",
    [
        *("*", [5], [{}], [aim([YOUNG])], [aim({"1": YOUNG}, ages=[30.0])]),
        [aim({"1": YOUNG}, tgt_type=None)],
    ],
    ids=str,
)
def test_accepted_wants_targets_with_jobs_and_ages(made, aims):
    with pytest.raises(InputError, match="'aims' must be a list of targets"):
        jobs.accepted(made, [YOUNG], aims)


@pytest.mark.parametrize("jids", ["5", None, [None], [["5"]]])
def test_accepted_wants_a_list_of_jids(made, jids):
    with pytest.raises(InputError, match="list of job IDs"):
        jobs.accepted(made, jids)
