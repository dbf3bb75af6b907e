"""An administrator's drain: it has an end, whoever still runs."""

import json
import os

import pytest

from saltext_safeupdate.core.host import drained, processes


@pytest.fixture
def run_dir(tmp_path):
    return str(tmp_path / "run")


def _write(run_dir, **changes):
    drained.begin(run_dir, 60, "why")
    path = os.path.join(run_dir, "drained")
    with open(path, encoding="utf-8") as file:
        told = json.load(file)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**told, **changes}, file)


def test_it_begins_and_ends(run_dir):
    assert drained.look(run_dir) is None
    drained.begin(run_dir, 60, "why")
    found = drained.look(run_dir)
    assert (0 < found.left <= 60, found.reason) == (True, "why")
    assert os.stat(os.path.join(run_dir, "drained")).st_mode & 0o777 == 0o600
    assert (drained.end(run_dir), drained.end(run_dir)) == (True, False)
    assert drained.look(run_dir) is None


def test_a_pipe_in_its_place_holds_nothing_and_nobody(run_dir):
    """The directory may be another user's."""
    os.mkdir(run_dir)
    path = os.path.join(run_dir, "drained")
    os.mkfifo(path)
    assert drained.look(run_dir) is None
    # Somebody has it open, and writes nothing.
    fd = os.open(path, os.O_RDWR)
    assert drained.look(run_dir) is None
    os.close(fd)


def test_it_ends_by_itself_without_anybody(run_dir, monkeypatch):
    drained.begin(run_dir, 60, "")
    now = processes.since_boot()
    monkeypatch.setattr(processes, "since_boot", lambda: now + 61)
    assert drained.look(run_dir) is None
    assert drained.end(run_dir) is False


def test_no_clock_that_is_set_makes_it_longer_and_none_makes_it_endless(run_dir):
    drained.begin(run_dir, 10 * drained.MOST, "")
    assert drained.look(run_dir).left <= drained.MOST
    _write(run_dir, until=processes.since_boot() + 2 * drained.MOST)
    assert drained.look(run_dir) is None


def test_another_boot_ends_it(run_dir):
    _write(run_dir, boot="the boot before")
    assert drained.look(run_dir) is None


@pytest.mark.parametrize(
    "changes",
    [{"until": "soon"}, {"until": None}, {"until": float("nan")}, {"until": float("inf")}],
)
def test_what_cannot_be_read_holds_nothing(run_dir, changes):
    _write(run_dir, **changes)
    assert drained.look(run_dir) is None


@pytest.mark.parametrize("text", ["", "[]", "5", "{", '{"until": 9}'])
def test_what_is_no_drain_holds_nothing(run_dir, text):
    drained.begin(run_dir, 60, "")
    with open(os.path.join(run_dir, "drained"), "w", encoding="utf-8") as file:
        file.write(text)
    assert drained.look(run_dir) is None
