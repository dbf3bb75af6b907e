"""
Returns that neither a master nor the ledger has taken.

A job that has ended without one looks like one that was interrupted: it would be reported as that,
or run again. So the return is kept below 'cachedir' until the ledger can be written again.
"""

from __future__ import annotations

import contextlib
import glob
import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from ..core.host.files import remove, write_atomic
from ..core.jobs.ledger import Ledger

log = logging.getLogger(__name__)

_PREFIX = "safeupdate-return-"


def store(
    ledger: Ledger, payload: bytes, *, key: str, jid: str, fun: str, master: str, retcode: int
) -> None:
    """Have the ledger know of a return that has not arrived; without *key* it has no row."""
    if key and (ledger.finish(key, payload, retcode) or ledger.outcome(jid) is not None):
        return
    own = f"{jid}:{os.getpid()}:{time.time_ns()}"
    ledger.add_undelivered(own, jid=jid, fun=fun, master=master, payload=payload)


def keep(opts: Mapping[str, Any], payload: bytes, **described: Any) -> bool:
    """Keep a return, and what :func:`store` is to know of it; tell whether that could be done."""
    path = os.path.join(opts["cachedir"], f"{_PREFIX}{os.getpid()}-{time.time_ns()}")
    try:
        write_atomic(path, json.dumps(described).encode() + b"\n" + payload)
    except OSError as err:
        log.error("safeupdate: %s cannot be written: %s", path, err.strerror or err)
        return False
    return True


def paths(opts: Mapping[str, Any]) -> list[str]:
    """Return where such returns are."""
    return sorted(glob.glob(os.path.join(glob.escape(opts["cachedir"]), f"{_PREFIX}*")))


def bring_in(opts: Mapping[str, Any], ledger: Ledger) -> None:
    """Have the ledger know what is kept. Raises RecordError if it still cannot be written."""
    for path in paths(opts):
        # Another engine may just have done it.
        with contextlib.suppress(FileNotFoundError):
            with open(path, "rb") as file:
                described, _, payload = file.read().partition(b"\n")
            try:
                given = json.loads(described)
            except ValueError:
                log.error("safeupdate: %s is damaged, and is removed", path)
            else:
                store(ledger, payload, **given)
            remove(path)
