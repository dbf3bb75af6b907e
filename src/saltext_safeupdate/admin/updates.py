"""What an administrator asks of updates, as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import salt.version

from ..core.errors import CommandError, InputError, SafeUpdateError, VerificationError
from ..core.host import backup, locks
from ..core.jobs import current
from ..core.packages.choice import matches
from ..core.packages.manager import PackageManager
from ..core.packages.request import File
from ..core.prepare import resolution as plans
from ..core.prepare.preflight import Facts, Finding, preflight
from ..core.prepare.staging import Staging
from ..core.record.store import Quarantined
from ..core.record.update import Update
from ..core.supervisor import steps
from ..factory import Factory
from . import facts, report

Functions = Mapping[str, Callable[..., Any]]

_REQUESTED = (
    "The update is under way. It installs when no job runs, and the minion restarts then; "
    "'safeupdate.status' shows what becomes of it."
)


def plan(
    factory: Factory,
    functions: Functions,
    version: str | float | None = None,
    *,
    allow_downgrade: bool = False,
) -> dict[str, Any]:
    """Return what an update would do, and every problem that there is."""
    manager, own = _manager(factory), _own(factory)
    installed = manager.installed(own)
    wanted = plans.request(version, allow_downgrade=allow_downgrade)
    targets = _targets(factory, wanted)
    found = _findings(factory, functions, wanted, targets)
    last = factory.store.latest() if factory.store.exists() else None
    reboot = _needs_reboot(manager, own, targets)
    if last is not None and not (last.phase.final or reboot):
        problem = f"Update {last.id} is {last.phase.value}."
        found.insert(0, Finding("other-update-running", problem, "Wait for its end."))
    return {
        "installed": installed,
        "targets": targets or {},
        "changes": {
            name: {"old": installed.get(name, ""), "new": new}
            for name, new in (targets or {}).items()
            if installed.get(name) != new
        },
        "steps": steps.due(factory.settings.steps_dir, installed, targets or {}),
        "reboot": reboot,
        "staged": bool(targets) and _staging(factory).staged() == targets,
        "jobs": factory.awaited_jobs(_jid(factory)),
        "findings": [finding._asdict() for finding in found],
    }


def _targets(factory: Factory, wanted: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the versions that a request means; None where that cannot be told."""
    try:
        staged = _staging(factory).staged()
        return plans.choose(_manager(factory), _own(factory), wanted, factory.revisions, staged)
    except SafeUpdateError:
        # Pre-flight asks again, and says why.
        return None


def _findings(
    factory: Factory,
    functions: Functions,
    wanted: Mapping[str, Any],
    targets: Mapping[str, str] | None,
) -> list[Finding]:
    """Return all that speaks against it. Where it is installed, nothing does."""
    manager, own = _manager(factory), _own(factory)
    installed = manager.installed(own)
    if targets is not None and plans.reached(installed, targets):
        return []
    opts = factory.opts
    masterless = opts.get("master_type") == "disable" or opts.get("file_client") == "local"
    found = []
    try:
        uses = facts.state_uses(opts, functions)
    except SafeUpdateError as err:
        uses = set()
        found.append(Finding("module-gone", str(err), "Fix them, and look again.", False))
    found += preflight(
        Facts(
            manager=manager,
            own=own,
            running=str(salt.version.__version__),
            state_dir=factory.settings.state_dir,
            roots=factory.written(),
            transaction=factory.waiting(),
            version=wanted["version"],
            targets=targets,
            master=None if masterless else facts.master_version(functions, opts.get("pillar", {})),
            masterless=masterless,
            writes={factory.settings.state_dir: backup.size(factory.backup_paths())},
            quarantined=[(row.package, row.version) for row in _quarantined(factory)],
            uses=uses,
            extensions_policy=factory.settings.extensions,
        )
    )
    if targets and targets == _staging(factory).staged():
        # They are here, with all that they need.
        found = [item for item in found if item.code != "target-unavailable"]
    try:
        plans.refuse_downgrade(targets or {}, installed, wanted)
    except InputError as err:
        found.append(Finding("downgrade", str(err), "See the message."))
    return found


def stage(factory: Factory, version: str | float | None = None) -> dict[str, Any]:
    """Download and verify what an update would install."""
    manager, own = _manager(factory), _own(factory)
    lock = locks.acquire(
        factory.settings.run_dir,
        "update",
        "An update of the minion is under way, or another staging. Nothing was done; wait for its "
        "end ('safeupdate.status').",
    )
    try:
        last = factory.store.latest() if factory.store.exists() else None
        if last is not None and not last.phase.final:
            raise SafeUpdateError(
                f"Update {last.id} is {last.phase.value}. Nothing was done; wait for its end."
            )
        _refresh(manager)
        wanted = plans.request(version, allow_downgrade=True)
        targets = plans.targets(manager, own, wanted, factory.store, factory.revisions, {})
        staging = _staging(factory)
        if plans.reached(manager.installed(own), targets):
            return {"targets": targets, "files": [], "comment": "It is installed."}
        try:
            files = staging.stage(targets)
        except VerificationError:
            # Altered since: here it is fetched anew, an update refuses it.
            staging.drop()
            files = staging.stage(targets)
    finally:
        lock.close()
    return {
        "targets": targets,
        "files": [_described(file) for file in files],
        "comment": "An update to these versions needs no network.",
    }


