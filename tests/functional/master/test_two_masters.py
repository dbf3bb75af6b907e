"""Two masters with the same minions and a rollout each: the minion is the fence between them."""

import pytest

from saltext_safeupdate.master import rollouts
from tests.functional.master.fleet_site import Fleet, Master, Time
from tests.unit.fleet.world import NEW

NAMES = [f"m{number}" for number in range(6)]
DONE = ("finished", "stopped")


@pytest.mark.parametrize("later", [0, 3, 25, 60])
def test_each_host_obeys_the_newest_and_each_rollout_ends_or_says_why_not(tmp_path, later):
    """*later* is how many seconds after the first one the second one begins."""
    fleet, time = Fleet(NAMES), Time()
    masters = [Master(tmp_path, tmp_path / name, fleet, time, name) for name in ("one", "two")]
    plans, stores = [master.plan() for master in masters], [master.store() for master in masters]

    def tick():
        masters[0].tick()
        masters[1].tick(0)

    def found(number):
        return stores[number].outline(plans[number].id)

    masters[0].begin(plans[0])
    for _ in range(later):
        tick()
    masters[1].begin(plans[1])
    for _ in range(3000):
        tick()
        if all(found(number).mode.value in DONE for number in range(2)):
            break
    seen = [(each.mode.value, each.why) for each in (found(0), found(1))]
    # The second one has the higher numbers, so nobody takes a host from it.
    assert seen[1] == ("finished", ""), seen
    assert {host.version for host in fleet.hosts.values()} == {NEW}
    assert all(host.taken == sorted(host.taken) for host in fleet.hosts.values())
    assert fleet.most_busy <= 2, "one for each of them"
    if seen[0][0] == "stopped":
        assert "a newer request" in seen[0][1], seen
        masters[0].order(rollouts.RESUME, plans[0].id)
        masters[0].until(plans[0].id, "finished")
    for master in masters:
        master.close()
