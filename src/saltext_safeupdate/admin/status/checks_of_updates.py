"""Problems of the database of this minion, and of its last update."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.errors import SafeUpdateError, argument
from ...core.host import locks
from ...core.record.phase import Phase
from ...core.record.update import Update
from ...this_host import Host
from .checks_of_files import Problem

_DATABASE = (
    "Look at the directory 'safeupdate:state_dir': it needs free space, and has to belong to the "
    "user of the minion, with the mode 0700. Then run 'safeupdate.check' again."
)


def last_update(host: Host) -> Iterator[Problem]:
    """Yield problems of the database, and of the newest update in it."""
    problem = host.store.problem()
    if problem:
        yield Problem("database", problem, _DATABASE)
    if not host.store.exists():
        return
    try:
        last = host.store.latest()
    except SafeUpdateError as err:
        if not problem:
            yield Problem("database", str(err), _DATABASE)
        return
    if last is not None and _interrupted(host, last):
        yield Problem(
            "interrupted",
            f"Update {last.id} was interrupted while {last.phase.value}.",
            "The engine starts the supervisor for it; if the engine does not run, restart the "
            "minion.",
        )
    if last is not None and last.phase in (Phase.FAILED, Phase.ROLLED_BACK):
        ended = "failed" if last.phase is Phase.FAILED else "was rolled back"
        yield Problem(
            "last-update", f"The last update {ended}: {last.reason}", _to_repeat(host, last)
        )
    if host.services.inhibited(host.settings.service) and (last is None or last.phase.final):
        yield Problem(
            "inhibited",
            "A restart of the service has no effect, although no update is under way.",
            "Restart the minion's host, or remove zz-safeupdate-inhibitor.conf below "
            "/run/systemd/system, run 'systemctl daemon-reload' and restart the service.",
        )


def _to_repeat(host: Host, update: Update) -> str:
    """Return what to do about an update that has failed or was rolled back."""
    versions = sorted({row.version for row in host.store.quarantined() if row.id == update.id})
    lift = " and ".join(f"safeupdate.unquarantine {argument(version)}" for version in versions)
    if lift:
        then = f"allow the version again with {lift}, and request it with 'safeupdate.update'"
    elif update.kind == "restart":
        then = "request the restart again with 'safeupdate.restart'"
    else:
        then = "request the update again with 'safeupdate.update'"
    return f"Remove the cause ('safeupdate.history' shows all phases), then {then}."


def _interrupted(host: Host, update: Update) -> bool:
    """Tell whether no process works on an update that has not ended."""
    if update.phase.final or update.awaits_boot:
        return False
    run_dir = host.settings.run_dir
    if locks.problem(run_dir):
        # It is not known whether a process works on it.
        return False
    return not locks.held(run_dir, "supervisor") and not locks.held(run_dir, "update")
