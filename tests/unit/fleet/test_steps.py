"""The ways from step to step, written down a second time."""

import itertools

import pytest

from saltext_safeupdate.fleet.rollout import Minion, Step

_VERDICT = "done rolled_back failed superseded cancelled"
NEXT = {
    "waiting": "asked to_reboot missed cancelled held",
    "asked": f"updating to_reboot waiting refused timed_out held {_VERDICT}",
    "updating": f"to_reboot waiting timed_out {_VERDICT}",
    "to_reboot": f"updating waiting timed_out {_VERDICT}",
    **dict.fromkeys(("done", "missed", "cancelled", "held"), "waiting"),
    **dict.fromkeys(
        ("rolled_back", "failed", "refused", "timed_out", "superseded"), f"waiting {_VERDICT}"
    ),
}


@pytest.mark.parametrize(("before", "after"), itertools.product(Step, Step))
def test_every_pair_of_steps(before: Step, after: Step) -> None:
    minion = Minion(step=before, reason="before")
    if before is after or after.value in NEXT[before.value].split():
        minion.come_to(after, "after")
        assert (minion.step, minion.reason) == (after, "after")
    else:
        with pytest.raises(ValueError, match=f"{after.value} may not follow {before.value}"):
            minion.come_to(after, "after")
        assert (minion.step, minion.reason) == (before, "before")


def test_a_reason_stays_unless_there_is_another_one() -> None:
    minion = Minion(step=Step.FAILED, reason="no space")
    minion.come_to(Step.WAITING)
    assert minion.reason == "no space"
