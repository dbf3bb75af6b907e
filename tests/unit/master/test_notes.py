"""What workers tell the engine, and what of a minion's messages is worth a note."""

import os
import select

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saltext_safeupdate.core.jobs import jids
from saltext_safeupdate.core.jobs.meant import UNDECIDED, about
from saltext_safeupdate.master.missed_jobs import MOST_JOBS
from saltext_safeupdate.master.notes import ANSWER, RETURN, START, Notes, heard, is_sound

QUERY = "safeupdate.accepted"
JID = "20260101120000000000"


@pytest.fixture
def notes():
    made = Notes()
    yield made
    made.close()


def is_start(tag):
    return tag == "minion_start"


def note_of(func, **load):
    return heard(func, {"id": "a", **load}, QUERY, is_start)


def test_what_is_written_is_read_in_its_order(notes):
    assert notes.write(RETURN, "1", "a\nb")
    assert notes.write(ANSWER, "q", "ä", {"1": "held"})
    assert notes.write(START, "a")
    assert notes.read(0) == [
        ["return", "1", "a\nb"],
        ["answer", "q", "ä", {"1": "held"}],
        ["start", "a"],
    ]
    assert notes.read(0) == []


def test_a_full_pipe_stops_nobody(notes):
    written = 0
    while notes.write(RETURN, "1", "a" * 1000):
        written += 1
    assert written
    found = []
    while taken := notes.read(0):
        found += taken
    assert len(found) == written
    assert notes.write(RETURN, "1", "a")


def test_a_note_that_could_be_torn_is_not_written(notes):
    assert not notes.write(RETURN, "1", "a" * select.PIPE_BUF)
    assert notes.read(0) == []


def test_half_a_line_is_nothing(notes):
    os.write(notes._write, b'urn", "1"]\n5\n')
    notes.write(START, "a")
    assert notes.read(0) == [["start", "a"]]


def test_the_answer_to_the_longest_query_fits(notes):
    answer = {f"{JID[:-4]}{number:04}_4194304": "interrupted" for number in range(MOST_JOBS)}
    assert all(map(jids.is_jid, answer))
    note = note_of("_return", jid=JID, fun=QUERY, **{"return": answer})
    assert note == (ANSWER, JID, "a", answer)
    assert notes.write(ANSWER, f"{JID}_4194304", "a" * 253, note[3])
    answer = {about(10**12 + number): UNDECIDED for number in range(MOST_JOBS)}
    assert notes.write(ANSWER, JID, "a" * 253, answer)


def _failed(answer):
    return {"jid": JID, "fun": QUERY, "return": answer, "success": False, "retcode": 1}


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        ({"jid": JID, "fun": "test.ping"}, (RETURN, JID, "a")),
        ({"jid": JID}, (RETURN, JID, "a")),
        ({"jid": JID, "fun": "x", "resource_id": "b"}, None),
        ({"jid": 5}, None),
        ({"jid": "9" * 99}, None),
        ({"jid": ""}, None),
        ({}, None),
        ({"jid": JID, "fun": QUERY, "return": {"1": "held"}}, (ANSWER, JID, "a", {"1": "held"})),
        ({"jid": JID, "fun": QUERY, "return": {"1": 5, 2: "x"}}, (ANSWER, JID, "a", {"1": ""})),
        (_failed("'safeupdate.accepted' is not available."), (ANSWER, JID, "a", None)),
        (_failed("'safeupdate' __virtual__ returned False"), (ANSWER, JID, "a", None)),
        # An error says nothing of whether it has a ledger.
        (_failed("ERROR: The database is locked"), (ANSWER, JID, "a", False)),
        (_failed({}), (ANSWER, JID, "a", False)),
        ({"jid": JID, "fun": QUERY, "return": {}, "retcode": 1}, (ANSWER, JID, "a", False)),
        ({"jid": JID, "fun": QUERY, "return": ["1"]}, (ANSWER, JID, "a", False)),
    ],
)
def test_what_a_return_means(load, expected):
    assert note_of("_return", **load) == expected
    assert note_of("_syndic_return", **load) is None


@pytest.mark.parametrize(
    "load",
    [
        {"tag": "minion_start", "data": {"id": "b"}},
        {"events": [{"tag": "other"}, {"tag": "minion_start", "data": {"id": "b"}}]},
    ],
)
def test_a_minion_only_announces_its_own_start(load):
    assert note_of("_minion_event", **load) == (START, "a")


@pytest.mark.parametrize("tag", ["salt/auth", 5, None, ["minion_start"]])
def test_other_events_are_nothing(tag):
    assert note_of("_minion_event", tag=tag) is None
    assert note_of("_minion_event", events=[{"tag": tag}]) is None


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.binary(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = ["jid", "fun", "return", "success", "retcode", "tag", "events", "data", "resource_id"]


@settings(max_examples=50)
@given(st.lists(st.sampled_from([ANSWER, START]) | ANYTHING, min_size=1, max_size=5))
def test_a_note_of_another_form_is_none(note):
    if is_sound(note):
        kind, *values = note
        assert len(values) == {ANSWER: 3, START: 1}[kind]
        assert all(isinstance(value, str) for value in values[:2])


@settings(max_examples=30)
@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_at_most_notes(data):
    made = Notes()
    os.write(made._write, data + b'\n["start", "a"]\n')
    assert made.read(0)[-1] == [START, "a"]
    made.close()


@given(
    st.sampled_from(["_return", "_minion_event"]) | ANYTHING,
    st.dictionaries(st.sampled_from(["id", *FIELDS]), ANYTHING) | ANYTHING,
)
def test_data_of_any_shape_is_at_most_a_note_about_the_sender(func, load):
    note = heard(func, load, QUERY, is_start)
    if note:
        assert note[1 if note[0] == START else 2] == load["id"]
