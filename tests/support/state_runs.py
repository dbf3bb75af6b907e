"""The state runs that a main process sees."""

from saltext_safeupdate.minion.state_runs import StateRuns

EARLIER = {"earlier": True, "overdue": False}
OVERDUE = {"earlier": True, "overdue": True}
OURS = {"earlier": False, "overdue": False}


def no_runs():
    """Return those of a minion that no other one is before."""
    return StateRuns("", 0.0)


class Known(StateRuns):
    """State runs that a test names: whether each is of an earlier minion, and is overdue."""

    def __init__(self, *runs):
        super().__init__("", 0.0)
        self.runs = list(runs)

    def active(self, opts):
        return self.runs

    def is_earlier(self, run):
        return run["earlier"]

    def is_overdue(self, run):
        return run["earlier"] and run["overdue"]
