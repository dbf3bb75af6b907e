"""What the main process of a minion sees of the next one, that it is handed over to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..core.errors import SafeUpdateError
from ..core.generations.table import Generations
from ..core.host import connections, processes
from . import own_bus
from .complaints import Complaints
from .masters import are_connected

# Seconds for which a master of this minion is waited for that the next one, which has others, is
# not connected to. Then it is away, or one that the next minion is not configured for any more.
_AWAY = 120.0


class NextOne:
    """
    Whether another minion has bound the sockets of this one, and claims the jobs that it runs.

    Jobs and their returns wait while this one looks. Two answers never change for a process, and
    are asked for once: that it had a connection, and that it has said that it claims. The first
    one takes longest, 14 ms of a processor: the kernel goes through its table of connections.
    """

    def __init__(
        self,
        generations: Generations,
        complaints: Complaints,
        monotonic: Callable[[], float],
        names: Mapping[str, str],
        port: int,
    ) -> None:
        self._generations = generations
        self._complaints = complaints
        self._monotonic = monotonic
        # By which the sockets are found, and where this one asks its master.
        self._names, self._port = names, port
        self._connected = self._announced = ""
        # The one that serves some masters, and since when.
        self._serving, self._serves_since = "", 0.0
        # Whether there is one that may hear of jobs, and since when that one may have no hooks.
        self.is_there = False
        self.unsure_at: float | None = None

    def is_unannounced(self, me: str, *, serves_on: bool) -> bool:
        """
        Tell whether it may hear of jobs, and does not claim its jobs yet.

        *me* is the identity of this process, and *serves_on* that this one takes all jobs.
        """
        pid = own_bus.listener(self._names)
        who = processes.identity(pid) if pid > 0 else ""
        self.is_there = self._may_hear(pid, who)
        if not self.is_there or self._has_announced(pid, who, me, serves_on):
            self.unsure_at = None
            return False
        if self.unsure_at is None:
            self.unsure_at = self._monotonic()
        return True

    def has_forgotten(self, me: str) -> bool:
        """
        Tell whether the database does not know the process *me* any more, because it was lost.

        Then the next one soon asks nobody before it runs a job.
        """
        try:
            return self._generations.of(me) is None
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return False

    def is_ready(self, me: str, minions: Iterable[Any]) -> bool:
        """
        Tell whether it is connected to the masters that this one has, or to all that it can reach.

        *minions* are the parts of this one, one for each master.
        """
        try:
            serving = self._generations.serving()
            theirs = None if serving is None else serving.masters
            report = None if serving is None else serving.report
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return False
        if serving is None or serving.process == me or not processes.alive(serving.process):
            return False
        if are_connected(theirs, minions):
            return True
        # One that is to have none ('master_type: disable') is connected to all that it can reach.
        wants_none = report is not None and not report.master and not report.masters
        if not wants_none and not any(is_connected for _, is_connected in theirs or ()):
            self._serving = ""
            return False
        now = self._monotonic()
        if self._serving != serving.process:
            self._serving, self._serves_since = serving.process, now
        return now > self._serves_since + _AWAY

    def _may_hear(self, pid: int, who: str) -> bool:
        """
        Tell whether the process that listens on the sockets is another one, and was connected.

        One that sleeps first (``random_startup_delay``), or whose grains take long, listens long
        before it has any connection to a master. Grains may connect to others: what counts are the
        ports that this one is connected to itself, and the one at which it asks its master.
        """
        if pid < 0:
            return True
        # None yet, or one that has died.
        if pid in (0, os.getpid()):
            return False
        if not who or who != self._connected:
            if not connections.has_any(pid, {self._port, *connections.ports(os.getpid())}):
                return False
            self._connected = who
        return True

    def _has_announced(self, pid: int, who: str, me: str, serves_on: bool) -> bool:
        if who and who == self._announced:
            return True
        try:
            successors = self._generations.successors(me)
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return False
        if who in successors:
            self._announced = who
            return True
        # One on trial that has said so may hang: some looks later it takes no connection.
        return pid < 0 and serves_on and bool(successors)
