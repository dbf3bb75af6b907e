"""What the loop of a minion takes for the time."""

from types import SimpleNamespace

import pytest

from saltext_safeupdate.minion import steady


class Loop:
    def __init__(self, clocks):
        self._clocks = clocks

    def time(self):
        return self._clocks.wall


class Clocks:
    wall, up = 1_000_000.0, 500.0

    def pass_by(self, seconds, step=0.0):
        self.up += seconds
        self.wall += seconds + step


@pytest.mark.parametrize("step", [-600.0, 600.0])
def test_the_time_of_the_loop_makes_no_step(step):
    clocks = Clocks()
    loop = Loop(clocks)
    periodic = {name: SimpleNamespace(io_loop=loop) for name in ("process_queue", "schedule")}
    minion = SimpleNamespace(periodic_callbacks=periodic)
    for _ in range(3):
        steady.keep(minion, since_boot=lambda: clocks.up)
        clocks.pass_by(1.0, step)
    assert loop.time() == 1_000_003.0


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"periodic_callbacks": {"process_queue": object()}},
        {"periodic_callbacks": {"process_queue": SimpleNamespace(io_loop=object())}},
    ],
)
def test_another_salt_keeps_its_time(more):
    steady.keep(SimpleNamespace(**more))
