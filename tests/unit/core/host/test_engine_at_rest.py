"""What the file of the engine's lock says while no engine runs."""

import contextlib
import os

import pytest

from saltext_safeupdate.core.host import engine_at_rest, locks, processes
from saltext_safeupdate.core.host.engine_at_rest import Rest


def _write(run, **changes):
    now = processes.since_boot()
    rest = Rest(processes.me(), "abc", now, now)._replace(**changes)
    with contextlib.closing(locks.Lock(str(run), "engine")) as lock:
        rest.write(lock)
    return rest


def test_what_is_written_is_read(tmp_path):
    assert engine_at_rest.of(str(tmp_path)) is None
    rest = _write(tmp_path)
    found = engine_at_rest.of(str(tmp_path))
    assert (found.process, found.signs) == (rest.process, rest.signs)
    assert found.since == pytest.approx(rest.since, abs=0.01)
    assert engine_at_rest.is_there(str(tmp_path))
    # One that says less takes the place of all of it.
    _write(tmp_path, signs="1")
    assert engine_at_rest.of(str(tmp_path)).signs == "1"


def test_an_engine_that_acts_does_not_rest(tmp_path):
    _write(tmp_path)
    with contextlib.closing(locks.Lock(str(tmp_path), "engine")) as lock:
        assert lock.try_exclusive()
        engine_at_rest.end(lock)
        assert engine_at_rest.of(str(tmp_path)) is None
        assert engine_at_rest.is_there(str(tmp_path))
    assert not engine_at_rest.is_there(str(tmp_path))


@pytest.mark.parametrize(
    "said", ["", "rests", "rests a b c d\n", "rests a b 1.0\n", "\0\0", "other a b 1.0 1.0\n"]
)
def test_anything_else_is_no_rest(tmp_path, said):
    locks.Lock(str(tmp_path), "engine").close()
    (tmp_path / "engine.lock").write_text(said)
    assert engine_at_rest.of(str(tmp_path)) is None
    assert not engine_at_rest.is_there(str(tmp_path))


@pytest.mark.parametrize("process", ["mine", "another"])
def test_a_minion_that_is_handed_over_looks_no_more(tmp_path, process):
    rest = _write(tmp_path)
    engine_at_rest.forget(str(tmp_path), rest.process if process == "mine" else "another")
    assert engine_at_rest.is_there(str(tmp_path)) is (process != "mine")


@pytest.mark.parametrize("process", ["another boot:1:1", f"{processes.boot()}:{os.getpid()}:1"])
def test_that_of_a_minion_that_has_ended_is_over(tmp_path, process):
    _write(tmp_path, process=process)
    assert engine_at_rest.of(str(tmp_path)) is None


@pytest.mark.parametrize(("ago", "there"), [(0, True), (40, True), (50, False), (-50, False)])
def test_a_minion_that_looks_no_more_has_lost_its_engine(tmp_path, ago, there):
    _write(tmp_path, looked=processes.since_boot() - ago)
    assert engine_at_rest.is_looked_after(str(tmp_path)) is there
    assert engine_at_rest.is_there(str(tmp_path)) is there
