"""An update to a slot: its result, the reasons against it, and the slot itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import salt.version

from ... import factory
from ...core.errors import InputError, SafeUpdateError, version_text
from ...core.extensions import ourselves
from ...core.generations import replaced
from ...core.host import backup, locks
from ...core.host.command import run as run_command
from ...core.packages.choice import matches
from ...core.prepare import known, resolution, revisions
from ...core.prepare.findings import LOOK_AGAIN, Circumstances, Finding, other_update, preflight
from ...core.prepare.resolution import Resolved
from ...core.prepare.staging import SLOT, Staged, Staging
from ...core.prepare.upgrade_steps import Steps
from ...core.record.parts import FileRow, Request
from ...core.slots import byte_code, index
from ...core.slots.asked import NoPackages
from ...core.slots.confined import confined
from ...core.slots.furnish import furnish_from
from ...core.slots.installer import NAME, SlotInstaller, file_of
from ...core.slots.manifest import Manifest
from ...core.slots.store import Slot
from ...core.supervisor.initiator import Initiator, Installation
from ...this_host import Host
from ..status import facts
from . import builds, slots
from .circumstances import (
    DOWNGRADE,
    Functions,
    described_under_way,
    is_masterless,
    used_by_states,
)

_BUSY = (
    "An update of the minion is under way, or another staging. Nothing was done; wait for its end "
    "('safeupdate.status')."
)
# Space that a build takes in addition to its bytes: file systems store in blocks.
_BLOCKS = 4


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """
    A resolved request: its result, and the build; None if its slot exists.

    For an index, only the version of the build is known: *indexed*. *problem* says why there is no
    such build.
    """

    installer: SlotInstaller
    resolved: Resolved
    build: Manifest | None = None
    indexed: str = ""
    problem: SafeUpdateError | None = None


def look_up(host: Host, functions: Functions, wanted: Request) -> Wanted:
    """
    Return the result of a request with a source, even if there are reasons against it.

    A staged version needs no source.
    """
    if slots.why_not(host) is not None:
        # The problem is a finding.
        nothing = Resolved(request=wanted, installed={}, targets={})
        return Wanted(installer=factory.slot_installer(host), resolved=nothing)
    installer = slots.installer(host)
    staged = factory.staging(host, installer)
    there = staged.staged().get(NAME, "")
    is_staged = bool(wanted.version and there and builds.names(there, wanted.version))
    if is_staged and matches(there, str(wanted.version)):
        return _of_staged(host, installer, wanted, staged)
    try:
        if wanted.source == index.NAME:
            return _of_index(host, installer, wanted)
        build = builds.chosen(host, functions, wanted.source, wanted.version)
    except SafeUpdateError as err:
        if is_staged:
            # There may be a newer version of a series, but not now.
            return _of_staged(host, installer, wanted, staged)
        resolved = replace(_resolved(host, installer, wanted, ""), targets={})
        return Wanted(installer=installer, resolved=resolved, problem=err)
    resolved = _resolved(host, installer, wanted, build.build_version)
    return Wanted(installer=installer, resolved=resolved, build=build)


def _of_index(host: Host, installer: SlotInstaller, wanted: Request) -> Wanted:
    """Return the version that an index has. The build's is known when its wheels are there."""
    version = builds.newest_of_index(host, wanted.version)
    there = installer.installed((NAME,)).get(NAME, "")
    is_there = installer.active is not None and matches(there, version)
    resolved = _resolved(host, installer, wanted, there if is_there else version)
    return Wanted(installer=installer, resolved=resolved, indexed="" if is_there else version)


def _of_staged(host: Host, installer: SlotInstaller, wanted: Request, staged: Staging) -> Wanted:
    files = revisions.rows(staged.staged_files())
    resolved = _resolved(host, installer, wanted, staged.staged()[NAME], files)
    return Wanted(installer=installer, resolved=resolved)


def _resolved(
    host: Host,
    installer: SlotInstaller,
    wanted: Request,
    version: str,
    files: tuple[FileRow, ...] = (),
) -> Resolved:
    installed = installer.installed((NAME,))
    targets = {NAME: version}
    steps = Steps(host.settings.steps_dir, host.store)
    due = [*steps.before(installed, targets), *steps.due(installed, targets)] if version else ()
    return Resolved(
        request=replace(wanted, version=version or wanted.version),
        installed=installed,
        targets=targets,
        steps=tuple(step.name for step in due),
        staged=bool(files),
        files=files,
    )


