"""A state run that was interrupted, resumed by Salt's real state engine."""

import json

import pytest

from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.ordering.recording import NO_TIME
from tests.support.minion import Minion, hooked


class Run:
    """The attempts of one job, with a trace of what each of them did."""

    def __init__(self, minion, path):
        self.minion = minion
        self.settings = minion.host.settings
        self.ledger = Ledger(self.settings.database)
        self.trace = path / "trace"

    def attempt(self, number, content, **kwargs):
        self.trace.write_text("")
        lock = locks.Lock(self.settings.run_dir, "jobs")
        assert lock.try_shared()
        current.begin(current.Job(jid="1", lock=lock, key="1", attempt=number))
        return self.minion.apply(content, **kwargs)

    def interrupt_after(self, *ids):
        """Forget what came after these states, as if the process had ended there."""
        with self.ledger.transaction() as db:
            for (tag,) in db.execute("SELECT tag FROM chunks").fetchall():
                if tag.split("_|-")[1] not in ids:
                    db.execute("DELETE FROM chunks WHERE tag = ?", (tag,))

    def done(self):
        return self.trace.read_text().split()

    def cmd(self, word, *more, then="true"):
        return {"cmd.run": [{"name": f"echo {word} >> {self.trace}; {then}"}, *more]}


@pytest.fixture
def no_time():
    return NO_TIME


@pytest.fixture
def run(tmp_path, no_time):
    with hooked(Minion(tmp_path), no_time=no_time) as minion:
        yield Run(minion, tmp_path)


def test_finished_states_give_their_result_and_the_rest_runs(run):
    content = {name: run.cmd(name) for name in ("one", "two", "three")}
    first = run.attempt(1, content)
    assert run.done() == ["one", "two", "three"]
    run.interrupt_after("one", "two")
    second = run.attempt(2, content)
    assert run.done() == ["three"]
    assert [name for name in second if second[name].get("__resumed__")] == ["one", "two"]
    for name in ("one", "two"):
        assert second[name]["start_time"] == first[name]["start_time"]
        assert second[name]["duration"] == first[name]["duration"]
        assert second[name]["changes"] == first[name]["changes"]
        assert "before the minion was restarted" in second[name]["comment"]
    assert sorted(ret["__run_num__"] for ret in second.values()) == [0, 1, 2]
    json.dumps(second)


def test_requisites_see_the_recorded_changes(run):
    content = {
        "file": {"file.managed": [{"name": str(run.minion.path / "f")}, {"contents": "x"}]},
        "watcher": run.cmd("watched", {"onchanges": [{"file": "file"}]}),
        "listener": run.cmd("listened", {"listen": [{"file": "file"}]}),
    }
    run.attempt(1, content)
    assert sorted(run.done()) == ["listened", "listened", "watched"]
    run.interrupt_after("file")
    run.attempt(2, content)
    assert sorted(run.done()) == ["listened", "listened", "watched"]


def test_a_prereq_sees_that_its_state_was_going_to_change(run):
    path = run.minion.path / "f"
    content = {
        "before": run.cmd("before", {"prereq": [{"file": "file"}]}),
        "file": {"file.managed": [{"name": str(path)}, {"contents": "x"}]},
        "last": run.cmd("last"),
    }
    run.attempt(1, content)
    assert run.done() == ["before", "last"]
    run.interrupt_after("before", "file")
    second = run.attempt(2, content)
    assert run.done() == ["last"]
    assert second["before"]["changes"]
    assert second["file"]["changes"]


def test_a_state_that_has_changed_runs_again_and_says_so(run):
    run.attempt(1, {"one": run.cmd("one"), "two": run.cmd("two", {"cwd": "/"})})
    run.interrupt_after("one", "two")
    second = run.attempt(2, {"one": run.cmd("one"), "two": run.cmd("two", {"cwd": "/tmp"})})
    assert run.done() == ["two"]
    assert "has changed since then" in second["two"]["comment"]
    assert "__resumed__" not in second["two"]


def test_an_sls_that_grew_runs_what_is_new(run):
    run.attempt(1, {"two": run.cmd("two")})
    second = run.attempt(2, {"one": run.cmd("one"), "two": run.cmd("two")})
    assert run.done() == ["one"]
    assert list(second) == ["one", "two"]


def test_a_state_that_failed_runs_again(run):
    content = {"bad": run.cmd("bad", then="false"), "good": run.cmd("good")}
    run.attempt(1, content)
    run.attempt(2, content)
    assert run.done() == ["bad"]


def test_a_state_that_must_not_run_twice_does_not(run):
    content = {"once": run.cmd("once", {"safeupdate_rerun": False}), "more": run.cmd("more")}
    first = run.attempt(1, content)
    assert "warnings" not in first["once"]
    with run.ledger.transaction() as db:
        db.execute("UPDATE chunks SET result = x'' WHERE tag LIKE '%once%'")
    run.interrupt_after("once")
    second = run.attempt(2, content)
    assert run.done() == ["more"]
    assert second["once"]["result"] is False
    assert "not run again" in second["once"]["comment"]


def test_such_a_state_that_had_finished_gives_its_result_even_a_failure(run):
    content = {"once": run.cmd("once", {"safeupdate_rerun": False}, then="false")}
    run.attempt(1, content)
    second = run.attempt(2, content)
    assert run.done() == []
    assert second["once"]["result"] is False
    assert second["once"]["__resumed__"]


@pytest.mark.parametrize(("no_time", "recorded"), [(60_000, {"one"}), (0, {"nop", "one"})])
def test_what_changed_nothing_in_no_time_is_called_again(run, recorded):
    content = {"nop": {"test.nop": []}, "one": run.cmd("one")}
    run.attempt(1, content)
    assert {tag.split("_|-")[1] for tag in run.ledger.chunks("1")} == recorded
    second = run.attempt(2, content)
    assert run.done() == []
    assert {name for name in second if second[name].get("__resumed__")} == recorded


def test_in_test_mode_nothing_is_recorded(run):
    content = {"one": run.cmd("one")}
    run.attempt(1, content, test=True)
    assert run.ledger.chunks("1") == {}


def test_the_first_attempt_of_another_job_runs_everything(run):
    content = {"one": run.cmd("one")}
    run.attempt(1, content)
    run.attempt(1, content)
    assert run.done() == ["one"]


def test_a_broken_database_stops_no_run(run, monkeypatch, caplog):
    (run.minion.path / "state").mkdir(exist_ok=True)
    monkeypatch.setattr(Ledger, "_open", _full)
    assert run.attempt(1, {"one": run.cmd("one"), "two": run.cmd("two")})["two"]["result"]
    assert run.done() == ["one", "two"]
    assert caplog.text.count("is not recorded") == 1


def _full(self, synchronous):
    import sqlite3

    raise sqlite3.OperationalError("database or disk is full")
