"""Plain data about this minion, for the execution module, the states, beacon and grains."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from typing import Any

import salt.version

from .. import hooks
from ..core.errors import InputError, SafeUpdateError
from ..core.host import locks
from ..core.jobs.ledger import State
from ..core.prepare.preflight import Circumstances, preflight
from ..core.record.phase import Phase
from ..core.record.update import Update
from ..core.settings import effective
from ..factory import Factory, enabled
from ..minion import queues
from . import jobs as job_rows

log = logging.getLogger(__name__)

# Bytes that the database should be able to grow by: returns that masters do not get at once.
_LEAST_SPACE = 16 << 20
_DEFERRED = "The minion restarts as soon as every job has ended and its return has been delivered."


def status(factory: Factory) -> dict[str, Any]:
    settings = factory.settings
    last = factory.store.latest() if factory.store.exists() else None
    found: dict[str, Any] = {
        "phase": "idle",
        "running": str(salt.version.__version__),
        "installed": _installed(factory),
        "draining": locks.held(settings.run_dir, "drain"),
        "undelivered": len(factory.ledger.undelivered()) if factory.store.exists() else 0,
    }
    if last is not None:
        found |= described(last)
    return found


def described(update: Update) -> dict[str, Any]:
    """Return the record as plain data."""
    return {
        "update": update.id,
        "kind": update.kind,
        "phase": update.phase.value,
        "reason": update.reason,
        "jid": update.jid,
        "from": update.versions_from,
        "to": update.versions_to,
        "steps": list(update.progress.steps),
        "way_back": "" if update.has_way_back else update.way_back.missing,
        "reboot": _reboot(update),
        "created": update.created,
        "changed": update.changed,
    }


def _reboot(update: Update) -> str:
    """Say that it waits for the reboot of the host, and who sees to that."""
    if not update.awaits_boot:
        return ""
    return f"pending: {update.boot.reboot or 'reboot the host when it suits'}"


def history(factory: Factory, limit: object) -> list[dict[str, Any]]:
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InputError("'limit' must be a whole number above 0.")
    if not factory.store.exists():
        return []
    return [
        {
            **described(update),
            "phases": [
                {"phase": row.phase, "reason": row.reason, "at": row.at}
                for row in factory.store.history(update.id)
            ],
        }
        for update in factory.store.updates(limit)
    ]


def restart(factory: Factory, reason: str) -> dict[str, Any]:
    from ..core.jobs import current
    from ..core.supervisor import requests

    # Where the hooks are not there yet, this job has no hold that the restart would wait for.
    jid = current.ensure(factory.settings).jid
    update = requests.restart(factory.initiator(jid), jid=jid, reason=reason)
    return {**described(update), "comment": _DEFERRED}


def cancel(factory: Factory) -> dict[str, Any]:
    from ..core.supervisor import requests

    return described(requests.cancel(factory.initiator()))


def drain(factory: Factory) -> dict[str, Any]:
    found = jobs(factory)
    return {
        "draining": locks.held(factory.settings.run_dir, "drain"),
        "running": found["running"],
        "held": found["held"],
    }


def jobs(factory: Factory) -> dict[str, Any]:
    rows = factory.ledger.open() if factory.ledger.exists() else []
    return {
        "running": factory.running_jobs(),
        "held": [f"{job.get('jid')} {job.get('fun')}" for job in queues.listed(factory.opts)],
        "undelivered": [
            {"jid": row.jid, "fun": row.fun, "since": row.changed, "attempts": row.sends}
            for row in rows
            if row.state is State.FINISHED
        ],
        "recorded": [job_rows.kept(row) for row in rows],
    }


def accepted(factory: Factory, jids: object) -> dict[str, str]:
    """Return the states of those jobs that this minion has, in its ledger or in a queue."""
    if not isinstance(jids, list) or not all(isinstance(jid, str | int) for jid in jids):
        raise InputError("'jids' must be a list of job IDs.")
    wanted = [str(jid) for jid in jids]
    found = {str(job.get("jid")): "held" for job in queues.listed(factory.opts)}
    found |= factory.ledger.known(wanted) if factory.ledger.exists() else {}
    return {jid: found[jid] for jid in wanted if jid in found}


def _installed(factory: Factory) -> dict[str, str]:
    if factory.manager is None:
        return {}
    return factory.manager.installed(factory.own().names)


def check(factory: Factory) -> list[dict[str, str]]:
    """Return every problem, not only the first."""
    problems: list[dict[str, str]] = []

    def add(code: str, problem: str, fix: str) -> None:
        problems.append({"code": code, "problem": problem, "fix": fix})

    opts = factory.opts
    for problem in effective(opts.get("safeupdate"))[1]:
        add(
            "configuration",
            f"{problem} The default holds.",
            "Correct it in the configuration of the minion, and restart the minion.",
        )
    executors = opts.get("module_executors") or []
    if isinstance(executors, str):
        executors = [executors]
    if "safeupdate" not in executors:
        add(
            "executor",
            "The executor 'safeupdate' is not in 'module_executors'.",
            "Set 'module_executors: [safeupdate, direct_call]', or apply the SLS 'safeupdate'.",
        )
    elif executors[-1] == "safeupdate":
        add(
            "executor-last",
            "The executor 'safeupdate' is the last of 'module_executors', so nothing runs a job.",
            "Put 'direct_call' behind it.",
        )
    if not enabled({**opts, "module_executors": []}):
        add(
            "engine",
            "The engine 'safeupdate' is not in 'engines': returns that did not arrive are not "
            "sent again, and an interrupted update is not put in order.",
            "Set 'engines: [safeupdate: {}]' and restart the minion, or apply the SLS "
            "'safeupdate'.",
        )
    if hooks.stood_down():
        add(
            "hooks",
            hooks.stood_down(),
            "Install a version of saltext-safeupdate that knows this Salt.",
        )
    elif not _hooked(opts):
        add(
            "hooks",
            "The minion has no hooks: state runs are not ordered and jobs are not held.",
            "Restart the minion after the configuration has been changed.",
        )
    _check_own(factory, add)
    _check_state(factory, add)
    if factory.stop_guard is not None:
        for problem, fix in factory.stop_guard.problems():
            add("stop-guard", problem, fix)
    return problems


def _hooked(opts: Mapping[str, Any]) -> bool:
    """Tell whether the minion's main process has the hooks, and so whoever it starts."""
    if str(opts.get("__cli", "")).endswith("salt-call") or not opts.get("multiprocessing", True):
        return hooks.installed_by() != 0
    # The executor of a job puts them into the job's own process, where the minion has none.
    return hooks.installed_by() not in (0, os.getpid())


