"""How long to wait, on a host that runs and on one that stands still in between."""

import pytest

from saltext_safeupdate.core.host.wait import Wait


@pytest.mark.parametrize(
    ("passes", "left"),
    [
        ([], 100),
        ([5] * 10, 50),
        ([59, 40], 1),
        ([50, 50], 0),
        ([50, 3600], 50),
        ([3600, 50, 86400, 49], 1),
        ([3600, 50, 50, 3600], 0),
    ],
)
def test_only_time_counts_in_which_somebody_looked(passes, left):
    now = [1000.0]
    wait = Wait(100, lambda: now[0])
    for seconds in passes:
        now[0] += seconds
        assert wait.left >= 0
    assert wait.left == left
    assert wait.over is (left == 0)
