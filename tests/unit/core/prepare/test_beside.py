"""What is said of what runs from the same packages, and what it stops."""

import pytest

from saltext_safeupdate.core.host.daemons import Daemon
from saltext_safeupdate.core.host.minions import Minion
from saltext_safeupdate.core.host.servers import Server
from saltext_safeupdate.core.prepare import beside
from saltext_safeupdate.core.prepare.findings import Circumstances, Surroundings, preflight
from tests.support.simulated import FakePackages

OTHER = Minion(config="/etc/salt2/minion", id="two", unit="salt2", state_dir="/s", run_dir="/r")
DAEMONS = [
    Daemon("salt-master", "salt-master", 1),
    Daemon("salt-minion", "salt-minion", 2),
    Daemon("salt-proxy@a", "salt-proxy", 3),
    Daemon("salt2", "salt-minion", 4),
]


def _units(told):
    return [problem.partition(" ")[0] for problem, _ in told]


def test_an_api_is_no_master(tmp_path):
    """That may be started by hand, or by another supervisor of services."""
    daemons = [Daemon("salt-api", "salt-api", 5), Daemon("salt-syndic", "salt-syndic", 6)]
    assert beside.masters(daemons) == []
    assert _units(beside.servers(daemons)) == ["salt-api", "salt-syndic"]
    known = Circumstances(
        manager=FakePackages(),
        own=[],
        running="3008.3",
        state_dir=str(tmp_path),
        servers=beside.servers(daemons),
    )
    codes = [(each.code, each.blocking) for each in preflight(known, Surroundings())]
    assert codes.count(("server-beside", False)) == 2


def test_those_that_have_not_noted_themselves_are_not_waited_for():
    assert _units(beside.unaware(DAEMONS, {2, 4})) == ["salt-proxy@a"]
    assert _units(beside.unaware(DAEMONS, {2})) == ["salt-proxy@a", "salt2"]
    assert _units(beside.masters(DAEMONS)) == ["salt-master"]
    assert beside.servers(DAEMONS) == []
    ((problem, fix),) = beside.minions([OTHER])
    assert "'two' (/etc/salt2/minion)" in problem
    assert "salt2" in fix


@pytest.mark.parametrize(
    ("names", "port", "own"),
    [
        (["here"], 4506, True),
        (["here", "there"], 4506, False),
        (["there"], 4506, False),
        (["here"], 4510, False),
        ([], 4506, False),
    ],
)
def test_the_master_of_a_minion_is_the_one_beside_it_if_all_says_so(names, port, own):
    servers = [
        Server(unit="salt-api", program="salt-api"),
        Server(unit="salt-master", program="salt-master", host="127.0.0.1", port=4506),
    ]
    assert beside.is_own(servers, names, port, lambda name: name == "here") is own
    assert not beside.is_own(servers[:1], names, port, lambda name: True)


@pytest.mark.parametrize("own", [True, False])
def test_a_master_that_comes_along_is_not_too_old(tmp_path, own):
    found = preflight(
        Circumstances(
            manager=FakePackages(**{"salt-minion": "3007.15"}),
            own=["salt-minion"],
            running="3007.15",
            state_dir=str(tmp_path),
            targets={"salt-minion": "3008.3"},
            master="3007.15",
            own_master=own,
        ),
        Surroundings(reboot=(), indexes=()),
    )
    assert [each.code for each in found if each.blocking] == ([] if own else ["master-older"])


@pytest.mark.parametrize(("policy", "blocks"), [("stop", True), ("report", False)])
def test_only_jobs_that_cannot_be_waited_for_stop_an_update(tmp_path, policy, blocks):
    found = preflight(
        Circumstances(
            manager=FakePackages(),
            own=[],
            running="3008.3",
            state_dir=str(tmp_path),
            minions=beside.minions([OTHER]),
            unaware=beside.unaware(DAEMONS, {2}),
            masters=beside.masters(DAEMONS),
            other_minions_policy=policy,
        ),
        Surroundings(reboot=(), indexes=()),
    )
    codes = [(each.code, each.blocking) for each in found]
    wanted = [
        ("other-minion", False),
        ("other-minion-unaware", blocks),
        ("other-minion-unaware", blocks),
        ("master-beside", False),
    ]
    assert [each for each in codes if each in wanted] == wanted
