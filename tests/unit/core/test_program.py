"""The supervisor as a program."""

import json
import os
import sys

import pytest

from saltext_safeupdate.core import program
from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.generations import own_tree
from saltext_safeupdate.core.jobs.stop_guard import StopGuard
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.core.slots.store import Slots
from tests.support import builds
from tests.support.simulated import FakeServices


def test_whether_the_minion_is_handed_over_is_asked_of_the_guard_when_it_matters(
    tmp_path, monkeypatch
):
    settings = Settings(state_dir=str(tmp_path / "state"), run_dir=str(tmp_path / "run"))
    told = []
    monkeypatch.setattr(StopGuard, "obstacle", lambda guard: told[-1])
    context = program.context(settings, FakeServices(), None)
    try:
        for each in ("salt-minion.service has 'PrivateTmp='", ""):
            told.append(each)
            assert context.obstacle_to_handover() == each
    finally:
        for lock in vars(context.locks).values():
            lock.close()


@pytest.fixture
def slot(tmp_path):
    """A slot, and its interpreter."""
    (tmp_path / "source").mkdir()
    path = builds.tarball(tmp_path / "source" / "salt.tar.xz", builds.onedir("3008.3"))
    manifest = builds.parsed(path, version="3008.3", name="salt-3008.3")
    slots = Slots(str(tmp_path / "slots"))
    return slots, slots.stage(manifest, {"salt.tar.xz": path})


def _run(tmp_path, monkeypatch, ended):
    """Run the program with a supervisor that does nothing; *ended* is called meanwhile."""
    state, run = str(tmp_path / "state"), str(tmp_path / "run")
    path = tmp_path / "settings.json"
    told = {"state_dir": state, "run_dir": run, "slots_dir": str(tmp_path / "slots")}
    path.write_text(json.dumps(told))
    monkeypatch.setattr(program.logging, "basicConfig", lambda **kwargs: None)
    monkeypatch.setattr(program.init_system, "detect", FakeServices)
    monkeypatch.setattr(program.wiring, "package_manager", lambda: None)
    monkeypatch.setattr(program.Supervisor, "run", lambda it: ended())
    assert program.main([str(path)]) == 0


def test_a_supervisor_keeps_the_slot_whose_interpreter_it_runs(tmp_path, monkeypatch, slot):
    slots, made = slot
    monkeypatch.setattr(sys, "executable", f"{made.tree}/bin/python3.11")

    def ended():
        assert slots.prune(0) == []
        with pytest.raises(InputError, match="still runs from it"):
            slots.forget(made.ident)

    _run(tmp_path, monkeypatch, ended)
    while own_tree._held:
        os.close(own_tree._held.pop())
    assert slots.prune(0) == [made.ident], "it has ended"


def test_one_of_another_interpreter_keeps_none(tmp_path, monkeypatch, slot):
    slots, made = slot
    _run(tmp_path, monkeypatch, lambda: slots.forget(made.ident))
    assert slots.slots() == []
