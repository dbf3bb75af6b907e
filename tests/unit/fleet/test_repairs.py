"""Which repairs are safe, and what has become of one."""

from __future__ import annotations

import pytest

from saltext_safeupdate.fleet import inventory, repairs
from saltext_safeupdate.fleet.repairs import RESTART, UPDATE, Repair
from tests.unit.fleet.test_inventory import NOW, record

OLD = {"running": "3007.15", "installed": "3007.15", "intended": "3008.3"}
STALE = {"running": "3007.15", "installed": "3008.3", "intended": "3008.3"}


@pytest.mark.parametrize(
    ("given", "master", "kept", "taken", "repair", "why"),
    [
        (OLD, "3008.3", (), {}, (UPDATE, "3008.3"), None),
        (STALE, "3008.3", (), {}, (RESTART, ""), None),
        (OLD | STALE | {"intended": "3008.4"}, "3008.4", (), {}, (UPDATE, "3008.4"), None),
        ({"extension_on_disk": "1.1"}, "3008.3", (), {}, (RESTART, ""), None),
        (OLD, "3008.3", ("3008.3",), {}, None, "3008.3 is in quarantine"),
        (OLD, "3008.3", ("1:3008.3-2",), {}, None, "3008.3 is in quarantine"),
        (OLD | {"quarantined": ["3008.3"]}, "", (), {}, None, "3008.3 is in quarantine"),
        (OLD, "3007.15", (), {}, None, "3008.3 is newer than its master, which has 3007.15"),
        (OLD, "3008.3", (), {"m1": "r7"}, None, "it belongs to the rollout r7"),
        (OLD | {"phase": "waiting"}, "", (), {}, None, "an update is under way there: waiting"),
        ({}, "3008.3", (), {}, None, None),
        ({"problems": ["no stop guard"]}, "3008.3", (), {}, None, None),
    ],
)
def test_only_what_is_safe_is_repaired(
    given: dict[str, object],
    master: str,
    kept: tuple[str, ...],
    taken: dict[str, str],
    repair: tuple[str, str] | None,
    why: str | None,
) -> None:
    known = record(**given)
    drifts = inventory.drift(known, "m1", master, NOW)
    chosen, left = repairs.choose(
        drifts, {"m1": known}, master=master, quarantined=kept, taken=taken
    )
    assert chosen == ([Repair("m1", *repair)] if repair else [])
    assert left == ({"m1": why} if why else {})


def test_what_does_not_answer_is_not_repaired() -> None:
    plain = inventory.from_answer("m2", "'x' is not available.", NOW)
    records = {"m1": record("m1", seen=NOW - 90000, **OLD), "m2": plain}
    drifts = [
        drift
        for name in ("m1", "m2", "m3")
        for drift in inventory.drift(records.get(name), name, "", NOW)
    ]
    assert len(drifts) == 3
    assert repairs.choose(drifts, records, master="", quarantined=(), taken={}) == ([], {})


DONE = {"running": "3008.3", "installed": "3008.3", "phase": "committed"}


@pytest.mark.parametrize(
    ("what", "given", "told", "refused", "found"),
    [
        (UPDATE, DONE, 7, "", ""),
        (UPDATE, DONE | {"phase": "idle"}, 7, "", ""),
        (UPDATE, OLD, 0, "", None),
        (UPDATE, OLD, 0, "no space", "no space"),
        (UPDATE, DONE | {"phase": "watching"}, 7, "", None),
        (UPDATE, DONE | {"phase": "unknown"}, 7, "", None),
        (UPDATE, OLD | {"phase": "rolled_back"}, 7, "", "rolled back"),
        (UPDATE, OLD | {"phase": "postponed"}, 7, "", "postponed"),
        (UPDATE, OLD | {"phase": "idle"}, 7, "", "it says that it is idle, but runs 3007.15"),
        (UPDATE, DONE, 8, "", "it has taken a newer request from somebody else"),
        (RESTART, STALE, 0, "", None),
        (RESTART, DONE | {"phase": "restarting"}, 0, "", None),
        (RESTART, DONE, 0, "", ""),
        (RESTART, {"extension_on_disk": "1.1"}, 0, "", None),
    ],
)
def test_a_repair_is_done_when_the_minion_says_so(
    what: str, given: dict[str, object], told: int, refused: str, found: str | None
) -> None:
    version = "3008.3" if what == UPDATE else ""
    repair = Repair("m1", what, version)
    assert repairs.outcome(repair, record(**given), 7, told, refused) == found


def test_a_senseless_answer_is_no_repair() -> None:
    answer = inventory.from_answer("m1", "boom", NOW)
    assert repairs.outcome(Repair("m1", RESTART), answer, 7, 0, "") == "boom"
