"""The versions on the minions of this master: asked for, stored, compared, and repaired."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import salt.version

from ..core import times
from ..core.errors import InputError, RecordError, one_line
from ..fleet import adrift, inventory, platforms, repairs, selection, share
from ..fleet.columns import wrapped_text
from ..fleet.inventory import Drift, Record
from ..fleet.repairs import Repair
from ..fleet.request import TARGET_TYPES
from . import questions, targets
from .store import Store

log = logging.getLogger(__name__)

REPORT = "safeupdate.report"
# The values in a row of a minion that are seconds since 1970.
_TIMES = ("seen", "drifting")
# Seconds between two questions to minions that are being repaired, and that they have to answer.
LOOK_INTERVAL, ANSWER_TIMEOUT = 5.0, 30.0
_UNSURE = "its grains or pillar are not known, so nobody knows if the target matches it"

# Calls a function on minions; returns their own authenticated answers. See questions.ask.
Ask = Callable[[list[str], str, Mapping[str, Any], float], Mapping[str, object]]


def expected(opts: Mapping[str, Any], target: object, tgt_type: object) -> list[str]:
    """Return the targeted minions with accepted keys. Raises InputError if no minion matches."""
    if tgt_type not in TARGET_TYPES:
        raise InputError(f"There are no targets of the type {tgt_type!r}. Nothing was asked.")
    if not isinstance(target, str | list | tuple) or not target:
        raise InputError("A target is needed, such as '*'. Nothing was asked.")
    targets.refuse_unknowable(opts, target, str(tgt_type))
    found = targets.targeted(opts, target, str(tgt_type))
    if not found:
        raise InputError(
            f"No minion with an accepted key matches {target!r} ({tgt_type}). Nothing was "
            "asked; 'salt-key -l acc' lists the keys."
        )
    return found


def all_expected(opts: Mapping[str, Any], target: object, tgt_type: object) -> list[str]:
    """Return these minions. Raises InputError if a list also names others: it may be misspelt."""
    found = expected(opts, target, tgt_type)
    if odd := missing(target, tgt_type, found):
        raise InputError(
            f"No minion with an accepted key is called {', '.join(map(repr, odd[:5]))}. Nothing "
            "was asked or changed; 'salt-key -l acc' lists the keys."
        )
    return found


def missing(target: object, tgt_type: object, found: Iterable[str]) -> list[str]:
    """Return the names of a list that are not among the minions that were *found* by it."""
    if tgt_type != "list":
        return []
    listed = target.split(",") if isinstance(target, str) else target
    names = listed if isinstance(listed, list | tuple) else ()
    return sorted(set(map(str, names)).difference(found))


def only(given: object) -> tuple[str, ...]:
    """Return which minions to show, as :func:`.selection.parse` does."""
    return selection.parse(given)


def unsure(opts: Mapping[str, Any], target: object, tgt_type: object) -> list[str]:
    """Return the minions that the target may or may not match: the master does not know."""
    return targets.resolved(opts, target, str(tgt_type))[1]


class Inventory:
    """
    Asks minions for their versions, and reports drift.

    *ask* asks them, *number* makes a higher number for a request than all before, *master* is the
    version of this master, and *grains* returns the grains of minions that it has. Times are in
    seconds.
    """

    def __init__(
        self,
        store: Store,
        ask: Ask,
        number: Callable[[], int],
        *,
        master: str,
        grains: Callable[[list[str]], Mapping[str, Mapping[str, Any]]] = lambda minions: {},
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._ask, self._number, self._master = store, ask, number, master
        self._grains = grains
        self._clock, self._monotonic, self._pause = clock, monotonic, pause
        # When minions were asked last, and which have answered; None if none was asked.
        self._now = 0.0
        self._heard: set[str] | None = None

    def versions(
        self,
        minions: list[str],
        timeout: float,
        *,
        asks: bool = True,
        only: tuple[str, ...] = (),
    ) -> dict[str, Any]:
        """Return the versions on these minions: the sums, and a row for each wanted one."""
        records = self._records(minions, timeout, asks=asks)
        rows = inventory.rows(records, minions, self._now, self._heard)
        drifted = {drift.minion for drift in self._drifts(minions, records)}
        return {
            "schema": inventory.SCHEMA,
            **inventory.roll_up(records.values(), minions, self._now, self._heard),
            "asked": asks,
            "at": self._now,
            "only": list(only),
            "rows": selection.chosen(rows, only, master=self._master, drifted=drifted),
            "unreadable": list(self._store.problems),
        }

    def check(
        self,
        minions: list[str],
        timeout: float,
        *,
        asks: bool = True,
        repair: bool = False,
        batch: object = "10%",
        repair_timeout: float = 3600.0,
        unsure: Iterable[str] = (),
        absent: Sequence[str] = (),
        meant: Mapping[str, tuple[str, str]] = MappingProxyType({}),
        broken: str = "",
    ) -> dict[str, Any]:
        """
        Return the drift of these minions; with *repair*, repair it if possible.

        Minions that the target may not match (*unsure*) are not repaired. *absent* are names in it
        that no minion has. *meant* has the versions of the policy, with its groups, and *broken* is
        the mistake in it.
        """
        if repair and not asks:
            raise InputError(
                "A repair needs the present answers of minions. Nothing was changed; leave out "
                "'ask=False'."
            )
        at_once = max(share.parse("batch", batch).allows(len(minions)), 1)
        records = self._records(minions, timeout, asks=asks)
        drifts = self._drifts(minions, records)
        drifts += adrift.by_policy(records, meant, self._heard)
        drifts += [adrift.without_key(name) for name in absent]
        found: dict[str, Any] = {
            "schema": inventory.SCHEMA,
            "summary": inventory.drift_summary(drifts, [*minions, *absent]),
            "master": self._master,
            "asked": asks,
            "at": self._now,
            "minions": len(minions) + len(absent),
            "drift": [vars(drift) for drift in drifts],
            "unreadable": [*self._store.problems, *filter(None, (broken,))],
        }
        if repair:
            found["repaired"] = self._repair(
                drifts, records, at_once, repair_timeout, frozenset(unsure)
            )
        done = found["repaired"]["done"] if repair else {}
        open_ones = [d for d in drifts if not (d.repair and d.minion in done)]
        return {**found, "retcode": int(bool(open_ones or broken))}

    def _drifts(self, minions: Iterable[str], records: Mapping[str, Record]) -> list[Drift]:
        master, now, heard = self._master, self._now, self._heard
        return [
            drift
            for minion in minions
            for drift in inventory.drift(records.get(minion), minion, master, now, heard)
        ]

    def asked(self, minions: list[str], timeout: float) -> tuple[dict[str, Record], frozenset[str]]:
        """Ask minions; return the known data about them, and which have answered."""
        records = self._records(minions, timeout, asks=True)
        return records, frozenset(self._heard or ())

    def _records(self, minions: list[str], timeout: float, *, asks: bool) -> dict[str, Record]:
        """Return the known data with the newest answers; note which minions have answered now."""
        # If answers could not be stored, no minion is asked.
        known = self._store.records(minions)
        if not asks:
            self._now = self._clock()
            return known
        answers = self._ask(minions, REPORT, {}, timeout)
        self._now, self._heard = self._clock(), set(answers)
        lacking = [minion for minion in answers if inventory.is_lacking(answers[minion])]
        grains = self._grains(lacking) if lacking else {}
        never = {m: platforms.unsupported(answers[m], grains.get(m, {})) for m in lacking}
        fresh = {
            minion: adrift.noted(
                inventory.from_answer(minion, answers[minion], self._now, never.get(minion, "")),
                known.get(minion),
            )
            for minion in minions
            if minion in answers
        }
        self._store.set_records(fresh.values())
        return known | fresh

    # -- repairs ---------------------------------------------------------------

    def _repair(
        self,
        drifts: Sequence[Drift],
        records: Mapping[str, Record],
        at_once: int,
        timeout: float,
        unsure: frozenset[str],
    ) -> dict[str, Any]:
        """Repair some minions at a time; the first one that does not come back well ends it."""
        left = {d.minion: _UNSURE for d in drifts if d.repair and d.minion in unsure}
        open_ones = {d.minion for d in drifts} - unsure
        done: dict[str, str] = {}
        failed: dict[str, str] = {}
        while True:
            # Meanwhile, somebody may have begun a rollout, or put the version into quarantine.
            chosen, others = repairs.choose(
                [drift for drift in drifts if drift.minion in open_ones],
                records,
                master=self._master,
                quarantined=self._store.quarantined(),
                taken=self._taken(),
            )
            left |= others
            open_ones -= set(others)
            if failed or not chosen:
                break
            batch = chosen[:at_once]
            open_ones -= {each.minion for each in batch}
            failed = self._do(batch, timeout)
            done |= {each.minion: _said(each) for each in batch if each.minion not in failed}
        left |= {each.minion: "not begun, because another one failed" for each in chosen}
        return {"done": done, "failed": failed, "left": left}

    def _taken(self) -> dict[str, str]:
        """Return the minions of rollouts that have not ended, by minion."""
        return {
            minion: rollout.plan.id
            for rollout in self._store.under_way()
            for minion in rollout.minions
        }

    def _do(self, batch: list[Repair], timeout: float) -> dict[str, str]:
        """Repair these minions and wait for the end; return the failures by minion."""
        number, until = self._number(), self._monotonic() + timeout
        waiting = {each.minion: each for each in batch}
        failed: dict[str, str] = {}
        for what in (repairs.RESTART, repairs.UPDATE):
            names = [each.minion for each in batch if each.what == what]
            log.info("safeupdate: %s to repair %s", what, ", ".join(names) or "nobody")
        restarts = [each.minion for each in batch if each.what == repairs.RESTART]
        if restarts:
            given = {"reason": "safeupdate.check repair=True"}
            answers = self._ask(restarts, "safeupdate.restart", given, ANSWER_TIMEOUT)
            for minion in restarts:
                if not isinstance(answers.get(minion), Mapping):
                    failed[minion] = (
                        f"was not restarted: {one_line(answers.get(minion, 'no answer'))}"
                    )
                    del waiting[minion]
        while waiting:
            for minion, why in self._looked(waiting, number).items():
                repair = waiting.pop(minion)
                if why:
                    failed[minion] = f"{repair.what}: {why}"
            if waiting and self._monotonic() >= until:
                said = f"has not ended after {timeout:g} s; see 'safeupdate.status' there"
                return failed | dict.fromkeys(waiting, said)
            if waiting:
                self._pause(LOOK_INTERVAL)
        return failed

    def _looked(self, waiting: Mapping[str, Repair], number: int) -> dict[str, str]:
        """Return the results of the repairs that are over."""
        # A request with one number is accepted once, and answered each time, so it also asks.
        groups: dict[tuple[str, str], list[str]] = {}
        for minion, each in waiting.items():
            groups.setdefault((each.what, each.version), []).append(minion)
        over: dict[str, str] = {}
        for (what, version), names in groups.items():
            if what == repairs.UPDATE:
                asked = {"number": number, "version": version}
                answers = self._ask(names, "safeupdate.request", asked, ANSWER_TIMEOUT)
            else:
                answers = self._ask(names, REPORT, {}, ANSWER_TIMEOUT)
            for minion in names:
                answer = answers.get(minion)
                if not isinstance(answer, Mapping):
                    continue
                record = inventory.from_answer(minion, answer, self._clock())
                self._store.set_records([adrift.noted(record, self._store.record(minion))])
                told, refused = answer.get("number"), answer.get("refused")
                why = repairs.outcome(
                    waiting[minion],
                    record,
                    number,
                    told if isinstance(told, int) else 0,
                    inventory.text(refused),
                )
                if why is not None:
                    over[minion] = why
        return over

    # -- useless records -------------------------------------------------------

    def forget(self, minion: str) -> list[str]:
        """Drop the data about a minion. Raises InputError if there is no such data."""
        gone = self._store.forget(minion)
        if not gone:
            raise InputError(f"Nothing is known about {minion!r}, so there is nothing to forget.")
        return gone

    def forget_deleted(self, accepted: Iterable[str]) -> list[str]:
        """
        Drop the data about minions without an *accepted* key.

        Raises RecordError if there is no key at all: then the keys are missing, not the minions.
        """
        there = set(accepted)
        known = self._store.records()
        if not there and known:
            raise RecordError(
                "There is no accepted key at all, so nothing was forgotten. If the directory of "
                "the keys is there, 'safeupdate.forget' with a name drops the data about a minion."
            )
        return self._store.forget(set(known) - there)


def _said(repair: Repair) -> str:
    return f"updated to {repair.version}" if repair.what == repairs.UPDATE else "restarted"


def made(opts: Mapping[str, Any]) -> Inventory:
    """Return the inventory of the master with these options."""

    def ask(
        minions: list[str], fun: str, given: Mapping[str, Any], timeout: float
    ) -> Mapping[str, object]:
        return questions.ask(opts, minions, fun, given or (), timeout)

    master = str(salt.version.__version__)
    return Inventory(
        Store(opts),
        ask,
        lambda: int(time.time() * 1e6),
        master=master,
        grains=lambda minions: targets.grains_of(opts, minions),
    )


def forget(opts: Mapping[str, Any], minion: object, deleted: object) -> list[str]:
    """Drop the data about a minion, or about all *deleted* ones; return their names."""
    if bool(minion) == bool(deleted) or not isinstance(minion, str | None):
        raise InputError("Give the ID of a minion, or 'deleted=True'. Nothing was forgotten.")
    if minion:
        return made(opts).forget(minion)
    return made(opts).forget_deleted(targets.targeted(opts, "*", "glob"))


def dated(found: Mapping[str, Any], zone: object) -> dict[str, Any]:
    """Return what :class:`Inventory` found with ``times`` by ISO 8601, of each minion as well."""
    told = times.beside(found, ("at",), zone)
    if "rows" in told:
        told["rows"] = {
            minion: times.beside(row, _TIMES, zone) if "seen" in row else row
            for minion, row in told["rows"].items()
        }
    return told


def shown(data: object) -> str:
    """Return the findings of :class:`Inventory` as text; anything else unchanged."""
    if not isinstance(data, Mapping) or "summary" not in data:
        return str(data)
    return wrapped_text("\n".join(inventory.lines(data, details=bool(data.get("details")))))
