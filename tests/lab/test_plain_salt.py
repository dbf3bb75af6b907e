"""What plain Salt loses when it updates itself: the failure that this project is about."""

from __future__ import annotations

import pytest

from devtools.experiment import LONG_JOBS, Experiment
from devtools.lab.container import Lab
from devtools.outcome import state_names

# systemd waits 90 s before it kills; the losses are the same when it waits less.
STOP_TIMEOUT = 20
# Long enough to be running still when the package restarts the minion, on a busy machine too.
LONG_SECONDS = 75


@pytest.mark.parametrize(("old", "new"), [("3006.28", "3007.15")])
def test_a_highstate_that_updates_the_minion_loses_jobs(lab: Lab, old: str, new: str) -> None:
    out = Experiment(lab, old, new, stop_timeout=STOP_TIMEOUT, long_seconds=LONG_SECONDS).run()

    assert out.highstate.lost
    assert out.order == state_names()[:9], "the states behind the update never ran"
    assert sum(job.lost for job in out.jobs if job.label.startswith("long-")) == LONG_JOBS
    # Unpacked or installed: apt dies of its broken pipe as soon as it writes to the killed job,
    # and dpkg with it, wherever it is then.
    assert out.packages_after["salt-minion"][0] == new
    assert out.running_after == new
    assert out.verdict()


@pytest.mark.soak
def test_a_stop_that_is_not_waited_for_leaves_the_service_dead(lab: Lab) -> None:
    stop = {"kill_mode": "process", "stop_timeout": STOP_TIMEOUT}
    out = Experiment(lab, "3007.15", "3008.3", **stop).run()

    assert out.service_after["ActiveState"] != "active"
    assert any(line.startswith("service ActiveState") for line in out.verdict())
