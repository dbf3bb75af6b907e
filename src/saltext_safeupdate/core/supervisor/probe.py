"""Jobs that the supervisor has the running minion do, as if its master had published them."""

from __future__ import annotations

import time
import uuid
from typing import Any

from ..generations.generation import Probe
from .context import Context
from .patience import Patience

# The function that proves that jobs run and return.
FUNCTION = "test.echo"
# The module of Salt that has it.
MODULE = "salt.modules.test"
_POLL_INTERVAL = 0.05


def begin(context: Context, process: str, fun: str, arguments: list[Any]) -> str:
    """Have the engine of the minion with that main process start a job; return its JID."""
    # Shaped like those of the master, and no other's.
    now = time.gmtime(context.clock())
    jid = time.strftime("%Y%m%d%H%M%S", now) + f"{uuid.uuid4().int % 1_000_000:06}"
    context.generations.ask(process, Probe(jid=jid, fun=fun, arg=tuple(arguments)))
    return jid


def reaches_master(context: Context, timeout: float) -> bool:
    """
    Tell whether the master of the running minion gets the return of a job within *timeout* s of
    the host's time for that minion.
    """
    running = context.generations.serving()
    if running is None or running.report is None or not running.report.master:
        return False
    jid = begin(context, running.process, FUNCTION, ["safeupdate: before an update"])
    pid = context.services.state(context.unit).pid
    patience = Patience(timeout, context.monotonic, context.waited)
    while not patience.over:
        patience.look(pid)
        found = context.outcome(jid)
        if found is not None and found.ended and found.answered:
            return True
        context.sleep(_POLL_INTERVAL)
    return False
