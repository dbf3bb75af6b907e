"""Jobs that the supervisor gives the running minion, as if its master had published them."""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

from ..errors import UnreadableError
from ..generations.generation import Generation, Probe
from ..host import processes
from .context import Context
from .patience import Patience

# The function that proves that jobs run and return.
FUNCTION = "test.echo"
# The module of Salt that contains it.
MODULE = "salt.modules.test"
_POLL_INTERVAL = 0.05

log = logging.getLogger("salt-safeupdate")


def begin(context: Context, process: str, fun: str, arguments: list[Any]) -> str:
    """Have the engine of the minion with that main process start a job; return its JID."""
    # It looks like a JID of the master, and is unique.
    now = time.gmtime(context.clock())
    jid = time.strftime("%Y%m%d%H%M%S", now) + f"{uuid.uuid4().int % 1_000_000:06}"
    context.generations.ask(process, Probe(jid=jid, fun=fun, arg=tuple(arguments)))
    return jid


def reaches_master(context: Context, timeout: float) -> bool:
    """
    Tell whether the master of the running minion gets the return of a job within *timeout* seconds
    of the host's time for that minion. If the minion ends meanwhile, wait for the next one and
    probe it.
    """
    running = context.generations.serving()
    if running is None or not _has_master(running):
        return False
    asked, jid, pid = "", "", 0
    patience = Patience(timeout, context.monotonic, context.waited)
    while not patience.over:
        running = context.generations.serving() or running
        if running.process != asked:
            asked = running.process
            jid = begin(context, asked, FUNCTION, ["safeupdate: before an update"])
            pid = context.services.state(context.unit).pid
            patience.begin_anew()
        patience.look(pid, stops=not processes.alive(asked))
        found = context.outcome(jid)
        if found is not None and found.ended and found.answered:
            return True
        context.sleep(_POLL_INTERVAL)
    return False


def _has_master(running: Generation) -> bool:
    """Tell whether it may have a master."""
    try:
        return running.report is not None and running.report.master
    except UnreadableError as err:
        log.warning("cannot tell whether there is a master: %s", err)
        return True
