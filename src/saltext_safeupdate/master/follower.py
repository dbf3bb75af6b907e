"""What the master's engine does about each event, and what it does without one."""

from __future__ import annotations

import fnmatch
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from salt.exceptions import SaltException

from ..core.jobs.missed_jobs import Tracker
from .redelivery import Redelivery

log = logging.getLogger(__name__)

# How a minion says that it has started: the event's tag, with the minion's ID as its "id".
START_TAGS = ("salt/minion/*/start", "minion_start")
# Seconds between two looks for minions to ask.
INTERVAL = 1.0


class Follower:
    """
    Follows the events of this master, and publishes again what minions have missed.

    *window* is how far it looks back, in seconds. *start_tags* are patterns of tags.
    """

    def __init__(
        self,
        work: Redelivery,
        *,
        window: float,
        start_tags: Iterable[str] = START_TAGS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._work = work
        self._window = window
        self._start_tags = tuple(start_tags)
        self._clock = clock
        self._tracker = Tracker(window=window)
        self._next_look = 0.0

    def catch_up(self) -> None:
        """Learn from the job cache what was published before this process was there."""
        now = self._clock()
        for jid, load, minions in self._work.recent(self._window):
            self._tracker.published(jid, load.get("fun"), minions, now - self._work.age(jid))

    def event(self, tag: str, data: Mapping[str, Any]) -> None:
        """Learn from an event; publish again what a minion answers that it has missed."""
        parts = tag.split("/")
        if parts[:2] == ["salt", "job"] and len(parts) > 3:
            jid = parts[2]
            if parts[3] == "new":
                self._tracker.published(jid, data.get("fun"), data.get("minions", ()), self._now)
            elif parts[3] == "ret" and len(parts) > 4:
                self._returned(jid, parts[4], data)
        elif data.get("id") and self._says_start(tag):
            self._tracker.started(data["id"])

    def _says_start(self, tag: str) -> bool:
        return any(fnmatch.fnmatchcase(tag, pattern) for pattern in self._start_tags)

    def _returned(self, jid: str, minion: str, data: Mapping[str, Any]) -> None:
        if self._tracker.is_question(jid):
            for missed in self._tracker.answered(jid, minion, _answer(data), self._now):
                self._publish(missed, minion)
        self._tracker.returned(jid, minion, self._now)

    def tick(self) -> None:
        """Ask the minions that are due which jobs they have accepted; at most once a second."""
        if self._now < self._next_look:
            return
        self._next_look = self._now + INTERVAL
        due = self._tracker.due(self._now)
        if not due:
            return
        jids = {jid for listed in due.values() for jid in listed}
        try:
            query = self._work.ask(due, jids)
        except (SaltException, OSError) as err:
            log.error("safeupdate: minions cannot be asked what they missed: %s", err)
            query = ""
        self._tracker.asked(query, due, self._now)

    def _publish(self, jid: str, minion: str) -> None:
        try:
            self._work.publish(jid, [minion])
        except (SaltException, OSError) as err:
            log.error("safeupdate: job %s cannot be published again: %s", jid, err)

    @property
    def _now(self) -> float:
        return self._clock()


def _answer(data: Mapping[str, Any]) -> object:
    """Return what the minion answered; None if it does not have the function."""
    return data.get("return") if data.get("success", data.get("retcode", 0) == 0) else None
