"""Orders of a person about rollouts, in the process of a runner: the engine carries them out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..core import times
from ..core.errors import InputError, SafeUpdateError
from ..fleet import plan as plans
from ..fleet import summary
from ..fleet.plan import Plan
from ..fleet.rollout import Mode, Rollout, begin
from ..fleet.stored import Outline
from ..fleet.text import moment
from . import account as accounts
from . import planning, progress, questions, redelivery, refusals, rollouts
from .account import Account
from .calls import Calls, call
from .newest import Ask
from .store import Store

# Seconds that the engine has for an order.
_TIMEOUT = 60.0
# Seconds after which a rollout that no engine drives is reported.
_LOOKED = 120.0


def order(opts: Mapping[str, Any], what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Let the engine of this master carry out an order about a rollout."""
    account = Account(accounts.path_of(opts))
    if "rollout" in given:
        _refuse_without_an_engine(Store(opts), account, str(given["rollout"]))
    outcome, _ = call(Calls(account), what, given, _TIMEOUT)
    return outcome


def _refuse_without_an_engine(store: Store, account: Account, name: str) -> None:
    """Raise SafeUpdateError if the engine of this master should drive the rollout and does not."""
    found = store.outline(name)
    if found is None or found.owner != account.fact(rollouts.OWNER) or _is_looked_after(found):
        return
    if reason := account.fact(accounts.STOOD_DOWN):
        raise SafeUpdateError(reason)
    raise SafeUpdateError(
        f"The engine 'safeupdate_redeliver' of this master has not driven the rollout {name} "
        f"since {moment(found.looked)}, so nobody would do it. Nothing was changed; see whether "
        "salt-master runs, and what its log says about the engine."
    )


def run(
    opts: Mapping[str, Any],
    target: object,
    tgt_type: str,
    settings: Mapping[str, Any],
    *,
    plan: str | None = None,
    max_age: object = planning.MOST_AGE,
    background: bool = False,
    by: str = "",
    ask: Ask = questions.ask,
) -> dict[str, Any]:
    """
    Run the rollout of a stored plan, or of a new one; return its status, and what has changed.

    If something prevents it, that is raised, and nothing was started. In the *background*, only its
    beginning is waited for. *by* is the person.
    """
    store = Store(opts)
    if plan is None:
        wanted = planning.requested(store, target, tgt_type, settings)
        found, changed = planning.make(opts, wanted, store=store, at_once=True, ask=ask), []
    elif target is not None or settings:
        given = ", ".join(["a target"] * (target is not None) + sorted(settings))
        raise InputError(
            f"A plan runs unchanged, so {given} cannot be given with it. Nothing was started."
        )
    else:
        found = stored_plan(store, str(plan))
        age = redelivery.seconds("max_age", max_age)
        changed = planning.check(opts, found, store=store, most_age=age, ask=ask)
    if not found.waves:
        return {**_nothing_to_do(found), "changed": changed}
    order(opts, rollouts.BEGIN, {"plan": found.id, "by": by})
    told = shown(store, found.id, opts=opts) if background else follow(opts, found.id)
    return {**told, "changed": changed}


def _nothing_to_do(plan: Plan) -> dict[str, Any]:
    """Return the status of a rollout that is over before it has begun."""
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
    """Show a rollout until it ends or stops, if somebody watches; return its status then."""
    store = Store(opts)
    progress.follow(lambda: shown(store, rollout_id, opts=opts), progress.watched(opts))
    return shown(store, rollout_id, opts=opts)


def shown(
    store: Store,
    rollout_id: str,
    *,
    rows: bool = False,
    opts: Mapping[str, Any] | None = None,
    zone: object = times.UTC,
) -> dict[str, Any]:
    """
    Return the status of a rollout, with a row for each minion if *rows*.

    *opts* belong to the asking master: it knows why its own engine does nothing. *zone* is the time
    zone of ``times``.
    """
    found = store.rollout(rollout_id)
    if found is None:
        raise InputError(
            f"There is no rollout {rollout_id}. 'salt-run safeupdate.status' lists all."
        )
    told = _told(found, opts, zone)
    return told | ({"rows": summary.rows(found)} if rows else {})


def _told(
    found: Rollout, opts: Mapping[str, Any] | None = None, zone: object = times.UTC
) -> dict[str, Any]:
    told = {
        **summary.summary(found, time.time()),
        **_looked_after(found, opts),
        "history": [list(line) for line in found.history[-20:]],
    }
    return times.beside(told, summary.TIMES, zone)


def listed(opts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the status of all rollouts, the newest last."""
    found = Store(opts).outlines()
    return {
        name: {**summary.line(told), **_looked_after(told, opts)} for name, told in found.items()
    }


def _looked_after(
    found: Rollout | Outline, opts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    reason = ""
    if opts is not None and not found.mode.final:
        account = Account(accounts.path_of(opts))
        if account.fact(rollouts.OWNER) == found.owner:
            reason = account.fact(accounts.STOOD_DOWN)
    return {
        "owner": refusals.shown(found.owner),
        "looked_after": _is_looked_after(found) and not reason,
        "stood_down": reason,
    }


def _is_looked_after(found: Rollout | Outline) -> bool:
    return found.mode.final or time.time() - found.looked < _LOOKED
