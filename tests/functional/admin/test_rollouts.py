"""A rollout's way with one minion: real loaders, a real record, and a real supervisor."""

import os

import pytest
import salt.version

from saltext_safeupdate import hooks
from saltext_safeupdate.this_host import Host
from tests.support.minion import Minion, hooked
from tests.support.waiting import wait_for

N = 1_780_000_000_000_000


@pytest.fixture
def minion(tmp_path, monkeypatch):
    made = Minion(tmp_path)
    made.opts["safeupdate"] |= {
        "steps_source": "salt://steps",
        "registry_dir": str(tmp_path / "registry"),
    }
    # No tree is replaced, so none has to be kept.
    monkeypatch.setattr(Host, "roots", lambda self: ())
    made.host = Host(made.opts)
    steps = tmp_path / "roots" / "steps"
    steps.mkdir()
    (steps / "2-note").write_text(f'#!/bin/sh\necho "$1 $2" >> {tmp_path}/ran\n')
    with hooked(made) as found:
        yield found


def test_from_the_download_to_the_commit(minion, tmp_path):
    told = minion.call("safeupdate.report", question=5)
    assert (told["question"], told["number"], told["phase"]) == (5, 0, "idle")
    assert (told["installed"], told["running"]) == ("1", str(salt.version.__version__))

    minion.call("safeupdate.prefetch", version="2")
    wait_for(lambda: minion.call("safeupdate.report")["staged"] == "done", "the download")
    assert not (tmp_path / "ran").exists()
    assert minion.call("safeupdate.plan", "2")["steps"] == ["2-note"]

    # Nothing of it comes from the master any more.
    os.rename(tmp_path / "roots" / "steps", tmp_path / "away")
    refused = minion.call("safeupdate.request", str(N), version="2")
    assert "salt://steps" in refused["refused"]
    assert refused["number"] == 0
    os.rename(tmp_path / "away", tmp_path / "roots" / "steps")

    minion.call("safeupdate.request", str(N), version="2", question=6)
    told = minion.call("safeupdate.report")
    assert (told["number"], told["phase"], told["installed"]) == (N, "committed", "2")
    assert set(told["phases"]) >= {"staging", "installing", "stepping", "watching"}
    assert (tmp_path / "ran").read_text() == "1 2\n"
    assert minion.call("safeupdate.request", N, version="2")["phase"] == "committed"
    assert minion.call("safeupdate.request", N - 1, version="1")["refused"]
    assert minion.call("safeupdate.withdraw", N + 1)["number"] == N + 1
    assert len(minion.store.updates()) == 1


def test_drained_and_not_any_more(minion, monkeypatch):
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getppid()})
    assert minion.call("safeupdate.drain", timeout=60, reason="disk")["draining"] is True
    assert minion.call("safeupdate.status")["drained"]["reason"] == "disk"
    told = minion.call("safeupdate.request", N, version="2")
    assert (told["again"], told["number"]) == (True, 0)
    assert minion.call("safeupdate.undrain")["draining"] is False
    assert "drained" not in minion.call("safeupdate.status")
