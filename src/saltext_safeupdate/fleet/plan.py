"""The plan: which minions are updated in which wave, and which are left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..core.errors import InputError
from . import request as requests
from . import sizes
from .request import Group, Request
from .versions import reached

SCHEMA = 1


@dataclass(frozen=True)
class Facts:
    """
    The answer of a minion to the pre-flight. *problem* is why it cannot be updated, *held* why its
    administrator keeps it as it is, *unsupported* why this extension can never update it. *busy* is
    the work that is under way there: only a way back waits for that.

    *version* runs, *installed* is the version of the package, and a *reboot* of the host
    activates the installed version.
    """

    version: str = ""
    installed: str = ""
    extension: str = ""
    steps: tuple[str, ...] = ()
    problem: str = ""
    reboot: bool = False
    held: str = ""
    unsupported: str = ""
    busy: str = ""


@dataclass(frozen=True)
class Wave:
    """Minions that are updated before the next wave."""

    group: str
    minions: tuple[str, ...]
    canary: bool = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """
    A rollout before it begins. Numbers are final: they do not change while it runs.

    number
        The number of the first request to a minion. A minion refuses numbers below its newest.
    unavailable
        How many minions may be away at once.
    limits
        How many of a group may be away, if it has a limit of its own.
    failed
        How many may fail before the rollout stops.
    away
        Minions that did not answer; they are updated when they come back.
    busy
        Minions on which work was under way, each with its description; they are no canaries.
    elsewhere
        Minions that are in another rollout that is not over, each with its name.
    unfit
        Minions that are left out because of a problem.
    versions
        The version that each minion goes back to, if the rollout takes another one back.
    sized
        The settings that depend on the size of small groups, in words; may be empty.
    reboots
        Minions whose update a reboot of the host activates.
    expected
        The duration in seconds, according to the fleet's own history; 0 without one.
    """

    id: str
    number: int
    created: float
    request: Request
    waves: tuple[Wave, ...]
    left_out: Mapping[str, str]
    steps: Mapping[str, tuple[str, ...]]
    away: frozenset[str]
    unavailable: int
    failed: int
    expected: float = 0.0
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    unfit: frozenset[str] = frozenset()
    reboots: frozenset[str] = frozenset()
    sized: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    busy: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)

    def exceeded(self, failed: int) -> str:
        """Return in words that more minions have failed than may."""
        have = "minion has" if failed == 1 else "minions have"
        return f"{failed} {have} failed, and {self.failed} may"

    def of(self, minion: str) -> Request:
        """Return the request for a minion: its group may have settings of its own."""
        return self.request.of(self.group_of.get(minion, ""))

    @cached_property
    def group_of(self) -> dict[str, str]:
        """The group of each minion."""
        return {minion: wave.group for wave in self.waves for minion in wave.minions}

    @property
    def minions(self) -> tuple[str, ...]:
        return tuple(minion for wave in self.waves for minion in wave.minions)


Draw = Callable[[Sequence[str], int], Sequence[str]]


def _first(minions: Sequence[str], count: int) -> Sequence[str]:
    return minions[:count]


def make(
    wanted: Request,
    members: Mapping[str, Sequence[str]],
    facts: Mapping[str, Facts],
    *,
    plan_id: str,
    number: int,
    now: float,
    seconds: float = 0.0,
    elsewhere: Mapping[str, str] = MappingProxyType({}),
    before: Mapping[str, str] = MappingProxyType({}),
    draw: Draw = _first,
) -> Plan:
    """
    Return the plan for the minions that match each group's target, by group name.

    *facts* belong to the minions that have answered. *seconds* is how long one minion usually
    takes, *elsewhere* has the rollouts that are not over, by minion. *before* has the versions that
    minions go back to, in a way back. *draw* chooses so many of some minions as canaries. A plan
    without waves has nothing to do: all targeted minions run the version. Raises InputError if no
    other minion is left to update, or a share is less than one minion.
    """
    empty = [group.name for group in wanted.groups if not members.get(group.name)]
    if empty:
        raise InputError(
            f"The target of {', '.join(empty)} matches no minion with an accepted key. "
            "Nothing was started."
        )
    left_out: dict[str, str] = {}
    chosen: list[tuple[Group, list[str]]] = []
    seen: set[str] = set()
    for group in wanted.groups:
        fresh = [minion for minion in sorted(set(members[group.name])) if minion not in seen]
        seen.update(fresh)
        left_out |= {m: why for m in fresh if (why := _why_not(wanted, m, facts.get(m), before))}
        chosen.append((group, [minion for minion in fresh if minion not in left_out]))
    total = sum(len(minions) for _, minions in chosen)
    there = {
        m
        for m, known in facts.items()
        if not known.problem and _there(wanted, known, _goal(wanted, m, before))
    }
    alone = wanted.exclude | {m for m, k in facts.items() if k.held or k.unsupported}
    if wanted.back:
        alone |= seen.difference(before)
    stuck = {m: why for m, why in left_out.items() if m not in alone | there}
    if not total and (stuck or alone.difference(there).issuperset(left_out)):
        raise InputError(
            f"No minion is left to update: {_sample(stuck or left_out)}. Nothing was started."
        )
    away = frozenset(m for _, minions in chosen for m in minions if m not in facts)
    busy = {m: facts[m].busy for _, ms in chosen for m in ms if m in facts and facts[m].busy}
    waves = [
        wave
        for group, minions in chosen
        for wave in _waves(
            wanted.of(group.name), group, minions, away.union(busy), len(members[group.name]), draw
        )
    ]
    unavailable = sizes.unavailable(wanted, total, len(seen))
    limits = _limits(wanted, chosen, members)
    steps = {m: facts[m].steps for m in sorted(facts) if m not in left_out and facts[m].steps}
    return Plan(
        id=plan_id,
        number=number,
        created=now,
        request=wanted,
        waves=tuple(waves),
        left_out=left_out,
        steps=steps,
        away=away,
        unavailable=unavailable,
        failed=wanted.max_failed.allows(total),
        expected=_expected(wanted, waves, unavailable, limits, seconds),
        elsewhere={m: elsewhere[m] for w in waves for m in w.minions if m in elsewhere},
        unfit=frozenset(stuck),
        reboots=frozenset(m for m in facts if m not in left_out and facts[m].reboot),
        sized=sizes.told(wanted, {group.name: len(members[group.name]) for group, _ in chosen}),
        busy=busy,
        limits=limits,
        versions={m: before[m] for wave in waves for m in wave.minions if m in before},
    )


def _why_not(wanted: Request, minion: str, known: Facts | None, before: Mapping[str, str]) -> str:
    """Return why a minion is not updated; empty if it is."""
    strange = bool(wanted.back) and minion not in before
    if minion in wanted.exclude or strange:
        return f"was not asked to update by {wanted.back}" if strange else "excluded"
    if known is None:
        return ""
    there = _there(wanted, known, _goal(wanted, minion, before))
    if known.unsupported or (known.held and not there):
        return f"unsupported: {known.unsupported}" if known.unsupported else f"held: {known.held}"
    if known.problem or (known.busy and not wanted.back):
        return known.problem or known.busy
    if there:
        salt = wanted.version or wanted.back
        what = known.version if salt else f"the extension {known.extension}"
        return f"runs {what} already"
    return ""


def _goal(wanted: Request, minion: str, before: Mapping[str, str]) -> str:
    """Return the version of Salt that a minion is updated to; empty without a version."""
    return before.get(minion, "") if wanted.back else wanted.version


def _there(wanted: Request, known: Facts, version: str) -> bool:
    if known.busy:
        # It may be about to go back from that version.
        return False
    there = not version or reached(known.version, known.installed, version)
    return there and wanted.extension in ("", known.extension)


def nothing_to_do(plan: Plan) -> str:
    """Return why a plan has nothing to do; empty if it has."""
    if plan.waves:
        return ""
    why = Counter(plan.left_out.values()).most_common()
    return f"nothing to do: {', '.join(f'{told} ({count})' for told, count in why)}"


def _waves(
    wanted: Request,
    group: Group,
    minions: Sequence[str],
    absent: frozenset[str],
    meant: int,
    draw: Draw,
) -> list[Wave]:
    """
    Divide the minions of a group into waves. *absent* minions, away or busy, are no canaries.

    *meant* is the number of minions that match the target of the group.
    """
    present = [minion for minion in minions if minion not in absent]
    canaries = sorted(draw(present, min(sizes.canaries(wanted, meant), len(present))))
    drawn = frozenset(canaries)
    rest = [minion for minion in minions if minion not in drawn]
    found = [Wave(group.name, tuple(canaries), canary=True)] if canaries else []
    shares = sizes.waves(wanted, meant) if rest else ()
    counts = [share.of(len(rest), "waves", meant) for share in shares]
    while rest:
        size = counts.pop(0) if len(counts) > 1 else counts[0]
        found.append(Wave(group.name, tuple(rest[:size])))
        rest = rest[size:]
    return found


def _limits(
    wanted: Request,
    chosen: Sequence[tuple[Group, list[str]]],
    members: Mapping[str, Sequence[str]],
) -> dict[str, int]:
    """Return how many of a group may be away at once, for groups with their own limit."""
    return {
        group.name: sizes.unavailable(wanted.of(group.name), len(minions), len(members[group.name]))
        for group, minions in chosen
        if minions and "max_unavailable" in dict(group.own)
    }


def _expected(
    wanted: Request,
    waves: Sequence[Wave],
    unavailable: int,
    limits: Mapping[str, int],
    seconds: float,
) -> float:
    if not seconds:
        return 0.0
    rounds = sum(
        -(-len(wave.minions) // max(min(unavailable, limits.get(wave.group, unavailable)), 1))
        for wave in waves
    )
    own = [wanted.of(wave.group) for wave in waves]
    pauses = sum(each.soak for each in own[:-1]) + sum(each.jitter for each in own) / 2
    return rounds * seconds + pauses


def _sample(left_out: Mapping[str, str], most: int = 3) -> str:
    shown = [f"{minion} {why}" for minion, why in list(left_out.items())[:most]]
    more = len(left_out) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")


# -- as data -------------------------------------------------------------------------------


def to_data(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain data, which :func:`from_data` reads."""
    return {
        "schema": SCHEMA,
        "id": plan.id,
        "number": plan.number,
        "created": plan.created,
        "request": requests.to_mapping(plan.request),
        "waves": [
            {"group": wave.group, "canary": wave.canary, "minions": list(wave.minions)}
            for wave in plan.waves
        ],
        "left_out": dict(plan.left_out),
        "steps": {minion: list(steps) for minion, steps in plan.steps.items()},
        "away": sorted(plan.away),
        "unavailable": plan.unavailable,
        "failed": plan.failed,
        "expected": plan.expected,
        "elsewhere": dict(plan.elsewhere),
        "unfit": sorted(plan.unfit),
        "reboots": sorted(plan.reboots),
        "sized": plan.sized,
        "versions": dict(plan.versions),
        "busy": dict(plan.busy),
        **({"limits": dict(plan.limits)} if plan.limits else {}),
    }


