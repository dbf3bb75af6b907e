"""Minions below syndics: a master of masters has keys of syndics only, and no rollouts there."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..core.errors import InputError
from ..fleet.plan import Facts

# The place of keys that a master of masters does not know.
BELOW = "the keys of minions below a syndic are there, so begin it on the master of their syndic"


def of_masters(opts: Mapping[str, Any]) -> bool:
    """Return whether this is a master of masters."""
    return bool(opts.get("order_masters"))


def refuse(opts: Mapping[str, Any], members: Mapping[str, Collection[str]]) -> None:
    """Raise InputError if a group matches no minion here, and may match minions of syndics."""
    empty = [name for name, minions in members.items() if not minions]
    if empty and of_masters(opts):
        raise InputError(
            f"The target of {', '.join(empty)} matches no minion with an accepted key. This is a "
            f"master of masters ('order_masters'): {BELOW}. Nothing was started."
        )


def syndics(opts: Mapping[str, Any], silent: Iterable[str]) -> dict[str, Facts]:
    """
    Return the syndics in *silent*: they have accepted keys here, and are no minions.

    Salt notes the ID under which a syndic has sent returns. A minion that pretends to be a syndic,
    and does not answer as a minion, only leaves itself out.
    """
    if not of_masters(opts):
        return {}
    try:
        known = set(os.listdir(os.path.join(str(opts["cachedir"]), "syndics")))
    except FileNotFoundError:
        return {}
    told = Facts(unsupported=f"it is a syndic, and {BELOW}")
    return dict.fromkeys(known.intersection(silent), told)
