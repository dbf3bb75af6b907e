"""What runs where: what answers mean, the sums, and lines that a terminal shows."""

from __future__ import annotations

import pytest

from saltext_safeupdate.fleet import inventory, platforms
from saltext_safeupdate.fleet.inventory import PLAIN, REPORT, SENSELESS, Record

NOW = 1_780_000_000.0
ANSWER = {
    "running": "3008.3",
    "installed": "3008.3",
    "intended": "3008.3",
    "extension": "1.0",
    "extension_on_disk": "1.0",
    "phase": "idle",
    "last_result": "committed",
    "way": "apt",
    "quarantined": [],
    "problems": [],
}


def record(name: str = "m1", seen: float = NOW, **more: object) -> Record:
    return inventory.from_answer(name, ANSWER | more, seen)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (ANSWER, REPORT),
        ("'safeupdate.report' is not available.", PLAIN),
        ("'safeupdate' __virtual__ returned False: no", PLAIN),
        ("Traceback", SENSELESS),
        (None, SENSELESS),
        (5, SENSELESS),
        ([ANSWER], SENSELESS),
        ({}, SENSELESS),
        ({"running": 5}, SENSELESS),
        ({"running": ""}, SENSELESS),
        ({"installed": "3008.3"}, SENSELESS),
    ],
    ids=repr,
)
def test_kinds_of_answers_are_told_apart(answer: object, kind: str) -> None:
    found = inventory.from_answer("m1", answer, NOW)
    assert (found.minion, found.seen, found.answer) == ("m1", NOW, kind)
    assert inventory.from_data(inventory.to_data(found)) == found
    if kind != REPORT:
        assert not found.running
        assert found.problems


def test_no_minion_chooses_what_kind_of_answer_it_gave() -> None:
    assert record(answer=PLAIN).answer == REPORT
    assert inventory.from_answer("m1", {"answer": REPORT}, NOW).answer == SENSELESS


@pytest.mark.parametrize("version", ["3008.²", "²", "٣٠٠٨.3", "9" * 300, "3008..", "१.२"])
def test_no_version_that_a_minion_may_say_fails_the_look_at_all(version: str) -> None:
    odd = record(running=version, installed=version, intended=version)
    assert all(each.minion == "m1" for each in inventory.drift(odd, "m1", "3008.3", NOW))
    assert not inventory.newer("²", "3008.3")
    assert inventory.line(inventory.rows({"m1": odd}, ["m1"], NOW)["m1"], NOW)


def test_a_terminal_obeys_no_minion() -> None:
    evil = "3008\x1b[2J\n\r\u202eweb1: done\x9b"
    found = record(running=evil, phase=evil, problems=[evil] * 100, last_result={"x": evil})
    rows = inventory.rows({"m1": found}, ["m1"], NOW)
    shown = inventory.lines(
        {"summary": "", "at": NOW, "rows": rows, "unreadable": []}, details=True
    )
    assert all(line.isprintable() for line in shown)
    assert found.last_result == ""


def test_the_sums_are_first_of_what_is_known() -> None:
    records = [record(f"m{n}") for n in range(291)]
    records += [record(f"r{n}", running="3007.15", last_result="rolled_back") for n in range(6)]
    names = [each.minion for each in records] + ["s1", "s2", "s3"]
    heard = {each.minion for each in records}
    found = inventory.roll_up([*records, record("s1")], names, NOW, heard)
    assert found["summary"] == (
        "291 of 300 on 3008.3, 6 of 300 on 3007.15, 6 rolled back, 3 silent"
    )
    assert (found["silent"], found["results"]) == (3, {"committed": 291, "rolled_back": 6})


def test_what_minions_say_makes_no_summary_of_its_own() -> None:
    records = [record(f"m{n:02}", running=f"9{n}", last_result="all is well") for n in range(9)]
    records += [record("p", phase="installing"), inventory.from_answer("q", None, NOW)]
    records += [inventory.from_answer("r", "'safeupdate.report' is not available.", NOW)]
    names = [each.minion for each in records]
    found = inventory.roll_up(records, names, NOW)["summary"]
    assert found == (
        "1 of 12 on 3008.3, 1 of 12 on 90, 1 of 12 on 91, 1 of 12 on 92, 1 of 12 on 93, "
        "5 on 5 other versions, 1 under way, 1 without the extension, 1 with a senseless answer"
    )


