"""
Runs with the hooks end like runs with plain Salt.

Each example is run twice in this process: with the hooks taken out, and with them in.
Another test is for conditions (``unless``...), for which Salt loads every module.
"""

import contextlib
import copy
import itertools
import logging
import os

import pytest
import salt.state
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.minion import AVAILABLE, INSTALLED, Minion, hooked

OWN = "own"
REQUISITES = [
    *("require", "watch", "onchanges", "onfail", "prereq", "listen"),
    *("require_in", "watch_in", "onchanges_in", "listen_in", "prereq_in"),
    *("require_any", "watch_any", "onfail_any", "onfail_all", "onchanges_any", "use"),
]
EXAMPLES = 15
SOAK_EXAMPLES = 2000


def rarely(strategy):
    return st.one_of(*[st.none()] * 7, strategy)


@st.composite
def runs_of_states(draw, own):
    """Return high data; with *own*, one of the states is about the minion's own package."""
    number = draw(st.integers(1, 7))
    ids = [f"s{index}" for index in range(number)]
    place = draw(st.integers(0, number)) if own else None
    if own:
        ids.insert(place, OWN)
    high = {}
    for index, name in enumerate(ids):
        requisites = draw(
            st.lists(st.tuples(st.sampled_from(REQUISITES), st.sampled_from(ids)), max_size=2)
        )
        arguments = {}
        for kind, target in requisites:
            module = "pkg" if target == OWN else "note"
            arguments.setdefault(kind, []).append({module: target})
        extra = {
            "order": draw(rarely(st.sampled_from([1, 2, "first", "last"]))),
            "failhard": draw(rarely(st.just(True))),
            "retry": draw(rarely(st.just({"attempts": 2, "interval": 0}))),
            "parallel": draw(rarely(st.just(True))),
            "beacon": draw(rarely(st.just(True))),
            "names": draw(rarely(st.just([f"{name}a", f"{name}b"]))),
        }
        if name == OWN:
            function = ["pkg", "latest", {"name": "salt-minion"}]
            # One state, which succeeds: other tests show what its failure means.
            for key in ("names", "beacon"):
                extra[key] = None
        else:
            function = ["note", "that"]
            arguments["result"] = draw(st.sampled_from([True, True, True, False]))
            arguments["changes"] = draw(st.booleans())
        high[name] = {
            function[0]: [
                *function[1:],
                *({key: value} for key, value in arguments.items()),
                *({key: value} for key, value in extra.items() if value is not None),
                *([{"order": 10000 + index}] if extra["order"] is None else []),
            ],
            "__sls__": "it",
            "__env__": "base",
        }
    if any({"failhard": True} in arguments for arguments in map(_arguments, high.values())):
        # What still runs beside a run that was broken off is a matter of chance.
        for arguments in map(_arguments, high.values()):
            arguments[:] = [found for found in arguments if found != {"parallel": True}]
    return high


def _arguments(state):
    return state.get("note") or state["pkg"]


@pytest.fixture(scope="module")
def one_minion(tmp_path_factory):
    return Minion(tmp_path_factory.mktemp("equivalence"))


def outcome(minion, high, *, test, with_hooks):
    """Run it; return the results, the IDs in the order in which they ran, and the journal."""
    minion.database.create(INSTALLED, AVAILABLE)
    minion.database.journal_path.unlink(missing_ok=True)
    minion.opts["test"] = test
    with hooked(minion) if with_hooks else contextlib.nullcontext():
        try:
            results = salt.state.State(minion.opts).call_high(copy.deepcopy(high))
        except (AttributeError, KeyError, NameError, RecursionError, TypeError) as err:
            # Some combinations are too much for Salt; then they are for us.
            results = [type(err).__name__, str(err)]
        minion.end_job()
    if isinstance(results, list):
        return results, [], []
    # Salt may leave its own mark of a run that was broken off among the results.
    marks = {tag: mark for tag, mark in results.items() if not isinstance(mark, dict)}
    results = {tag: result for tag, result in results.items() if tag not in marks}
    order = sorted(results, key=lambda tag: results[tag]["__run_num__"])
    volatile = ("start_time", "duration", "__run_num__")
    plain = marks | {
        tag: {key: value for key, value in result.items() if key not in volatile}
        for tag, result in results.items()
    }
    return plain, order, minion.journal("note", "watch", "beacon", "install", "upgrade")


