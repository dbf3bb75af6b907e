"""
The data about the fleet in the master's cache: records of minions, plans, and rollouts.


Each part has one writer. The runner writes plans once, and never changes them. Only the engine
writes rollouts: to pause or end one, a runner asks the engine, so neither overwrites the other's
data. Records and the quarantine are changed under a lock.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.errors import InputError, LockHeldError, RecordError
from ..fleet import inventory, stored, tidying
from ..fleet import plan as plans
from ..fleet.inventory import Record
from ..fleet.plan import Plan
from ..fleet.rollout import Rollout
from ..fleet.stored import Outline
from .cache import ROOT, Cache
from .store_lock import ENGINE, RECORDS, locked

log = logging.getLogger(__name__)

MINIONS, ROLLOUTS = f"{ROOT}/minions", f"{ROOT}/rollouts"
# The number of documents with the records of minions: one for each minion would take too long to
# read, one for all too long to write.
SHEETS = 32
# Seconds by which one process may note an answer later than another one.
_MEANWHILE = 3600.0
# The number of minions on one page of a rollout.
PAGE = 500
_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")
_HEAD, _PLAN, _QUARANTINE, _ALLOWED = ".head", ".plan", "quarantine", "allowed"
# The most versions for which it is stored who has allowed them.
_MOST_ALLOWED = 100
_OTHER = {"a": "b", "b": "a"}


@dataclass
class _Saved:
    """
    The stored state of a rollout, as this process knows it.

    *pages* has the place and the revision of each page, *rows* its content.
    """

    revision: str = ""
    pages: list[tuple[str, str]] = field(default_factory=list)
    rows: list[list[stored.Row]] = field(default_factory=list)


class Store:
    """
    All data about the fleet that outlives a process.

    Every method raises CacheError if the cache cannot be used at all, and RecordError if something
    in it is unreadable: that is never taken for "nothing there". *opts* are the master's.
    ``problems`` says which records could not be read.
    """

    def __init__(self, opts: Mapping[str, Any], *, page: int = PAGE) -> None:
        self.cache = Cache(opts)
        self.locks = os.path.join(str(opts["cachedir"]), ROOT)
        self._page = page
        self._saved: dict[str, _Saved] = {}
        # The stored text of sheets that were read and checked, and their records.
        self._sheets: dict[int, tuple[str, dict[str, Record]]] = {}
        self.problems: list[str] = []

    # -- records of minions ----------------------------------------------------

    def record(self, minion: str) -> Record | None:
        """Return the record of a minion; None if it has no record."""
        return self._sheet(_sheet_of(minion)).get(minion)

    def records(self, minions: Iterable[str] | None = None) -> dict[str, Record]:
        """
        Return the records by minion; only for these minions, if they are named.

        ``problems`` names the unreadable ones: their minions are unknown until they answer
        again.
        """
        wanted = None if minions is None else set(minions)
        sheets = range(SHEETS) if wanted is None else sorted({_sheet_of(m) for m in wanted})
        return {
            minion: record
            for sheet in sheets
            for minion, record in self._sheet(sheet).items()
            if wanted is None or minion in wanted
        }

    def set_records(self, records: Iterable[Record]) -> None:
        """Store answers of minions. An earlier answer does not replace a later one."""
        sheets: dict[int, list[Record]] = {}
        for record in records:
            sheets.setdefault(_sheet_of(record.minion), []).append(record)
        with locked(self.locks, RECORDS):
            for sheet, listed in sorted(sheets.items()):
                known = self._sheet(sheet, keep=True)
                for record in listed:
                    there = known.get(record.minion, record)
                    # A much later answer was noted by a wrong clock.
                    if not 0 < there.seen - record.seen < _MEANWHILE:
                        known[record.minion] = record
                self._write_sheet(sheet, known)

    def forget(self, minions: str | Iterable[str]) -> list[str]:
        """Drop the records of minions; return the minions that had one."""
        wanted = {minions} if isinstance(minions, str) else set(minions)
        gone: list[str] = []
        with locked(self.locks, RECORDS):
            for sheet in sorted({_sheet_of(minion) for minion in wanted}):
                known = self._sheet(sheet, keep=True)
                if dropped := wanted.intersection(known):
                    gone += dropped
                    rest = {name: record for name, record in known.items() if name not in wanted}
                    self._write_sheet(sheet, rest)
        return sorted(gone)

    def _write_sheet(self, sheet: int, records: Mapping[str, Record]) -> None:
        data = [inventory.to_data(records[minion]) for minion in sorted(records)]
        self.cache.write(MINIONS, _sheet_key(sheet), data)

    def _sheet(self, sheet: int, *, keep: bool = False) -> dict[str, Record]:
        """Return the records of a sheet. *keep* an unreadable one: it is about to be replaced."""
        key = _sheet_key(sheet)
        problems: list[str] = []
        found: dict[str, Record] = {}
        try:
            packed = self.cache.packed(MINIONS, key)
            if packed is not None and self._sheets.get(sheet, ("", {}))[0] == packed:
                return dict(self._sheets[sheet][1])
            listed = [] if packed is None else self.cache.unpacked(MINIONS, key, packed)
        except RecordError as err:
            packed, listed, problems = None, [], [str(err)]
        for data in listed if isinstance(listed, list) else [listed]:
            try:
                record = inventory.from_data(data)
            except ValueError as err:
                problems.append(f"An entry in '{key}' of the bank '{MINIONS}' is not valid: {err}.")
            else:
                found[record.minion] = record
        for problem in problems:
            self._say(f"{problem} Its minions are unknown until they answer again.")
        if keep and problems:
            self.cache.set_aside(MINIONS, key)
        if packed is not None and not problems:
            self._sheets[sheet] = (packed, dict(found))
        return found

    def _say(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)
            log.error("safeupdate: %s", problem)

    # -- plans -----------------------------------------------------------------

    def save_plan(self, plan: Plan) -> None:
        """Store a plan. Raises InputError if there is another one with that name."""
        key = _checked(plan.id) + _PLAN
        data = plans.to_data(plan)
        there = self.cache.read(ROLLOUTS, key)
        if there is None:
            self.cache.write(ROLLOUTS, key, data)
        elif stored.plan(there) != plan:
            raise InputError(f"There is another plan {plan.id} already. Plans are never changed.")

    def plan(self, plan_id: str) -> Plan | None:
        """Return a plan; None if missing. Raises InputError if another version has stored it."""
        key = _checked(plan_id) + _PLAN
        data = self.cache.read(ROLLOUTS, key)
        if data is None:
            return None
        try:
            found = stored.plan(data)
        except ValueError as err:
            raise self.cache.damaged(ROLLOUTS, key, str(err)) from err
        if found.id != plan_id:
            raise self.cache.damaged(ROLLOUTS, key, f"it is the plan {found.id!r}")
        return found

    def plans(self) -> list[str]:
        """Return the names of all plans, also of those that cannot be read."""
        return self._named(_PLAN)

    # -- rollouts --------------------------------------------------------------

    def rollouts(self) -> list[str]:
        """Return the names of all rollouts, also of those that cannot be read."""
        return self._named(_HEAD)

    def outlines(self) -> dict[str, Outline]:
        """Return the outlines of all rollouts, newest last."""
        found = ((name, self.outline(name)) for name in self.rollouts())
        return {name: outline for name, outline in found if outline is not None}

    def outline(self, rollout_id: str) -> Outline | None:
        """Return a rollout without its minions: much less to read. Raises as :meth:`rollout`."""
        name = _checked(rollout_id)
        told = self._head(name)
        if told is None:
            return None
        try:
            return stored.outline(told["rollout"])
        except (AttributeError, KeyError, TypeError, ValueError) as err:
            raise self.cache.damaged(ROLLOUTS, name + _HEAD, _why(err)) from err

    def under_way(self) -> Iterator[Rollout]:
        """Read the rollouts that are not over: to look at them, not to save them."""
        for name, outline in self.outlines().items():
            known = self._saved.get(name)
            found = None if outline.mode.final else self.rollout(name)
            # The driving engine has an earlier state, and must not save that over this one.
            self._saved.pop(name, None)
            if known is not None:
                self._saved[name] = known
            if found is not None:
                yield found

    def rollout(self, rollout_id: str) -> Rollout | None:
        """
        Return the last saved state of a rollout, to continue from there; None if it is missing.

        Raises RecordError if it, a part of it or its plan cannot be read, and InputError if
        another version has stored it.
        """
        name = _checked(rollout_id)
        while (told := self._head(name)) is not None:
            try:
                return self._whole(name, told)
            except RecordError:
                # Its engine may have saved it meanwhile, page by page.
                if (self._head(name) or {}).get("revision") == told.get("revision"):
                    raise
        return None

    def _whole(self, name: str, told: Mapping[str, Any]) -> Rollout:
        try:
            saved = _Saved(str(told["revision"]), [(str(a), str(b)) for a, b in told["pages"]])
            rows = [row for n in range(len(saved.pages)) for row in self._rows(name, saved, n)]
            plan = self.plan(name)
            if plan is None:
                raise ValueError("its plan is not there")
            found = stored.rollout(plan, told["rollout"], rows)
        except (AttributeError, KeyError, TypeError, ValueError) as err:
            raise self.cache.damaged(ROLLOUTS, name + _HEAD, _why(err)) from err
        # Pages of another size are all written again.
        saved.rows = self._paged(found) if told.get("page") == self._page else []
        self._saved[name] = saved
        return found

    def save_rollout(self, rollout: Rollout) -> None:
        """
        Save the state of a rollout: all of it, or nothing if this process ends meanwhile.

        Unchanged pages are not written. Raises LockHeldError if somebody else has saved it
        since this process has read or saved it.
        """
        with locked(self.locks, ENGINE):
            self._save(_checked(rollout.plan.id), rollout)

    def _save(self, name: str, rollout: Rollout) -> None:
        told = self._head(name)
        before = self._saved.get(name, _Saved())
        if (told or {}).get("revision", "") != before.revision:
            raise LockHeldError(
                f"Another process has saved the rollout {name} meanwhile, so it is left to that. "
                "Only one engine may drive it: see whether two masters use one cache, and remove "
                "the engine from one of them."
            )
        if told is None:
            self.save_plan(rollout.plan)
        paged = self._paged(rollout)
        saved = _Saved(secrets.token_hex(8), before.pages[: len(paged)], paged)
        for number, rows in enumerate(paged):
            if number < len(before.rows) and before.rows[number] == rows:
                continue
            # Next to the page that counts until the head names this one.
            slot = _OTHER[before.pages[number][0]] if number < len(before.pages) else "a"
            page = {"revision": saved.revision, "rows": rows}
            self.cache.write(ROLLOUTS, f"{name}.{number}{slot}", page)
            saved.pages[number : number + 1] = [(slot, saved.revision)]
        head = {
            "revision": saved.revision,
            "page": self._page,
            "pages": saved.pages,
            "rollout": stored.head(rollout),
        }
        self.cache.write(ROLLOUTS, name + _HEAD, head)
        self._saved[name] = saved

    def remove_rollouts(self, rollout_ids: Iterable[str]) -> None:
        """Remove rollouts and their plans, readable or not."""
        names = set(map(_checked, rollout_ids))
        keys = [key for key in self.cache.keys(ROLLOUTS) if key.partition(".")[0] in names]
        # The heads are removed last: until then the rest can be found again.
        for key in sorted(keys, key=lambda key: key.endswith(_HEAD)):
            self.cache.remove(ROLLOUTS, key)
        for name in names:
            self._saved.pop(name, None)

    def tidy(self, now: float, **limits: Any) -> list[str]:
        """
        Remove rollouts that are over and need not be kept (:mod:`..fleet.tidying`); return them.

        Only for the engine: nobody else knows that no plan is begun meanwhile. Unreadable rollouts
        stay, and so do rollouts that are not over, however old they are.
        """
        over: dict[str, Outline] = {}
        rollouts = self.rollouts()
        for name in rollouts:
            with contextlib.suppress(InputError, RecordError):
                outline = self.outline(name)
                if outline is not None and outline.mode.final:
                    over[name] = outline
        never_run: dict[str, float] = {}
        for name in set(self.plans()).difference(rollouts):
            with contextlib.suppress(InputError, RecordError):
                plan = self.plan(name)
                if plan is not None:
                    never_run[name] = plan.created
        gone = tidying.gone(over, never_run, now, **limits)
        if gone:
            self.remove_rollouts(gone)
        return gone

    def _head(self, name: str) -> dict[str, Any] | None:
        told = self.cache.read(ROLLOUTS, name + _HEAD)
        if told is None or (isinstance(told, dict) and "revision" in told):
            return told
        raise self.cache.damaged(ROLLOUTS, name + _HEAD, "it is no rollout")

    def _rows(self, name: str, saved: _Saved, number: int) -> list[Any]:
        slot, revision = saved.pages[number]
        page = self.cache.read(ROLLOUTS, f"{name}.{number}{slot}")
        if page is None or page["revision"] != revision:
            raise ValueError("a part of it is missing, or was saved at another time")
        return list(page["rows"])

    def _paged(self, rollout: Rollout) -> list[list[stored.Row]]:
        rows = stored.rows(rollout)
        return [rows[at : at + self._page] for at in range(0, len(rows), self._page)]

    def _named(self, ending: str) -> list[str]:
        found = [k.removesuffix(ending) for k in self.cache.keys(ROLLOUTS) if k.endswith(ending)]
        return sorted(name for name in found if _ID.fullmatch(name))

    # -- quarantine ------------------------------------------------------------

    def quarantined(self) -> dict[str, str]:
        """Return the versions that are kept from all minions, and why."""
        found = self.cache.read(ROLLOUTS, _QUARANTINE)
        if found is None:
            return {}
        if not isinstance(found, dict) or not all(isinstance(why, str) for why in found.values()):
            raise self.cache.damaged(ROLLOUTS, _QUARANTINE, "it is no quarantine")
        return dict(found)

    def quarantine(self, version: str, because: str) -> None:
        """Keep a version from all minions until somebody allows it again."""
        with locked(self.locks, RECORDS):
            self.cache.write(ROLLOUTS, _QUARANTINE, {**self.quarantined(), version: because})

    def allow(self, version: str, by: str = "", now: float = 0.0) -> bool:
        """
        Let all minions have a version again; return whether it was in quarantine.

        *by* is the person, at *now*: both are stored, for the newest versions.
        """
        with locked(self.locks, RECORDS):
            found = self.quarantined()
            because = found.pop(version, None)
            if because is None:
                return False
            # First, so that the change is never without the name of the person.
            told = {**self.allowed(), version: {"by": by, "at": now, "because": because}}
            self.cache.write(ROLLOUTS, _ALLOWED, dict(list(told.items())[-_MOST_ALLOWED:]))
            self.cache.write(ROLLOUTS, _QUARANTINE, found)
        return True

    def allowed(self) -> dict[str, dict[str, Any]]:
        """Return who has allowed each version again (``by``), when, and why it was kept back."""
        try:
            found = self.cache.read(ROLLOUTS, _ALLOWED)
        except RecordError as err:
            # It decides nothing.
            self._say(str(err))
            found = None
        return dict(found) if isinstance(found, dict) else {}


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise InputError(
            f"{str(name)[:50]!r} is no name of a rollout. One has up to 40 letters, digits, '_' "
            "and '-'."
        )
    return name


def _sheet_of(minion: str) -> int:
    return zlib.crc32(minion.encode(errors="replace")) % SHEETS


def _sheet_key(sheet: int) -> str:
    return f"sheet{sheet:02}"


def _why(err: Exception) -> str:
    return str(err) if isinstance(err, ValueError) else f"{type(err).__name__}: {err}"