@pytest.mark.parametrize(
    ("known", "heard", "line"),
    [
        (record(), None, "3008.3"),
        (record(installed="3008.3-1"), None, "3008.3"),
        (
            record(installed="3008.4", intended="3008.5", extension_on_disk="1.1"),
            None,
            "3008.3, installed 3008.4, intended 3008.5, extension on disk 1.1",
        ),
        (
            record(phase="installing", last_result="rolled_back", problems=["a", "b"]),
            None,
            "3008.3, installing, rolled back, 2 problems",
        ),
        (record(seen=NOW - 600), {"other"}, "silent for 10 min, ran 3008.3 then"),
        (record(seen=NOW - 600), None, "3008.3"),
        (record(seen=NOW - 90000), None, "silent for 25 h, ran 3008.3 then"),
        (record(seen=NOW - 9 * 86400), None, "silent for 9 d, ran 3008.3 then"),
        (None, None, "has never answered"),
        (
            inventory.from_answer("m1", "'x' is not available.", NOW),
            None,
            "does not have this extension, or one that is too old",
        ),
        (inventory.from_answer("m1", 5, NOW), None, "gave a senseless answer: int"),
    ],
)
def test_a_minion_is_one_line(known: Record | None, heard: set[str] | None, line: str) -> None:
    rows = inventory.rows({"m1": known} if known else {}, ["m1"], NOW, heard)
    assert inventory.line(rows["m1"], NOW) == line


@pytest.mark.parametrize(
    ("answer", "grains", "why"),
    [
        ("'safeupdate.report' is not available.", {"kernel": "Windows"}, "it runs Windows, and"),
        ("'safeupdate.report' is not available.", {"kernel": "Darwin"}, "it runs Darwin, and"),
        ("'safeupdate.report' is not available.", {"kernel": "proxy"}, "a proxy minion has no"),
        ("'safeupdate.report' is not available.", {"proxytype": "x"}, "a proxy minion has no"),
        ("'x' __virtual__ returned False: unsupported: it is a toaster", {}, "it is a toaster"),
        ("'safeupdate.report' is not available.", {"kernel": "Linux"}, ""),
        ("'safeupdate.report' is not available.", {"kernel": ["x"]}, ""),
        ("'safeupdate.report' is not available.", {}, ""),
    ],
)
def test_who_can_never_have_it_is_no_drift(answer: str, grains: dict, why: str) -> None:
    reason = platforms.unsupported(answer, grains)
    assert reason.startswith(why)
    assert bool(reason) == bool(why)
    found = inventory.from_answer("m1", answer, NOW, reason)
    assert inventory.from_data(inventory.to_data(found)) == found
    codes = [each.code for each in inventory.drift(found, "m1", "3008.3", NOW)]
    assert (found.answer, codes) == (("unsupported", []) if why else (PLAIN, ["plain"]))
    if why:
        rows = inventory.rows({"m1": found}, ["m1"], NOW)
        assert inventory.line(rows["m1"], NOW) == f"unsupported: {reason}"
        assert inventory.roll_up([found], ["m1"], NOW)["summary"] == "1 unsupported"


def test_only_who_has_no_such_function_is_unsupported() -> None:
    assert inventory.from_answer("m1", 5, NOW, "x").answer == SENSELESS
    assert inventory.from_answer("m1", ANSWER, NOW, "x").answer == REPORT


@pytest.mark.parametrize(
    ("answer", "code"), [("'x' is not available.", "plain"), (5, "senseless"), (ANSWER, None)]
)
def test_what_a_minion_answered_is_a_drift(answer: object, code: str | None) -> None:
    found = inventory.drift(inventory.from_answer("m1", answer, NOW), "m1", "3008.3", NOW)
    assert [each.code for each in found] == ([code] if code else [])
    assert all(each.fix for each in found)


def test_the_summary_of_drift_counts_minions() -> None:
    found = [
        *inventory.drift(record("m1", problems=["a", "b"]), "m1", "", NOW),
        *inventory.drift(None, "m2", "", NOW),
    ]
    assert inventory.drift_summary(found, ["m1", "m2", "m3"]) == (
        "1 of 3 as they should be, 1 set-up, 1 unknown"
    )
