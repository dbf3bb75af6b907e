"""
The masters that this minion is really connected to.

The configuration says only where to look: ``host:port``, a list, a function, or a name with
several addresses. The main process learns the result after it has forked the engine, and the
result may change. So the main process records which master uses which queue, and the engine reads
that.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import salt.utils.network

from ..core.errors import RecordError, SafeUpdateError, UnreadableError
from ..core.generations.table import Generations
from ..core.host import processes
from ..core.host.reach import Address
from ..core.jobs.ledger import Job
from ..core.record.database import MAIN_BUSY_TIMEOUT
from ..core.record.facts import PENDING_KEY, PendingKey
from ..core.record.store import Store
from . import queues
from .complaints import Complaints

log = logging.getLogger(__name__)

# Master types with which one master is in charge, whichever of the configured ones it is.
ONE_OF_SEVERAL = ("failover", "distributed", "func")
# The port on which a master listens for requests.
_PORT = 4506
# Seconds between two attempts to write to a database that cannot be written.
_RETRY_INTERVAL = 5.0

# The masters of a minion, each with whether it is connected; None: it has reported none.
Standings = tuple[tuple[str, bool], ...]


def are_connected(theirs: Standings | None, minions: Iterable[Any]) -> bool:
    """
    Tell whether another minion, with the masters *theirs*, is connected to the masters of this one.

    *minions* are the parts of this minion, one for each master.
    """
    if theirs is None:
        return False
    parts = list(minions)
    connected = {master for master, is_connected in theirs if is_connected}
    wanted = {str(each.opts.get("master")) for each in parts if each.connected}
    if any(each.opts.get("master_type") in ONE_OF_SEVERAL for each in parts):
        return bool(connected) or not wanted
    return wanted <= connected


class Noting:
    """
    In the main process: records its masters whenever they have changed.

    *begun* tells whether the job with a JID has begun.
    """

    def __init__(
        self,
        store: Store,
        complaints: Complaints,
        begun: Callable[[str], bool],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._generations = Generations(store)
        self._complaints = complaints
        self._begun = begun
        self._monotonic = monotonic
        # For each part of the minion: its master, and whether it is connected.
        self._parts: dict[int, tuple[str, bool]] = {}
        # For each part: the master whose queues have been cleaned up after the last minion.
        self._taken: dict[int, str] = {}
        self._written: tuple[tuple[str, bool], ...] | None = None
        self._retry_at = 0.0

    def note(self, minion: Any) -> None:
        """Note the master of this part of the minion."""
        former, connected = self._parts.get(id(minion)), bool(minion.connected)
        # Without a connection the opts name the master that Salt is just trying.
        master = former[0] if former and not connected else str(minion.opts.get("master", ""))
        now = self._parts[id(minion)] = (master, connected)
        if self._written is None or former != now:
            self._write()

    def take_over(self, minion: Any) -> None:
        """
        Put back the jobs that the last minion had taken out of its queues and not started. Also
        move jobs from the queues of masters that are no longer in charge into the queue of this
        part. Only the first call for each master does it.
        """
        master, former = self._parts[id(minion)][0], self._taken.get(id(minion))
        if master == former:
            return
        self._taken[id(minion)] = master
        opts = {"cachedir": minion.opts["cachedir"], "master": master}
        try:
            if former is None:
                queues.restore(opts, self._begun)
            if minion.opts.get("master_type") in ONE_OF_SEVERAL:
                queues.gather(opts, self._begun if former is None else None)
        except OSError as err:
            log.error(
                "safeupdate: jobs that the last minion left in its queues cannot be put back (%s): "
                "fix the permissions below 'cachedir' and restart the minion",
                err.strerror or err,
            )

    def _write(self) -> None:
        if self._monotonic() < self._retry_at:
            return
        found = tuple(self._parts.values())
        try:
            self._generations.notes_masters(processes.me(), found)
        except SafeUpdateError as err:
            self._written = None
            self._retry_at = self._monotonic() + _RETRY_INTERVAL
            self._complaints.log("the masters of this minion are not recorded for job %s", "-", err)
        else:
            self._written = found


class Keys:
    """In the main process: records that this minion waits until a master accepts its key."""

    def __init__(self, database: str) -> None:
        self._store = Store(database, busy_timeout=MAIN_BUSY_TIMEOUT)
        self._complaints = Complaints()
        self._main = os.getpid()
        self._waits = False

    def answered(self, original: Callable[..., Any], auth: Any, sent: Any, payload: Any) -> Any:
        """Handle the answer of a master to the request to sign in."""
        found = original(auth, sent, payload)
        waits = found == "retry"
        if waits != self._waits and os.getpid() == self._main:
            self._note(str(auth.opts["id"]) if waits else "")
        return found

    def _note(self, name: str) -> None:
        try:
            if name:
                self._store.set_fact(PENDING_KEY, PendingKey(process=processes.me(), name=name))
            else:
                self._store.drop_fact(PENDING_KEY)
        except SafeUpdateError as err:
            self._complaints.tell(err)
        else:
            self._waits = bool(name)


class Masters:
    """
    In the engine: tells for which masters the main process works, and which master gets what.

    *process* is the identity of the main process. If it is not *hooked*, it records nothing, and
    the configuration has to do. Raise RecordError.
    """

    def __init__(
        self, opts: Mapping[str, Any], store: Store, process: str, *, hooked: bool = True
    ) -> None:
        self._generations = Generations(store)
        self._process = process
        self._one_of_several = opts.get("master_type") in ONE_OF_SEVERAL
        self._hooked = hooked
        self._configured = _configured(opts)
        # With several masters at a time, the opts of each part of the minion have only its own.
        self._others = bool(opts.get("multimaster"))
        self._gone: set[str] = set()

    def working(self) -> list[str]:
        """Return the masters whose queues are processed, the connected ones first."""
        if not self._hooked:
            return self._configured
        try:
            ours = self._generations.of(self._process)
            known = (ours.masters if ours is not None else None) or ()
        except UnreadableError as err:
            raise RecordError(
                f"The record of the masters of this minion is not valid ({err}). Restart the "
                "minion: it writes a new one."
            ) from err
        rows = sorted(known, key=lambda row: not row[1])
        return list(dict.fromkeys(master for master, _ in rows))

    def follows(self) -> bool:
        """Tell whether the former minion takes jobs. Raise RecordError."""
        return self._hooked and bool(self._generations.overlapping())

    def in_charge_of(self, master: str, what: str) -> str | None:
        """
        Return the master that now gets what belongs to *master*, or None.

        With failover and similar types it is the present master. The log names *what* if the
        minion does not know its master any more.
        """
        working = self.working()
        if working and (not master or self._one_of_several):
            return working[0]
        if master in working:
            return master
        if working and master not in self._configured:
            self._complain(master, what, working)
        return None

    def tell_of_gone(self, jobs: Callable[[], Iterable[Job]]) -> bool:
        """Log the masters that the minion no longer knows; return False to ask again later."""
        if not self.working():
            return False
        for job in jobs():
            self.in_charge_of(job.master, f"job {job.jid}")
        return True

    def _complain(self, master: str, what: str, working: list[str]) -> None:
        """Log a master once."""
        if master not in self._gone:
            self._gone.add(master)
            log.error(
                "safeupdate: %s belongs to master %s, which %sthis minion is not configured for "
                "any more (it has: %s). It is stored, with everything else of that master: "
                "'safeupdate.jobs' shows it, 'safeupdate.forget' deletes it, and that master gets "
                "it when it is there again.",
                what,
                master,
                "has not been reached since the start, or " * self._others,
                ", ".join(working),
            )


def addresses(opts: Mapping[str, Any]) -> list[Address]:
    """Return the addresses of the masters in the configuration; empty if it names none."""
    if opts.get("master_type") in ("disable", "func"):
        return []
    given = opts.get("master_list") or opts.get("master") or []
    greets = opts.get("transport", "zeromq") == "zeromq"
    found = []
    for each in given if isinstance(given, list) else [given]:
        try:
            host, port = salt.utils.network.parse_host_port(str(each))
        except ValueError:
            host, port = str(each), None
        port = int(port or opts.get("master_port") or _PORT)
        found.append(Address(str(host), port, greets))
    return found


def _configured(opts: Mapping[str, Any]) -> list[str]:
    """Return the names that Salt uses for the masters in the configuration."""
    given = opts.get("master_list") or opts.get("master") or []
    return [_name(str(each), opts) for each in (given if isinstance(given, list) else [given])]


def _name(master: str, opts: Mapping[str, Any]) -> str:
    """Return the name without its port, as in ``salt.minion.prep_ip_port``."""
    if opts.get("master_uri_format") == "ip_only":
        return master
    try:
        return str(salt.utils.network.parse_host_port(master)[0])
    except ValueError:
        return master
