"""The next minion, to which this one is handed over, as this main process sees it."""

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

# Seconds to wait until the next minion, which has other masters, is connected to a master of this
# one. Then that master is away, or the next minion is no longer configured for it.
_AWAY = 120.0


class NextOne:
    """
    Whether another minion has bound the sockets of this one, and claims the jobs that it runs.

    Jobs and their returns wait during each check. Two answers never change for a process, and are
    found only once: that it had a connection, and that it has announced its claims. The first one
    takes longest, 14 ms of a processor: the kernel goes through its table of connections.
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
        # The names of the sockets, and the port on which this minion asks its master.
        self._names, self._port = names, port
        self._connected = self._announced = ""
        # The minion that serves some masters, and since when.
        self._serving, self._serves_since = "", 0.0
        # Whether there is one that may receive jobs, and since when it may have no hooks.
        self.is_there = False
        self.unsure_at: float | None = None

    def is_unannounced(self, me: str, *, serves_on: bool) -> bool:
        """
        Tell whether it may receive jobs, and does not claim its jobs yet.

        *me* is the identity of this process; *serves_on* says that this minion takes all jobs.
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
        Tell whether the database no longer knows the process *me*, because it was lost.

        Then the next minion will soon run jobs without asking.
        """
        try:
            return self._generations.of(me) is None
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return False

    def is_ready(self, me: str, minions: Iterable[Any]) -> bool:
        """
        Tell whether it is connected to the masters of this minion, or to all that it can reach.

        *minions* are the parts of this minion, one for each master.
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
        # A minion without master ('master_type: disable') is connected to all that it can reach.
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

        A minion that sleeps first (``random_startup_delay``), or whose grains take long, listens
        long before it has any connection to a master. Grains may connect to other ports. So only
        the ports that this minion itself is connected to count, and its master's request port.
        """
        if pid < 0:
            return True
        # No minion listens yet, or it has died.
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
        # A minion on trial that has announced itself may hang: soon it accepts no connection.
        return pid < 0 and serves_on and bool(successors)
