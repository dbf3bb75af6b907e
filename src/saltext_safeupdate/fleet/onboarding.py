"""
Setting minions up in the waves and limits of a plan: their answers decide the next actions.


The decision about a minion depends only on its own answers. This module does nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..core.errors import one_line
from . import window
from .checkpoints import AFTER, BEFORE
from .inventory import is_lacking
from .plan import Plan

# Findings of 'safeupdate.check' on a minion that has not read its set-up yet, or that is followed
# by another one.
_NOT_YET = ("executor", "engine", "restart-pending", "leaving")
_LONGEST = 300


class Step(Enum):
    WAITING = "waiting"
    # The extension is being installed. Then the minion is set up and restarts.
    INSTALLING = "installing"
    SETTING_UP = "setting up"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class Answer:
    """
    The answer of a minion to ``safeupdate.check``: whether it *lacks* that function, and its
    problems by their codes. *told* is the text of any other answer.
    """

    lacks: bool = False
    problems: Mapping[str, str] | None = None
    told: str = ""

    @property
    def is_set_up(self) -> bool:
        return self.problems is not None and not any(code in self.problems for code in _NOT_YET)


def read(said: object) -> Answer:
    """Return the content of an answer of any shape."""
    if is_lacking(said):
        return Answer(lacks=True)
    if not isinstance(said, list | tuple):
        return Answer(told=one_line(said)[:_LONGEST])
    rows = [row for row in said if isinstance(row, Mapping)]
    return Answer(
        problems={
            one_line(row.get("code"))[:_LONGEST]: one_line(row.get("problem"))[:_LONGEST]
            for row in rows
        }
    )


@dataclass
class Host:
    """A minion: its step, since when (as ``passed``), and its last answer."""

    step: Step = Step.WAITING
    since: float = 0.0
    last: Answer | None = None
    why: str = ""


@dataclass
class Onboarding:
    """
    The set-up of the minions of a plan. *lacking* do not have the extension yet.

    ``why`` says why it has stopped; empty if it has not. ``waits`` names the gate that says no;
    empty if there is no such gate. ``settled_at`` is when the last minion of the wave was done.
    ``opened`` has the wave, the moment and the name of each gate that has said yes.

    *passed* are the seconds of a monotonic clock, for time limits. *now* is the wall clock, for
    windows.
    """

    plan: Plan
    lacking: frozenset[str]
    wave: int = 0
    settled_at: float | None = None
    why: str = ""
    waits: str = ""
    opened: set[tuple[int, str, str]] = field(default_factory=set)
    closed_since: float | None = None
    hosts: dict[str, Host] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hosts = {name: Host() for name in self.plan.minions}

    @property
    def active(self) -> list[str]:
        """The minions that are at work, and are asked for their progress."""
        return [n for n, h in self.hosts.items() if h.step in (Step.INSTALLING, Step.SETTING_UP)]

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return not self.active and (bool(self.why) or self.wave >= len(self.plan.waves))

    def named(self, step: Step) -> list[str]:
        return [name for name, host in self.hosts.items() if host.step is step]

    def hear(self, answers: Mapping[str, Answer], passed: float) -> list[str]:
        """Take answers into account; return the minions to set up now: they have the extension."""
        fresh = []
        for name in self.active:
            host = self.hosts[name]
            host.last = answers.get(name)
            if host.step is Step.INSTALLING and host.last and host.last.problems is not None:
                host.step = Step.SETTING_UP
                fresh.append(name)
            elif host.step is Step.SETTING_UP and host.last and host.last.is_set_up:
                host.step = Step.DONE
            elif passed - host.since > self.plan.of(name).minion_timeout:
                host.step, host.why = Step.FAILED, _why(host)
        self._judge(passed)
        return fresh

    def give_up(self, why: str) -> None:
        """Stop: nobody can be asked or set up any more."""
        for name in self.active:
            self.hosts[name].step = Step.FAILED
            self.hosts[name].why = "has begun, and what became of it is not known; do this again"
        self.why, self.waits = why, ""

    def begin(self, passed: float, now: float) -> tuple[list[str], list[str]]:
        """Return the minions that begin now: without the extension, and with it."""
        if not self._may_begin(now) or self._gate(BEFORE):
            return [], []
        begun = self._waiting()[: max(self._room(), 0)]
        for name in begun:
            lacks = name in self.lacking
            self.hosts[name].step = Step.INSTALLING if lacks else Step.SETTING_UP
            self.hosts[name].since = passed
        return (
            [name for name in begun if name in self.lacking],
            [name for name in begun if name not in self.lacking],
        )

    def asks(self, passed: float, now: float) -> str:
        """Return the gate to ask now; empty if no gate is due. No minion is at work then."""
        if self.why or self.wave >= len(self.plan.waves):
            return ""
        if self._settled():
            return self._gate(AFTER) if self._soaked(passed) else ""
        minions = self.plan.waves[self.wave].minions
        if len(self._waiting()) == len(minions) and self._may_begin(now):
            return self._gate(BEFORE)
        # While nobody may begin, the time for the gate does not run.
        self.closed_since, self.waits = None, ""
        return ""

    def said(self, gate: str, opens: bool, why: str, passed: float) -> None:
        """Take the answer of the gate of :meth:`asks` into account, and *why* it says that."""
        moment = AFTER if self._settled() else BEFORE
        if opens:
            self.opened.add((self.wave, moment, gate))
            self.closed_since, self.waits = None, ""
            self._judge(passed)
            return
        told = f"the gate {gate} says no: {why or 'it does not say why'}"
        self.waits = f"waits {moment} wave {self.wave + 1}: {told}"
        self.closed_since = passed if self.closed_since is None else self.closed_since
        longest = self.plan.request.gate_timeout
        if passed - self.closed_since >= longest:
            self.why = f"the gate {gate} has not said yes for {longest:g} s: {self.waits}"
            self.waits = ""

    def _may_begin(self, now: float) -> bool:
        if self.why or self.wave >= len(self.plan.waves):
            return False
        wanted = self.plan.request.of(self.plan.waves[self.wave].group)
        return window.is_open(wanted.windows, now, wanted.closed)

    def _waiting(self) -> list[str]:
        """Return the minions of the wave that have not begun."""
        minions = self.plan.waves[self.wave].minions
        return [name for name in minions if self.hosts[name].step is Step.WAITING]

    def _room(self) -> int:
        """Return how many more minions may be away now. One that has failed is away."""
        group, active = self.plan.waves[self.wave].group, self.active
        room = self.plan.unavailable - len(active) - len(self.named(Step.FAILED))
        own = sum(self.plan.group_of[name] == group for name in active)
        return min(room, self._limit(group) - own - self._failed_of(group))

    def _limit(self, group: str) -> int:
        return self.plan.limits.get(group, self.plan.unavailable)

    def _failed_of(self, group: str) -> int:
        return sum(self.plan.group_of[name] == group for name in self.named(Step.FAILED))

    def _settled(self) -> bool:
        minions = self.plan.waves[self.wave].minions
        return all(self.hosts[name].step in (Step.DONE, Step.FAILED) for name in minions)

    def _soaked(self, passed: float) -> bool:
        soak = self.plan.request.of(self.plan.waves[self.wave].group).soak
        return self.settled_at is not None and passed >= self.settled_at + soak

    def _gate(self, moment: str) -> str:
        """Return the first gate of the wave that has not said yes at that moment."""
        wanted = self.plan.request.of(self.plan.waves[self.wave].group)
        names = wanted.gate_before if moment == BEFORE else wanted.gate_after
        lacking = (name for name in names if (self.wave, moment, name) not in self.opened)
        return next(lacking, "")

    def _judge(self, passed: float) -> None:
        """Continue with the next wave, or stop."""
        failed = self.named(Step.FAILED)
        if self.why or self.wave >= len(self.plan.waves):
            return
        wave = self.plan.waves[self.wave]
        canary = next((name for name in wave.minions if wave.canary and name in failed), "")
        if canary:
            self.why = f"canary {canary} {self.hosts[canary].why}"
        elif len(failed) > self.plan.failed:
            self.why = self.plan.exceeded(len(failed))
        elif len(failed) >= self.plan.unavailable:
            self.why = "as many minions have failed as may be away at once"
        elif self._waiting() and self._failed_of(wave.group) >= self._limit(wave.group):
            self.why = f"as many minions of {wave.group} have failed as may be away at once"
        elif self._settled():
            self.settled_at = passed if self.settled_at is None else self.settled_at
            # The last wave soaks only for its gate.
            last = self.wave + 1 == len(self.plan.waves)
            if not self._gate(AFTER) and (last or self._soaked(passed)):
                self.wave, self.settled_at = self.wave + 1, None


def _why(host: Host) -> str:
    """Return why a minion was not done in time."""
    if host.last is None:
        return "does not answer any more"
    if host.last.lacks:
        return "does not have the extension: the job cache has the return of its installation"
    if host.last.problems is None:
        return f"gives a senseless answer: {host.last.told}"
    left = [f"[{code}] {text}" for code, text in host.last.problems.items() if code in _NOT_YET]
    return f"is not set up: {' '.join(left)}"
