"""The newest version of a series, such as ``3008``, according to the offers to minions."""

from __future__ import annotations

import re
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.errors import InputError
from ..core.packages.choice import is_series
from ..fleet.request import Request

# The most minions that are asked for the newest version of a series.
MOST_ASKED = 5
# Seconds that minions have to go through their pre-flights.
PLAN_TIMEOUT = 180.0
# The version of Salt within the version of a package, or of a build.
_RELEASE = re.compile(r"(?:\d+:)?(\d{4}(?:\.\d{1,9})+)(?:[-+~][\w.+~-]*)?")

Ask = Callable[..., dict[str, object]]


def by_chance(minions: Sequence[str], count: int) -> Sequence[str]:
    """Draw minions so that none can know in advance, or rely on, being drawn."""
    return secrets.SystemRandom().sample(minions, count)


def of_series(
    opts: Mapping[str, Any], series: str, sources: Mapping[str, str], ask: Ask
) -> tuple[str, int]:
    """
    Return the newest version of a series, and how many minions were asked; empty if not known.

    *sources* maps the minions that may be asked to the source that each would use; empty for its
    present one. Some of them, drawn by chance, say which version they would install. More than half
    of the asked ones have to give the same answer: none decides alone.
    """
    asked = sorted(by_chance(sorted(sources), min(len(sources), MOST_ASKED)))
    offers: list[str] = []
    for source in sorted({sources[minion] for minion in asked}):
        these = [minion for minion in asked if sources[minion] == source]
        given = {"version": series, **({"source": source} if source else {})}
        answers = ask(opts, these, "safeupdate.plan", given, PLAN_TIMEOUT)
        offers += filter(None, (_offered(answers.get(minion)) for minion in these))
    for version, number in Counter(offers).items():
        if 2 * number > len(asked) and version.startswith(f"{series}."):
            return version, len(asked)
    return "", len(asked)


def exact(opts: Mapping[str, Any], wanted: Request, minions: Collection[str], ask: Ask) -> Request:
    """
    Return the request for these minions, with the newest version instead of a series.

    Raise InputError if that is not known.
    """
    if not is_series(wanted.version) or not minions:
        return wanted
    sources = dict.fromkeys(minions, wanted.source)
    version, asked = of_series(opts, wanted.version, sources, ask)
    if not version:
        raise InputError(
            f"The newest version of {wanted.version} is not known: more than half of the "
            f"{asked} minions that were asked have to name the same one, and they cannot name one "
            "that only their upgrade steps bring. Nothing was started; name the exact version."
        )
    return replace(wanted, version=version)


def _offered(said: object) -> str:
    """Return the version of Salt that a minion would install; empty if it does not name one."""
    told = said.get("targets") if isinstance(said, Mapping) else None
    if not isinstance(told, Mapping):
        return ""
    found = [_RELEASE.fullmatch(version) for version in told.values() if isinstance(version, str)]
    versions = {each[1] for each in found if each}
    return versions.pop() if len(versions) == 1 else ""
