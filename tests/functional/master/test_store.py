"""What the master keeps of its fleet, in the cache that Salt has by default."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import pwd
import stat
import threading
from dataclasses import replace

import pytest
import salt.cache
import salt.config

from saltext_safeupdate.core.errors import CacheError, InputError, LockHeldError, RecordError
from saltext_safeupdate.fleet import controller, inventory, plan, request, rollout
from saltext_safeupdate.fleet.inventory import Record
from saltext_safeupdate.fleet.plan import Facts, Plan
from saltext_safeupdate.fleet.rollout import Mode, Rollout, Step
from saltext_safeupdate.master.store import MINIONS, ROLLOUTS, Store

FORK = multiprocessing.get_context("fork")
# Salt before 3008 cuts "p" and "." off the end of what it lists.
NAMES = [*(f"m{number}" for number in range(40)), "app", "db.p", "web.", "ü x"]


def opts_of(place: pathlib.Path) -> dict[str, object]:
    opts = salt.config.DEFAULT_MASTER_OPTS.copy()
    opts.update(cachedir=str(place), root_dir=str(place), extension_modules=str(place))
    return opts


@pytest.fixture
def opts(tmp_path: pathlib.Path) -> dict[str, object]:
    return opts_of(tmp_path)


def record(minion: str, seen: float = 1.0, **more: object) -> Record:
    return Record(minion=minion, seen=seen, running="3008.3", problems=("a\udc80b",), **more)


def made(name: str = "20261122T0500app") -> Plan:
    wanted = request.from_mapping({"groups": ["*"], "version": "3008.3", "soak": 0})
    return plan.make(
        wanted,
        {"group 1": NAMES},
        {minion: Facts(version="3007.15") for minion in NAMES},
        plan_id=name,
        number=20261122050000000000,
        now=5.0,
    )


def begun(store: Store, name: str = "20261122T0500app") -> Rollout:
    found = rollout.begin(made(name), 5.0)
    store.save_rollout(found)
    return found


# -- records -------------------------------------------------------------------------------


def test_records_come_back_as_they_were(opts: dict[str, object]) -> None:
    records = [record(minion, quarantined=("1", "2")) for minion in NAMES]
    Store(opts).set_records(records)
    store = Store(opts)
    assert store.records() == {each.minion: each for each in records}
    assert store.records(["app", "web.", "nobody"]) == {
        each.minion: each for each in records if each.minion in ("app", "web.")
    }
    assert store.record("app") == records[NAMES.index("app")]
    assert store.record("nobody") is None
    assert not store.problems


def test_only_newer_answers_count(opts: dict[str, object]) -> None:
    store = Store(opts)
    store.set_records([record("app", 2.0, last_result="new")])
    store.set_records([record("app", 1.0, last_result="old"), record("db.p", 1.0)])
    assert store.records()["app"].last_result == "new"


def test_what_another_process_has_written_meanwhile_counts(opts: dict[str, object]) -> None:
    one, other = Store(opts), Store(opts)
    one.set_records([record("app", 1.0), record("db.p", 1.0)])
    assert set(one.records()) == {"app", "db.p"}
    other.set_records([record("app", 3.0, last_result="new")])
    other.forget("db.p")
    one.set_records([record("app", 2.0)])
    for store in (one, other):
        assert store.records() == {"app": record("app", 3.0, last_result="new")}


def test_what_is_unchanged_is_checked_once(
    opts: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(opts).set_records(map(record, NAMES))
    checked: list[object] = []
    real = inventory.from_data
    monkeypatch.setattr(inventory, "from_data", lambda data: checked.append(data) or real(data))
    store = Store(opts)
    known = store.records()
    store.set_records(record(name, 2.0) for name in known)
    assert len(checked) == len(NAMES)
    assert {each.seen for each in store.records().values()} == {2.0}


def test_forgotten_minions_are_gone(opts: dict[str, object]) -> None:
    store = Store(opts)
    store.set_records(map(record, NAMES))
    assert store.forget(["app", "web.", "nobody"]) == ["app", "web."]
    assert store.forget("m1") == ["m1"]
    assert set(Store(opts).records()) == set(NAMES) - {"app", "web.", "m1"}
    assert store.forget("m1") == []


def test_processes_that_write_at_once_lose_nothing(opts: dict[str, object]) -> None:
    def write(which: str) -> None:
        store = Store(opts)
        for number in range(40):
            store.set_records([record(f"{which}{number}")])

    writers = [FORK.Process(target=write, args=(which,)) for which in "ab"]
    for each in writers:
        each.start()
    for each in writers:
        each.join(120)
    assert [each.exitcode for each in writers] == [0, 0]
    assert len(Store(opts).records()) == 80


# -- damage --------------------------------------------------------------------------------

DAMAGE = [b"", b"\xc1", b"\x81\xa1", b"half of it", "foreign", "packed", "other", 5, ["x"]]


def damage(opts: dict[str, object], bank: str, key: str, what: object) -> None:
    """Have a broken disk, or another program, write a document."""
    cache = salt.cache.Cache(opts)
    if isinstance(what, bytes):
        pathlib.Path(str(opts["cachedir"]), bank, f"{key}.p").write_bytes(what)
    elif what == "packed":
        found = cache.fetch(bank, key)
        cache.store(bank, key, {**found, "packed": found["packed"][:-9]})
    elif what == "other":
        cache.store(bank, key, {**cache.fetch(bank, key), "schema": 99})
    else:
        cache.store(bank, key, {"foreign": "data"} if what == "foreign" else what)


@pytest.mark.parametrize("what", DAMAGE, ids=repr)
def test_a_damaged_record_is_said_and_the_others_stay(
    opts: dict[str, object], what: object, caplog: pytest.LogCaptureFixture
) -> None:
    Store(opts).set_records(map(record, NAMES))
    keys = salt.cache.Cache(opts).list(MINIONS)
    damage(opts, MINIONS, keys[0], what)
    store = Store(opts)
    left = store.records()
    assert 0 < len(left) < len(NAMES)
    assert [keys[0] in problem for problem in store.problems] == [True]
    assert f"salt-run cache.flush {MINIONS} {keys[0]}" in caplog.text
    lost = set(NAMES) - set(left)
    store.set_records(map(record, lost))
    # What was there is kept to be looked at.
    assert any("aside" in path.name for path in pathlib.Path(str(opts["cachedir"])).rglob("*"))
    healed = Store(opts)
    assert set(healed.records()) == set(NAMES)
    assert not healed.problems


@pytest.mark.parametrize(
    "bad",
    [
        None,
        5,
        {},
        {"minion": ""},
        {"minion": "x", "seen": "now"},
        {"minion": "x", "seen": 1e400},
        {"minion": "x", "seen": 1.0, "running": 5},
        {"minion": "x", "seen": 1.0, "problems": "text"},
        {"minion": "x", "seen": True, "problems": [5]},
    ],
    ids=repr,
)
def test_one_bad_entry_costs_no_other(opts: dict[str, object], bad: object) -> None:
    store = Store(opts)
    store.set_records([record("app")])
    (key,) = salt.cache.Cache(opts).list(MINIONS)
    listed = store.cache.read(MINIONS, key)
    store.cache.write(MINIONS, key, [bad, *listed])
    if bad == {"minion": "x", "seen": 1e400}:
        with pytest.raises(RecordError, match="Infinity"):
            store.cache.read(MINIONS, key)
        return
    assert store.records() == {"app": record("app")}
    assert len(store.problems) == 1


@pytest.mark.parametrize("what", DAMAGE, ids=repr)
@pytest.mark.parametrize("ending", [".head", ".plan", ".0a"])
def test_a_damaged_rollout_is_never_no_rollout(
    opts: dict[str, object], ending: str, what: object
) -> None:
    store = Store(opts)
    found = begun(store)
    begun(store, "other")
    damage(opts, ROLLOUTS, f"{found.plan.id}{ending}", what)
    fresh = Store(opts)
    assert fresh.rollouts() == [found.plan.id, "other"]
    with pytest.raises(RecordError, match=r"salt-run cache\.flush safeupdate/rollouts"):
        fresh.rollout(found.plan.id)
    assert fresh.rollout("other") is not None
    fresh.remove_rollouts([found.plan.id])
    assert fresh.rollouts() == ["other"]
    assert fresh.plans() == ["other"]
    assert fresh.rollout(found.plan.id) is None


@pytest.mark.parametrize(
    "change",
    [
        {"mode": "asleep"},
        {"wave": 99},
        {"wave": -1},
        {"part": 1},
        {"elapsed": "long"},
        {"elapsed": None},
        {"question": 1.5},
        {"quarantined": 1},
        {"history": [["x"]]},
        {"names": ["step"]},
        {"names": 5},
        {"schema": 99},
    ],
    ids=repr,
)
def test_a_rollout_whose_values_make_no_sense_is_not_believed(
    opts: dict[str, object], change: dict[str, object]
) -> None:
    store = Store(opts)
    found = begun(store)
    key = f"{found.plan.id}.head"
    head = store.cache.read(ROLLOUTS, key)
    head["rollout"] |= change
    store.cache.write(ROLLOUTS, key, head)
    with pytest.raises((RecordError, InputError), match=r"cannot be read|another version"):
        Store(opts).rollout(found.plan.id)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [5],
        [["m0"]],
        lambda rows: rows[1:],
        lambda rows: [["stranger", *rows[0][1:]], *rows[1:]],
        lambda rows: [[rows[0][0], "asleep", *rows[0][2:]], *rows[1:]],
        lambda rows: [[rows[0][0], *(["x"] * (len(rows[0]) - 1))], *rows[1:]],
    ],
)
def test_minions_whose_values_make_no_sense_are_not_believed(
    opts: dict[str, object], rows: object
) -> None:
    store = Store(opts)
    found = begun(store)
    key = f"{found.plan.id}.0a"
    page = store.cache.read(ROLLOUTS, key)
    page["rows"] = rows(page["rows"]) if callable(rows) else rows
    store.cache.write(ROLLOUTS, key, page)
    with pytest.raises(RecordError, match="cannot be read"):
        Store(opts).rollout(found.plan.id)


def test_a_damaged_quarantine_is_not_an_empty_one(opts: dict[str, object]) -> None:
    store = Store(opts)
    store.quarantine("3008.2", "two canaries")
    damage(opts, ROLLOUTS, "quarantine", b"")
    for call in (store.quarantined, lambda: store.allow("3008.2")):
        with pytest.raises(RecordError, match="quarantine"):
            call()


# -- rollouts ------------------------------------------------------------------------------


def test_a_rollout_comes_back_as_it_was(opts: dict[str, object]) -> None:
    store = Store(opts, page=7)
    found = begun(store)
    for now in range(10, 200, 5):
        controller.advance(found, [], float(now))
        minion = found.minions[NAMES[now % len(NAMES)]]
        minion.reason, minion.phases = "ü \udc80\x1b", {"installing": 2.5}
        store.save_rollout(found)
        assert Store(opts).rollout(found.plan.id) == found


@pytest.mark.parametrize(("first", "then"), [(7, 500), (500, 7), (7, 11)])
def test_pages_may_get_another_size(opts: dict[str, object], first: int, then: int) -> None:
    begun(Store(opts, page=first))
    store = Store(opts, page=then)
    (name,) = store.rollouts()
    found = store.rollout(name)
    assert found is not None
    for minion in found.minions.values():
        minion.number += 1
        store.save_rollout(found)
        assert Store(opts).rollout(name) == found


def test_a_save_that_is_cut_off_changes_nothing(opts: dict[str, object]) -> None:
    store = Store(opts, page=7)
    found = begun(store)
    before = Store(opts).rollout(found.plan.id)
    writes = 0
    real = store.cache.write

    class PowerCutError(Exception):
        pass

    def cut(bank: str, key: str, document: object) -> None:
        nonlocal left, writes
        if not left:
            raise PowerCutError
        left -= 1
        writes += 1
        real(bank, key, document)

    for minion in found.minions.values():
        minion.step = Step.ASKED
    store.cache.write = cut  # type: ignore[method-assign]
    for allowed in range(8):
        left = allowed
        with pytest.raises(PowerCutError):
            store.save_rollout(found)
        assert Store(opts, page=7).rollout(found.plan.id) == before
    assert writes > 7
    left = 99
    store.save_rollout(found)
    assert Store(opts).rollout(found.plan.id) == found


def test_only_what_has_changed_is_written(opts: dict[str, object]) -> None:
    store = Store(opts, page=7)
    found = begun(store)
    written: list[str] = []
    real = store.cache.write

    def noted(bank: str, key: str, document: object) -> None:
        written.append(key.partition(".")[2])
        real(bank, key, document)

    store.cache.write = noted  # type: ignore[method-assign]
    store.save_rollout(found)
    assert written == ["head"]
    found.minions[found.plan.minions[8]].step = Step.ASKED
    store.save_rollout(found)
    found.minions[found.plan.minions[8]].phases = {"installing": 1.0}
    store.save_rollout(found)
    assert written == ["head", "1b", "head", "1a", "head"]


def test_two_engines_never_drive_one_rollout(opts: dict[str, object]) -> None:
    one, other = Store(opts), Store(opts)
    found = begun(one)
    with pytest.raises(LockHeldError, match="Only one engine"):
        begun(other)
    theirs = other.rollout(found.plan.id)
    assert theirs is not None
    other.save_rollout(theirs)
    with pytest.raises(LockHeldError, match="Only one engine"):
        one.save_rollout(found)
    other.save_rollout(theirs)


def test_who_looks_at_what_is_under_way_saves_over_no_other_engine(opts: dict[str, object]) -> None:
    one, other = Store(opts), Store(opts)
    found = begun(one)
    theirs = other.rollout(found.plan.id)
    assert theirs is not None
    other.save_rollout(theirs)
    assert [each.plan.id for each in one.under_way()] == [found.plan.id]
    with pytest.raises(LockHeldError, match="Only one engine"):
        one.save_rollout(found)


def test_two_engines_that_save_at_the_same_moment_do_not_both(opts: dict[str, object]) -> None:
    """One has looked who saved last; the other one does so before the first one writes."""
    one, other = Store(opts), Store(opts)
    found = begun(one)
    theirs = other.rollout(found.plan.id)
    assert theirs is not None
    refused: list[str] = []

    def save_theirs() -> None:
        try:
            other.save_rollout(theirs)
        except LockHeldError as err:
            refused.append(str(err))

    second = threading.Thread(target=save_theirs)
    real = one.cache.write

    def write(bank: str, key: str, document: object) -> None:
        if not second.ident:
            second.start()
            second.join(0.3)
            assert second.is_alive(), "it waits"
        real(bank, key, document)

    one.cache.write = write  # type: ignore[method-assign]
    one.save_rollout(found)
    second.join()
    assert "Only one engine" in refused[0]
    one.save_rollout(found)


def test_what_is_saved_while_it_is_read_is_read_again(opts: dict[str, object]) -> None:
    writer, reader = Store(opts, page=7), Store(opts)
    found = begun(writer)
    name = found.minions[found.plan.minions[-1]]
    saves = iter(range(3))
    real = reader.cache.read

    def read(bank: str, key: str) -> object:
        told = real(bank, key)
        if key.endswith(".head") and next(saves, None) is not None:
            # As often as its page takes the place of the one that the head names.
            for _ in range(2):
                name.number += 1
                writer.save_rollout(found)
        return told

    reader.cache.read = read  # type: ignore[method-assign]
    assert reader.rollout(found.plan.id) == found
    assert next(saves, None) is None


def test_plans_are_never_changed(opts: dict[str, object]) -> None:
    store = Store(opts)
    store.save_plan(made())
    store.save_plan(made())
    assert store.plan(made().id) == made()
    assert (store.plans(), store.rollouts()) == ([made().id], [])
    assert store.plan("another") is None
    with pytest.raises(InputError, match="another plan"):
        store.save_plan(plan.from_data({**plan.to_data(made()), "failed": 7}))


def ended(store: Store, name: str, mode: Mode, looked: float) -> Rollout:
    found = begun(store, name)
    found.mode, found.looked = mode, looked
    for number, minion in enumerate(found.minions.values()):
        minion.step, minion.number, minion.seconds = Step.DONE, 7 + number, 1.0 + number
    store.save_rollout(found)
    return found


def test_an_outline_is_read_without_the_minions(
    opts: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(Store(opts), "one", Mode.FINISHED, 9.0)
    begun(Store(opts), "two")
    store = Store(opts)
    monkeypatch.setattr(store, "plan", None)
    over, other = store.outlines().values()
    assert (over.mode, other.mode) == (Mode.FINISHED, Mode.RUNNING)
    assert (over.looked, over.version, over.newest) == (9.0, "3008.3", 6 + len(NAMES))
    assert over.usual == (1 + len(NAMES)) / 2
    assert (over.counts, other.counts) == ({"done": len(NAMES)}, {"waiting": len(NAMES)})
    assert other.usual == other.newest == 0
    monkeypatch.undo()
    assert [found.plan.id for found in store.under_way()] == ["two"]
    assert store.outline("three") is None


@pytest.mark.parametrize(
    "change",
    [{"mode": "asleep"}, {"counts": 5}, {"counts": {"done": "x"}}, {"newest": 1.5}, {"looked": ""}],
    ids=repr,
)
def test_an_outline_that_makes_no_sense_is_not_believed(
    opts: dict[str, object], change: dict[str, object]
) -> None:
    store = Store(opts)
    key = f"{begun(store).plan.id}.head"
    head = store.cache.read(ROLLOUTS, key)
    store.cache.write(ROLLOUTS, key, {**head, "rollout": {**head["rollout"], **change}})
    for call in (store.outlines, lambda: list(store.under_way())):
        with pytest.raises(RecordError, match="cannot be read"):
            call()
    del head["rollout"]["usual"]
    store.cache.write(ROLLOUTS, key, head)
    with pytest.raises(RecordError, match="it has no 'usual'"):
        store.outlines()


def test_only_what_is_over_is_removed_by_its_age_and_number(opts: dict[str, object]) -> None:
    store, day = Store(opts, page=7), 86400.0
    for number in range(4):
        ended(store, f"over{number}", Mode.FINISHED, (100 + number) * day)
    ended(store, "long-over", Mode.ABORTED, 10 * day)
    ended(store, "broken", Mode.FINISHED, day)
    damage(opts, ROLLOUTS, "broken.head", "half of it")
    for mode in (Mode.PAUSED, Mode.STOPPED, Mode.RUNNING, Mode.ABORTING):
        ended(store, mode.value, mode, day)
    store.quarantine("1", "why")
    for number in range(4):
        store.save_plan(replace(made(f"plan{number}"), created=(100 + number) * day))
    store.save_plan(replace(made("long-planned"), created=10 * day))

    store = Store(opts)
    everything = store.rollouts() + store.plans()
    assert store.tidy(110 * day, seconds=100 * day) == []
    assert store.tidy(110.5 * day, seconds=100 * day) == ["long-over", "long-planned"]
    assert store.tidy(110.5 * day, seconds=100 * day, kept=3) == ["over0", "plan0"]
    left = set(everything) - {"long-over", "long-planned", "over0", "plan0"}
    assert {*store.rollouts(), *store.plans()} == left
    assert store.rollout("over1") is not None
    assert store.quarantined() == {"1": "why"}
    keys = {key.partition(".")[0] for key in store.cache.keys(ROLLOUTS)}
    assert keys == left | {"quarantine"}
    # A clock that was wrong makes nothing old.
    assert store.tidy(0.0) == []
    assert store.tidy(1e5 * day, seconds=100 * day) == []
    assert store.tidy(1e5 * day, seconds=100 * day, kept=2) == ["over1", "plan1"]
    assert store.tidy(1e5 * day, seconds=100 * day, minions=len(NAMES)) == ["over2"]


@pytest.mark.parametrize("name", ["", "a/b", "../x", "a.b", "x" * 41, "a b", "é"])
def test_a_name_is_no_path(opts: dict[str, object], name: str) -> None:
    store = Store(opts)
    for call in (store.plan, store.rollout, lambda name: store.remove_rollouts([name])):
        with pytest.raises(InputError, match="no name of a rollout"):
            call(name)
    assert not os.listdir(str(opts["cachedir"]))


def test_a_version_is_in_quarantine_until_it_is_allowed(opts: dict[str, object]) -> None:
    store = Store(opts)
    assert store.quarantined() == {}
    store.quarantine("3008.2", "two canaries")
    assert Store(opts).quarantined() == {"3008.2": "two canaries"}
    assert store.allow("3008.2", "jo", 5.0)
    assert not store.allow("3008.2")
    assert Store(opts).quarantined() == {}
    told = {"3008.2": {"by": "jo", "at": 5.0, "because": "two canaries"}}
    assert Store(opts).allowed() == told
    damage(opts, ROLLOUTS, "allowed", b"")
    assert Store(opts).allowed() == {}, "it decides nothing"
    store.quarantine("3008.2", "again")
    assert store.allow("3008.2", "ann", 6.0)


# -- the cache itself ----------------------------------------------------------------------


def test_nobody_else_may_look(opts: dict[str, object]) -> None:
    store = Store(opts)
    begun(store)
    store.set_records([record("app")])
    place = pathlib.Path(str(opts["cachedir"]), "safeupdate")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    files = [path for path in place.rglob("*") if path.is_file()]
    assert files
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


@pytest.mark.parametrize(
    "settings",
    [
        {"cache": "nothing_like_this"},
        {"cachedir": "/proc/version/below"},
        {"cachedir": "/proc/nowhere"},
    ],
    ids=str,
)
def test_a_cache_that_cannot_be_used_is_an_error(
    opts: dict[str, object], settings: dict[str, str]
) -> None:
    store = Store({**opts, **settings})
    calls = [lambda: store.set_records([record("app")]), lambda: store.save_plan(made())]
    if settings.get("cachedir") != "/proc/nowhere":
        calls += [store.records, store.rollouts, store.quarantined, lambda: store.plan("x")]
    for call in calls:
        with pytest.raises(CacheError, match=r"Nothing was started|nothing was stored"):
            call()


def test_what_may_not_be_looked_at_is_not_taken_for_nothing(opts: dict[str, object]) -> None:
    begun(Store(opts))

    def look() -> None:
        store = Store(opts)
        os.setuid(pwd.getpwnam("nobody").pw_uid)
        for call in (store.rollouts, store.records, store.quarantined, lambda: store.rollout("x")):
            with pytest.raises(CacheError, match=r"Permission denied.*Nothing was started"):
                call()

    nobody = FORK.Process(target=look)
    nobody.start()
    nobody.join(120)
    assert nobody.exitcode == 0
