"""What an answer of a minion says, of whatever shape it is."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saltext_safeupdate.fleet import judge
from saltext_safeupdate.fleet.judge import Report
from saltext_safeupdate.fleet.rollout import Minion, Step
from tests.unit.master.test_notes import ANYTHING


def test_a_report_is_read_as_it_is():
    said = {"number": 5, "phase": "staging", "version": "3008.3", "phases": {"checking": 2}}
    assert judge.read("a", 3, {**said, "question": 99, "again": True, "other": 1}) == Report(
        minion="a",
        question=3,
        number=5,
        phase="staging",
        version="3008.3",
        phases={"checking": 2.0},
        again=True,
    )


FIELDS = ("number", "phase", "phases", "version", "extension", "reason", "refused", "staged")


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([*FIELDS, "again", "question"]), ANYTHING) | ANYTHING)
def test_an_answer_of_any_shape_is_a_report_of_the_right_types_or_none(answer):
    found = judge.read("a", 3, answer)
    if not isinstance(answer, dict):
        assert found is None
        return
    assert (found.minion, found.question) == ("a", 3)
    assert type(found.number) is int
    assert found.again in (True, False)
    assert found.staged in ("", "done", "failed")
    texts = (found.phase, found.version, found.extension, found.reason, found.refused)
    assert all(isinstance(text, str) and len(text) <= 500 for text in texts)
    assert all(type(seconds) is float for seconds in found.phases.values())


@pytest.mark.parametrize(
    ("runs", "installed", "wanted", "step"),
    [
        ("3008.3", "", "3008.3", Step.DONE),
        ("3008.3", "", "3008.3-1", Step.DONE),
        ("3008.3", "1:3008.3-1", "3008.3", Step.DONE),
        ("3008.3", "3008.3-1", "3008.3-1", Step.DONE),
        ("3008.3", "3008.3-1", "1:3008.3-2", Step.FAILED),
        ("3007.15", "3008.3-1", "3008.3", Step.FAILED),
        ("3008.3", "3007.15", "3008.3", Step.FAILED),
        ("3008.3", "", "3008.30", Step.FAILED),
        ("", "", "3008.3", Step.FAILED),
    ],
)
def test_done_is_who_runs_what_it_was_to_run(runs, installed, wanted, step):
    minion = Minion(step=Step.UPDATING, number=7)
    report = Report(
        minion="a", question=1, number=7, phase="committed", version=runs, installed=installed
    )
    judge.heed(minion, report, (wanted, ""))
    assert minion.step is step
    assert (minion.reason == "") is (step is Step.DONE)
