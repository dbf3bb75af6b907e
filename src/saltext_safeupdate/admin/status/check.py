"""Problems of the set-up of this minion, and their fixes."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import salt.version

from ... import factory, hooks, patches
from ...core.errors import SafeUpdateError
from ...core.extensions import ourselves
from ...core.extensions.programs.engines import modules
from ...core.generations.table import Generations
from ...core.host import engine_at_rest, locks, processes
from ...core.prepare.findings import Circumstances, preflight
from ...core.settings import of_minion
from ...this_host import Host, enabled
from .. import errors
from ..setup import executors
from . import (
    checks_of_files,
    checks_of_restarts,
    checks_of_slots,
    checks_of_snapshots,
    checks_of_updates,
    facts,
    provenance,
)
from .checks_of_files import Problem

# Bytes that the database should be able to grow by: returns that masters do not get at once.
_LEAST_SPACE = 16 << 20


Look = Callable[[Host], Iterable[Problem]]


def check(host: Host, functions: facts.Functions) -> list[dict[str, str]]:
    """Return every problem, not only the first. *functions* are Salt's execution functions."""
    looks = (*_CHECKS, lambda host: _master(host, functions))
    first = (checks_of_files.restart_pending, checks_of_restarts.leaving)
    return [problem._asdict() for problem in _found(host, looks, first)]


def unhooked(host: Host) -> str:
    """Return why nothing here holds jobs, with what to do; empty if the minion has our hooks."""
    problem = next(_hooks(host), None)
    return f"{problem.problem} {problem.fix}" if problem is not None else ""


def quick(host: Host) -> list[str]:
    """Return the problems of the set-up that are found without asking another program."""
    return [problem.problem for problem in _found(host, _QUICK, (checks_of_files.restart_pending,))]


def _found(host: Host, looks: Iterable[Look], first: Iterable[Look]) -> list[Problem]:
    """
    Return what the looks find. If a check fails, that is a problem, too.

    If one of the *first* finds something, looks for problems that a restart solves are left out.
    """
    found: list[Problem] = []
    pending = [problem for look in first for problem in _tried(look, host)]
    for look in looks:
        if not (pending and look in _BY_RESTART):
            found += _tried(look, host)
    return [*pending, *dict.fromkeys(found)]


def _tried(look: Look, host: Host) -> list[Problem]:
    try:
        return list(look(host))
    except (OSError, SafeUpdateError) as err:
        fix = "Correct that, then run 'safeupdate.check' again."
        return [Problem("host", errors.of_host(err), fix)]


def _configuration(host: Host) -> Iterator[Problem]:
    for problem in of_minion(host.opts)[1]:
        yield Problem(
            "configuration",
            f"{problem} The default applies.",
            "Correct it in the configuration of the minion, and restart the minion.",
        )


def _executor(host: Host) -> Iterator[Problem]:
    option = host.opts.get("module_executors")
    names = executors.listed(option)
    if names is None:
        yield Problem(
            "executor",
            f"'module_executors' is not a list of names, so no job runs: {option!r}.",
            "Set 'module_executors: [safeupdate, direct_call]'.",
        )
    elif executors.OURS not in names:
        yield Problem(
            "executor",
            "The executor 'safeupdate' is not in 'module_executors'.",
            "Set 'module_executors: [safeupdate, direct_call]', or run "
            "'state.single safeupdate.enabled name=safeupdate' on the minion.",
        )
    elif names[-1] == executors.OURS:
        yield Problem(
            "executor-last",
            "The executor 'safeupdate' is the last one in 'module_executors', so no job runs.",
            "Put 'direct_call' after it.",
        )
    elif executors.before_ours(names):
        yield Problem(
            "executor-order",
            f"'module_executors' has {', '.join(executors.before_ours(names))} before "
            "'safeupdate', which does not see the jobs that these run.",
            "Put 'safeupdate' before them.",
        )


def _extension(host: Host) -> Iterator[Problem]:
    running, path = ourselves.running_version(), ourselves.home()
    installed = ourselves.version_in(path)
    if not installed:
        yield Problem(
            "extension",
            f"The running extension ({running}) is no longer in {path}.",
            "Install it there again, and restart the minion.",
        )


