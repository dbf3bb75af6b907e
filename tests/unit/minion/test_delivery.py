"""What the engine makes of a master's word on a return."""

import contextlib
from dataclasses import replace

import pytest
import salt.payload
import salt.utils.event

from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs.delivering import Answer
from saltext_safeupdate.core.jobs.ledger import Job, State
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import PhaseRow, Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.minion import publication, queues
from saltext_safeupdate.minion.delivery import Delivery
from saltext_safeupdate.minion.masters import Masters


def connected(opts, path):
    """Return the masters of a minion that is connected to "m"."""
    store = Store(str(path / "safeupdate.db"))
    Generations(store).notes_masters(processes.me(), (("m", True),))
    return Masters(opts, store, processes.me())


JOB = Job(
    key="1",
    jid="1",
    fun="cmd.run",
    master="m",
    state=State.FINISHED,
    owner="",
    runner="",
    accepted=1.0,
    changed=1.0,
    attempts=1,
    sends=0,
    unbegun=0,
    awaits="",
    call=None,
    payload=salt.payload.dumps({"cmd": "_return", "jid": "1"}),
)


class Bus:
    """The minion's bus, with a main process that passes on what the master says."""

    def __init__(self, answer):
        self.answer = answer
        self.sent = []

    def fire_event(self, load, tag, timeout):
        self.sent.append((load.get("jid"), tag))

    def get_event(self, tag, wait):
        assert tag.rpartition("/")[2] in self.sent[-1][1]
        return self.answer


@pytest.mark.parametrize(
    ("answer", "meaning"),
    [
        ({"ret": None}, Answer.TAKEN),
        ({"ret": {}}, Answer.TAKEN),
        # Salt's master where its own function has failed, as when its job cache is broken.
        ({"ret": ""}, Answer.FAILED),
        # It refuses a return that is not signed as it wants it.
        ({"ret": False}, Answer.FAILED),
        ({"ret": None, "error": "timeout"}, Answer.NONE),
        (None, Answer.NONE),
    ],
)
def test_what_a_master_says_to_a_return(monkeypatch, tmp_path, answer, meaning):
    bus = Bus(answer)
    monkeypatch.setattr(salt.utils.event, "get_event", lambda *_, **__: contextlib.nullcontext(bus))
    opts = {"id": "m1", "master": "m", "cachedir": str(tmp_path)}
    assert Delivery(opts, {"event.send": None}, connected(opts, tmp_path)).send(JOB) is meaning
    assert [jid for jid, _ in bus.sent] == ["1"]


def test_with_pub_ret_false_no_master_gets_a_return(monkeypatch, tmp_path):
    monkeypatch.setattr(salt.utils.event, "get_event", lambda *_, **__: pytest.fail("it sends"))
    opts = {"id": "m1", "master": "m", "cachedir": str(tmp_path), "pub_ret": False}
    delivery = Delivery(opts, {"event.send": None}, connected(opts, tmp_path))
    assert delivery.send(JOB) is Answer.TAKEN


UPDATE = Update(id="u1", kind="update", phase=Phase.COMMITTED, created=1.0)


@pytest.mark.parametrize(
    ("update", "phase", "taken", "refreshed"),
    [
        (UPDATE, "committed", True, True),
        (UPDATE, "committed", False, False),
        # A phase that has passed, and one that is not the last.
        (UPDATE, "watching", True, False),
        (replace(UPDATE, phase=Phase.WATCHING), "watching", True, False),
        (None, "committed", True, False),
    ],
)
def test_the_grains_are_made_again_when_an_update_has_ended(
    monkeypatch, tmp_path, update, phase, taken, refreshed
):
    bus = Bus(None)
    monkeypatch.setattr(salt.utils.event, "get_event", lambda *_, **__: contextlib.nullcontext(bus))
    opts = {"id": "m1", "master": "m", "cachedir": str(tmp_path)}
    send = {"event.send": lambda tag, data: taken}
    delivery = Delivery(opts, send, connected(opts, tmp_path), reaches=bool)
    row = PhaseRow(seq=1, id="u1", phase=phase, reason="", at=1.0)
    assert delivery.publish(row, update) is taken
    assert [tag for _, tag in bus.sent] == ["grains_refresh"] * refreshed


def test_phases_are_told_without_the_function_that_sends_events(monkeypatch, tmp_path):
    """As with 'whitelist_modules'."""
    sent = []

    class Taking(Bus):
        def fire_event(self, load, tag, timeout):
            sent.append((tag, load))
            return True

    bus = Taking(None)
    monkeypatch.setattr(salt.utils.event, "get_event", lambda *_, **__: contextlib.nullcontext(bus))
    opts = {"id": "m1", "master": "m", "cachedir": str(tmp_path)}
    delivery = Delivery(opts, {}, connected(opts, tmp_path), reaches=bool)
    row = PhaseRow(seq=1, id="u1", phase="watching", reason="", at=1.0)
    assert delivery.publish(row, None)
    ((tag, load),) = sent
    assert tag == "fire_master"
    assert load["tag"] == "salt/minion/m1/safeupdate/watching"
    assert load["data"]["update"] == "u1"


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ({}, False),
        ({"source_address": "192.0.2.1"}, True),
        ({"master_type": "func"}, True),
        # It has another part, which has the master "m".
        ({"master": "dead"}, True),
    ],
)
def test_a_phase_is_kept_while_no_master_can_be_reached(tmp_path, options, sent):
    """The main process would drop it, and say nothing."""
    opts = {"id": "m1", "master": "m", "cachedir": str(tmp_path), **options}
    told = []
    send = {"event.send": lambda tag, data: told.append(tag) or True}
    delivery = Delivery(opts, send, connected(opts, tmp_path), reaches=lambda known: False)
    row = PhaseRow(seq=1, id="u1", phase="watching", reason="", at=1.0)
    assert delivery.publish(row, None) is sent
    assert len(told) == sent


@pytest.mark.parametrize(
    ("fun", "known", "marked"),
    [
        ("state.apply", {"awaits": "{}", "attempts": 0}, True),
        ("state.apply", {"attempts": 1}, True),
        ("state.apply", {"attempts": 1, "unbegun": 1}, False),
        ("state.apply", {"attempts": 0}, False),
        ("cmd.run", {"attempts": 1}, False),
    ],
)
def test_a_run_that_has_begun_before_is_marked_and_waits_for_others(tmp_path, fun, known, marked):
    opts = {"id": "m1", "master": "m", "cachedir": str(tmp_path)}
    call = salt.payload.dumps({"jid": "1", "fun": fun, "arg": []})
    job = JOB._replace(fun=fun, call=call, **known)
    Delivery(opts, {"event.send": None}, connected(opts, tmp_path)).run(job)
    (queued,) = queues.listed(opts)
    assert queued.get(publication.GOES_ON, False) is marked
    # Two that a reboot has interrupted would else make one fail: the other is running.
    assert queued["arg"] == [{"__kwarg__": True, "queue": True}] * marked
