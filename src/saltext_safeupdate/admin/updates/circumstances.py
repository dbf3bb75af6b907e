"""Gather what pre-flight has to know, also what only Salt can tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import salt.version

from ... import factory
from ...core.errors import InputError, SafeUpdateError
from ...core.extensions import distributions, interpreter, requires
from ...core.extensions.distributions import Extension
from ...core.generations import replaced
from ...core.host import backup, locks
from ...core.host.command import run as run_command
from ...core.packages.manager import Transactions
from ...core.prepare import beside, known, marks, resolution
from ...core.prepare.findings import LOOK_AGAIN, Circumstances, Finding, other_update, preflight
from ...core.prepare.removed_modules import Use
from ...core.prepare.resolution import Resolved
from ...core.prepare.staging import Staging
from ...core.prepare.upgrade_steps import Steps
from ...core.record.phase import PROVING
from ...this_host import Host
from ..status import facts

Functions = Mapping[str, Callable[..., Any]]

# The fix for a finding.
DOWNGRADE = "Say 'allow_downgrade=True', or request another version."


def findings(
    host: Host,
    functions: Functions,
    resolved: Resolved,
    unavailable: SafeUpdateError | None = None,
) -> list[Finding]:
    """
    Return every reason against the request.

    If its targets are installed, only another update does. *unavailable* is why it has none.
    """
    manager = host.known_manager()
    under_way = "" if needs_reboot(manager, resolved) else described_under_way(host)
    if unavailable is None and resolved.in_place:
        return [other_update(under_way)] if under_way else []
    opts, settings, masterless = host.opts, host.settings, is_masterless(host.opts)
    uses, unrendered = used_by_states(opts, functions)
    staging = factory.staging(host) if resolved.staged else None
    extensions, python, unlisted = _extensions(host, staging)
    too_old, unread = _too_old(host, staging, resolved)
    others, daemons = host.others(), host.daemons()
    servers, of_master = host.masters()
    quarantined = host.store.quarantined() if host.store.exists() else []
    found = preflight(
        Circumstances(
            manager=manager,
            own=sorted(host.own().names),
            running=str(salt.version.__version__),
            state_dir=settings.state_dir,
            roots=host.written(),
            transaction=host.activation.waiting,
            under_way=under_way,
            locks=locks.problem(settings.run_dir, str(opts.get("user") or "")),
            targets=resolved.targets,
            unavailable=unavailable,
            master=None if masterless else facts.master_version(functions, opts.get("pillar", {})),
            masterless=masterless,
            writes={settings.state_dir: backup.size([*host.backup_paths(), *of_master])},
            quarantined=[(row.package, row.version) for row in quarantined],
            uses=uses,
            extensions=extensions,
            extensions_policy=settings.extensions,
            python=python,
            minions=beside.minions(others),
            unaware=beside.unaware(daemons, host.known() if daemons else ()),
            masters=beside.masters(daemons),
            servers=beside.servers(daemons),
            own_master=beside.is_own(servers, *facts.masters(opts)),
            other_minions_policy=settings.other_minions,
            too_old=too_old,
            marks=marks.foreign(manager.marks),
            steps=Steps(settings.steps_dir, host.store).cannot_run(resolved.steps),
            hold=settings.hold,
            obstacle=host.services.obstacle(settings.service),
            no_slots=None,
        )
    )
    if resolved.staged:
        # They are here, with all that they need.
        found = [item for item in found if item.code != "target-unavailable"]
    try:
        resolution.refuse_downgrade(resolved)
    except InputError as err:
        found.append(Finding("downgrade", str(err), DOWNGRADE))
    return [*found, *unrendered, *unlisted, *unread]


def is_masterless(opts: Mapping[str, Any]) -> bool:
    """Tell whether a minion asks no master."""
    return opts.get("master_type") == "disable" or opts.get("file_client") == "local"


def needs_reboot(manager: Transactions | None, resolved: Resolved) -> bool:
    """Tell whether the targets are installed in a snapshot that waits for a reboot."""
    if manager is None or not resolved.targets or not resolved.in_place:
        return False
    return not resolution.reached(manager.running(list(resolved.targets)), resolved.targets)


def described_under_way(host: Host) -> str:
    """Describe another update that is in the way, or return an empty text."""
    last = host.store.latest() if host.store.exists() else None
    # A new update waits for the end of a restart.
    if last is None or last.phase.final or (last.kind == "restart" and last.phase in PROVING):
        return ""
    return f"Update {last.id} is {last.phase.value}."


def used_by_states(
    opts: Mapping[str, Any], functions: Functions
) -> tuple[Collection[Use], list[Finding]]:
    """Return what the states use, and a finding if that is unknown."""
    try:
        return facts.state_uses(opts, functions), []
    except SafeUpdateError as err:
        return (), [Finding("module-gone", str(err), "Fix them, and look again.", False)]


def _too_old(
    host: Host, staging: Staging | None, resolved: Resolved
) -> tuple[tuple[str, str] | None, list[Finding]]:
    """Say that the extension does not know the staged Salt, if so; and what cannot be read."""
    if staging is None:
        return None, []
    store, place = host.store, host.settings.state_dir
    files = [file.path for file in staging.staged_files()]
    try:
        different = known.unknown(
            replaced.noted(store), resolved.targets, files, place, run_command
        )
    except (OSError, SafeUpdateError) as err:
        problem = f"This could not be checked: {err}"
        return None, [Finding("extension-too-old", problem, LOOK_AGAIN, False)]
    return (known.refusal(different, resolved.targets) if different else None), []


def _extensions(
    host: Host, staging: Staging | None
) -> tuple[Sequence[Extension], int | None, list[Finding]]:
    """
    Return the extensions, the Python of the staged target, and what is unknown.

    Without staged packages the Python is not known, and so nothing is looked for.
    """
    manager = host.manager
    program = host.services.program(host.settings.service) if staging else None
    python = interpreter.named_by(program) if program else None
    if staging is None or manager is None or python is None:
        return (), None, []
    try:
        minor = requires.python_of([file.path for file in staging.staged_files()], run_command)
        if minor is None:
            return (), None, []
        return distributions.listed(python, run_command, manager.unowned), minor, []
    except (OSError, SafeUpdateError) as err:
        problem = f"This could not be checked: {err}"
        return (), None, [Finding("extension-not-loadable", problem, LOOK_AGAIN, False)]