def races(high):
    """Tell whether states run side by side: then their order is a matter of chance."""
    return any("parallel" in str(state) for state in high.values())


def is_own(tag):
    return tag.split("_|-")[0] == "pkg"


def check_without_own_packages(minion, high, test):
    plain = outcome(minion, high, test=test, with_hooks=False)
    ours = outcome(minion, high, test=test, with_hooks=True)
    if races(high):
        plain, ours = ((found[0], sorted(found[2])) for found in (plain, ours))
    assert ours == plain
    assert minion.record() is None


def check_with_an_own_package(minion, high, test):
    plain, plain_order, _ = outcome(minion, high, test=test, with_hooks=False)
    ours, our_order, journal = outcome(minion, high, test=test, with_hooks=True)
    if isinstance(plain, list):
        assert ours == plain
        return
    others = [tag for tag in plain if not is_own(tag)]
    assert {tag: ours.get(tag) for tag in others} == {tag: plain[tag] for tag in others}
    assert set(ours) == set(plain)
    if not races(high):
        assert list(itertools.filterfalse(is_own, our_order)) == list(
            itertools.filterfalse(is_own, plain_order)
        )
    for tag in itertools.filterfalse(lambda tag: not is_own(tag), plain):
        if "aborted" in ours[tag]["comment"]:
            assert ours[tag]["result"] is False
            assert ours[tag]["changes"] == {}
            assert minion.database.installed == INSTALLED
        else:
            assert ours[tag]["result"] == plain[tag]["result"]
            assert ours[tag]["changes"] == plain[tag]["changes"]
            # At the end it asks for the version that was taken at its position.
            said = plain[tag]["comment"].replace("successfully installed/upgraded", "{}")
            assert ours[tag]["comment"].startswith(said.format("installed/updated"))
    installs = [index for index, entry in enumerate(journal) if entry[0] == "install"]
    assert installs in ([], [len(journal) - 1])


RELAXED = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
    "phases": [Phase.explicit, Phase.reuse, Phase.generate],
}


@settings(max_examples=EXAMPLES, **RELAXED)
@given(high=runs_of_states(own=False), test=st.sampled_from([False, False, True]))
def test_without_own_packages_nothing_differs(one_minion, high, test):
    check_without_own_packages(one_minion, high, test)


@settings(max_examples=EXAMPLES, **RELAXED)
@given(high=runs_of_states(own=True), test=st.sampled_from([False, False, False, True]))
def test_with_an_own_package_it_is_last_and_nothing_else_differs(one_minion, high, test):
    check_with_an_own_package(one_minion, high, test)


@pytest.mark.soak
@pytest.mark.skipif("SAFEUPDATE_SOAK" not in os.environ, reason="part of './dev soak'")
class TestInFull:
    @pytest.fixture(autouse=True)
    def quiet(self):
        """Pytest would keep each line that Salt logs in 8,000 runs, which takes gigabytes."""
        logging.disable(logging.WARNING)
        yield
        logging.disable(logging.NOTSET)

    @settings(max_examples=SOAK_EXAMPLES, **RELAXED)
    @given(high=runs_of_states(own=False), test=st.booleans())
    def test_without_own_packages_nothing_differs(self, one_minion, high, test):
        check_without_own_packages(one_minion, high, test)

    @settings(max_examples=SOAK_EXAMPLES, **RELAXED)
    @given(high=runs_of_states(own=True), test=st.booleans())
    def test_with_an_own_package_it_is_last(self, one_minion, high, test):
        check_with_an_own_package(one_minion, high, test)
