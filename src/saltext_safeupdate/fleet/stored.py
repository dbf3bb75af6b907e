"""The stored data of a rollout, checked before it is used: disks break, programs err."""

from __future__ import annotations

import math
import operator
import statistics
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from ..core.errors import InputError
from . import plan as plans
from . import rollout as rollouts
from .plan import Plan
from .rollout import Minion, Mode, Rollout, Step

_NAMES = tuple(each.name for each in fields(Minion))
_VALUES = operator.attrgetter(*_NAMES)
# The places of these in a row, whose first value is the name of the minion.
_STEP, _PHASES = 1 + _NAMES.index("step"), 1 + _NAMES.index("phases")
_TYPES = {each.name: str(each.type) for each in fields(Minion)}
_HEAD_TYPES = {
    each.name: str(each.type)
    for each in fields(Rollout)
    if each.name not in ("plan", "minions", "mode", "history")
}

_T = TypeVar("_T")
# The values of one minion, its name first.
Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Outline:
    """
    A rollout without its minions, and the data that is needed when it is over.

    newest
        The highest number of its requests.
    usual
        Seconds that a minion took, the median of all that are done; 0 if none is done.
    counts
        The number of minions at each step, by its name.
    back
        The rollout that it takes back; empty if it takes none back.
    unfit
        The number of minions that are left out because of a problem.
    """

    mode: Mode
    why: str
    owner: str
    looked: float
    version: str
    extension: str
    newest: int
    usual: float
    counts: Mapping[str, int]
    unfit: int
    back: str = ""


_OUTLINE_TYPES = {each.name: str(each.type) for each in fields(Outline) if each.name != "mode"}


def outline_of(rollout: Rollout) -> Outline:
    known = rollout.minions.values()
    done = [minion.seconds for minion in known if minion.step is Step.DONE]
    return Outline(
        mode=rollout.mode,
        why=rollout.why,
        owner=rollout.owner,
        looked=rollout.looked,
        version=rollout.plan.request.version,
        extension=rollout.plan.request.extension,
        newest=max((minion.number for minion in known), default=0),
        usual=statistics.median(done) if done else 0.0,
        counts={step.value: n for step, n in Counter(minion.step for minion in known).items()},
        unfit=len(rollout.plan.unfit),
        back=rollout.plan.request.back,
    )


def outline(told: Mapping[str, Any]) -> Outline:
    """
    Return the outline of a rollout from its head.

    Raises ValueError if it makes no sense, and InputError if another version wrote it.
    """
    rollouts.refuse_other(told)
    _check("it", told, _OUTLINE_TYPES)
    try:
        return Outline(mode=Mode(told["mode"]), **_values(told))
    except KeyError as err:
        raise ValueError(f"it has no {err}") from err


def _values(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an outline; values that earlier versions did not store are defaults."""
    return {
        each.name: told[each.name]
        for each in fields(Outline)
        if each.name != "mode" and (each.default is MISSING or each.name in told)
    }


def head(rollout: Rollout) -> dict[str, Any]:
    """Return the data of the rollout as a whole: small, and new with every look."""
    return {
        **vars(outline_of(rollout)),
        **{name: getattr(rollout, name) for name in _HEAD_TYPES},
        "schema": rollouts.SCHEMA,
        "mode": rollout.mode.value,
        "history": [list(line) for line in rollout.history],
        "names": list(_NAMES),
    }


def rows(rollout: Rollout) -> list[Row]:
    """Return the values of each minion, in the order of ``names`` of :func:`head`."""
    found = []
    for minion, known in rollout.minions.items():
        row = [minion, *_VALUES(known)]
        row[_STEP], row[_PHASES] = known.step.value, dict(known.phases)
        found.append(tuple(row))
    return found


def rollout(plan: Plan, told: Mapping[str, Any], listed: list[Any]) -> Rollout:
    """
    Return the rollout of a plan from its head and its rows.

    Raises ValueError if they do not fit together, and InputError if another version wrote them.
    """
    names = told.get("names")
    if told.get("schema") == rollouts.SCHEMA and not _is_list_of_text(names):
        raise ValueError("it does not name the values of its minions")
    minions: dict[str, dict[str, Any]] = {}
    for row in listed:
        if not isinstance(row, list) or not row or len(row) != len(names or ()) + 1:
            raise ValueError("a row of it has the wrong length")
        # Values that an older version did not write have their defaults.
        values = dict(zip(names or (), row[1:], strict=True))
        _check(f"minion {row[0]}", values, _TYPES)
        minions[str(row[0])] = values
    if told.get("schema") == rollouts.SCHEMA:
        _check("it", told, _HEAD_TYPES)
        if sorted(minions) != sorted(plan.minions):
            raise ValueError("its minions are not the minions of its plan")
    data = {**told, "plan": plans.to_data(plan), "minions": minions}
    found = _read(rollouts.from_data, rollouts.SCHEMA, data)
    if not 0 <= found.part < len(found.goals) or not 0 <= found.wave <= len(plan.waves):
        raise ValueError("it is at a wave that its plan does not have")
    if not all(_has_goal(minion, found) for minion in found.minions.values()):
        raise ValueError("a minion of it is at a goal that its plan does not have")
    return found


def _has_goal(minion: Minion, found: Rollout) -> bool:
    goals = len(found.goals)
    return 0 <= minion.part < goals and 0 <= minion.done <= goals


def plan(data: object) -> Plan:
    """
    Return the stored plan.

    Raises ValueError if it is not a plan, and InputError if another version wrote it.
    """
    found = _read(plans.from_data, plans.SCHEMA, data if isinstance(data, Mapping) else {})
    values = {
        "number": found.number,
        "created": found.created,
        "unavailable": found.unavailable,
        "failed": found.failed,
        "expected": found.expected,
    }
    types = dict.fromkeys(values, "float") | {"number": "int"}
    _check("the plan", values, types)
    names = [found.id, *found.minions, *found.away, *found.unfit]
    texts = [*names, *found.left_out, *found.left_out.values()]
    texts += [*found.elsewhere, *found.elsewhere.values()]
    texts += [*found.versions, *found.versions.values(), *found.busy, *found.busy.values()]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a name in it is no text")
    if len(set(found.minions)) < len(found.minions):
        raise ValueError("it has a minion twice")
    return found


def _read(read: Callable[[Mapping[str, Any]], _T], schema: int, data: Mapping[str, Any]) -> _T:
    try:
        return read(data)
    except InputError as err:
        if data.get("schema") != schema:
            raise
        raise ValueError(str(err)) from err
    except (AttributeError, KeyError, TypeError) as err:
        raise ValueError(f"{type(err).__name__}: {err}") from err


def _check(what: str, values: Mapping[str, Any], types: Mapping[str, str]) -> None:
    for name, kind in types.items():
        if name in values and not _fits(values[name], kind):
            raise ValueError(f"'{name}' of {what} is {str(values[name])[:50]!r}")


def _fits(value: object, kind: str) -> bool:
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "float | None":
        return value is None or _fits(value, "float")
    if kind in ("int", "float"):
        allowed = int if kind == "int" else int | float
        return isinstance(value, allowed) and not isinstance(value, bool) and math.isfinite(value)
    if kind.startswith(("dict", "Mapping")):
        return isinstance(value, dict) and all(
            isinstance(key, str) and _fits(each, "float") for key, each in value.items()
        )
    # Texts, and steps, whose own class reads them.
    return isinstance(value, str)


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
