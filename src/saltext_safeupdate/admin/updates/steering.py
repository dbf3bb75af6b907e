"""Steer an update or a restart that was requested."""

from __future__ import annotations

import math
import random
from typing import Any

from ... import factory
from ...core.errors import InputError
from ...core.jobs import current
from ...this_host import Host
from ..status.status import described


def restart(host: Host, reason: str, jitter: object = 0) -> dict[str, Any]:
    """
    Ask for the deferred restart; return its record.

    It waits for a random time at first, up to *jitter* seconds.
    """
    from ...core.supervisor import asking
    from ...ordering.results import DEFERRED_RESTART

    # If the hooks are not there yet, this job has no share of the jobs lock, and the restart
    # would not wait for it.
    jid = current.ensure(host.settings).jid
    is_number = isinstance(jitter, int | float) and not isinstance(jitter, bool)
    if not is_number or not 0 <= float(str(jitter)) < math.inf:
        raise InputError("'jitter' must be a number of seconds, 0 or more. Nothing was changed.")
    delay = random.uniform(0, float(str(jitter)))  # noqa: S311 (it spreads restarts, and keeps no secret)
    update = asking.restart(factory.initiator(host, jid), jid=jid, reason=reason, delay=delay)
    return {**described(update), "comment": DEFERRED_RESTART}


def restart_after_run(reason: str) -> bool:
    """Make the state run of this thread request the restart at its end. False without a run."""
    from ...ordering import runs

    run = runs.current()
    if run is None:
        return False
    run.ask_for_restart(reason)
    return True


def cancel(host: Host) -> dict[str, Any]:
    """Call off what waits; return its record."""
    from ...core.supervisor import asking

    return described(asking.cancel(factory.initiator(host)))
