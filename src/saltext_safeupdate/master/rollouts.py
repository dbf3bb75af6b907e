"""
The engine's part of a rollout: look at it from time to time, store the next state, then act.


Only the stored state has happened. A rollout that could not be stored is read again, and continues
from there.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from salt.exceptions import SaltException

from ..core.errors import MISTAKES, InputError, SafeUpdateError, one_line
from ..core.host import processes
from ..fleet import controller, rollout, steering, versions, way_back
from ..fleet.actions import Action, Quarantine, Tell
from ..fleet.checkpoints import Verdict
from ..fleet.judge import Report
from ..fleet.rollout import Mode, Rollout
from . import draining
from .account import Account
from .calls import Call
from .doing import Doing
from .gatekeeper import Gatekeeper
from .planning import version_taken_back
from .questions import Questions
from .refusals import (
    driven_by_other,
    failed,
    note_allowed,
    refuse_aborting,
    refuse_beside,
    refuse_kept,
    shown,
)
from .store import Store

log = logging.getLogger(__name__)

# The least seconds between two looks at a rollout, and the least multiple of a look's own time.
INTERVAL, SHARE = 1.0, 10.0
# Seconds after which a rollout is stored although nothing has happened: the most of its own time
# that it loses if the master is killed.
SAVE_INTERVAL = 30.0
# Seconds until the engine looks for rollouts again in a cache that was away.
LOAD_INTERVAL = 30.0
# Seconds between two looks for old rollouts to remove.
TIDY_INTERVAL = 86400.0
# Seconds between two complaints about a cache that is away.
COMPLAINT_INTERVAL = 60.0
# The fact of the account that names this master in rollouts.
OWNER = "owner"
BEGIN, PAUSE, RESUME, RETRY, ABORT = "begin", "pause", "resume", "retry", "abort"
ORDERS = (BEGIN, PAUSE, RESUME, RETRY, ABORT)
# The events of these orders.
_TOLD = {PAUSE: "paused", RESUME: "resumed", RETRY: "retrying", ABORT: "aborting"}
# The message about an order that fails because of a mistake of ours.
_MISTAKEN = (
    "The order failed because of a mistake in this extension. The stored state counts: "
    "'salt-run safeupdate.status' shows it. Other rollouts continue; see the log of the master"
)


@dataclass
class _Driven:
    """A rollout that this engine drives. *stale*: first it has to be read again."""

    rollout: Rollout
    reports: list[Report] = field(default_factory=list)
    # Other threads add to it.
    verdicts: deque[Verdict] = field(default_factory=deque)
    next: float = 0.0
    saved: float = 0.0
    stale: bool = False
    complain_at: float = 0.0


class Rollouts:
    """
    Drives the rollouts that this master owns.

    *tell* fires an event: tag and data. *gates* asks gates. *clock* is the time of day,
    *since_boot* a clock that does not jump.
    """

    def __init__(
        self,
        store: Store,
        asking: Questions,
        tell: Callable[[str, dict[str, object]], object],
        owner: str,
        *,
        gates: Gatekeeper,
        forget: Callable[[], list[str]] = list,
        clock: Callable[[], float] = time.time,
        since_boot: Callable[[], float] = processes.since_boot,
    ) -> None:
        self._store = store
        self._doing = Doing(asking, tell, gates)
        self._owner = owner
        self._forget = forget
        self._clock = clock
        self._since_boot = since_boot
        self._driven: dict[str, _Driven] = {}
        self._load_at: float | None = 0.0
        self._tidy_at = 0.0

    @property
    def idle(self) -> bool:
        """No rollout has to be driven."""
        return not self._driven and self._load_at is None

    def tick(self) -> None:
        """Drive the rollouts that are due."""
        now = self._since_boot()
        if self._load_at is not None and now >= self._load_at:
            self._load(now)
        if now >= self._tidy_at:
            self._tidy()
            self._tidy_at = now + TIDY_INTERVAL
        for driven in list(self._driven.values()):
            if now >= driven.next:
                began = self._since_boot()
                self._look(driven)
                driven.next = now + max(INTERVAL, SHARE * (self._since_boot() - began))

    # -- storing ---------------------------------------------------------------

    def _load(self, now: float) -> None:
        """Find the rollouts that an earlier engine of this master has left."""
        try:
            names = self._store.rollouts()
        except (SafeUpdateError, SaltException, OSError) as err:
            log.error("safeupdate: rollouts stand still: %s", err)
            self._load_at = now + LOAD_INTERVAL
            return
        self._load_at = None
        for name in names:
            if name in self._driven:
                continue
            try:
                outline = self._store.outline(name)
                if outline is None or outline.mode.final:
                    continue
                if outline.owner != self._owner:
                    if shown(outline.owner) == shown(self._owner):
                        told = driven_by_other(name, outline.owner, self._owner)
                        log.warning("safeupdate: %s", told)
                    continue
                found = self._store.rollout(name)
            except (SafeUpdateError, SaltException, OSError) as err:
                log.error("safeupdate: the rollout %s stands still: %s", name, err)
                if not isinstance(err, InputError):
                    # The cache may be there again soon.
                    self._load_at = now + LOAD_INTERVAL
                continue
            if found is not None:
                log.info("safeupdate: the rollout %s continues", name)
                self._driven[name] = _Driven(rollout.taken_up(found, self._clock()))

    def _tidy(self) -> None:
        work: dict[str, Callable[[], list[str]]] = {
            "rollouts that are long over": lambda: self._store.tidy(self._clock()),
            "data about minions whose keys are not accepted any more": self._forget,
        }
        for what, remove in work.items():
            try:
                gone = remove()
            except (SafeUpdateError, SaltException, OSError) as err:
                log.warning("safeupdate: %s were not removed: %s", what, err)
                continue
            if gone:
                log.info("safeupdate: removed %s: %s", what, ", ".join(gone))

    def _save(self, driven: _Driven) -> None:
        """Store a rollout. If that fails, it is read again before anything else."""
        driven.stale = True
        self._store.save_rollout(driven.rollout)
        driven.stale = False
        driven.saved = self._since_boot()

    def _read_again(self, driven: _Driven) -> bool:
        """Read the stored rollout; return whether this engine still drives it."""
        name = driven.rollout.plan.id
        found = self._store.rollout(name)
        driven.reports.clear()
        if found is None or found.mode.final or found.owner != self._owner:
            owner = "nobody" if found is None else shown(found.owner)
            log.error("safeupdate: the rollout %s is now driven by %s", name, owner)
            del self._driven[name]
            return False
        driven.rollout, driven.stale = rollout.taken_up(found, self._clock()), False
        return True

    # -- one look --------------------------------------------------------------

    def _look(self, driven: _Driven) -> None:
        try:
            if driven.stale and not self._read_again(driven):
                return
            reports, driven.reports = driven.reports, []
            kept, because = self._kept_from_all(driven.rollout)
            said = [driven.verdicts.popleft() for _ in range(len(driven.verdicts))]
            now = self._clock()
            left = draining.drained(self._store, now)
            actions = controller.advance(driven.rollout, reports, now, because, kept, said, left)
            due = self._since_boot() - driven.saved >= SAVE_INTERVAL
            if actions or reports or said or due:
                self._save(driven)
        except (SafeUpdateError, SaltException, OSError, *MISTAKES) as err:
            self._stands(driven, err)
            return
        self._act(driven, actions)
        if driven.rollout.mode.final:
            log.info("safeupdate: the rollout %s is over", driven.rollout.plan.id)
            self._driven.pop(driven.rollout.plan.id, None)

    def _kept_from_all(self, found: Rollout) -> tuple[str, str]:
        """Return the name of its version in the quarantine, and why; empty if it is not in it."""
        if not found.versions or found.mode.final or found.mode is Mode.ABORTING:
            return "", ""
        return versions.kept_from_all(self._store.quarantined(), *found.versions)

    def _stands(self, driven: _Driven, err: Exception) -> None:
        """Note that a rollout could not be read, driven or stored; log that once a minute."""
        driven.stale = True
        if self._may_complain(driven):
            name, trace = driven.rollout.plan.id, isinstance(err, MISTAKES)
            log.error("safeupdate: the rollout %s stands still: %s", name, err, exc_info=trace)

    def _may_complain(self, driven: _Driven) -> bool:
        now = self._since_boot()
        if now < driven.complain_at:
            return False
        driven.complain_at = now + COMPLAINT_INTERVAL
        return True

    # -- acting ----------------------------------------------------------------

    def _act(self, driven: _Driven, actions: Iterable[Action]) -> None:
        def heard(report: Report) -> None:
            driven.reports.append(report)

        for action in self._doing.do(driven.rollout, actions, heard, driven.verdicts.append):
            self._quarantine(driven, action)

    def _quarantine(self, driven: _Driven, action: Quarantine) -> None:
        """Keep a version from all minions. Each look repeats that until it is stored."""
        try:
            self._store.quarantine(action.version, action.because)
        except (SafeUpdateError, SaltException, OSError) as err:
            if self._may_complain(driven):
                log.error(
                    "safeupdate: %s is %s, but cannot be kept from others: %s",
                    action.version,
                    action.because,
                    err,
                )
        else:
            driven.rollout.kept = True
            # Stored with the next look: an administrator may allow the version at any time.
            driven.saved = 0.0

    # -- orders of people ------------------------------------------------------

    def take(self, call: Call) -> dict[str, Any]:
        """Carry out the order of a runner; return the outcome, or ``error``."""
        try:
            if call.what == BEGIN:
                return self._begin(call.given)
            return self._steer(call.what, call.given)
        except (SafeUpdateError, SaltException, OSError) as err:
            return {"error": str(err), "input": isinstance(err, InputError)}
        except MISTAKES as err:
            log.exception("safeupdate: an order was not understood: %s", call.what)
            told = f"{type(err).__name__}: {one_line(err)}"
            return {"error": f"{_MISTAKEN} ({told})", "input": False}

    def _begin(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Begin the rollout of a stored plan, unless something prevents it."""
        plan = self._store.plan(str(given["plan"]))
        if plan is None:
            raise InputError(f"There is no plan {given['plan']}. Nothing was started.")
        if self._store.rollout(plan.id) is not None:
            raise InputError(
                f"The plan {plan.id} has been run already, and one runs once. See "
                f"'salt-run safeupdate.status {plan.id}', or make a new plan."
            )
        now = self._clock()
        for other in self._store.under_way():
            refuse_beside(other, plan.minions, now)
        newest = (outline.newest for outline in self._store.outlines().values())
        first = 1 + max(newest, default=0)
        by = str(given.get("by") or "")
        first = max(first, int(now * 1e6))
        made = rollout.begin(plan, now, owner=self._owner, first=first, by=by)
        refuse_kept(self._store.quarantined(), *made.versions)
        if plan.request.back:
            way_back.keep(made, version_taken_back(self._store, plan.request.back))
        driven = _Driven(made)
        try:
            self._save(driven)
        except (SafeUpdateError, SaltException, OSError, *MISTAKES):
            # It may be stored nevertheless. Then it has begun, and nobody else would drive it.
            self._load_at = self._since_boot()
            raise
        self._driven[plan.id] = driven
        self._doing.say(driven.rollout, Tell("began", {"minions": len(made.minions), "by": by}))
        return {"rollout": plan.id}

    def _steer(self, what: str, given: Mapping[str, Any]) -> dict[str, Any]:
        name, now, by = str(given["rollout"]), self._clock(), str(given.get("by") or "")
        driven = self._mine(name, take_over=bool(given.get("take_over")))
        found = driven.rollout
        if what != ABORT and not given.get("take_over"):
            refuse_aborting(found)
        if what in (RESUME, RETRY):
            refuse_kept(self._store.quarantined(), *found.versions)
            note_allowed(found, self._store.allowed())
        # Not before: after a refusal, its engine keeps driving it.
        self._driven[name] = driven
        # If it cannot be stored it has not happened, and the stored state counts.
        driven.stale = True
        actions: list[Action] = []
        if what == PAUSE:
            actions = steering.pause(found, str(given["why"]), now, by)
        elif what == RESUME:
            actions = steering.resume(found, now, by)
        elif what == RETRY:
            actions = steering.retry(found, failed(found, given.get("minions") or []), now, by)
        elif what == ABORT:
            actions = steering.abort(found, str(given["why"]), now, by)
        self._save(driven)
        self._doing.say(
            driven.rollout, Tell(_TOLD[what], {"why": str(given.get("why") or ""), "by": by})
        )
        self._act(driven, actions)
        return {"rollout": name, "mode": found.mode.value}

    def _mine(self, name: str, *, take_over: bool) -> _Driven:
        """Return a rollout that is not over and that this engine drives, or is to drive."""
        driven = self._driven.get(name)
        if driven is not None and (not driven.stale or self._read_again(driven)):
            return driven
        found = self._store.rollout(name)
        if found is None:
            raise InputError(f"There is no rollout {name}.")
        if found.mode.final:
            raise InputError(f"The rollout {name} is over: it is {found.mode.value}.")
        if found.owner != self._owner and not take_over:
            raise InputError(driven_by_other(name, found.owner, self._owner))
        if found.owner != self._owner:
            found.note(self._clock(), f"taken over from {shown(found.owner)}")
            found.owner = self._owner
        return _Driven(rollout.taken_up(found, self._clock()))


def owner_of(account: Account, master: str) -> str:
    """Return the name of this master in rollouts; two masters with one ID differ."""
    owner = account.fact(OWNER)
    if not owner:
        owner = f"{master}/{secrets.token_hex(4)}"
        account.set_fact(OWNER, owner)
    return owner
