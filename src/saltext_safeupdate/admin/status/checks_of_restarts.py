"""What is not right with the restarts of this minion."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.errors import SafeUpdateError
from ...core.generations.table import Generations
from ...minion import handing_over
from ...this_host import Host
from .checks_of_files import Problem


def stop_guard(host: Host) -> Iterator[Problem]:
    """Look whether a stop waits for jobs."""
    if host.stop_guard is not None:
        for problem, fix in host.stop_guard.problems():
            yield Problem("stop-guard", problem, fix)


def handover(host: Host) -> Iterator[Problem]:
    """Look whether a restart hands the minion over, and whether the last one has."""
    unit = host.settings.service
    try:
        alone = Generations(host.store).overlapping() and not host.services.state(unit).running
    except SafeUpdateError:
        # That is a problem of its own.
        alone = False
    if alone:
        yield Problem(
            "not-taken-over",
            f"{unit} did not come up, and the minion before it goes on serving, without its "
            "engines and its schedule.",
            f"'journalctl -u {unit}' says why. Then start it; to end the earlier one as well, run "
            "'systemctl stop \"salt-minion-before-*.scope\"'.",
        )
    if why_not := handing_over.obstacle(host):
        yield Problem(
            "restart-waits",
            f"'safeupdate:restart' is 'handover', but a restart waits for jobs: {why_not}.",
            "Change that, or set 'safeupdate:restart' to 'wait'.",
        )
