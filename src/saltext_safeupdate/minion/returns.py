"""
Returns on their way to the master.

A return is stored in the ledger before it is sent, and counts as delivered when the master has
acknowledged it. The engine sends undelivered returns.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import salt.payload
from salt.exceptions import SaltReqTimeoutError

from ..core.errors import SafeUpdateError
from ..core.host import locks
from ..core.host.locks import Lock
from ..core.jobs import current
from ..core.jobs.ledger import Ledger
from ..core.record import kept
from ..core.settings import Settings
from . import kept_returns, publication, unrecorded
from .answers import is_failure
from .complaints import Complaints

log = logging.getLogger(__name__)

# Seconds that a job waits for its turn to send its return. The minion's main process sends one
# after the other, and each counts the time that it waits there: if many are sent at once, all are
# too late and are sent again, and nothing gets through any more. A job that waits longer leaves its
# return to the engine and ends: each existing job blocks the main process for 10 ms, again and
# again.
TURN_TIMEOUT = 2.0


class Returns:
    """Stores returns, sends them in turn, and records which have arrived."""

    def __init__(
        self, settings: Settings, complaints: Complaints, *, turn_timeout: float = TURN_TIMEOUT
    ) -> None:
        self._settings = settings
        self._complaints = complaints
        self._turn_timeout = turn_timeout

    def prepare(
        self, original: Callable[..., Any], minion: Any, ret: Any, ret_cmd: str = "_return"
    ) -> Any:
        """Store the return that Salt is about to send."""
        load = original(minion, ret, ret_cmd)
        job = current.get()
        if ret_cmd != "_return" or job is None or not job.key or not _is_of(job, load):
            return load
        try:
            code = load.get("retcode")
            if minion.opts.get("multiprocessing", True):
                # Soon the same connection records that the return has arrived.
                kept.begin()
            self._ledger(job).finish(
                job.key, salt.payload.dumps(load), code if isinstance(code, int) else 0
            )
            job.stored = True
        except SafeUpdateError as err:
            job.blind = True
            self._complaints.log("the return of job %s is sent without a record", job.jid, err)
        return load

    def publish(self, original: Callable[..., Any], minion: Any, ret: Any) -> Any:
        """Send the return; it stays in the ledger if the master did not acknowledge it."""
        job = current.get()
        jid = str(ret.get("jid", ""))
        key = ""
        if job is not None and _is_of(job, ret):
            key = job.key
            job.returned = True
        arrived = False
        try:
            value = original(minion, ret)
            arrived = not is_failure(value) or not minion.opts.get("pub_ret", True)
        finally:
            # Do it even if Salt fails to send at all.
            try:
                self._settle(minion, ret, jid, key, arrived=arrived)
            finally:
                kept.end()
        return value

    def send(
        self, original: Callable[..., Any], minion: Any, load: dict[str, Any], timeout: Any
    ) -> Any:
        """Send a return when it is its turn; a stored one may be left to the engine."""
        job = current.get()
        if load.get("cmd") != "_return":
            return original(minion, load, timeout)
        turn = self._turn(load)
        if turn is None and job is not None and job.stored and str(load.get("jid")) == job.jid:
            raise SaltReqTimeoutError("Too many returns wait to be sent; the engine sends this one")
        try:
            return original(minion, load, timeout)
        finally:
            if turn is not None:
                turn.close()

    def _turn(self, load: dict[str, Any]) -> Lock | None:
        try:
            return locks.take_turn(self._settings.run_dir, locks.RETURNS, self._turn_timeout)
        except SafeUpdateError as err:
            self._complaints.log("the return of job %s waits for no turn", load.get("jid"), err)
            return None

    def _ledger(self, job: current.Job | None) -> Ledger:
        patience = current.PATIENCE if job is None else job.patience
        return Ledger(self._settings.database, busy_timeout=patience)

    def _settle(
        self, minion: Any, ret: dict[str, Any], jid: str, key: str, *, arrived: bool
    ) -> None:
        """Record what has happened to a return."""
        job = current.get()
        try:
            if arrived and key:
                self._ledger(job).delivered(key)
        except SafeUpdateError as err:
            self._complaints.log("the delivery of job %s is not recorded", jid, err)
            unrecorded.note(minion.opts, key)
        if arrived:
            return
        if not (key and job is not None and job.stored) and not self._store(minion, ret, jid, key):
            return
        log.warning("The return of job %s did not arrive; the engine sends it again", jid)

    def _store(self, minion: Any, ret: dict[str, Any], jid: str, key: str) -> bool:
        """
        Store an undelivered return that is not stored yet; without *key* it has no row.

        Tell whether it was stored, in the ledger or otherwise next to it.
        """
        code = ret.get("retcode")
        payload = salt.payload.dumps({"cmd": "_return", "id": minion.opts["id"], **ret})
        described: dict[str, Any] = {
            "key": key,
            "jid": jid,
            "fun": publication.function(ret),
            "master": str(minion.opts.get("master", "")),
            "retcode": code if isinstance(code, int) else 0,
        }
        try:
            kept_returns.store(self._ledger(current.get()), payload, **described)
        except SafeUpdateError as err:
            if not kept_returns.keep(minion.opts, payload, **described):
                log.error("The return of job %s did not arrive and cannot be stored: %s", jid, err)
                return False
        return True


def _is_of(job: current.Job, ret: Mapping[str, Any]) -> bool:
    """
    Tell whether this is the return that belongs to the job's row in the ledger.

    From 3008 on, a state run returns for each of the minion's resources as well, under its JID.
    """
    of_resource = ret.get("resource_id")
    return str(ret.get("jid", "")) == job.jid and (
        not of_resource or job.key.endswith(f":{of_resource}")
    )


def without_payload(record: logging.LogRecord) -> bool:
    """Remove the unsent message from Salt's error: it has the job's arguments and its return."""
    if str(record.msg).startswith("Timeout encountered while sending"):
        record.args = tuple(
            {key: arg.get(key) for key in ("cmd", "jid")} if isinstance(arg, dict) else arg
            for arg in record.args or ()
        )
    return True
