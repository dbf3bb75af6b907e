"""A policy over real hosts with a real master, which dies again and again: up, and back down."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import Lab
from tests.lab.engine import NEW, OLD
from tests.lab.fleet import Fleet, Member, TransactionalMember

GO = "/var/tmp/go"
# Rollouts that are as fast as a busy machine lets them be.
SETTINGS = {
    **{"canaries": 1, "waves": ["100%"], "soak": 0, "jitter": 0, "stage": False},
    **{"minion_timeout": 7200, "late_timeout": 7200},
}


def busy(member: Member) -> subprocess.Popen[str]:
    """Have an update of its administrator wait there for a program that reads Salt's files."""
    words = f"until test -e {GO}; do sleep 0.2; done"
    argv = ["salt-call", "--local", "--log-level", "quiet", "cmd.run", words]
    program = member.container.popen(argv)

    def runs() -> bool:
        return any(row.endswith("cmd.run") for row in member.call("safeupdate.jobs")["running"])

    member.master.wait(runs, 60, "the program")
    member.call("safeupdate.update", NEW)
    member.wait_phase("waiting")
    return program


@pytest.mark.parametrize(
    ("apt", "dnf", "transactional", "limit", "newcomer", "kept", "at_work"),
    [
        pytest.param(2, 1, 0, 2, "", "a2", "", id="three"),
        pytest.param(2, 1, 1, 2, "", "a2", "", id="four", marks=pytest.mark.soak),
        pytest.param(8, 3, 1, 3, "a8", "a2", "a3", id="twelve", marks=pytest.mark.soak),
    ],
)
def test_a_policy_brings_all_there_and_a_way_back_takes_them_back(
    lab: Lab,
    site: Path,
    begin: Callable[[Any], Any],
    apt: int,
    dnf: int,
    transactional: int,
    limit: int,
    newcomer: str,
    kept: str,
    at_work: str,
) -> None:
    fleet: Fleet = begin(Fleet(lab, site, apt=apt, dnf=dnf, transactional=transactional))
    members, away = fleet.members, f"d{dnf}"
    # Each answer that does not come, and each start of a master or of a host, takes its time.
    whole = len(members) > 4
    fleet.up(set(members) - {newcomer})
    fleet.write_policy(**SETTINGS, max_unavailable=limit, closed=["2020-01-01 - 2099-12-31"])

    # On closed days nothing begins.
    begun, group = fleet.policy()
    assert not begun
    assert "closed until 2100-01-01" in group["waits"], group
    if whole:
        fleet.die()
        assert fleet.policy()[0] == ""

    # One host is off, one is kept as it is, one is busy.
    members[away].container.poweroff()
    members[kept].keep()
    program = busy(members[at_work]) if at_work else None

    # The closed days are over: whoever can be brought is, and of all others it is said why not.
    fleet.write_policy(**SETTINGS, max_unavailable=limit, closed=["2020-01-01 - 2020-12-31"])
    begun, group = fleet.policy()
    assert begun, group
    left = {away: "does not answer"} | ({at_work: "under way"} if at_work else {})
    assert set(group["left"]) == set(left), group
    for name, why in left.items():
        assert why in group["left"][name], group
    brought = set(members) - {*left, kept, newcomer}
    end = fleet.ended(begun)
    assert (end["mode"], end["exit_status"]) == ("finished", 0), end
    assert {row["minion"] for row in end["rows"] if row["step"] == "done"} == brought
    # What a package manager keeps is told by the pre-flight.
    assert (end["counts"], end["left_out"]) == ({"done": len(brought)}, 1)
    wanted = {name: NEW if name in brought else OLD for name in members}
    assert fleet.versions() == {name: wanted[name] for name in fleet.versions()}
    if whole:
        assert fleet.policy()[0] == "", "it rests"

    # Weeks later, as the master sees it, all come along that did not, and one that is new.
    fleet.die(days=24)
    if whole:
        assert fleet.policy()[0] == "", "it rests"
    members[kept].keep(not whole)
    if program is not None:
        members[at_work].call("safeupdate.cancel")
        members[at_work].container.write(GO, "")
        program.communicate(timeout=600)
        members[at_work].wait_end()
    fleet.up([name for name in (away, newcomer) if name])
    begun, group = fleet.policy()
    assert set(group["bring"]) == set(members) - brought, group
    end = fleet.ended(begun, killed=whole)
    assert (end["mode"], end["exit_status"]) == ("finished", 0), end
    there = dict.fromkeys(members, NEW) | ({} if whole else {kept: OLD})
    assert fleet.versions() == there
    assert fleet.policy()[0] == "", "it rests"

    # All go back, whichever rollout has brought them, and the policy leaves them there.
    back = fleet.master.runner("safeupdate.rollout", back=NEW, background=True)
    end = fleet.ended(back["rollout"])
    assert (end["mode"], end["exit_status"]) == ("finished", 0), end
    assert fleet.versions() == dict.fromkeys(members, OLD)
    begun, group = fleet.policy()
    assert not begun
    assert "in quarantine" in group["waits"], group
    assert fleet.at_once() <= limit
    for number in range(1, transactional + 1):
        host = members[f"t{number}"]
        assert isinstance(host, TransactionalMember)
        assert (host.boots, host.snapshot()) == (3, 1), "one into its new snapshot, one out of it"
    for member in members.values():
        assert member.answers() == OLD
        changes = 2 if there[member.name] == NEW else 0
        assert len(member.intervals()) == changes, "each was begun once, and taken back once"
        fleet.master.wait(lambda member=member: not member.leftovers(), 60, "what is left to go")
