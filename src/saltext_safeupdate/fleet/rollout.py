"""A rollout under way, as data: the state of each minion, and the present wave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any

from ..core.errors import InputError
from . import plan as plans
from .plan import Plan, Wave

SCHEMA = 1
# The longest time between two looks that counts as time of the rollout, in seconds.
MOST_BETWEEN = 30.0
# Lines of its history that a rollout keeps.
MOST_LINES = 500


class Step(str, Enum):
    """The step of a minion."""

    WAITING = "waiting"
    ASKED = "asked"
    UPDATING = "updating"
    # A reboot of the host activates its update, and somebody has to do that.
    TO_REBOOT = "to_reboot"
    DONE = "done"
    ROLLED_BACK = "rolled_back"
    FAILED = "failed"
    REFUSED = "refused"
    TIMED_OUT = "timed_out"
    SUPERSEDED = "superseded"
    MISSED = "missed"
    CANCELLED = "cancelled"
    # Its administrator keeps it as it is.
    HELD = "held"

    @property
    def settled(self) -> bool:
        """Nothing more is expected from the minion, unless it says something else itself."""
        return self not in _OPEN

    @property
    def active(self) -> bool:
        """The minion has been asked to update, and may be away for that reason."""
        return self in _ACTIVE

    @property
    def bad(self) -> bool:
        """It counts towards the failures that stop a rollout."""
        return self in BAD

    @property
    def next(self) -> frozenset[Step]:
        """The steps that may follow this one."""
        return _NEXT[self]


# The goal of a minion: a version of Salt, and one of this extension; empty for "any".
Goal = tuple[str, str]

_ACTIVE = (Step.ASKED, Step.UPDATING)
_OPEN = (Step.WAITING, *_ACTIVE, Step.TO_REBOOT)
BAD = (Step.ROLLED_BACK, Step.FAILED, Step.REFUSED, Step.TIMED_OUT, Step.SUPERSEDED)
# Results that an answer may give a requested update, even if nobody expects an answer any more.
_ENDS = {Step.DONE, *BAD, Step.CANCELLED} - {Step.REFUSED, Step.TIMED_OUT}
_UNDER_WAY = _ENDS | {Step.WAITING, Step.TO_REBOOT, Step.TIMED_OUT}
_NEXT: dict[Step, frozenset[Step]] = {
    # It is not asked any more, or it has done everything that is possible before its boot.
    Step.WAITING: frozenset({Step.ASKED, Step.TO_REBOOT, Step.MISSED, Step.CANCELLED, Step.HELD}),
    Step.ASKED: frozenset(_UNDER_WAY | {Step.UPDATING, Step.REFUSED, Step.HELD}),
    Step.UPDATING: frozenset(_UNDER_WAY),
    Step.TO_REBOOT: frozenset(_UNDER_WAY | {Step.UPDATING}),
    # The next goal, or another attempt that somebody has allowed.
    **dict.fromkeys((Step.DONE, Step.MISSED, Step.CANCELLED, Step.HELD), frozenset({Step.WAITING})),
    **dict.fromkeys(BAD, frozenset(_ENDS | {Step.WAITING})),
}
# Minions that were not updated through no fault of their own: they may be retried.
LEFT = (Step.MISSED, Step.CANCELLED, Step.HELD)
# Minions that may be down for good: somebody has to look.
BROKEN = (Step.FAILED, Step.TIMED_OUT)


class Mode(str, Enum):
    """The mode of the rollout as a whole."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    ABORTING = "aborting"
    ABORTED = "aborted"
    FINISHED = "finished"

    @property
    def final(self) -> bool:
        return self in (Mode.ABORTED, Mode.FINISHED)


