"""Whatever a minion answers: no engine and no runner ends by it, and the others are served."""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saltext_safeupdate.fleet import inventory
from saltext_safeupdate.master.stocktaking import Inventory
from tests.functional.master.fleet_site import Fleet, Master, Time
from tests.unit.fleet.world import NEW, OLD
from tests.unit.master.test_notes import ANYTHING
from tests.unit.master.test_replies import SHAPES

# What a minion says of itself in one answer or another.
WORDS = (
    *("version", "installed", "running", "extension", "phase", "findings", "steps", "number"),
    *("question", "refused", "again", "staged", "phases", "reason", "waits_for", "quarantined"),
    *("problems", "minion", "way", "build", "last_result", "result"),
)
NAMES = st.sampled_from(
    [OLD, NEW, "idle", "committed", "done", "failed", "watching", "\x1b[2J", ""]
)
FINDING = st.dictionaries(st.sampled_from(["code", "blocking", "problem", "fix"]), ANYTHING | NAMES)
SAID = ANYTHING | NAMES | st.lists(FINDING | ANYTHING, max_size=3) | st.floats()
ANSWERS = ANYTHING | st.dictionaries(st.sampled_from(WORDS), SAID, max_size=12)
FUNCTIONS = ("report", "plan", "request", "withdraw", "prefetch", "restart", "status")
SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))


def _draws(usual):
    """Have a test take that many draws in every run, and a thousand in the soak."""
    return "count", [usual, pytest.param(1000, marks=pytest.mark.soak)]


class Liars(Fleet):
    """A fleet in which ``mallory`` answers what it likes, by function."""

    answers, good = {}, True

    def hears(self, name, fun, arg, now):
        found = super().hears(name, fun, arg, now)
        if name == "mallory":
            return self.answers.get(fun.partition(".")[2]), self.good
        return found


@pytest.fixture
def master(tmp_path):
    fleet = Liars(["honest", "mallory"])
    made = Master(tmp_path, tmp_path / "cache", fleet, Time())
    yield made
    made.close()


@pytest.mark.parametrize(*_draws(6))
def test_a_plan_and_an_inventory_are_made_whatever_one_of_them_says(master, count):
    kept = Inventory(
        master.store(),
        lambda minions, fun, given, timeout: master.ask(None, minions, fun, given or (), timeout),
        lambda: 1,
        master=NEW,
        clock=lambda: master.time.now,
    )

    @settings(SETTINGS, max_examples=count)
    @given(st.fixed_dictionaries(dict.fromkeys(FUNCTIONS, ANSWERS)), st.booleans())
    def said(answers, good):
        master.fleet.answers, master.fleet.good = answers, good
        found = master.plan(exclude=[])
        assert "honest" in found.minions
        json.dumps(master.check(found))
        both = ["honest", "mallory"]
        for told in (kept.versions(both, 5.0), kept.check(both, 5.0)):
            json.dumps(told)
            assert all(line.isprintable() for line in inventory.lines(told, details=True))

    said()


@pytest.mark.parametrize(*_draws(3))
def test_a_rollout_ends_whatever_one_of_them_says(master, count):
    @settings(SETTINGS, max_examples=count)
    @given(st.fixed_dictionaries(dict.fromkeys(FUNCTIONS, ANSWERS)), st.booleans())
    def said(answers, good):
        master.fleet.answers = {"report": {"version": OLD}, "plan": {"findings": []}}
        master.fleet.hosts["honest"].version = OLD
        found = master.plan(canaries=0, minion_timeout=60)
        assert set(found.minions) >= {"mallory"}
        master.begin(found)
        master.fleet.answers, master.fleet.good = answers, good
        for _ in range(5):
            master.tick(5.0)
        master.order("abort", found.id, why="enough")
        master.until(found.id, "aborted", "finished", "stopped")

    said()


@pytest.mark.parametrize(*_draws(15))
def test_bytes_in_the_pipe_end_no_engine(master, count):
    """An engine that is started anew may read the end of what an earlier one has begun."""

    @settings(SETTINGS, max_examples=count)
    @given(st.lists(st.binary(max_size=60) | SHAPES.map(json.dumps).map(str.encode), max_size=5))
    def there(lines):
        with os.fdopen(os.dup(master.answers._write), "wb") as pipe:
            pipe.writelines(line + b"\n" for line in lines)
        asked = master.ask(None, ["honest"], "safeupdate.report", (), 5.0)
        assert list(asked) == ["honest"]

    there()
