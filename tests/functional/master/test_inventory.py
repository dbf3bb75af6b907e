"""What runs where, asked of a simulated fleet, kept in the cache of a real Salt."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from saltext_safeupdate.core.errors import CacheError, InputError, RecordError
from saltext_safeupdate.fleet import rollout
from saltext_safeupdate.fleet.columns import columns
from saltext_safeupdate.master import stocktaking
from saltext_safeupdate.master.stocktaking import Inventory, expected
from saltext_safeupdate.master.store import Store
from tests.functional.master.test_store import begun, opts_of

MASTER = "3008.3"
BASE = {
    "running": MASTER,
    "installed": MASTER,
    "intended": MASTER,
    "extension": "1.0",
    "extension_on_disk": "1.0",
    "phase": "idle",
    "number": 0,
}
OLD = {"running": "3007.15", "installed": "3007.15"}


class Fleet:
    """Minions that answer at once, and do what they are asked for some questions later."""

    def __init__(self, hosts: Mapping[str, object]) -> None:
        self.hosts: dict[str, Any] = {
            name: {**BASE, **host} if isinstance(host, dict) else host
            for name, host in hosts.items()
        }
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.away: set[str] = set()
        self.ends = "committed"
        self.most_at_work = 0
        self.work: dict[str, int] = {}

    def ask(
        self, minions: list[str], fun: str, given: Mapping[str, Any], timeout: float
    ) -> dict[str, object]:
        assert timeout > 0
        self.calls.append((fun, tuple(minions)))
        self.most_at_work = max(self.most_at_work, len(self.work))
        there = [name for name in minions if name in self.hosts and name not in self.away]
        return {name: self._answer(name, fun, given) for name in there}

    def _answer(self, name: str, fun: str, given: Mapping[str, Any]) -> object:
        host = self.hosts[name]
        if not isinstance(host, dict):
            return host
        if fun == "safeupdate.request" and given["number"] > host["number"]:
            host |= {"number": given["number"], "phase": "installing", "aim": given["version"]}
            self.work[name] = 3
        if fun == "safeupdate.restart":
            self.work[name] = 3
        if name in self.work:
            self.work[name] -= 1
            if not self.work[name]:
                del self.work[name]
                self._end(host)
        return dict(host)

    def _end(self, host: dict[str, Any]) -> None:
        if host["phase"] == "installing":
            host["phase"] = self.ends
            if self.ends == "committed":
                host |= {"running": host["aim"], "installed": host["aim"]}
        else:
            host |= {"running": host["installed"], "extension": host["extension_on_disk"]}

    def count(self, fun: str) -> int:
        return sum(len(names) for each, names in self.calls if each == fun)


ONLY = {
    "web1": {},
    "web2": OLD | {"intended": "3007.15"},
    "web3": OLD | {"running": "3006.28", "held": "ask Jo", "intended": "3007.15"},
    "db1": {"phase": "installing"},
    "old1": "'safeupdate.report' is not available.",
}


@pytest.mark.parametrize(
    ("only", "shown"),
    [
        (None, {"web1", "web2", "web3", "db1", "old1", "gone"}),
        ("outdated", {"web2", "web3"}),
        ("3007", {"web2"}),
        ("3007.15", {"web2"}),
        ("3007.1", set()),
        (3006, {"web3"}),
        ("held, busy", {"web3", "db1"}),
        (["silent", "plain"], {"gone", "old1"}),
        ("drift", {"web3", "old1", "gone"}),
        ("unsupported", set()),
    ],
)
def test_only_some_are_shown_and_the_sums_are_of_all(of, only: object, shown: set[str]) -> None:
    made = of(Fleet(ONLY))
    found = made.versions([*ONLY, "gone"], 5.0, only=stocktaking.only(only))
    assert set(found["rows"]) == shown
    assert found["minions"] == 6
    assert (" of them are " in stocktaking.shown(found)) is bool(only)


@pytest.mark.parametrize("only", ["new", "outdated,", "", "*", "-"])
def test_what_nobody_can_be_is_refused(only: str) -> None:
    with pytest.raises(InputError, match="nothing to show only for"):
        stocktaking.only(only)


class Clock:
    def __init__(self) -> None:
        self.now = 1_780_000_000.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def opts(tmp_path: pathlib.Path) -> dict[str, object]:
    return opts_of(tmp_path)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def of(opts: dict[str, object], clock: Clock) -> Callable[[Fleet], Inventory]:
    def make(fleet: Fleet) -> Inventory:
        return Inventory(
            Store(opts),
            fleet.ask,
            lambda: int(clock.now),
            master=MASTER,
            clock=clock,
            monotonic=clock,
            pause=clock.pause,
        )

    return make


ODD = {"good": {}, "old": OLD, "plain": "'safeupdate.report' is not available.", "odd": [5]}


def test_minions_are_told_apart_and_kept(of: Callable[[Fleet], Inventory], clock: Clock) -> None:
    fleet = Fleet(ODD)
    names = [*ODD, "away"]
    found = of(fleet).versions(names, 5.0)
    assert found["summary"] == (
        "1 of 5 on 3007.15, 1 of 5 on 3008.3, 1 without the extension, "
        "1 with a senseless answer, 1 silent"
    )
    assert {name: row["heard"] for name, row in found["rows"].items()} == {
        "good": "report",
        "old": "report",
        "plain": "plain",
        "odd": "senseless",
        "away": "unknown",
    }
    fleet.calls.clear()
    clock.pause(60.0)
    assert of(fleet).versions(names, 5.0, asks=False)["rows"] == found["rows"]
    assert not fleet.calls
    fleet.away = {"good"}
    rows = of(fleet).versions(names, 5.0)["rows"]
    assert (rows["good"]["heard"], rows["good"]["running"]) == ("silent", MASTER)
    # An answer that is old is no news, whether it was asked for or not.
    clock.pause(2 * 86400.0)
    assert of(fleet).versions(["old"], 5.0, asks=False)["silent"] == 1


def test_the_lines_begin_with_the_sums(of: Callable[[Fleet], Inventory]) -> None:
    found = of(Fleet(ODD)).versions(sorted(ODD), 5.0)
    shown = stocktaking.shown(found).splitlines()
    assert " ".join(f"{shown[0]} {shown[1]}".split()) == found["summary"]
    assert shown[2:4] == ["good: 3008.3", "odd: gave a senseless answer: list"]
    assert len(shown) == 6
    assert len(stocktaking.shown({**found, "details": True}).splitlines()) > 15
    assert stocktaking.shown("an error") == "an error"


def test_times_are_told_by_iso_in_the_zone_that_is_asked_for(of: Callable[[Fleet], Inventory]):
    found = stocktaking.dated(of(Fleet(ODD)).versions([*ODD, "away"], 5.0), "Asia/Kolkata")
    at = "2026-05-29T01:56:40+05:30"
    assert (found["at"], found["times"]) == (1_780_000_000.0, {"at": at})
    good = found["rows"]["good"]
    assert (good["seen"], good["times"]) == (1_780_000_000.0, {"seen": at, "drifting": None})
    assert found["rows"]["away"] == {"heard": "unknown"}
    shown = stocktaking.shown({**found, "details": True})
    assert f"    seen: {at}" in shown.splitlines()
    assert "times" not in shown
    checked = stocktaking.dated(of(Fleet(ODD)).check([*ODD], 5.0), "local")
    assert set(checked["times"]) == {"at"}


def test_what_is_shown_fits_a_terminal_of_80_columns(of: Callable[[Fleet], Inventory]) -> None:
    long = {"problems": ["a problem of many words " * 9], "held": "by somebody " * 9}
    inventory = of(Fleet({f"m{n}": {**long, "running": f"3006.{n}"} for n in range(9)}))
    minions = [f"m{n}" for n in range(9)]
    for found in (
        {**inventory.versions(minions, 5.0), "details": True},
        inventory.check(minions, 5.0),
    ):
        shown = stocktaking.shown(found)
        assert max(map(columns, shown.splitlines())) <= 80
        assert " ".join(shown.split()).count("a problem of many words") == 9 * 9


def test_what_cannot_be_kept_is_not_asked_for(opts: dict[str, object], clock: Clock) -> None:
    fleet = Fleet(ODD)
    store = Store({**opts, "cache": "nothing_like_this"})
    made = Inventory(store, fleet.ask, lambda: 1, master=MASTER, clock=clock)
    for call in (made.versions, made.check):
        with pytest.raises(CacheError, match="Nothing was started"):
            call(["good"], 5.0)
    assert not fleet.calls


def test_a_check_names_each_drift(of: Callable[[Fleet], Inventory]) -> None:
    hosts = {
        **ODD,
        "stale": {"running": "3007.15"},
        "newer": {"running": "3009.0", "installed": "3009.0", "intended": "3009.0"},
        "extension": {"extension_on_disk": "1.1"},
        "kept": {"quarantined": ["3008.4"]},
        "bad": {"problems": ["no stop guard"]},
    }
    found = of(Fleet(hosts)).check([*hosts, "away"], 5.0)
    assert {(each["minion"], each["code"]) for each in found["drift"]} == {
        ("old", "not-as-intended"),
        ("plain", "plain"),
        ("odd", "senseless"),
        ("stale", "not-restarted"),
        ("newer", "newer-than-master"),
        ("extension", "extension-not-restarted"),
        ("kept", "quarantined"),
        ("bad", "set-up"),
        ("away", "unknown"),
    }
    assert found["summary"].startswith("1 of 10 as they should be, ")
    assert all(each["fix"] for each in found["drift"])
    assert "repaired" not in found


def test_repairs_are_bounded_and_told(of: Callable[[Fleet], Inventory]) -> None:
    hosts: dict[str, object] = {f"m{n}": OLD for n in range(7)}
    fleet = Fleet({**hosts, "stale": {"running": "3007.15"}, "well": {}})
    names = [*hosts, "stale", "well"]
    found = of(fleet).check(names, 5.0, repair=True, batch=3)
    assert found["repaired"] == {
        "done": {**dict.fromkeys(hosts, f"updated to {MASTER}"), "stale": "restarted"},
        "failed": {},
        "left": {},
    }
    assert fleet.most_at_work == 3
    assert of(fleet).check(names, 5.0)["drift"] == []


def test_the_first_failure_ends_the_repairs(of: Callable[[Fleet], Inventory]) -> None:
    fleet = Fleet({f"m{n}": OLD for n in range(5)})
    fleet.ends = "rolled_back"
    found = of(fleet).check(sorted(fleet.hosts), 5.0, repair=True, batch="20%")
    assert found["repaired"] == {
        "done": {},
        "failed": {"m0": "update: rolled back"},
        "left": dict.fromkeys(("m1", "m2", "m3", "m4"), "not begun, because another one failed"),
    }


def test_who_does_not_come_back_ends_the_repairs(
    of: Callable[[Fleet], Inventory], clock: Clock
) -> None:
    fleet = Fleet({"m0": OLD, "m1": OLD})
    ask = fleet.ask

    def asked(minions: list[str], fun: str, given: Mapping[str, Any], timeout: float) -> Any:
        found = ask(minions, fun, given, timeout)
        if fun == "safeupdate.request":
            fleet.away = {"m0"}
        return found

    fleet.ask = asked  # type: ignore[method-assign]
    began = clock.now
    found = of(fleet).check(["m0", "m1"], 5.0, repair=True, batch=1, repair_timeout=600.0)
    assert list(found["repaired"]["failed"]) == ["m0"]
    assert list(found["repaired"]["left"]) == ["m1"]
    assert 600 <= clock.now - began < 700


def test_a_restart_that_is_refused_is_a_failure(of: Callable[[Fleet], Inventory]) -> None:
    fleet = Fleet({"m0": {"running": "3007.15"}})
    ask = fleet.ask
    fleet.ask = lambda minions, fun, given, timeout: (  # type: ignore[method-assign]
        {"m0": "an update is under way"}
        if fun == "safeupdate.restart"
        else ask(minions, fun, given, timeout)
    )
    found = of(fleet).check(["m0"], 5.0, repair=True)
    assert found["repaired"]["failed"] == {"m0": "was not restarted: an update is under way"}


def test_rollouts_and_the_quarantine_are_left_alone(
    of: Callable[[Fleet], Inventory], opts: dict[str, object]
) -> None:
    store = Store(opts)
    running = begun(store, "one")
    ended = begun(store, "two")
    ended.mode = rollout.Mode.FINISHED
    store.save_rollout(ended)
    store.quarantine("3008.2", "two canaries")
    fleet = Fleet({"m1": OLD, "x": {**OLD, "intended": "3008.2"}})
    found = of(fleet).check(["m1", "x"], 5.0, repair=True)
    assert found["repaired"] == {
        "done": {},
        "failed": {},
        "left": {"m1": "it belongs to the rollout one", "x": "3008.2 is in quarantine"},
    }
    assert {fun for fun, _ in fleet.calls} == {stocktaking.REPORT}
    running.mode = rollout.Mode.ABORTED
    store.save_rollout(running)
    assert of(fleet).check(["m1"], 5.0, repair=True)["repaired"]["done"]


def test_what_is_put_in_quarantine_meanwhile_is_not_brought(
    of: Callable[[Fleet], Inventory], opts: dict[str, object]
) -> None:
    class Other(Fleet):
        def _end(self, host: dict[str, Any]) -> None:
            super()._end(host)
            Store(opts).quarantine(f"1:{MASTER}-2", "elsewhere")

    fleet = Other({"m1": OLD, "m2": OLD})
    found = of(fleet).check(["m1", "m2"], 5.0, repair=True, batch=1)["repaired"]
    assert list(found["done"]) == ["m1"]
    assert found["left"] == {"m2": f"{MASTER} is in quarantine"}
    assert fleet.hosts["m2"]["running"] == OLD["running"]


def test_who_may_not_be_meant_is_not_repaired(of: Callable[[Fleet], Inventory]) -> None:
    fleet = Fleet({"m1": OLD, "m2": OLD, "m3": {}})
    found = of(fleet).check(["m1", "m2", "m3"], 5.0, repair=True, unsure=["m2", "m3"])
    assert (list(found["repaired"]["done"]), found["retcode"]) == (["m1"], 1)
    assert list(found["repaired"]["left"]) == ["m2"]
    assert "if the target matches it" in found["repaired"]["left"]["m2"]
    assert ("safeupdate.request", ("m2",)) not in fleet.calls


def test_a_name_in_a_list_that_no_minion_has_is_not_as_it_should_be(
    of: Callable[[Fleet], Inventory],
) -> None:
    """Monitoring was told that all is well, with the exit status 0."""
    assert stocktaking.missing("m1,m9", "list", ["m1"]) == ["m9"]
    assert stocktaking.missing(["m1"], "list", ["m1"]) == []
    assert stocktaking.missing("m9", "glob", ["m1"]) == []
    fleet = Fleet({"m1": {}})
    for repair in (False, True):
        found = of(fleet).check(["m1"], 5.0, repair=repair, absent=["m9"])
        assert found["summary"] == "1 of 2 as they should be, 1 no-key"
        assert (found["minions"], found["retcode"]) == (2, 1)
        assert [(each["minion"], each["code"]) for each in found["drift"]] == [("m9", "no-key")]
    assert "m9" not in {name for _, names in fleet.calls for name in names}


@pytest.mark.parametrize("batch", [0, -1, "x", "0%", True, None])
def test_bad_input_asks_nobody(of: Callable[[Fleet], Inventory], batch: object) -> None:
    fleet = Fleet(ODD)
    with pytest.raises(InputError, match="batch"):
        of(fleet).check(["good"], 5.0, repair=True, batch=batch)
    with pytest.raises(InputError, match="Nothing was changed"):
        of(fleet).check(["good"], 5.0, repair=True, asks=False)
    assert not fleet.calls


@pytest.mark.parametrize(
    ("target", "tgt_type"),
    [("", "glob"), ("*", "nothing"), ("*", 5), (None, "glob"), (5, "glob"), ("web*", "glob")],
)
def test_a_target_that_means_nobody_is_an_error(
    opts: dict[str, object], target: object, tgt_type: object, tmp_path: pathlib.Path
) -> None:
    keys = {**opts, "pki_dir": str(tmp_path / "pki"), "__role": "master"}
    with pytest.raises(InputError, match="Nothing was asked"):
        expected(keys, target, tgt_type)


def test_records_go_with_their_keys_only(of: Callable[[Fleet], Inventory]) -> None:
    fleet = Fleet({f"m{n}": {} for n in range(4)})
    made = of(fleet)
    made.versions(sorted(fleet.hosts), 5.0)
    assert made.forget_deleted(["m0", "m1", "other"]) == ["m2", "m3"]
    assert made.forget_deleted(["m0", "m1"]) == []
    with pytest.raises(RecordError, match="nothing was forgotten"):
        made.forget_deleted([])
    assert made.forget("m0") == ["m0"]
    with pytest.raises(InputError, match="nothing to forget"):
        made.forget("m0")
