"""Upgrade steps: that they run in order and once, and what a failure leads to."""

import os
import pathlib

import pytest

from saltext_safeupdate.core.prepare.upgrade_steps import Steps
from saltext_safeupdate.core.record.facts import STEPS_SINCE
from saltext_safeupdate.core.record.phase import Phase
from tests.support.simulated import Killed

from ..conftest import NEW, OLD


def _installed(host):
    way_back = host.secured()
    host.packages.versions.update(NEW)
    return host.record(Phase.DELIVERING, versions_to=dict(NEW), way_back=way_back)


def _ran(host):
    """Return the steps that were called, with their arguments."""
    return [
        (os.path.basename(argv[0]), *argv[1:])
        for argv in host.commands
        if argv[0].startswith(host.settings.steps_dir)
    ]


def test_they_run_before_the_restart_while_no_job_can(host):
    host.steps("3007-b", "3007-a")
    _installed(host)
    seen = []
    host.services.report = lambda: (seen.append(_ran(host)), host.report())
    host.supervise()
    versions = (OLD["salt"], NEW["salt"])
    assert seen == [[("3007-a", *versions), ("3007-b", *versions)]]
    assert host.last.phase is Phase.COMMITTED
    assert host.last.progress.steps == ("3007-a", "3007-b")
    assert _ran(host) == seen[0], "and not again"
    host.assert_at_peace()


def test_one_that_fails_is_the_last_and_the_update_is_rolled_back(host):
    host.steps("3007-a", "3007-b", "3007-c")
    host.failing = {os.path.join(host.settings.steps_dir, "3007-b")}
    _installed(host)
    host.supervise()
    assert [name for name, *_ in _ran(host)] == ["3007-a", "3007-b"]
    assert host.last.phase is Phase.ROLLED_BACK
    assert "The upgrade step failed" in host.last.reason
    assert "made to fail" in host.last.reason
    assert host.packages.versions == OLD
    host.assert_at_peace()


def test_without_a_way_back_the_update_goes_on_and_says_so(host):
    host.steps("3007-a")
    host.failing = {os.path.join(host.settings.steps_dir, "3007-a")}
    host.packages.versions.update(NEW)
    host.record(Phase.DELIVERING, versions_to=dict(NEW))
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert "The upgrade step failed" in host.last.reason


@pytest.mark.parametrize("kill_at", [1, 2])
@pytest.mark.parametrize("when", ["before", "after"])
def test_what_has_run_does_not_run_again_after_a_crash(host, kill_at, when):
    host.steps("3007-a", "3007-b")
    _installed(host)
    # The first write counts the supervisor.
    with pytest.raises(Killed):
        host.supervise(host.dying(kill_at + 1, when))
    before = [name for name, *_ in _ran(host)]
    host.all_die()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    after = [name for name, *_ in _ran(host)][len(before) :]
    recorded = before[:-1] if when == "before" else before
    assert recorded + after == ["3007-a", "3007-b"]


def test_a_host_that_was_moved_by_hand_catches_up_and_is_through_then(host):
    host.steps("3006.5", "3007-a")
    host.store.set_fact(STEPS_SINCE, "3006.1")
    _installed(host)
    host.supervise()
    versions = ("3006.1", NEW["salt"])
    assert _ran(host) == [("3006.5", *versions), ("3007-a", *versions)]
    assert host.store.fact(STEPS_SINCE) == NEW["salt"]


def test_an_update_that_is_rolled_back_is_none_that_it_has_been_through(host):
    host.steps("3007-a")
    host.store.set_fact(STEPS_SINCE, OLD["salt"])
    host.failing = {os.path.join(host.settings.steps_dir, "3007-a")}
    _installed(host)
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert host.store.fact(STEPS_SINCE) == OLD["salt"]


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_step_of_the_master_that_was_altered_is_not_run(host, when, tmp_path):
    (tmp_path / "3007-m").write_text("")
    steps = Steps(host.settings.steps_dir, host.store)
    steps.keep([str(tmp_path / "3007-m")])
    (step,) = steps.due(OLD, NEW)

    def alter(*args):
        pathlib.Path(step.path).write_text("altered")

    if when == "before":
        alter()
    else:
        host.packages.installs = alter
    host.ask()
    host.supervise()
    assert "has changed since it was fetched" in host.last.reason
    assert not any(argv[0] == step.path for argv in host.commands)
    assert host.last.phase is (Phase.FAILED if when == "before" else Phase.ROLLED_BACK)
    assert host.packages.versions == OLD
    host.assert_at_peace()
