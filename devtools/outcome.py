"""The observations of an experiment, and the judgement on it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from devtools.observe import Moment

STATES = 20
UPDATE_AT = 10


@dataclass
class Job:
    """One published job and what became of it."""

    label: str
    function: str
    jid: str
    published: float
    returned: float | None = None
    cached: bool = False  # the master's job cache has the return
    success: bool | None = None
    result: Any = None
    started: int = 0  # how often its work began and ended on the minion
    ended: int = 0

    @property
    def lost(self) -> bool:
        return not self.cached


@dataclass
class Outcome:
    """Everything that an experiment saw; times are seconds of the host's clock."""

    old: str
    new: str
    extension: bool
    began: float
    jobs: list[Job] = field(default_factory=list)
    pings: list[Job] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    states: dict[str, bool | None] = field(default_factory=dict)
    state_changes: dict[str, Any] = field(default_factory=dict)
    packages_before: dict[str, tuple[str, str]] = field(default_factory=dict)
    packages_after: dict[str, tuple[str, str]] = field(default_factory=dict)
    service_before: dict[str, str] = field(default_factory=dict)
    service_after: dict[str, str] = field(default_factory=dict)
    running_before: str = ""
    running_after: str = ""
    tracebacks: list[str] = field(default_factory=list)
    timeline: list[Moment] = field(default_factory=list)
    seconds: float = 0.0
    logs: str = ""

    @property
    def highstate(self) -> Job:
        return next(job for job in self.jobs if job.label == "highstate")

    def verdict(self, *, pings: bool = True) -> list[str]:
        """Return one line for each thing that was lost or is not as it should be."""
        wrong = [f"{job.label}: return lost" for job in self.jobs if job.lost]
        wrong += [
            f"{job.label}: ran {job.ended} of {job.started} times to its end, expected 1 of 1"
            for job in self.jobs
            if job.label != "highstate" and (job.started, job.ended) != (1, 1)
        ]
        wrong += self._wrong_states()
        lost_pings = sum(ping.lost for ping in self.pings)
        if pings and lost_pings:
            wrong.append(f"pings: {lost_pings} of {len(self.pings)} lost")
        for name, (version, status) in self.packages_after.items():
            if status != "install ok installed":
                wrong.append(f"package {name}: {status}")
            elif name in self.packages_before and version != self.new:
                wrong.append(f"package {name}: is {version}, expected {self.new}")
        for key in ("ActiveState", "SubState", "UnitFileState"):
            before, after = self.service_before.get(key), self.service_after.get(key)
            if before != after:
                wrong.append(f"service {key}: was {before}, is {after}")
        if self.running_after != self.new.partition("+")[0]:
            wrong.append(f"running minion: {self.running_after or 'does not answer'}")
        wrong += [
            f"traceback in the minion log ({times} times): {text}"
            for text, times in Counter(self.tracebacks).items()
        ]
        return wrong

    def _wrong_states(self) -> list[str]:
        wrong = []
        expected = [name for name in state_names() if name != update_name()]
        if self.order != expected:
            ran = ", ".join(self.order) or "none"
            missing = [name for name in expected if name not in self.order]
            twice = sorted({name for name in self.order if self.order.count(name) > 1})
            wrong.append(f"states: not run {missing}, run twice {twice}; ran: {ran}")
        if not self.highstate.lost and len(self.states) != STATES:
            wrong.append(f"highstate return: {len(self.states)} of {STATES} states in it")
        wrong += [f"state {name}: result {ok}" for name, ok in self.states.items() if not ok]
        return wrong


def state_names() -> list[str]:
    return [f"step-{number:02}" for number in range(1, STATES + 1)]


def update_name() -> str:
    return f"step-{UPDATE_AT:02}"
