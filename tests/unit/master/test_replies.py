"""What is left of the answers of minions on their way to the engine."""

import base64
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saltext_safeupdate.master import replies
from saltext_safeupdate.master.notes import Notes, heard
from saltext_safeupdate.master.replies import Failed, Receiver, Sender
from tests.unit.master.test_notes import ANYTHING, FIELDS

JID = "20260101120000000000"
FUN = "safeupdate.report"
FUNCTIONS = {FUN}


def packed(answer, **more):
    load = {"id": "a", "jid": JID, "fun": FUN, "return": answer, "success": True, **more}
    return replies.of(load, FUNCTIONS)


def answered(answer, **more):
    found = packed(answer, **more)
    assert found[:2] == (JID, "a")
    return replies.unpack(base64.b64decode(found[2]))


def test_an_answer_is_what_the_minion_said():
    said = {"version": "3008.3", "phases": {"staging": 1.5}, "again": False, "x": [1, None, "ä\n"]}
    assert answered(said) == said


@pytest.mark.parametrize("more", [{"success": False}, {"success": None, "retcode": 1}])
def test_what_is_no_answer_is_said_as_such(more):
    found = answered("'safeupdate.report' is not available.", **more)
    assert found == "'safeupdate.report' is not available."
    assert isinstance(found, Failed)
    assert not isinstance(answered("text"), Failed)


def test_a_mapping_with_an_empty_result_is_an_answer():
    """Salt says of such a job that it has failed."""
    said = {"result": "", "phase": "idle"}
    assert answered(said, success=False, retcode=1) == said


def test_an_old_salt_says_only_a_return_code():
    load = {"id": "a", "jid": JID, "fun": FUN, "return": 5, "retcode": 0}
    assert replies.of(load, FUNCTIONS) is not None


@pytest.mark.parametrize("fun", ["test.ping", ["safeupdate.report"], {}, None])
def test_other_returns_are_none(fun):
    assert packed(1, fun=fun) is None


def nested(depth):
    return [nested(depth - 1)] if depth else []


@pytest.mark.parametrize(
    "answer",
    [nested(50), list(range(10_000)), ["x" * 3000] * 100, {"y": nested(9)}],
)
def test_one_that_is_too_large_is_no_answer(answer):
    found = answered(answer)
    assert isinstance(found, Failed)
    assert "is of no use" in found


def test_numbers_and_texts_have_their_bounds():
    said = answered([2**80, float("nan"), "x" * 10_000, b"\xff", "\x1b[31mred\x9b", {1: {2: 3}}])
    assert said[:2] == [0, 0.0]
    assert len(said[2]) == replies.LONGEST
    assert said[3:5] == ["<bytes>", "?[31mred?"]
    assert said[5] == {"<int>": {"<int>": 3}}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(FIELDS), ANYTHING))
def test_data_of_any_shape_is_at_most_an_answer_of_the_sender(load):
    load = {"jid": JID, **load, "fun": FUN, "id": "a"}
    note = heard("_return", load, "safeupdate.accepted", lambda tag: False)
    found = replies.of(load, FUNCTIONS) if note else None
    if found:
        assert found[:2] == (load["jid"], "a")
        json.dumps(replies.unpack(base64.b64decode(found[2])))


def test_a_long_answer_comes_in_parts_and_two_at_once_are_told_apart():
    notes, receiver = Notes(), Receiver()
    long = {"a": [f"{number * 7919}" for number in range(4000)]}
    found = packed(long)
    assert Sender(notes).send(*found)
    assert Sender(notes).send(JID, "b", packed(1)[2])
    parts = notes.read(0)
    assert len(parts) > 3
    # Another worker writes between them.
    parts.insert(1, parts.pop())
    came = {part[1]: answer for part in parts if (answer := receiver.part(*part)) is not None}
    assert replies.unpack(came["a"]) == long
    assert replies.unpack(came["b"]) == 1
    notes.close()


def test_an_answer_of_which_a_part_is_missing_is_none():
    notes, receiver = Notes(), Receiver()
    Sender(notes).send(*packed([f"{number * 7919}" for number in range(4000)]))
    parts = notes.read(0)
    assert [receiver.part(*part) for part in (parts[0], *parts[2:])] == [None] * (len(parts) - 1)
    assert [receiver.part(*part) for part in parts][-1] is not None
    assert receiver.part(JID, "a", 0, 1, "no base64!") is None
    notes.close()


class Pipe:
    """A pipe with room or without."""

    def __init__(self, room):
        self.room = room

    def write(self, *note):
        return self.room


def test_one_minion_does_not_fill_the_pipe():
    now = [0.0]
    sender = Sender(Pipe(True), clock=lambda: now[0])
    text = "x" * 50_000
    sent = [sender.send(JID, "mallory", text) for _ in range(50)]
    assert sent.count(True) == replies.MOST_A_SECOND // len(text)
    assert sender.send(JID, "a", "x")
    now[0] += 1
    assert sender.send(JID, "mallory", text)


def test_a_full_pipe_stops_nobody():
    sender = Sender(Pipe(False))
    assert not sender.send(JID, "a", "x" * 5000)