@dataclass
class Minion:
    """
    The state of one minion. Times are seconds of the rollout's own time.

    number, requests
        The number of its newest request, or 0, and how many there were.
    tries
        How often it was asked to reach the present goal.
    staging, told_to_stage
        When it was told to download first and last.
    silent_since
        When the first question was asked that it has not answered; None if all are answered.
    answered
        The number of the newest question that it has answered.
    waits_for
        How many jobs its update waits for.
    before
        The version of Salt that was there when it was first asked for another one; empty if it
        was not asked.
    busy_since
        Since when it has not begun because its jobs do not end, or another update is in the way;
        otherwise None.
    forgiven
        Its failure does not stop the rollout: somebody has seen it and resumed.
    excused
        It was away when somebody resumed; that ends with its next answer.
    drained
        It is left alone because people work on its host, until they undrain it.
    engaged
        It may be at work: it says so, or it was sent a request whose end is not known.
    part
        The goal of its newest request.
    done
        How many goals it has reached: the goal with this number is the next one.
    """

    step: Step = Step.WAITING
    number: int = 0
    requests: int = 0
    tries: int = 0
    staged: str = ""
    staging: float = 0.0
    told_to_stage: float = 0.0
    asked: float = 0.0
    sent: float = 0.0
    not_before: float = 0.0
    silent_since: float | None = None
    before: str = ""
    busy_since: float | None = None
    answered: int = 0
    away: bool = False
    cancelled: bool = False
    forgiven: bool = False
    excused: bool = False
    drained: bool = False
    engaged: bool = False
    part: int = 0
    done: int = 0
    phase: str = ""
    waits_for: int = 0
    version: str = ""
    installed: str = ""
    reason: str = ""
    seconds: float = 0.0
    settled_at: float = 0.0
    phases: dict[str, float] = field(default_factory=dict)

    def come_to(self, step: Step, reason: str | None = None) -> None:
        """Take a step that the table allows, or raise ValueError. None keeps the reason."""
        if step is not self.step and step not in self.step.next:
            raise ValueError(f"{step.value} may not follow {self.step.value}")
        self.step = step
        if reason is not None:
            self.reason = reason

    def told(self, longest: int = 500) -> str:
        """Return its step and the reason, of at most so many characters, as a person says it."""
        step = self.step.value.replace("_", " ")
        if not self.reason:
            return step
        cut = len(self.reason) > longest
        why = self.reason[: longest - 1] + "…" if cut else self.reason.removesuffix(".")
        return f"{step} ({why})"


@dataclass
class Rollout:
    """
    A plan and its progress.

    began
        When it began, in epoch seconds.
    elapsed
        Seconds for which an engine has driven it: time in which no master ran, or that a clock
        has jumped over, does not count.
    wave
        The number of the present wave, from 0.
    part
        The number of the present goal, from 0: the extension comes before Salt.
    by
        The person who began it; empty if not known.
    owner
        The master whose engine drives it. No other one does.
    first
        The number of its first request to a minion, if it is above the plan's:
        another rollout may have begun since the plan was made.
    asked, surveyed
        When minions were asked last, and when all were; None if that is still to be done.
    late_since
        Since when it only waits for minions that are away; otherwise None.
    counting
        When all minions were asked whether they are there, before the first start since starts are
        allowed; None if that is still to be done.
    full_since
        Since when no minion can begin because too many are away; otherwise None.
    quarantined, because, kept
        Its canaries have rolled the version back, why it is kept from all minions, and whether
        that has been stored.
    gate, gate_from, gate_number
        The gate that is asked, such as ``before quiet``, and the numbers of the first and the
        newest question; empty if none is asked.
    gate_since, gate_asked
        Since when it is asked, and when it was asked last; None if that is still to be done.
    passed
        When each gate said yes, by the goal, the wave, the moment, and its name.
    keeps
        The version that is kept from all minions because this rollout takes it back; empty if it
        keeps its own version.
    """

    plan: Plan
    minions: dict[str, Minion]
    by: str = ""
    owner: str = ""
    first: int = 0
    mode: Mode = Mode.RUNNING
    why: str = ""
    began: float = 0.0
    elapsed: float = 0.0
    looked: float = 0.0
    part: int = 0
    wave: int = 0
    wave_began: float = 0.0
    question: int = 0
    asked: float | None = None
    surveyed: float | None = None
    late_since: float | None = None
    counting: float | None = None
    full_since: float | None = None
    quarantined: bool = False
    because: str = ""
    kept: bool = False
    keeps: str = ""
    gate: str = ""
    gate_from: int = 0
    gate_number: int = 0
    gate_since: float | None = None
    gate_asked: float | None = None
    passed: dict[str, float] = field(default_factory=dict)
    history: list[tuple[float, str]] = field(default_factory=list)

    @property
    def goals(self) -> tuple[Goal, ...]:
        """The goals of every minion, one after the other."""
        wanted = self.plan.request
        if wanted.back:
            # Each minion has its own: see goal_of.
            return (("", ""),)
        return (
            *((("", wanted.extension),) if wanted.extension else ()),
            *(((wanted.version, ""),) if wanted.version else ()),
        )

    def goal_of(self, name: str, part: int) -> Goal:
        """Return the goal of a minion in a part."""
        if self.plan.request.back:
            return self.plan.versions.get(name, ""), ""
        return self.goals[part]

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions of Salt that it installs."""
        if self.plan.request.back:
            return tuple(sorted(set(self.plan.versions.values())))
        return tuple(filter(None, (self.plan.request.version,)))

    @property
    def goal(self) -> Goal:
        return self.goals[self.part]

    @property
    def current(self) -> Wave | None:
        """The present wave; None if all are over."""
        return self.plan.waves[self.wave] if self.wave < len(self.plan.waves) else None

    def note(self, now: float, line: str) -> None:
        self.history.append((now, line))
        del self.history[:-MOST_LINES]

    def begun(self) -> list[str]:
        """Return the minions of the waves that have begun."""
        return [m for wave in self.plan.waves[: self.wave + 1] for m in wave.minions]

    def count(self, *steps: Step) -> int:
        return sum(minion.step in steps for minion in self.minions.values())


def begin(plan: Plan, now: float, *, owner: str = "", first: int = 0, by: str = "") -> Rollout:
    """Return a rollout that has just begun."""
    minions = {name: Minion(away=name in plan.away) for name in plan.minions}
    made = Rollout(plan, minions, owner=owner, first=first, by=by)
    made.began = made.looked = now
    made.note(now, f"began{said(by)}: {len(made.minions)} minions in {len(plan.waves)} waves")
    return made


def said(by: str) -> str:
    """Return "by" and a person as a part of a line; empty if the person is not known."""
    return f" by {by}" if by else ""


def taken_up(rollout: Rollout, now: float) -> Rollout:
    """
    Return the rollout for an engine that has just read it at *now*.

    Nobody received answers meanwhile, so that time is no silence. Earlier silence stays: otherwise
    an engine that is restarted often would never see that a minion is away.
    """
    unheard = time_between(rollout, now)
    for minion in rollout.minions.values():
        if minion.silent_since is not None:
            minion.silent_since += unheard
    # So all minions are asked at once.
    rollout.surveyed = rollout.counting = None
    # The process that asked a gate is gone, and so is the answer.
    rollout.gate_asked = None
    return rollout


def since(rollout: Rollout, then: float | None) -> float:
    """Return how long ago *then* was, in seconds of the rollout's own time; inf for None."""
    return math.inf if then is None else rollout.elapsed - then


