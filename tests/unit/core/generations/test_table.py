"""The generations of a minion, and what each of them has told."""

import pytest

from saltext_safeupdate.core.errors import UnreadableError
from saltext_safeupdate.core.generations.generation import Probe, Report, Standing
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import processes
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
    own_tree=True,
)
PROBE = Probe(jid="7", fun="state.apply", arg=("it", {"__kwarg__": True, "queue": True}))

# Two processes that are there, and one that is not.
HERE, ALSO_HERE = processes.me(), processes.identity(1)
DEAD = f"{HERE}0"


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
    assert generations.overlapping() == []
    assert generations.leaving() == []
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
    assert not generations.reports("a", Report(at=2.5, took=900.0), rested=True)
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


ON_ITS_WAY_OUT = [Standing.OVERLAPPING, Standing.LEAVING]


@pytest.mark.parametrize("standing", ON_ITS_WAY_OUT)
def test_one_that_is_handed_over_stays_what_it_is_when_another_one_reports(generations, standing):
    generations.reports(HERE, WHOLE)
    generations.stands(HERE, standing)
    generations.reports("b", Report(at=7.0))
    assert generations.of(HERE).standing is standing
    assert generations.of(HERE).report == WHOLE
    assert generations.of("b").standing is Standing.SERVING
    generations.reports("c", Report(at=8.0))
    assert generations.of(HERE).standing is standing
    assert generations.of("b").standing is Standing.GONE


@pytest.mark.parametrize("standing", ON_ITS_WAY_OUT)
def test_one_that_was_handed_over_and_is_dead_is_gone(generations, standing):
    generations.stands(DEAD, standing)
    generations.reports("b", WHOLE)
    assert generations.of(DEAD).standing is Standing.GONE


@pytest.mark.parametrize("standing", [Standing.STARTING, Standing.SERVING, Standing.GONE])
def test_one_that_was_not_handed_over_is_gone_when_another_one_reports(generations, standing):
    generations.stands(HERE, standing)
    generations.reports("b", WHOLE)
    assert generations.of(HERE).standing is Standing.GONE


@pytest.mark.parametrize("standing", ON_ITS_WAY_OUT)
def test_one_that_serves_again_is_as_any_other(generations, standing):
    generations.stands(HERE, standing)
    generations.reports(HERE, WHOLE)
    assert generations.of(HERE).standing is Standing.SERVING


def test_many_that_come_and_go_do_not_push_out_one_that_leaves(generations):
    generations.stands(HERE, Standing.LEAVING)
    for number in range(60):
        generations.reports(str(number), Report(at=1.0))
    assert generations.leaving() == [HERE]


def test_in_a_handover_the_earlier_one_serves_until_the_next_one_has_reported(generations):
    generations.reports("a", WHOLE)
    generations.stands("a", Standing.OVERLAPPING)
    assert generations.serving().process == "a"
    assert generations.report() == WHOLE
    generations.begins("b")
    assert generations.serving().process == "a"
    assert generations.of("b").standing is Standing.STARTING
    generations.reports("b", Report(at=7.0))
    assert generations.serving().process == "b"
    assert generations.report() == Report(at=7.0, follows=True)


def test_one_that_serves_comes_before_one_that_is_handed_over_whichever_began_last(generations):
    generations.begins("a")
    generations.stands("b", Standing.OVERLAPPING)
    generations.stands("a", Standing.SERVING)
    assert generations.serving().process == "a"


@pytest.mark.parametrize("standing", [Standing.LEAVING, Standing.GONE, Standing.STARTING])
def test_one_that_takes_no_job_does_not_serve(generations, standing):
    generations.reports("a", WHOLE)
    generations.stands("a", standing)
    assert generations.serving() is None
    assert generations.report() is None


def test_a_new_standing_changes_nothing_else(generations):
    generations.reports("a", WHOLE)
    generations.notes_masters("a", (("m", True),))
    generations.stands("a", Standing.LEAVING)
    found = generations.of("a")
    assert (found.standing, found.report) == (Standing.LEAVING, WHOLE)
    assert found.masters == (("m", True),)


def test_those_that_are_handed_over_are_known_while_they_are_there(generations):
    for process in (HERE, ALSO_HERE, DEAD):
        generations.stands(process, Standing.OVERLAPPING)
    assert generations.overlapping() == [HERE, ALSO_HERE]
    assert generations.leaving() == []
    for process in (HERE, DEAD):
        generations.stands(process, Standing.LEAVING)
    assert generations.overlapping() == [ALSO_HERE]
    assert generations.leaving() == [HERE]
    generations.stands(HERE, Standing.GONE)
    assert generations.leaving() == []


def test_those_that_began_later_and_are_there_come_after_it(generations):
    generations.begins(ALSO_HERE)
    generations.stands("a", Standing.OVERLAPPING)
    assert generations.successors("a") == [], "it began before"
    generations.begins(DEAD)
    assert generations.successors("a") == [], "it is not there"
    generations.begins(HERE)
    assert generations.successors("a") == [HERE]
    generations.reports(HERE, WHOLE)
    assert generations.successors("a") == [HERE]
    assert generations.successors(HERE) == []
    assert generations.successors("never heard of") == []


def test_one_that_claims_jobs_comes_after_it_though_it_is_handed_over_itself(generations):
    generations.stands("a", Standing.OVERLAPPING)
    generations.begins(HERE)
    generations.stands(HERE, Standing.OVERLAPPING)
    assert generations.successors("a") == [HERE]


@pytest.mark.parametrize("standing", Standing)
def test_one_that_is_known_does_not_begin_anew(generations, standing):
    generations.reports("a", WHOLE)
    generations.stands("a", standing)
    generations.begins("a")
    assert generations.of("a").standing is standing
    assert generations.of("a").report == WHOLE


@pytest.mark.parametrize("standing", [Standing.LEAVING, Standing.GONE])
def test_one_that_takes_no_job_comes_after_no_other(generations, standing):
    generations.stands("a", Standing.OVERLAPPING)
    generations.begins(HERE)
    generations.stands(HERE, standing)
    assert generations.successors("a") == []


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
