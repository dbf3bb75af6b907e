"""The generations of a minion, and what each of them has told."""

import pytest

from saltext_safeupdate.core.errors import UnreadableError
from saltext_safeupdate.core.generations.generation import Probe, Report, Standing
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host.reach import Address
from saltext_safeupdate.core.record.store import Store

WHOLE = Report(
    at=5.0,
    boot="b",
    version="3008.3",
    extension="0.1.0",
    master=True,
    masters=(Address("m", 4506, True), Address("n", 4507)),
    port=4506,
    hooked=None,
    took=7.5,
    startup_delay=3.0,
)
PROBE = Probe(jid="7", fun="state.apply", arg=("it", {"__kwarg__": True, "queue": True}))


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "safeupdate.db"))


@pytest.fixture
def generations(store):
    return Generations(store)


def test_of_none_nothing_is_known_and_nothing_is_made(store, generations):
    assert generations.serving() is None
    assert generations.report() is None
    assert generations.of("a") is None
    assert not generations.is_refused("7")
    assert not store.exists()


def test_what_one_has_told_comes_back_as_it_was(generations):
    assert generations.reports("a", WHOLE)
    generations.notes_masters("a", (("m", True), ("n", False)))
    generations.ask("a", PROBE)
    generations.refuse("a", "7")
    generations.note_idle("a", "5")
    generations.notes_changed("a", "/x")
    found = generations.serving()
    assert (found.process, found.standing, found.report) == ("a", Standing.SERVING, WHOLE)
    assert found.masters == (("m", True), ("n", False))
    assert (found.probe, found.refused, found.idle) == (PROBE, "7", "5")
    assert found.changed == "/x"
    generations.note_busy("a")
    assert generations.of("a").idle is None


def test_the_one_that_has_reported_last_serves_whatever_the_clock_says(generations):
    generations.reports("a", Report(at=100.0))
    generations.notes_masters("b", (("m", True),))
    assert generations.of("b").standing is Standing.STARTING
    assert generations.serving().process == "a"
    generations.reports("b", Report(at=1.0))
    assert generations.serving().process == "b"
    assert generations.serving().masters == (("m", True),)
    assert generations.of("a").standing is Standing.GONE


def test_an_engine_that_salt_starts_again_is_not_the_first_of_its_minion(generations):
    assert generations.reports("a", Report(at=1.0, took=7.5))
    assert not generations.reports("a", Report(at=2.0, took=900.0))
    assert generations.report() == Report(at=2.0, took=7.5)
    assert generations.reports("b", Report(at=3.0, took=900.0))
    assert generations.report().took == 900.0


def test_what_is_asked_of_one_is_not_asked_of_another(generations):
    generations.reports("a", WHOLE)
    generations.ask("b", PROBE)
    generations.refuse("b", "7")
    assert generations.of("a").probe is None
    assert not generations.is_refused("7")


def test_those_that_are_gone_are_known_for_a_while(generations):
    for number in range(60):
        generations.reports(str(number), Report(at=1.0))
        generations.note_idle(str(number), "")
    assert generations.of("58").idle == ""
    assert generations.of("30") is None
    assert generations.serving().process == "59"


@pytest.mark.parametrize("value", ["{", "5", "{}", '{"at": "then"}', b"\xff"])
def test_a_report_that_cannot_be_read_is_replaced_by_the_next(store, generations, value):
    generations.reports("a", WHOLE)
    with store.transaction() as db:
        db.execute("UPDATE generations SET report = ?", (value,))
    with pytest.raises(UnreadableError, match="a restart of the minion"):
        generations.report()
    assert generations.reports("a", WHOLE)
    assert generations.report() == WHOLE


NAMES = ["report", "masters", "probe", "refused", "idle", "changed"]


@pytest.mark.parametrize("column", [*NAMES, "standing"])
def test_what_cannot_be_read_of_one_is_not_taken_for_nothing(store, generations, column):
    """And whoever asks for something else gets it."""
    generations.reports("a", WHOLE)
    with store.transaction() as db:
        db.execute(f"UPDATE generations SET {column} = '3'")
    found = generations.of("a")
    with pytest.raises(UnreadableError):
        getattr(found, column)
    others = {name: getattr(found, name) for name in NAMES if name != column}
    assert others == {name: WHOLE if name == "report" else None for name in others}
    generations.reports("b", WHOLE)
    assert generations.report() == WHOLE
