"""How a fleet stands by its policy, as text for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..core.times import UTC
from .text import clean, names, shown


def policy_lines(found: Mapping[str, Any], zone: object = UTC) -> str:
    """
    Return what :func:`.policy.look` has found, with what has begun or comes next.

    See :func:`.text.shown`.
    """
    result = [f"Policy {clean(found['policy'])}{'' if found['enabled'] else ': switched off'}"]
    for group in found["groups"]:
        result += ["", f"{clean(group['group'])}: {clean(group['goal'])}, {_sums(group)}"]
        if group["waits"]:
            result.append(f"  waits: {clean(group['waits'], 500)}")
        if group["bring"]:
            result.append(f"  to be brought along ({len(group['bring'])}): {names(group['bring'])}")
        by: dict[str, list[str]] = {}
        for minion, why in group["left"].items():
            by.setdefault(why, []).append(minion)
        for why, number in Counter(group["left"].values()).most_common():
            result.append(f"  left out ({number}): {clean(why)}: {names(by[why])}")
        if group["unknown"]:
            told = f"({len(group['unknown'])}): {names(group['unknown'])}"
            result.append(f"  to leave out, but no minion with an accepted key {told}")
    if found["begun"]:
        end = f"The rollout {clean(found['begun'])} of {clean(found['next'])} has begun."
    elif found["next"]:
        end = f"A rollout of {clean(found['next'])} comes next: 'apply=True' begins it."
    else:
        end = "Nothing is to be begun now."
    return shown("\n".join([*result, "", end]), zone)


def _sums(group: Mapping[str, Any]) -> str:
    return f"{group['there']} of {group['minions']} minions run it"
