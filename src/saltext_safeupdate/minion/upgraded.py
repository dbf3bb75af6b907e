"""
The restart after which the minion runs with another version of this extension.

A process of its own asks for it: this one has the old version in its memory, and would load the
rest of the new one into it.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any

from ..core.extensions.upgrade import Upgrade
from ..core.host.command import Run
from ..core.host.command import run as run_command
from ..core.jobs import functions
from ..core.settings import Settings

log = logging.getLogger(__name__)

# Seconds that salt-call gets: it waits for nothing, and hosts may be slow.
_TIMEOUT = 300.0
_CALL = "import sys; from salt.scripts import salt_call; sys.exit(salt_call())"


def restart_if_due(
    upgrade: Upgrade, settings: Settings, opts: Mapping[str, Any], run: Run = run_command
) -> None:
    """
    Ask for the deferred restart if another version was installed. Raises CommandError.

    Then it is tried again with the next look.
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
    words = (
        *("--local", "--log-level=quiet", "--retcode-passthrough", "-c"),
        os.path.dirname(str(opts.get("conf_file") or "/etc/salt/minion")),
        functions.RESTART,
        f"reason=version {version} of saltext-safeupdate",
        f"jitter={settings.restart_jitter:g}",
    )
    run((sys.executable, "-c", _CALL, *words), timeout=_TIMEOUT)
    upgrade.settle()
