"""
The restart after which the minion runs with this extension, or with another version of it.

A separate process requests it: this one has the old version in its memory, and would load the rest
from the new one.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import CommandError
from ..core.extensions.upgrade import Upgrade
from ..core.host.command import Run
from ..core.host.command import run as run_command
from ..core.jobs import functions
from ..core.record.store import Store
from ..core.record.typed import Fact
from ..core.settings import Settings

log = logging.getLogger(__name__)

# Seconds that salt-call gets: it waits for nothing, and hosts may be slow.
_TIMEOUT = 300.0
# When the minion was last restarted because it had no hooks, in epoch seconds, and the seconds
# until the next time at the earliest.
_LATE: Fact[float] = Fact("late", float)
_AT_MOST_EVERY = 3600.0
_CALL = "import sys; from salt.scripts import salt_call; sys.exit(salt_call())"


def restart_if_due(
    upgrade: Upgrade, settings: Settings, opts: Mapping[str, Any], run: Run = run_command
) -> None:
    """
    Request the deferred restart if another version was installed. Raise CommandError.

    Then the next check tries again.
    """
    if settings.extension_restart != "deferred":
        return
    version = upgrade.noticed()
    if not version:
        return
    log.warning(
        "safeupdate: version %s of the extension is installed: the minion restarts", version
    )
    upgrade.tidy()
    restart(settings, opts, f"version {version} of saltext-safeupdate", run)
    upgrade.settle()


def restart_for_hooks(
    store: Store,
    settings: Settings,
    opts: Mapping[str, Any],
    run: Run = run_command,
    clock: Callable[[], float] = time.time,
) -> bool:
    """
    Request the deferred restart that gives hooks to a minion which started without them.

    Tell whether that is settled: it was requested, or it must not be, which is logged. Raise
    CommandError; then try it again.
    """
    last = store.replaceable(_LATE)
    if settings.extension_restart != "deferred":
        _complain("'safeupdate:extension_restart' does not let it restart")
    elif last is not None and abs(clock() - last) < _AT_MOST_EVERY:
        _complain("it has just restarted for that, without success")
    else:
        store.set_fact(_LATE, clock())
        log.warning("safeupdate: the extension can be loaded again: the minion restarts")
        try:
            restart(settings, opts, "saltext-safeupdate can be loaded again", run)
        except CommandError:
            store.drop_fact(_LATE)
            raise
    return True


def _complain(reason: str) -> None:
    log.error(
        "safeupdate: the minion was started without hooks, and %s. State runs are not ordered and "
        "few jobs are held. Run 'safeupdate.check', then restart the minion.",
        reason,
    )


def restart(settings: Settings, opts: Mapping[str, Any], reason: str, run: Run) -> None:
    """Let a separate process request the deferred restart. Raise CommandError."""
    words = (
        *("--local", "--log-level=quiet", "--retcode-passthrough", "-c"),
        os.path.dirname(str(opts.get("conf_file") or "/etc/salt/minion")),
        functions.RESTART,
        f"reason={reason}",
        f"jitter={settings.restart_jitter:g}",
    )
    run((sys.executable, "-c", _CALL, *words), timeout=_TIMEOUT)
