"""Services that restart with the minion: which of their starts must end, and when they are up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ..errors import CommandError
from ..host.service import ServiceState
from .context import Context

log = logging.getLogger("salt-safeupdate")

# Seconds between two checks of services, and for how many checks one has to stay up.
_INTERVAL = 0.5
_CALM = 4
# For how many checks it has to stay stopped until that counts as somebody's decision.
_STOPPED = 6


def starts(context: Context, units: Iterable[str]) -> dict[str, str]:
    """Return systemd's name for the start of each unit that must end; empty if it did not run."""
    found = {}
    for unit in units:
        state = context.services.state(unit)
        # A unit that has just failed should run, too; one that somebody has stopped should not.
        found[unit] = state.invocation if state.running or state.active == "failed" else ""
    return found


def start(context: Context, units: Iterable[str]) -> CommandError | None:
    """
    Start the units that do not run; return the first error. Idempotent.

    A unit that cannot be started, such as a masked one, does not prevent the others.
    """
    first = None
    for unit in units:
        state = context.services.state(unit)
        # A unit that takes long to stop would be down in the end.
        if state.running and state.active != "deactivating":
            continue
        try:
            context.services.start(unit)
        except CommandError as err:
            log.error("%s could not be started: %s", unit, err)
            first = first or err
    return first


def renew(context: Context, unit: str, former: str) -> None:
    """Make sure that the unit has another start than the *former* one. Idempotent."""
    state = context.services.state(unit)
    if state.running and state.invocation == former:
        log.info("restarting %s", unit)
        context.services.begin_restart(unit)
    elif not state.running:
        log.info("starting %s", unit)
        context.services.start(unit)


def not_up(
    context: Context,
    unit: str,
    former: str,
    works: Callable[[], str] = lambda: "",
    timeout: float | None = None,
) -> str:
    """
    Wait until another start than *former* is up and stays up; return its state if it does not.

    *works* says what does not work although the unit runs; empty if all works. The wait takes
    *timeout* seconds at most; None: ``restart_timeout``.
    """
    calm, stopped, pid, lacks = 0, 0, 0, ""
    state: ServiceState = context.services.state(unit)
    given = context.settings.restart_timeout if timeout is None else timeout
    deadline = context.monotonic() + given
    while context.monotonic() < deadline:
        state = context.services.state(unit)
        is_new = state.invocation != former
        up = state.active == "active" and is_new
        lacks = works() if up else ""
        calm = calm + 1 if up and not lacks and state.pid == pid else 0
        pid = state.pid
        if calm == _CALM:
            return ""
        if state.active == "failed" and is_new:
            break
        down = state.active == "inactive"
        stopped = stopped + 1 if down and _is_stopped(context, unit, is_new=is_new) else 0
        if stopped == _STOPPED:
            # Somebody has decided so.
            return ""
        context.sleep(_INTERVAL)
    return f"{state.active}, and {lacks}" if lacks else state.active


def _is_stopped(context: Context, unit: str, *, is_new: bool) -> bool:
    """Tell whether somebody has stopped it, after its restart or instead of it."""
    stopped = context.services.last_run(unit).stopped
    return stopped and (is_new or context.services.is_left_stopped(unit))
