"""
A database that was copied with its host, or is old: nobody expects any more what it has open.

A clone has the jobs and the update of its template, and nothing of them continues there. A copy
gets other (virtual) hardware than its template. If that says nothing, as in a container, it gets
both another machine ID and another key.
One of these two alone is no copy: a container that is made again has another machine ID, and a
minion that is renamed another key. A copy with the same of both is the same minion for its master,
and for us.

A host that was set back to an earlier state does not know what it has done since, and its disk is
as after a power cut. Only the time shows it: after a day, jobs are reported and do not run.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from dataclasses import replace

from ..frozen import frozen
from ..host import processes
from ..record.facts import PENDING_KEY, RESTART
from ..record.phase import Phase
from ..record.store import Store
from ..record.typed import Fact
from .ledger import Ledger
from .suspension import Suspensions

log = logging.getLogger(__name__)

MACHINE_ID = "/etc/machine-id"
HARDWARE = "/sys/class/dmi/id/product_uuid"
# In a container, that is the hardware of its host. Each kind of container has a namespace of its
# own for processes; the number of the host's is a constant of the kernel (PROC_PID_INIT_INO).
NAMESPACE = "/proc/self/ns/pid"
OF_HOST = 0xEFFFFFFC
# Seconds after which a job does not continue in another boot.
_OLD = 86400.0
_TOO_OLD = (
    "since then, the host was off for more than a day, or was set back to a state that is older"
)
_REASON = (
    "This host is a copy of the one on which this began, so it does not continue here. Compare the "
    "installed with the running version."
)


@frozen
class Machine:
    """The marks of a host; a text is empty if it is not known."""

    hardware: str = ""
    system: str = ""
    # The file with the public key of the minion, and a digest of it.
    key_file: str = ""
    key: str = ""
    boot: str = ""

    def is_copy_of(self, other: Machine) -> bool:
        if self.hardware and other.hardware:
            return self.hardware != other.hardware
        known = self.system and other.system and other.key
        return bool(known) and self.system != other.system and self.key != other.key


_KNOWN: Fact[Machine] = Fact("machine", Machine)


def look(store: Store, ledger: Ledger, key_file: str = "") -> None:
    """
    Give up what the database has of another host, before anything of it continues.

    *key_file* is the file with the minion's public key; empty: as it was. Raise RecordError.
    """
    known = store.replaceable(_KNOWN) or Machine()
    key_file = key_file or known.key_file
    now = Machine(
        hardware=_hardware(),
        system=_read(MACHINE_ID),
        key_file=key_file,
        key=_digest(key_file),
        boot=processes.boot(),
    )
    if now.is_copy_of(known):
        _give_up(store, ledger)
    elif not now.hardware:
        # Not every user may read it.
        now = replace(now, hardware=known.hardware)
    if known.boot not in ("", now.boot):
        Suspensions(ledger.path).end_old(time.time() - _OLD, _TOO_OLD)
    if now != known:
        store.set_fact(_KNOWN, now)


def _give_up(store: Store, ledger: Ledger) -> None:
    jobs = ledger.open()
    for job in jobs:
        ledger.forget(job.key)
    ledger.record_no_more()
    for row in store.unpublished():
        store.mark_published(row.seq)
    updates = [each for each in store.updates() if not each.phase.final]
    for update in updates:
        store.save(update.advance(Phase.FAILED, reason=_REASON))
    store.drop_fact(RESTART)
    store.drop_fact(PENDING_KEY)
    log.warning(
        "safeupdate: this host is a copy of another one: its jobs (%s) and updates (%s) do not "
        "continue here",
        ", ".join(f"{job.jid} {job.fun}" for job in jobs) or "none",
        ", ".join(update.id for update in updates) or "none",
    )


def _hardware() -> str:
    try:
        in_container = os.stat(NAMESPACE).st_ino != OF_HOST
    except OSError:
        in_container = True
    return "" if in_container else _read(HARDWARE)


def _digest(path: str) -> str:
    text = _read(path) if path else ""
    return hashlib.sha256(text.encode()).hexdigest() if text else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536).strip()
    except OSError:
        return ""
