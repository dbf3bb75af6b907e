"""Which requested packages are deferred, and how often the package manager is asked for that."""

import os
import threading

import pytest

from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.core.packages.request import Action, Change, Request
from saltext_safeupdate.ordering.own_packages import OwnPackages
from saltext_safeupdate.this_host import Host

OTHERS = [f"p{number:02}" for number in range(40)]


class Asked:
    """A package manager in which some packages pull the minion along."""

    def __init__(self, pulling):
        self.pulling, self.asked = pulling, 0

    def simulate(self, request):
        self.asked += 1
        found = {name: Change("1", "2") for name in request.names}
        if any(group <= request.names for group in self.pulling):
            found["salt-minion"] = Change("1", "2")
        return found


class SimulatedHost(Host):
    manager = None

    def own(self):
        return Own(frozenset({"salt-minion"}), False)


@pytest.mark.parametrize(
    ("names", "pulling", "deferred", "most"),
    [
        ([*OTHERS, "salt-minion"], [], {"salt-minion"}, 1),
        (OTHERS, [{"p07"}, {"p31"}], {"salt-minion", "p07", "p31"}, 22),
        (["vim", "plugin"], [{"plugin"}], {"salt-minion", "plugin"}, 3),
        (["a", "b"], [{"a", "b"}], {"salt-minion", "a", "b"}, 3),
    ],
)
def test_only_what_pulls_the_minion_along_is_deferred(names, pulling, deferred, most):
    made = SimulatedHost({"id": "minion"})
    made.manager = Asked(pulling)
    request = Request(action=Action.INSTALL, targets=tuple((name, None) for name in names))
    found = OwnPackages(made).names_to_defer(request, frozenset({"salt-minion"}))
    assert found == deferred
    assert made.manager.asked <= most


class Installed(Asked):
    """It would change nothing: all of it is installed."""

    def simulate(self, request):
        return {}

    def installed(self, packages):
        return dict.fromkeys(packages, "1")


@pytest.mark.parametrize("again", [True, False])
def test_the_same_version_again_is_a_change(again):
    made = SimulatedHost({"id": "minion"})
    made.manager = Installed([])
    request = Request(
        action=Action.INSTALL, targets=(("salt-minion", None), ("vim", None)), again=again
    )
    found = OwnPackages(made).changed_by(request)
    assert found == ({"salt-minion": Change("1", "1")} if again else {})


class Keeping(Asked):
    """It is told by the environment what to leave as it is."""

    @staticmethod
    def without(packages, directory):
        return {"SAFEUPDATE_KEPT": ",".join(packages)}


def test_a_job_that_is_a_thread_leaves_the_environment_of_the_others_alone():
    """An upgrade in another thread left the minion out, too."""
    made = SimulatedHost({"id": "minion"})
    made.manager = Keeping([])
    seen = []

    def look():
        with OwnPackages(made).excluded(None) as possible:
            seen.append((possible, os.environ.get("SAFEUPDATE_KEPT")))

    look()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [(True, "salt-minion"), (False, None)]
    assert "SAFEUPDATE_KEPT" not in os.environ
