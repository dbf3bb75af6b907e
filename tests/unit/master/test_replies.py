"""What is left of the answers of minions on their way to the engine."""

import base64
import json
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saltext_safeupdate.master import replies
from saltext_safeupdate.master.notes import Notes, heard
from saltext_safeupdate.master.questions import Questions
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
    assert "cannot be used" in found


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
    assert receiver.part(JID, "a", "t", 0, 1, "no base64!") is None
    notes.close()


LONG = [{"a": [f"{number * prime}" for number in range(4000)]} for prime in (7919, 104729)]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 60))
def test_two_answers_of_one_minion_at_once_are_never_mixed(order, lost):
    """By two workers. Parts come in the order of each; one may not have fitted into the pipe."""
    notes, receiver = Notes(), Receiver()
    both = []
    for said in LONG:
        Sender(notes).send(*packed(said))
        both.append(notes.read(0))
    notes.close()
    mixed, turn = [], iter(order * 60)
    while both[0] or both[1]:
        first = next(turn, True)
        mixed.append((both[0] or both[1] if first else both[1] or both[0]).pop(0))
    whole = len(mixed)
    del mixed[lost : lost + 1]
    came = [answer for part in mixed if (answer := receiver.part(*part)) is not None]
    assert all(replies.unpack(answer) in LONG for answer in came)
    assert len(came) == (2 if len(mixed) == whole else 1)


def test_answers_that_are_begun_and_not_ended_take_little_room():
    receiver = Receiver()
    for number in range(100):
        assert receiver.part(JID, "mallory", f"t{number}", 0, 2, "x") is None
    text = packed(1)[2]
    half = len(text) // 2 // 4 * 4
    assert receiver.part(JID, "mallory", "t0", 1, 2, text[half:]) is None, "that is forgotten"
    assert receiver.part(JID, "mallory", "new", 0, 2, text[:half]) is None
    assert replies.unpack(receiver.part(JID, "mallory", "new", 1, 2, text[half:])) == 1


BOMB = zlib.compress(b'[true,"' + b" " * (64 << 20) + b'"]', 9)
CRAFTED = st.sampled_from(
    [BOMB, BOMB[:50], zlib.compress(b"[" * 200_000), zlib.compress(b"9" * 5000), b"", b"[true,1]"]
)
SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=5,
)
AS_JSON = (SHAPES | st.tuples(st.booleans(), SHAPES)).map(lambda v: json.dumps(v).encode())
PACKED = st.one_of(st.binary(max_size=99), CRAFTED, AS_JSON.map(zlib.compress), AS_JSON)


@settings(max_examples=60, deadline=None)
@given(PACKED)
def test_what_cannot_be_decoded_is_no_answer(data):
    whole = Receiver().part(JID, "a", "t", 0, 1, base64.b64encode(data).decode())
    found = replies.unpack(data)
    assert whole in (data, None)
    if whole is None:
        assert found == "Its answer cannot be read."
        assert isinstance(found, Failed)
    else:
        json.dumps(found)


@settings(max_examples=25, deadline=None)
@given(SHAPES | st.binary(max_size=50), st.integers(-2, 50), st.integers(-2, 99), st.text())
def test_parts_of_any_kind_are_at_most_no_answer(token, number, count, text):
    asking = Questions(lambda *_: None, lambda: JID, clock=lambda: 0.0)
    heard = []
    asking.put(["a"], FUN, timeout=5.0, heard=lambda *said: heard.append(said))
    asking.tick()
    odd = [JID, "a", token, number, count, text]
    for note in (odd, odd[1:], [*odd, 1], [token] * 6, [JID, [], "t", 0, 1, text], [JID]):
        asking.heard([note])
    asking.heard([[JID, "a", "t", 0, 1, packed({"x": 1})[2]]])
    assert [replies.unpack(answer) for _, answer in heard] == [{"x": 1}]


def test_an_answer_at_its_bounds_is_read():
    """Of the characters that take most room, as many as there may be."""
    said = {"x" * 30: ["\U0001f9c2" * (replies.LONGEST - 1)] * 16, "y": [-(2**62)] * 4900}
    assert answered(said) == said


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
