"""Minions that people have drained on this master: rollouts and policies leave them alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import InputError, RecordError, one_line
from ..fleet.rollout import said
from ..fleet.text import moment
from .store import ROLLOUTS, Store
from .store_lock import RECORDS, locked

_KEY = "drained"
# Characters of a reason that are kept.
_LONGEST = 200


def drained(store: Store, now: float) -> dict[str, str]:
    """Return the drained minions, and the message about each. Raises RecordError if unreadable."""
    return {
        minion: _told(each) for minion, each in _known(store).items() if now < float(each["until"])
    }


def drain(
    store: Store, minions: Iterable[str], timeout: float, reason: str, by: str, now: float
) -> dict[str, Any]:
    """
    Make rollouts and policies leave minions alone for so many seconds.

    Returns ``minions``, ``until`` and ``reason``.
    """
    if not 0 < timeout < math.inf:
        raise InputError(
            "'timeout' must be a number of seconds above 0: a drain that nobody ends has to end by "
            "itself. Nothing was changed."
        )
    names = sorted(set(minions))
    why = one_line(reason)[:_LONGEST]
    new = {"until": now + timeout, "reason": why, "by": by}
    with locked(store.locks, RECORDS):
        there = {m: each for m, each in _known(store).items() if now < float(each["until"])}
        store.cache.write(ROLLOUTS, _KEY, there | dict.fromkeys(names, new))
    return {"minions": names, "until": new["until"], "reason": why}


def undrain(
    store: Store, minions: Iterable[str], now: float, unsure: Iterable[str] = ()
) -> list[str]:
    """
    Let rollouts and policies update minions again; return the ones that were drained.

    Raises InputError if one of them is drained that may not be meant (*unsure*): people may still
    work on its host.
    """
    names = set(minions)
    with locked(store.locks, RECORDS):
        there = {m: each for m, each in _known(store).items() if now < float(each["until"])}
        if doubtful := sorted(names.intersection(there, unsure)):
            raise InputError(
                f"{', '.join(doubtful[:5])}: drained, but its grains or pillar are not known, so "
                "nobody knows if the target matches it. Nothing was changed; name the minions, or "
                "run 'saltutil.refresh_grains' there first."
            )
        gone = sorted(names.intersection(there))
        left = {minion: each for minion, each in there.items() if minion not in names}
        store.cache.write(ROLLOUTS, _KEY, left)
    return gone


def _told(each: Mapping[str, Any]) -> str:
    why = f": {each['reason']}" if each["reason"] else ""
    return f"drained{said(str(each['by']))} until {moment(float(each['until']))}{why}"


def _known(store: Store) -> dict[str, dict[str, Any]]:
    found = store.cache.read(ROLLOUTS, _KEY)
    if found is None:
        return {}
    fits = isinstance(found, dict) and all(
        isinstance(each, dict)
        and isinstance(each.get("until"), int | float)
        and all(isinstance(each.get(key), str) for key in ("reason", "by"))
        for each in found.values()
    )
    if not fits:
        damaged: RecordError = store.cache.damaged(ROLLOUTS, _KEY, "it is no list of minions")
        raise damaged
    return dict(found)
