"""The reaction of the engine if somebody has replaced the code that the minion runs from."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.errors import CommandError
from ..core.generations.code import Code
from ..core.generations.table import Generations
from ..core.host.command import Run
from ..core.host.command import run as run_command
from ..core.record.phase import Phase
from ..core.record.typed import Fact
from ..this_host import Host
from .upgraded import restart

log = logging.getLogger(__name__)

# When the minion was last restarted for that, in epoch seconds, and the seconds until the next time
# at the earliest: something may replace files all the time.
_LAST: Fact[float] = Fact("changed", float)
_AT_MOST_EVERY = 3600.0
# How many files are named.
_NAMED = 3


def look(
    files: Code,
    host: Host,
    process: str,
    opts: Mapping[str, Any],
    run: Run = run_command,
    clock: Callable[[], float] = time.time,
) -> None:
    """
    Report replaced code of the main process *process*, and restart the minion if allowed.

    An update of ours restarts it anyway. Raise SafeUpdateError; then it is tried again.
    """
    found = files.changed()
    if not found:
        return
    last = host.store.latest() if host.store.exists() else None
    if last is not None and not last.phase.final and not last.awaits_boot:
        return
    if _is_busy(host):
        return
    generations = Generations(host.store)
    what = named(found)
    generations.notes_changed(process, what)
    why_not = _why_not(host, generations, process, clock())
    log.warning(
        "safeupdate: the code that the minion runs from was replaced on the disk: %s. %s",
        what,
        f"It continues with the code in memory: {why_not}." if why_not else "It restarts.",
    )
    if not why_not:
        # The restart may end this process.
        host.store.set_fact(_LAST, clock())
        try:
            restart(host.settings, opts, f"its code was replaced on the disk: {what}", run)
        except CommandError:
            host.store.drop_fact(_LAST)
            raise
    files.settle()


def _is_busy(host: Host) -> bool:
    """Tell whether packages are being installed; false if our package manager code is gone."""
    try:
        return host.manager is not None and host.manager.busy()
    except ImportError as err:
        log.error("safeupdate: a part of saltext-safeupdate is missing (%s).", err)
        return False


def named(files: Sequence[str]) -> str:
    """Name some of the files, and how many there are."""
    more = len(files) - _NAMED
    return ", ".join(files[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _why_not(host: Host, generations: Generations, process: str, now: float) -> str:
    """Return why the minion should not restart by itself; empty if it should."""
    if host.settings.on_change != "restart":
        return "'safeupdate:on_change' is 'tell'"
    ours, last = generations.of(process), host.store.latest()
    report = None if ours is None else ours.report
    since = 0.0 if report is None else report.at
    if last is not None and last.phase is Phase.FAILED and last.created >= since:
        return "an update has failed, and its record says what to do"
    before = host.store.replaceable(_LAST)
    if before is not None and abs(now - before) < _AT_MOST_EVERY:
        return "it has already restarted for this within the last hour"
    return ""