def update(
    factory: Factory,
    functions: Functions,
    version: str | float | None = None,
    *,
    when: str = "idle",
    allow_downgrade: bool = False,
    refresh: bool = True,
) -> dict[str, Any]:
    """Ask for an update; return its record, or what is installed where that is it."""
    wanted = plans.request(version, when=when, allow_downgrade=allow_downgrade)
    if refresh and not plans.means(wanted, _staging(factory).staged()):
        _refresh(_manager(factory))
    targets = _targets(factory, wanted)
    blocking = [item for item in _findings(factory, functions, wanted, targets) if item.blocking]
    # What was rolled back is told with its reason, where it is asked for.
    others = [item for item in blocking if item.code not in ("quarantined", "downgrade")]
    if others:
        told = " ".join(f"[{item.code}] {item.problem} {item.fix}" for item in others)
        raise SafeUpdateError(f"{told} Nothing was changed.")
    return _request(factory, wanted, "safeupdate.update")


def rollback(factory: Factory, to: str | float | None = None) -> dict[str, Any]:
    """Ask for the previous version, from the packages that were kept."""
    wanted = plans.request(to, back=True)
    return _request(factory, wanted, "rolled back by request")


def revisions(factory: Factory) -> dict[str, Any]:
    """Return the versions that this minion knows: active, previous, staged and skipped."""
    manager = factory.manager
    found: dict[str, Any] = {"active": {}, "previous": {}, "staged": {}, "skipped": []}
    if manager is None:
        return found
    found["active"] = manager.installed(factory.own().names)
    if factory.store.exists():
        previous = factory.revisions.previous()
        found["previous"] = dict(previous["versions"]) if previous else {}
        found["staged"] = _staging(factory).staged()
        found["skipped"] = [row._asdict() for row in factory.store.quarantined()]
    return found


def unquarantine(factory: Factory, version: str) -> list[str]:
    """Allow a version that was rolled back again; return what that means."""
    rows = _quarantined(factory)
    found = [row for row in rows if matches(row.version, str(version))]
    if not found:
        known = ", ".join(sorted({row.version for row in rows})) or "none"
        raise InputError(
            f"Version {version} is not in quarantine (there: {known}). Nothing was changed."
        )
    factory.store.clear(found)
    return [f"{row.package} {row.version}" for row in found]


def _request(factory: Factory, wanted: Mapping[str, Any], reason: str) -> dict[str, Any]:
    manager, own = _manager(factory), _own(factory)
    staged = _staging(factory).staged()
    targets = plans.targets(manager, own, wanted, factory.store, factory.revisions, staged)
    if plans.reached(manager.installed(own), targets):
        reboot = _needs_reboot(manager, own, targets)
        left = "a reboot activates it" if reboot else "nothing to do"
        return {"phase": "idle", "to": targets, "comment": f"It is installed; {left}."}
    jid = _jid(factory)
    # The JIDs of a master grow.
    number = int(jid) if jid.isdigit() else 0
    record: Update = factory.transaction(jid=jid).request_update(
        wanted, number=number, jid=jid, reason=reason
    )
    return {**report.described(record), "to": targets, "comment": _REQUESTED}


def _needs_reboot(
    manager: PackageManager, own: list[str], targets: Mapping[str, str] | None
) -> bool:
    """Tell whether it is installed in a snapshot that waits for a reboot."""
    if not targets or not plans.reached(manager.installed(own), targets):
        return False
    return not plans.reached(manager.running(own), targets)


def _refresh(manager: PackageManager) -> None:
    """Update the index where that works; without a network what is known has to do."""
    try:
        manager.refresh()
    except CommandError as err:
        report.log.warning("safeupdate: the index of packages is not refreshed: %s", err)


def _manager(factory: Factory) -> PackageManager:
    if factory.manager is None:
        raise SafeUpdateError(
            "No package manager that is known was found, so Salt was not installed from packages. "
            "Nothing was changed."
        )
    return factory.manager


def _quarantined(factory: Factory) -> list[Quarantined]:
    return factory.store.quarantined() if factory.store.exists() else []


def _own(factory: Factory) -> list[str]:
    return sorted(factory.own().names)


def _staging(factory: Factory) -> Staging:
    return Staging(factory.settings.state_dir, factory.store, _manager(factory))


def _jid(factory: Factory) -> str:
    # Where the hooks are not there yet, this job has no hold that the update would wait for.
    return current.ensure(factory.settings).jid


def _described(file: File) -> dict[str, str]:
    return dict(file._asdict())
