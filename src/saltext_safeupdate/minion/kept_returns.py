"""
Returns that neither a master nor the ledger has accepted.

A job that has ended without a return looks like an interrupted one: it would be reported as such,
or run again. So the return is stored below 'cachedir' until the ledger can be written again.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from ..core.errors import RecordError
from ..core.host.files import remove, write_atomic
from ..core.jobs.ledger import Ledger
from ..core.jobs.problems import Problems

log = logging.getLogger(__name__)

_PREFIX = "safeupdate-return-"
# The name of an unreadable one.
_DAMAGED = "safeupdate-damaged-return-"


def store(
    ledger: Ledger, payload: bytes, *, key: str, jid: str, fun: str, master: str, retcode: int
) -> None:
    """Add a return that has not arrived to the ledger; without *key* it has no row."""
    if key and (ledger.finish(key, payload, retcode) or ledger.outcome(jid) is not None):
        return
    own = f"{jid}:{os.getpid()}:{time.time_ns()}"
    ledger.add_undelivered(own, jid=jid, fun=fun, master=master, payload=payload)


def keep(opts: Mapping[str, Any], payload: bytes, **described: Any) -> bool:
    """Store a return with the arguments of :func:`store`; tell whether that worked."""
    path = os.path.join(opts["cachedir"], f"{_PREFIX}{os.getpid()}-{time.time_ns()}")
    try:
        write_atomic(path, json.dumps(described).encode() + b"\n" + payload)
    except OSError as err:
        log.error("safeupdate: %s cannot be written: %s", path, err.strerror or err)
        return False
    return True


def paths(opts: Mapping[str, Any]) -> list[str]:
    """Return the paths of such returns."""
    return _below(opts, _PREFIX)


def damaged(opts: Mapping[str, Any]) -> list[str]:
    """Return the paths of unreadable ones."""
    return _below(opts, _DAMAGED)


def keys(opts: Mapping[str, Any]) -> set[str]:
    """Return the keys of the jobs whose returns are stored; an unreadable file adds none."""
    found = set()
    for path in paths(opts):
        # Another engine may just have brought it in. An unreadable one is logged later.
        with contextlib.suppress(OSError, ValueError):
            with open(path, "rb") as file:
                described = json.loads(file.readline())
            if isinstance(described, dict) and isinstance(described.get("key"), str):
                found.add(described["key"])
    return found - {""}


def bring_in(opts: Mapping[str, Any], ledger: Ledger) -> None:
    """
    Bring the stored returns into the ledger; a failure of one does not stop the others.

    Raise RecordError if one still cannot be read or written.
    """
    problems = Problems()
    for path in paths(opts):
        problems.of(functools.partial(_bring_in, path, ledger))
    problems.tell()


def _bring_in(path: str, ledger: Ledger) -> None:
    try:
        with open(path, "rb") as file:
            described, _, payload = file.read().partition(b"\n")
        try:
            store(ledger, payload, **json.loads(described))
        except (ValueError, TypeError) as err:
            directory, name = os.path.split(path)
            aside = os.path.join(directory, f"{_DAMAGED}{name.removeprefix(_PREFIX)}")
            os.rename(path, aside)
            log.error(
                "safeupdate: a stored return is damaged (%s) and does not reach its master: it is "
                "in %s now; after its first line it has what the job returned.",
                err,
                aside,
            )
            return
        remove(path)
    except FileNotFoundError:
        # Another engine has just done it.
        return
    except OSError as err:
        raise RecordError(
            f"{path} cannot be read or removed: {err.strerror or err}. It is the return of a job, "
            "and no master has it; fix the permissions below 'cachedir'."
        ) from err


def _below(opts: Mapping[str, Any], prefix: str) -> list[str]:
    place = opts["cachedir"]
    try:
        names = os.listdir(place)
    except OSError:
        return []
    return sorted(os.path.join(place, name) for name in names if name.startswith(prefix))
