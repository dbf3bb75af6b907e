"""Carries out the actions of rollouts: questions, requests, downloads and events."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from salt.exceptions import SaltException

from ..fleet import judge
from ..fleet.actions import Action, Ask, Cancel, Check, Quarantine, Stage, Start, Tell
from ..fleet.judge import Report
from ..fleet.manner import manner, to_fetch
from ..fleet.rollout import Rollout
from . import replies
from .gatekeeper import Gatekeeper, Said
from .questions import Questions

log = logging.getLogger(__name__)

# Seconds that minions have to answer a question; the answer to a later one counts, too.
ANSWER_TIMEOUT = 60.0
Heard = Callable[[Report], object]


class Doing:
    """
    Carries out actions of rollouts, except those that have to be stored.

    *tell* fires an event: tag and data.
    """

    def __init__(
        self,
        asking: Questions,
        tell: Callable[[str, dict[str, object]], object],
        gates: Gatekeeper,
    ) -> None:
        self._asking = asking
        self._tell = tell
        self._gates = gates

    def do(
        self, rollout: Rollout, actions: Iterable[Action], heard: Heard, said: Said
    ) -> list[Quarantine]:
        """
        Carry out all actions; *heard* gets the answers of minions, and *said* the gates' answers.

        Return the actions that have to be stored.
        """
        starts: dict[tuple[tuple[str, str], int], list[Start]] = {}
        cancels: dict[int, list[Cancel]] = {}
        left: list[Quarantine] = []
        for action in actions:
            if isinstance(action, Start):
                starts.setdefault((action.goal, action.number), []).append(action)
            elif isinstance(action, Cancel):
                cancels.setdefault(action.number, []).append(action)
            elif isinstance(action, Ask):
                self._put(action.minions, "report", action.question, {}, heard)
            elif isinstance(action, Stage):
                self._stage(rollout, action.minions)
            elif isinstance(action, Check):
                self._gates.ask(rollout.plan.id, action, said)
            elif isinstance(action, Quarantine):
                left.append(action)
            else:
                self.say(rollout, action)
        # Many in one publication: their newest question is newer than all earlier ones.
        for (goal, number), those in starts.items():
            wanted = {"number": number, "version": goal[0], "extension": goal[1]}
            wanted |= manner(rollout.plan.request)
            self._send(rollout, those, "request", wanted, heard)
        for number, these in cancels.items():
            self._send(rollout, these, "withdraw", {"number": number}, heard)
        return left

    def say(self, rollout: Rollout, action: Tell) -> None:
        """Send an event. If that fails, nothing is undone."""
        name = rollout.plan.id
        try:
            data = {"rollout": name, **action.data}
            self._tell(f"salt/run/safeupdate/{name}/{action.what}", data)
        except (SaltException, OSError) as err:
            log.warning("safeupdate: an event of the rollout %s was not sent: %s", name, err)

    def _send(
        self,
        rollout: Rollout,
        actions: list[Start] | list[Cancel],
        fun: str,
        wanted: dict[str, Any],
        heard: Heard,
    ) -> None:
        minions = [action.minion for action in actions]
        question = max(action.question for action in actions)
        log.info(
            "safeupdate: rollout %s: %s %s of %s",
            rollout.plan.id,
            fun,
            wanted["number"],
            ", ".join(minions),
        )
        self._put(minions, fun, question, wanted, heard, urgent=True)

    def _put(
        self,
        minions: Iterable[str],
        fun: str,
        question: int,
        wanted: Mapping[str, Any],
        heard: Heard,
        *,
        urgent: bool = False,
    ) -> None:
        def read(minion: str, packed: bytes) -> None:
            report = judge.read(minion, question, replies.unpack(packed))
            if report is not None:
                heard(report)

        self._asking.put(
            minions,
            f"safeupdate.{fun}",
            [{"__kwarg__": True, **wanted, "question": question}],
            timeout=ANSWER_TIMEOUT,
            heard=read,
            urgent=urgent,
        )

    def _stage(self, rollout: Rollout, minions: Iterable[str]) -> None:
        wanted = {"__kwarg__": True, **to_fetch(rollout.plan.request, rollout.goal)}
        self._asking.put(minions, "safeupdate.prefetch", [wanted], timeout=ANSWER_TIMEOUT)