def findings(host: Host, functions: Functions, wanted: Wanted) -> list[Finding]:
    """Return every reason against it; if it is installed, only another update counts."""
    resolved, under_way = wanted.resolved, described_under_way(host)
    if wanted.problem is None and resolved.targets and resolved.in_place:
        return [other_update(under_way)] if under_way else []
    opts, settings = host.opts, host.settings
    masterless = is_masterless(opts)
    uses, unrendered = used_by_states(opts, functions)
    too_old, unread = _too_old(host, resolved)
    quarantined = host.store.quarantined() if host.store.exists() else []
    found = preflight(
        Circumstances(
            manager=NoPackages(settings.slots_keyring),
            own=(NAME,),
            running=str(salt.version.__version__),
            state_dir=settings.state_dir,
            under_way=under_way,
            locks=locks.problem(settings.run_dir, str(opts.get("user") or "")),
            targets=resolved.targets,
            unavailable=wanted.problem,
            master=None if masterless else facts.master_version(functions, opts.get("pillar", {})),
            masterless=masterless,
            writes={
                settings.state_dir: backup.size(host.backup_paths()),
                **_writes(host, wanted.build),
            },
            quarantined=[(row.package, row.version) for row in quarantined],
            uses=uses,
            extensions_policy=settings.extensions,
            too_old=too_old,
            steps=Steps(settings.steps_dir, host.store).cannot_run(resolved.steps),
            hold=settings.hold,
            obstacle=host.services.obstacle(settings.service),
            no_slots=slots.why_not(host),
        )
    )
    try:
        resolution.refuse_downgrade(resolved)
    except InputError as err:
        found.append(Finding("downgrade", str(err), DOWNGRADE))
    return [*found, *unrendered, *unread]


def _writes(host: Host, build: Manifest | None) -> dict[str, int]:
    """Return the bytes that the files of a build take, by their directories."""
    if build is None:
        return {}
    unpacked = build.size + build.unpacked + build.unpacked // _BLOCKS
    return {host.settings.slots_dir: unpacked, str(host.opts.get("cachedir", "/")): build.size}


def _too_old(host: Host, resolved: Resolved) -> tuple[tuple[str, str] | None, list[Finding]]:
    """Return that the extension does not know the Salt of a slot, if so; and unreadable parts."""
    try:
        different = known.unknown(
            replaced.noted(host.store),
            resolved.targets,
            [file.path for file in revisions.files(resolved.files)],
            host.settings.state_dir,
            run_command,
        )
    except (OSError, SafeUpdateError) as err:
        problem = f"This could not be checked: {err}"
        return None, [Finding("extension-too-old", problem, LOOK_AGAIN, False)]
    return (known.refusal(different, resolved.targets) if different else None), []


def stage(host: Host, functions: Functions, wanted: Wanted) -> Resolved:
    """
    Make the slot of a build; return the request with the slot's file in a record. Idempotent.

    Raise SafeUpdateError if anything is not as it should be; then nothing was changed.
    """
    resolved = wanted.resolved
    against = slots.why_not(host)
    if against is not None:
        raise SafeUpdateError(f"{' '.join(against)} Nothing was changed.")
    if wanted.problem is not None:
        raise wanted.problem
    if wanted.build is None and not wanted.indexed:
        return resolved
    lock = locks.acquire(host.settings.run_dir, "update", _BUSY)
    try:
        with _fetched(host, functions, wanted) as (build, files):
            slot = factory.slots(host).stage(
                build,
                files,
                python=builds.interpreter(build.python) if build.python else "",
                furnish=lambda tree: _furnish(host, tree),
            )
        wanted.installer.verify([file_of(slot)])
        made = replace(
            resolved,
            request=replace(resolved.request, version=slot.build_version),
            targets={NAME: slot.build_version},
            files=revisions.rows([file_of(slot)]),
            staged=True,
        )
        # Only now is it known which build the index has.
        resolution.refuse_of(made, host.store)
        _note_staged(host, slot)
    finally:
        lock.close()
    return made


@contextmanager
def _fetched(
    host: Host, functions: Functions, wanted: Wanted
) -> Iterator[tuple[Manifest, dict[str, str]]]:
    """Provide the files of the wanted build on this host, with their manifest."""
    if wanted.build is None:
        with builds.of_index(host).fetched(wanted.indexed, host.settings.state_dir) as both:
            yield both
        return
    source = wanted.resolved.request.source
    with builds.fetched(host, functions, source, wanted.build) as files:
        yield wanted.build, files


def _furnish(host: Host, tree: str) -> None:
    manager, settings, look = host.manager, host.settings, confined(run_command)
    furnish_from(
        tree,
        ourselves.home(),
        host.services.program(settings.service),
        unowned=manager.unowned if manager is not None else set,
        run=run_command,
        look=look,
        strict=settings.extensions == "stop",
    )
    byte_code.write(tree, look)


def _note_staged(host: Host, slot: Slot) -> None:
    file = file_of(slot)
    staged = Staged(targets={NAME: file.version}, files=revisions.rows([file]))
    host.store.set_fact(SLOT, staged)


def going_back(host: Host, to: object, *, when: str = "idle") -> Wanted:
    """Return the target of a rollback of a minion that runs from a slot. Raise SafeUpdateError."""
    installer = slots.installer(host)
    told = None if to is None else str(to) if to == slots.WITHOUT else version_text("to", to)
    file = slots.before(host, told)
    wanted = Request(version=file.version, when=when, back=True, source=slots.KEPT)
    installer.verify([file])
    resolved = _resolved(host, installer, wanted, file.version, revisions.rows([file]))
    return Wanted(installer=installer, resolved=resolved)


def initiator(host: Host, jid: str) -> Initiator:
    """Return the initiator of an update to a slot: no code changes below this or another minion."""
    by = factory.initiator(host, jid)
    paths = tuple(host.backup_paths())
    return replace(
        by,
        manager=None,
        pip=factory.slot_installer(host),
        inhibitor=host.services,
        others=(),
        unaware=tuple,
        stage_extensions=lambda directory: "",
        installation=Installation(own=(NAME,), backup_paths=paths),
    )
