"""What a person orders of rollouts, in the process of a runner: the engine does it."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from ..core.errors import InputError
from ..fleet import plan as plans
from ..fleet import summary
from ..fleet.plan import Plan
from ..fleet.rollout import Mode, Rollout, begin
from ..fleet.stored import Outline
from . import account as accounts
from . import planning, progress, questions, redelivery, rollouts
from .account import Account
from .calls import Calls
from .planning import Ask
from .store import Store

# Seconds that the engine has for an order.
_TIMEOUT = 60.0
# Seconds after which an engine that does not look after its rollout is told of.
_LOOKED = 120.0


def order(opts: Mapping[str, Any], what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Have the engine of this master do something with a rollout."""
    calls = Calls(Account(accounts.path_of(opts)))
    outcome, _ = questions.call(calls, what, given, _TIMEOUT)
    return outcome


def run(
    opts: Mapping[str, Any],
    target: object,
    tgt_type: str,
    settings: Mapping[str, Any],
    *,
    plan: str | None = None,
    max_age: object = planning.MOST_AGE,
    background: bool = False,
    ask: Ask = questions.ask,
) -> dict[str, Any]:
    """
    Run the rollout of a stored plan, or of a new one; return how it stands, and what has changed.

    Whatever speaks against it is raised, and nothing was started then. If it runs in the
    *background*, only its beginning is waited for.
    """
    store = Store(opts)
    if plan is None:
        wanted = planning.requested(target, tgt_type, settings)
        found, changed = planning.make(opts, wanted, store=store, at_once=True, ask=ask), []
    elif target is not None or settings:
        given = ", ".join(["a target"] * (target is not None) + sorted(settings))
        raise InputError(
            f"A plan runs as it is, so {given} cannot be given with it. Nothing was started."
        )
    else:
        found = stored_plan(store, str(plan))
        age = redelivery.seconds("max_age", max_age)
        changed = planning.check(opts, found, store=store, most_age=age, ask=ask)
    if not found.waves:
        return {**_nothing_to_do(found), "changed": changed}
    order(opts, rollouts.BEGIN, {"plan": found.id})
    told = shown(store, found.id) if background else follow(opts, found.id)
    return {**told, "changed": changed}


def _nothing_to_do(plan: Plan) -> dict[str, Any]:
    """Return what a rollout is that is over before it has begun."""
    found = begin(plan, plan.created)
    found.mode, found.why = Mode.FINISHED, plans.nothing_to_do(plan)
    found.history = [(plan.created, found.why)]
    return _told(found)


def stored_plan(store: Store, plan_id: str) -> Plan:
    """Return a plan, or raise InputError."""
    found = store.plan(plan_id)
    if found is None:
        raise InputError(
            f"There is no plan {plan_id}. Nothing was started; 'salt-run safeupdate.plan' makes "
            "one."
        )
    return found


def follow(opts: Mapping[str, Any], rollout_id: str) -> dict[str, Any]:
    """Show a rollout until it stands, if there is somebody to see it; return how it stands then."""
    store = Store(opts)
    # What the runner returns has the standard output to itself: programs read that.
    watched = str(opts.get("fun")).startswith("safeupdate.") and not opts.get("async")
    with contextlib.nullcontext(sys.stderr) if watched else open(os.devnull, "w") as out:
        progress.follow(lambda: shown(store, rollout_id), out)
    return shown(store, rollout_id)


def shown(store: Store, rollout_id: str, *, rows: bool = False) -> dict[str, Any]:
    """Return how a rollout stands, with a row for each minion if they are wanted."""
    found = store.rollout(rollout_id)
    if found is None:
        raise InputError(
            f"There is no rollout {rollout_id}. 'salt-run safeupdate.status' lists all."
        )
    return _told(found) | ({"rows": summary.rows(found)} if rows else {})


def _told(found: Rollout) -> dict[str, Any]:
    return {
        **summary.summary(found, time.time()),
        **_looked_after(found),
        "history": [list(line) for line in found.history[-20:]],
    }


def listed(opts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return how all rollouts stand, the newest last."""
    found = Store(opts).outlines()
    return {name: {**summary.line(told), **_looked_after(told)} for name, told in found.items()}


def _looked_after(found: Rollout | Outline) -> dict[str, Any]:
    return {
        "owner": rollouts.shown(found.owner),
        "looked_after": found.mode.final or time.time() - found.looked < _LOOKED,
    }