def from_data(data: Mapping[str, Any]) -> Plan:
    """Return the stored plan. Raises InputError if another version has stored it."""
    if data.get("schema") != SCHEMA:
        raise InputError(
            f"The plan was stored by another version of the extension (schema "
            f"{data.get('schema')!r}, known is {SCHEMA}). Make a new plan."
        )
    waves = tuple(
        Wave(wave["group"], tuple(wave["minions"]), bool(wave["canary"])) for wave in data["waves"]
    )
    return Plan(
        id=data["id"],
        number=data["number"],
        created=data["created"],
        request=requests.from_mapping(data["request"]),
        waves=waves,
        left_out=dict(data["left_out"]),
        steps={minion: tuple(steps) for minion, steps in data["steps"].items()},
        away=frozenset(data["away"]),
        unavailable=data["unavailable"],
        failed=data["failed"],
        expected=data["expected"],
        elsewhere=dict(data.get("elsewhere") or {}),
        unfit=frozenset(data.get("unfit", ())),
        reboots=frozenset(data.get("reboots", ())),
        sized=str(data.get("sized") or ""),
        versions=dict(data.get("versions") or {}),
        busy=dict(data.get("busy") or {}),
        limits={str(name): int(most) for name, most in (data.get("limits") or {}).items()},
    )