def _other_extension(host: Host) -> Iterator[Problem]:
    running, path = ourselves.running_version(), ourselves.home()
    installed = ourselves.version_in(path)
    if installed and installed != running:
        yield Problem(
            "extension",
            f"Version {running} of the extension runs, and {installed} is installed in {path}.",
            "The minion restarts by itself soon, unless 'safeupdate:extension_restart' is "
            "'manual'; or restart it with 'safeupdate.restart'.",
        )


def _engine(host: Host) -> Iterator[Problem]:
    if not enabled({**host.opts, "module_executors": []}):
        yield Problem(
            "engine",
            "The engine 'safeupdate' is not in 'engines': returns that did not arrive are not "
            "sent again, and an interrupted update is not completed.",
            "Set 'engines: [safeupdate: {}]' and restart the minion, or apply the SLS "
            "'safeupdate'.",
        )
    elif _has_lost_its_engine(host):
        yield Problem(
            "engine-gone",
            "The minion runs, and its engine does not: Salt ends the engines of a minion whose "
            "master is away when it starts, and continues without them.",
            "Restart the minion.",
        )
    if _count_of_engines(host.opts.get("engines")) > 1:
        yield Problem(
            "engine-twice",
            "'engines' lists the engine 'safeupdate' more than once: one acts, and the others wait "
            "until it ends.",
            "Name it once, and restart the minion.",
        )


def _count_of_engines(engines: Any) -> int:
    """Return how many of the engines of the minion are ours."""
    return modules(engines).count("safeupdate") if isinstance(engines, (list, tuple)) else 1


def _has_lost_its_engine(host: Host) -> bool:
    """Tell whether the process of the minion that reported runs, and no engine acts for it."""
    try:
        running = Generations(host.store).serving()
        alive = running is not None and processes.alive(running.process)
        return alive and not engine_at_rest.is_there(host.settings.run_dir)
    except SafeUpdateError:
        # That is a problem of its own.
        return False


def _owner(host: Host) -> Iterator[Problem]:
    try:
        reason = host.why_not_ours()
    except SafeUpdateError:
        # That is a problem of its own.
        return
    if reason:
        yield Problem("shared-state", reason, f"{hooks.OWN_PLACES} Then restart both.")


def _hooks(host: Host) -> Iterator[Problem]:
    if hooks.stood_down():
        yield Problem(
            "hooks",
            hooks.stood_down(),
            "Install a version of saltext-safeupdate that knows this Salt.",
        )
    elif not hooks.minion_has_them(host.opts):
        yield Problem(
            "hooks",
            "The minion has no hooks: state runs are not ordered and jobs are not held.",
            "Run 'state.single safeupdate.enabled name=safeupdate' on the minion. If it changes "
            "nothing, run 'safeupdate.restart'; then the log of the minion says more.",
        )
    for place, error in sorted(patches.troubles().items()):
        yield Problem(
            "hook-error",
            f"An error of this extension at {place}: {error}. The call there was made as "
            "with plain Salt.",
            "The log of the minion says more. Please report it; a restart of the minion clears "
            "this.",
        )


def _locks(host: Host) -> Iterator[Problem]:
    if not enabled(host.opts) and not os.path.isdir(host.settings.run_dir):
        # A look would make them.
        return
    user = str(host.opts.get("user") or "")
    problem = locks.problem(host.settings.run_dir, user)
    if problem:
        yield Problem(
            "locks",
            problem,
            "Make the user of the minion the owner of the directory 'safeupdate:run_dir', or set "
            "another one that this user can write; then restart the minion.",
        )