def time_between(rollout: Rollout, now: float) -> float:
    """Return the part of the time since the last look that counts as time of the rollout."""
    return min(max(now - rollout.looked, 0.0), MOST_BETWEEN)


def to_data(rollout: Rollout) -> dict[str, Any]:
    """Return the rollout as plain data, which :func:`from_data` reads."""
    found = {
        each.name: getattr(rollout, each.name)
        for each in fields(Rollout)
        if each.name not in ("plan", "minions", "mode", "history")
    }
    return {
        **found,
        "schema": SCHEMA,
        "plan": plans.to_data(rollout.plan),
        "mode": rollout.mode.value,
        "minions": {
            name: {**asdict(minion), "step": minion.step.value}
            for name, minion in rollout.minions.items()
        },
        "history": [list(line) for line in rollout.history],
    }


def refuse_other(data: Mapping[str, Any]) -> None:
    """Raise InputError for data that another version has stored."""
    if data.get("schema") != SCHEMA:
        raise InputError(
            f"The rollout was stored by another version of the extension (schema "
            f"{data.get('schema')!r}, known is {SCHEMA}). It is left alone; end it with that "
            "version."
        )


def from_data(data: Mapping[str, Any]) -> Rollout:
    """Return the stored rollout. Raises InputError if another version has stored it."""
    refuse_other(data)
    known = {each.name for each in fields(Minion)}
    minions = {
        name: Minion(**{k: v for k, v in row.items() if k in known} | {"step": Step(row["step"])})
        for name, row in data["minions"].items()
    }
    known = {each.name for each in fields(Rollout)} - {"plan", "minions", "mode", "history"}
    return Rollout(
        plan=plans.from_data(data["plan"]),
        minions=minions,
        mode=Mode(data["mode"]),
        history=[(float(at), str(line)) for at, line in data["history"]],
        **{key: value for key, value in data.items() if key in known},
    )