def _check_own(factory: Factory, add: Any) -> None:
    if factory.manager is None:
        add(
            "package-manager",
            "No package manager that is known was found.",
            "None is needed where Salt was not installed from packages.",
        )
        return
    try:
        own = factory.own()
        installed = factory.manager.installed(own.names)
        unfinished = factory.manager.unfinished(own.names)
    except SafeUpdateError as err:
        add("own-packages", f"The minion's own packages are not known: {err}", "Fix that first.")
        return
    if not own.names:
        add(
            "own-packages",
            "No package owns the code, the interpreter or the unit of this minion.",
            "Name the packages in 'safeupdate:packages' if it was installed from packages.",
        )
        return
    missing = set(own.names) - set(installed)
    if own.configured and missing:
        add(
            "own-packages",
            f"'safeupdate:packages' names what is not installed: {', '.join(sorted(missing))}.",
            "Correct the list, or leave it out: the packages are found.",
        )
    if unfinished:
        add(
            "half-done",
            f"The package manager left half done: {', '.join(unfinished)}.",
            "Run its repair, such as 'dpkg --configure -a'.",
        )
    _check_host(factory, add)
    state = factory.services.state(factory.settings.service)
    if state.enabled == "" and factory.services.name == "systemd":
        add(
            "service",
            f"There is no unit {factory.settings.service}.",
            "Set 'safeupdate:service' to the name of the minion's unit.",
        )


def _check_host(factory: Factory, add: Any) -> None:
    """Add what would stop an update whatever its version."""
    assert factory.manager is not None  # noqa: S101
    circumstances = Circumstances(
        manager=factory.manager,
        own=sorted(factory.own().names),
        running=str(salt.version.__version__),
        state_dir=factory.settings.state_dir,
        roots=factory.written(),
        transaction=factory.waiting(),
        targets={},
        masterless=True,
    )
    for finding in preflight(circumstances):
        if finding.blocking:
            add(finding.code, finding.problem, finding.fix)


def _check_state(factory: Factory, add: Any) -> None:
    directory = factory.settings.state_dir
    try:
        mode = stat.S_IMODE(os.stat(directory).st_mode)
    except FileNotFoundError:
        return
    if mode & 0o077:
        add(
            "state-dir",
            f"Others can look into {directory} (mode {mode:04o}).",
            f"chmod 0700 {directory}",
        )
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    if free < _LEAST_SPACE:
        add(
            "space",
            f"The file system of {directory} has only {free >> 10} kB free. Jobs run nevertheless, "
            "but a restart may lose them and what they return.",
            f"Make space there, {_LEAST_SPACE >> 20} MB at least.",
        )
    try:
        last = factory.store.latest()
    except SafeUpdateError as err:
        add("database", str(err), "See the message.")
        return
    if last is not None and not (last.phase.final or last.awaits_boot):
        supervised = locks.held(factory.settings.run_dir, "supervisor")
        if not supervised and not locks.held(factory.settings.run_dir, "update"):
            add(
                "interrupted",
                f"Update {last.id} was interrupted while {last.phase.value}.",
                "The engine starts the supervisor for it; if it is not running, restart the "
                "minion.",
            )
    if last is not None and last.phase in (Phase.FAILED, Phase.ROLLED_BACK):
        ended = "failed" if last.phase is Phase.FAILED else "was rolled back"
        add("last-update", f"The last update {ended}: {last.reason}", "Fix that and try again.")
    if factory.services.inhibited(factory.settings.service) and (last is None or last.phase.final):
        add(
            "inhibited",
            "The service refuses to stop although no update is under way.",
            "Restart the minion's host, or remove 50-safeupdate-quiet.conf below "
            "/run/systemd/system and reload systemd.",
        )