def _own_packages(host: Host) -> Iterator[Problem]:
    if factory.slots(host).has(host.settings.unit_name):
        # The minion does not run from a package.
        yield from checks_of_slots.slot(host)
        yield from _service(host)
        return
    if host.manager is None:
        yield Problem(
            "package-manager",
            "This host has no package manager that safeupdate knows.",
            "You do not need one if Salt was not installed from packages.",
        )
        return
    try:
        own = host.own()
        installed = host.manager.installed(own.names)
        unfinished = host.manager.unfinished(own.names)
    except SafeUpdateError as err:
        yield Problem(
            "own-packages",
            f"The minion's own packages are not known: {err}",
            "Repair the package manager, such as with 'dpkg --configure -a', until the command in "
            "this message works. Then run 'safeupdate.check' again.",
        )
        return
    problem = provenance.not_from_packages(host)
    if (problem or not own.names) and not host.settings.slots_source:
        yield Problem(
            "own-packages",
            problem or "No package owns the code, the interpreter or the unit of this minion.",
            "Update it in the way it was installed, or to a slot: set "
            "'safeupdate:slots_source'. Jobs and restarts are protected. If it was installed from "
            "packages, name them in 'safeupdate:packages'.",
        )
    if not own.names:
        return
    missing = set(own.names) - set(installed)
    if own.configured and missing:
        yield Problem(
            "own-packages",
            "'safeupdate:packages' names packages that are not installed: "
            f"{', '.join(sorted(missing))}.",
            "Correct the list, or leave it out: then the packages are found automatically.",
        )
    if unfinished:
        yield Problem(
            "half-done",
            f"The package manager has not finished the installation of: {', '.join(unfinished)}.",
            "Run its repair, such as 'dpkg --configure -a'.",
        )
    yield from _host(host)
    yield from _service(host)


def _host(host: Host) -> Iterator[Problem]:
    """Yield the problems that would stop every update."""
    assert host.manager is not None  # noqa: S101
    circumstances = Circumstances(
        manager=host.manager,
        own=sorted(host.own().names),
        running=str(salt.version.__version__),
        state_dir=host.settings.state_dir,
        roots=host.written(),
        transaction=host.activation.waiting,
        targets={},
        masterless=True,
    )
    for finding in preflight(circumstances):
        if finding.blocking:
            yield Problem(finding.code, finding.problem, finding.fix)


def _service(host: Host) -> Iterator[Problem]:
    state = host.services.state(host.settings.service)
    if state.enabled == "" and host.services.name == "systemd":
        yield Problem(
            "service",
            f"There is no unit {host.settings.service}.",
            "Set 'safeupdate:service' to the name of the minion's unit.",
        )


def _state_dir(host: Host) -> Iterator[Problem]:
    directory = host.settings.state_dir
    try:
        found = os.stat(directory).st_mode
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # A problem of the database is reported separately.
        return
    if not stat.S_ISDIR(found):
        yield Problem(
            "state-dir",
            f"{directory} is not a directory.",
            "Move it away, or set 'safeupdate:state_dir' to another path.",
        )
        return
    mode = stat.S_IMODE(found)
    if mode & 0o077:
        yield Problem(
            "state-dir",
            f"Other users can look into {directory} (mode {mode:04o}).",
            f"chmod 0700 {directory}",
        )
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    if free < _LEAST_SPACE:
        yield Problem(
            "space",
            f"The file system of {directory} has only {free >> 10} kB free. Jobs still run, but a "
            "restart may lose them and their returns.",
            f"Free at least {_LEAST_SPACE >> 20} MB there.",
        )


def _master(host: Host, functions: facts.Functions) -> Iterator[Problem]:
    """Check the one thing that a minion sees of its master's set-up: the version."""
    opts = host.opts
    if opts.get("master_type") == "disable" or opts.get("file_client") == "local":
        return
    if facts.master_version(functions, {}) is None:
        yield Problem(
            "master",
            "The master does not tell its version, so it is probably not set up: then jobs that "
            "this minion misses while it restarts are not published again.",
            "Run 'salt-run safeupdate.setup' on the master, or let minions call "
            "'safeupdate.master_version' ('peer_run').",
        )


_CHECKS: tuple[Look, ...] = (
    _configuration,
    _executor,
    _engine,
    _owner,
    checks_of_files.set_up_file,
    checks_of_files.set_up_removed,
    checks_of_files.stand_ins,
    _extension,
    _other_extension,
    checks_of_files.code,
    _hooks,
    _locks,
    _own_packages,
    _state_dir,
    checks_of_updates.last_update,
    checks_of_snapshots.applied,
    checks_of_restarts.stop_guard,
    checks_of_restarts.handover,
    checks_of_restarts.cluster,
)
# Problems that a restart of a minion solves.
_BY_RESTART = (
    *(_executor, _engine, checks_of_files.set_up_file, checks_of_files.stand_ins, _hooks),
    *(_other_extension, checks_of_files.code, checks_of_restarts.stop_guard),
)
_QUICK = (_configuration, _executor, _engine, _owner, _hooks, _locks, _state_dir)
