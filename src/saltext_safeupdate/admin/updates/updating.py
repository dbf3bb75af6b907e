"""Requests of an administrator about updates, answered with plain data."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ... import factory
from ...core.errors import CommandError, InputError, SafeUpdateError, version_text
from ...core.host import locks
from ...core.jobs import current
from ...core.packages.choice import is_series, matches
from ...core.packages.manager import Offers
from ...core.packages.request import File
from ...core.prepare import resolution
from ...core.prepare.findings import Finding
from ...core.prepare.resolution import Resolved, Resolver
from ...core.prepare.revisions import files as revision_files
from ...core.prepare.staging import SLOT
from ...core.prepare.upgrade_steps import BEFORE
from ...core.record import fence
from ...core.record.parts import Request
from ...core.record.store import Quarantined
from ...core.slots.installer import NAME
from ...this_host import Host
from ..status import provenance, status
from . import slot_updates, slots, steps
from .circumstances import findings, needs_reboot
from .slot_updates import Wanted

if TYPE_CHECKING:
    from ...core.supervisor.initiator import Initiator

log = logging.getLogger(__name__)

Functions = Mapping[str, Callable[..., Any]]

_REQUESTED = (
    "The update is under way. It installs while jobs run if that is possible, and otherwise when "
    "no job runs. Then the minion restarts. 'safeupdate.status' shows what it waits for, and its "
    "result."
)
_BY_BOOT = (
    "The update is under way. It installs into a new snapshot when no job runs. A reboot of the "
    "host activates it: {who}. 'safeupdate.status' shows its result."
)
# The reason of the update, and then of the quarantine.
_BACK = "'safeupdate.rollback' asked for it."
# Findings about packages that somebody has to offer, and that are downloaded.
_OF_OFFERS = ("target-unavailable", "removes-packages", "signature-policy", "clock")
_WHO = {True: "it is asked for then", False: "reboot when it suits you"}


def plan(
    host: Host,
    functions: Functions,
    version: object = None,
    *,
    allow_downgrade: bool = False,
    refresh: bool = True,
    back: bool = False,
    source: object = None,
) -> dict[str, Any]:
    """Return what an update, or the way *back*, would do, and every problem that there is."""
    steps.fetch(host, functions)
    wanted = resolution.request(version, allow_downgrade=allow_downgrade, back=back)
    found = _of_slots(host, functions, wanted, source)
    if found is not None:
        against = slot_updates.findings(host, functions, found)
        resolved = replace(found.resolved, findings=tuple(against))
    else:
        resolver = _resolver(host)
        _refresh_for(host, resolver, wanted, refresh)
        resolved = _with_findings(host, functions, resolver, wanted)
    return {
        "installed": dict(resolved.installed),
        "targets": dict(resolved.targets),
        "changes": resolved.changes,
        "steps": list(resolved.steps),
        "reboot": found is None and _needs_reboot(host, resolved),
        "staged": resolved.staged,
        "jobs": host.awaited_jobs(_jid(host)),
        "findings": [finding._asdict() for finding in resolved.findings],
    }


def _of_slots(host: Host, functions: Functions, wanted: Request, source: object) -> Wanted | None:
    """Return what a request comes to if it is about slots; None: about packages."""
    wanted = with_source(host, wanted, source)
    if not wanted.source:
        return None
    if wanted.back:
        return slot_updates.going_back(host, wanted.version)
    return slot_updates.look_up(host, functions, wanted)


def _with_findings(
    host: Host, functions: Functions, resolver: Resolver, wanted: Request
) -> Resolved:
    """Resolve a request, and find every reason against it. It need not have targets."""
    problem: SafeUpdateError | None = None
    try:
        resolved = resolver.resolve(wanted)
    except SafeUpdateError as err:
        problem = err
        installed = resolver.installer.installed(resolver.own)
        ahead = resolver.steps(installed, resolution.named(wanted, installed))
        resolved = Resolved(request=wanted, installed=installed, targets={}, steps=ahead)
    found = findings(host, functions, resolved, problem)
    if problem is not None and any(step.endswith(BEFORE) for step in resolved.steps):
        found = [_may_come(item) for item in found]
    if resolver.is_kept(wanted):
        # Nobody has to offer what lies here.
        found = [item for item in found if item.code not in _OF_OFFERS]
    return replace(resolved, findings=tuple(found))


def _may_come(finding: Finding) -> Finding:
    """Let a version that is not on offer stop nothing: what runs before may change that."""
    if finding.code != "target-unavailable":
        return finding
    fix = "The upgrade steps that run before may have it offered; if not, nothing is changed."
    return finding._replace(fix=fix, blocking=False)


def stage(
    host: Host, functions: Functions, version: object = None, source: object = None
) -> dict[str, Any]:
    """Download and verify what an update would install."""
    steps.fetch(host, functions)
    place = slots.source_of(host, source)
    if place:
        return _stage_slot(host, functions, version, place)
    # Before the lock: without a package manager there is nothing to lock.
    # What is staged already does not count: it may be about to be replaced.
    resolver = replace(_resolver(host), staged={})
    lock = locks.acquire(
        host.settings.run_dir,
        "update",
        "An update of the minion is under way, or another staging. Nothing was done; wait for its "
        "end ('safeupdate.status').",
    )
    try:
        last = host.store.latest() if host.store.exists() else None
        if last is not None and not last.phase.final:
            raise SafeUpdateError(
                f"Update {last.id} is {last.phase.value}. Nothing was done; wait for its end."
            )
        refresh_index(host.known_manager())
        resolved = resolver.resolve(resolution.request(version, allow_downgrade=True))
        resolver.refuse(resolved)
        targets = dict(resolved.targets)
        if resolved.in_place:
            return {"targets": targets, "files": [], "comment": "It is installed."}
        staging = factory.staging(host)
        altered = staging.drop_altered(targets)
        files = staging.stage(targets)
    finally:
        lock.close()
    again = {"staged_again": altered} if altered else {}
    return {
        **again,
        "targets": targets,
        "files": [_described(file) for file in files],
        "comment": "An update to these versions needs no network.",
    }


def _stage_slot(host: Host, functions: Functions, version: object, place: str) -> dict[str, Any]:
    """Make the slot of a build, whatever is staged already: a source may have another one."""
    host.store.drop_fact(SLOT)
    wanted = replace(resolution.request(version, allow_downgrade=True), source=place)
    found = slot_updates.look_up(host, functions, wanted)
    resolution.refuse_of(found.resolved, host.store)
    resolved = slot_updates.stage(host, functions, found)
    return {
        "targets": dict(resolved.targets),
        "files": [_described(file) for file in revision_files(resolved.files)],
        "comment": "An update to these versions needs no network.",
    }


def update(
    host: Host,
    functions: Functions,
    version: object = None,
    *,
    when: str = "idle",
    allow_downgrade: bool = False,
    refresh: bool = True,
    source: object = None,
) -> dict[str, Any]:
    """Ask for an update; return its record, or what is installed if that is what was asked for."""
    wanted = resolution.request(version, when=when, allow_downgrade=allow_downgrade)
    wanted = with_source(host, wanted, source)
    resolved = resolve(host, functions, wanted, refresh=refresh)
    return _request(host, resolved, "'safeupdate.update' asked for it.")


def resolve(host: Host, functions: Functions, wanted: Request, *, refresh: bool = True) -> Resolved:
    """
    Return what the request comes to. Raise SafeUpdateError if there is a reason against it.

    A slot is made then: there is nothing left for which a network is needed.
    """
    steps.fetch(host, functions)
    if wanted.source:
        back = wanted.source == slots.KEPT
        found = (
            slot_updates.going_back(host, wanted.version, when=wanted.when)
            if back
            else slot_updates.look_up(host, functions, wanted)
        )
        _refuse_blocking(slot_updates.findings(host, functions, found))
        resolution.refuse_of(found.resolved, host.store)
        resolved = found.resolved
        return resolved if resolved.in_place else slot_updates.stage(host, functions, found)
    resolver = _resolver(host)
    _refresh_for(host, resolver, wanted, refresh)
    resolved = _with_findings(host, functions, resolver, wanted)
    _refuse_blocking(resolved.findings)
    resolver.refuse(resolved)
    return resolved


def with_source(host: Host, wanted: Request, source: object) -> Request:
    """Return a request with the source that it means; empty for packages. Raise InputError."""
    if not wanted.back:
        return replace(wanted, source=slots.source_of(host, source))
    return replace(wanted, source=slots.KEPT if factory.active_slot(host) is not None else "")


def initiator(host: Host, resolved: Resolved, jid: str) -> Initiator:
    """Return what begins an update: of packages, or to a slot."""
    if resolved.request.source:
        return slot_updates.initiator(host, jid)
    return factory.initiator(host, jid)


def _refuse_blocking(found: Sequence[Finding]) -> None:
    """Raise SafeUpdateError for findings that stop an update."""
    # The request itself refuses these, with more of a reason, or replaces an update that waits.
    own_reasons = ("quarantined", "downgrade", "other-update-running")
    others = [item for item in found if item.blocking and item.code not in own_reasons]
    if others:
        raise SafeUpdateError(refusal(others))


def refusal(found: Iterable[Finding]) -> str:
    """Say what stops an update, and what to do about it."""
    told = " ".join(f"[{item.code}] {item.problem} {item.fix}" for item in found)
    return f"{told} Nothing was changed."


def rollback(host: Host, to: object = None) -> dict[str, Any]:
    """Ask for the previous version: from the packages that were kept, or a slot."""
    if factory.active_slot(host) is not None:
        resolved = slot_updates.going_back(host, to).resolved
        resolution.refuse_of(resolved, host.store)
        return _request(host, resolved, _BACK)
    slots.refuse_elsewhere(host)
    resolver = _resolver(host)
    resolved = resolver.resolve(resolution.request(to, back=True))
    resolver.refuse(resolved)
    return _request(host, resolved, _BACK)


def revisions(host: Host) -> dict[str, Any]:
    """Return the versions that this minion knows: active, previous, staged and skipped."""
    manager, slot = host.manager, factory.active_slot(host)
    found: dict[str, Any] = {"active": {}, "previous": {}, "staged": {}, "skipped": []}
    if host.store.exists():
        found["skipped"] = [row._asdict() for row in host.store.quarantined()]
        staged = host.store.fact(SLOT)
        found["staged"] = staged.targets if staged else {}
    if slot is not None:
        found["active"] = {NAME: slot.build_version}
        with contextlib.suppress(InputError):
            found["previous"] = {NAME: slots.before(host, None).version}
    elif manager is not None:
        found["active"] = manager.installed(host.own().names)
        if host.store.exists():
            previous = factory.revisions(host).previous()
            found["previous"] = previous.versions if previous else {}
            found["staged"] = factory.staging(host).staged() or found["staged"]
    return {**found, **slots.described(host)}


def unquarantine(host: Host, version: object) -> list[str]:
    """Allow a version that was rolled back again; return what that means."""
    rows, wanted = _quarantined(host), version_text("version", version)
    found = [row for row in rows if matches(row.version, wanted)]
    if not found:
        known = ", ".join(sorted({row.version for row in rows})) or "none"
        raise InputError(
            f"Version {version} is not in quarantine (there: {known}). Nothing was changed."
        )
    host.store.clear(found)
    return [f"{row.package} {row.version}" for row in found]


def _resolver(host: Host) -> Resolver:
    """Return what resolves requests. Raise SafeUpdateError if Salt is not from packages."""
    resolver = factory.resolver(host)
    provenance.refuse_others(host)
    return resolver


def _request(host: Host, resolved: Resolved, reason: str) -> dict[str, Any]:
    from ...core.supervisor import asking

    build = bool(resolved.request.source)
    if resolved.in_place:
        reboot = not build and needs_reboot(host.manager, resolved)
        left = "a reboot activates it" if reboot else "nothing to do"
        return {
            "phase": "idle",
            "to": dict(resolved.targets),
            "comment": f"It is installed; {left}.",
        }
    if _may_bring_newer(resolved):
        # The supervisor finds the targets when these steps have run.
        resolved = replace(resolved, targets={})
    jid = _jid(host)
    known = host.store.taken() if host.store.exists() else fence.Taken()
    numbered = resolved.with_serial(fence.of_person(jid, known))
    by = initiator(host, resolved, jid)
    record = asking.update(by, numbered, jid=jid, reason=reason)
    comment = _REQUESTED
    if host.activation.by_boot:
        asks = host.settings.transactional_reboot == "always"
        comment = _BY_BOOT.format(who=_WHO[asks])
    return {**status.described(record), "to": dict(resolved.targets), "comment": comment}


def _may_bring_newer(resolved: Resolved) -> bool:
    """Tell whether the newest version is meant, and steps run first that may have it offered."""
    wanted = resolved.request
    if wanted.back or wanted.source or not (wanted.version is None or is_series(wanted.version)):
        return False
    return any(step.endswith(BEFORE) for step in resolved.steps)


def _needs_reboot(host: Host, resolved: Resolved) -> bool:
    """Tell whether a reboot of the host has to activate the targets, now or after the update."""
    by_boot = host.activation.by_boot and bool(resolved.changes)
    return by_boot or needs_reboot(host.known_manager(), resolved)


def _refresh_for(host: Host, resolver: Resolver, wanted: Request, refresh: bool) -> None:
    """Have the index of the packages up to date, unless what is wanted is staged, or kept."""
    there = resolution.names(wanted, resolver.staged) or resolver.is_kept(wanted)
    if refresh and not there:
        refresh_index(host.known_manager())


def refresh_index(offers: Offers) -> None:
    """Update the index if that works; without a network what is known has to do."""
    try:
        offers.refresh()
    except CommandError as err:
        log.warning("safeupdate: the index of packages is not refreshed: %s", err)


def _quarantined(host: Host) -> list[Quarantined]:
    return host.store.quarantined() if host.store.exists() else []


def _jid(host: Host) -> str:
    # If the hooks are not there yet, this job has no share that the update would wait for.
    return current.ensure(host.settings).jid


def _described(file: File) -> dict[str, str]:
    return dict(file._asdict())
