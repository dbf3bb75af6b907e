"""Where this minion is: its newest update, all its updates, and what the beacon tells."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

import salt.version

from ...core import times
from ...core.errors import InputError, LockUnavailableError, SafeUpdateError
from ...core.host import drained, hidden, locks, processes
from ...core.record.phase import Phase
from ...core.record.store import Store
from ...core.record.update import Update
from ...core.settings import of_minion

if TYPE_CHECKING:
    from ...core.generations.generation import Report
    from ...this_host import Host

log = logging.getLogger(__name__)

_LAST_EVENT = "safeupdate.beacon"


def status(host: Host, zone: object = times.UTC) -> dict[str, Any]:
    """
    Return the newest update, the versions that run and are installed, and the jobs' state.

    *zone* is the zone of ``times``, as for :func:`.times.zone`. Raises InputError if it is unknown.
    """
    times.zone(zone)
    last = host.store.latest() if host.store.exists() else None
    serves = serving(host, last)
    found: dict[str, Any] = {
        "phase": "idle",
        "running": str(salt.version.__version__) if serves is None else serves.version,
        "installed": _installed(host),
        "extension": _extension(host),
        **_restart(host),
        **draining(host, zone),
        **_earlier(host),
        "undelivered": len(host.ledger.undelivered()) if host.store.exists() else 0,
    }
    if last is not None:
        found |= {**described(last, zone), "waits_for": waits_for(host, last)}
    return found


def serving(host: Host, last: Update | None) -> Report | None:
    """
    Return the report of the minion that serves; None if this process can tell as well.

    *last* is the newest update. A job of an earlier minion knows the old version only.
    """
    from ...core.generations.table import Generations

    if last is not None and last.on_trial:
        return None
    report = Generations(host.store).beside_earlier()
    return report if report is not None and report.version else None


def _restart(host: Host) -> dict[str, str]:
    """Return what happens to jobs in the next restart by others, and why the last one waited."""
    from ...core.jobs import guard_file
    from ...minion import handing_over

    waited = guard_file.waited(host.settings.run_dir)
    return {"restart": handing_over.described(host), **({"waited": waited} if waited else {})}


def _earlier(host: Host) -> dict[str, list[int]]:
    """Return the processes of minions that were handed over and still have jobs, if there are."""
    from ...core.generations.table import Generations

    generations = Generations(host.store)
    found = [*generations.overlapping(), *generations.leaving()]
    return {"earlier": [processes.pid(each) for each in found]} if found else {}


def waits_for(host: Host, update: Update) -> list[str]:
    """Name the jobs that an update waits for just now, as "JID function"; there may be none."""
    from ...core.jobs import functions

    if update.phase is not Phase.WAITING:
        return []
    jobs = host.awaited_jobs("")
    return [job for job in jobs if not functions.starts_at_once(job.partition(" ")[2])]


def draining(host: Host, zone: object = times.UTC) -> dict[str, Any]:
    """
    Return whether new jobs are held: None, and the ``problem``, if the locks do not work.

    ``drained`` says until when and why, if an administrator has them held; *zone* is the zone of
    its ``times``.
    """
    from ...this_host import enabled

    run_dir = host.settings.run_dir
    if not os.path.isdir(run_dir) and not enabled(host.opts):
        # To look there would make the directory.
        return {"draining": False}
    told = drained_until(run_dir)
    told = {key: times.beside(each, ("until",), zone) for key, each in told.items()}
    try:
        return {"draining": bool(told) or locks.held(run_dir, "drain"), **told}
    except LockUnavailableError as err:
        return {"draining": None, "problem": str(err), **told}


def drained_until(run_dir: str) -> dict[str, dict[str, Any]]:
    """Return the end and the reason of the administrator's drain, or nothing."""
    found = drained.look(run_dir)
    if found is None:
        return {}
    return {"drained": {"until": round(time.time() + found.left), "reason": found.reason}}


def _extension(host: Host) -> dict[str, str]:
    """Return the version of this extension that the minion runs with, and the installed one."""
    from ...core.extensions import ourselves
    from ...core.generations.table import Generations

    report = Generations(host.store).report()
    return {
        "running": (report.extension if report else "") or ourselves.running_version(),
        "installed": ourselves.version_in(ourselves.home()),
    }


def _installed(host: Host) -> dict[str, str]:
    from ... import factory

    try:
        slot = factory.active_slot(host)
    except SafeUpdateError as err:
        log.warning("safeupdate: the slot of this minion is not known: %s", err)
        return {}
    if slot is not None:
        return {"salt": slot.build_version}
    if host.manager is None:
        return {}
    return host.manager.installed(host.own().names)


def described(update: Update, zone: object = times.UTC) -> dict[str, Any]:
    """
    Return the record as plain data.

    ``created`` and ``changed`` are epoch seconds; ``times`` has both in ISO 8601, in that *zone*.
    """
    # Says that the update waits for a reboot of the host, and who takes care of that.
    reboot = f"pending: {update.boot.reboot or 'reboot the host when it suits'}"
    told = {
        "update": update.id,
        "kind": update.kind,
        "phase": update.phase.value,
        "reason": update.reason,
        "jid": update.jid,
        "from": update.versions_from,
        "to": update.versions_to,
        "steps": list(update.progress.steps),
        "way_back": "" if update.has_way_back else update.way_back.missing,
        "reboot": reboot if update.awaits_boot else "",
        "created": update.created,
        "changed": update.changed,
        **({"servers": [each.unit for each in update.code.servers]} if update.code.servers else {}),
    }
    return times.beside(told, ("created", "changed"), zone)


def history(host: Host, limit: object, zone: object = times.UTC) -> list[dict[str, Any]]:
    """Return the newest updates with their phases, newest first, and ``times`` in that *zone*."""
    times.zone(zone)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
        raise InputError("'limit' must be a whole number above 0.")
    if not host.store.exists():
        return []
    return [
        {
            **described(update, zone),
            "phases": [
                times.beside(
                    {"phase": row.phase, "reason": row.reason, "at": row.at}, ("at",), zone
                )
                for row in host.store.history(update.id)
            ],
        }
        for update in host.store.updates(limit)
    ]


def beacon_events(
    opts: Mapping[str, Any], context: MutableMapping[str, Any]
) -> list[dict[str, Any]]:
    """
    Return an event if the phase is another than at the last look, which is in *context*, or if an
    administrator has begun or ended to have new jobs held.

    An update that had ended before the first look is no event.
    """
    try:
        last = _newest(opts)
        held = drained.look(of_minion(opts)[0].run_dir) is not None
    except SafeUpdateError as err:
        now = {"pending": False, "phase": "unknown", "update": "", "reason": str(err)}
    else:
        before = context.get(_LAST_EVENT)
        if last is None and not held and before is None:
            return []
        now = {
            "pending": last is not None and not last.phase.final,
            "phase": last.phase.value if last is not None else "idle",
            "update": last.id if last is not None else "",
            "reason": last.reason if last is not None else "",
        }
        if held or "drained" in (before or ()):
            now["drained"] = held
    before = context.get(_LAST_EVENT)
    context[_LAST_EVENT] = now
    if now == before or (before is None and not now["pending"] and not now.get("drained")):
        return []
    return [now]


def _newest(opts: Mapping[str, Any]) -> Update | None:
    """Return the newest record. Writes nothing."""
    store = _store(opts)
    return store.latest() if store.exists() else None


def _store(opts: Mapping[str, Any]) -> Store:
    """Return where the record is. Raises InputError inside a transaction, which hides it."""
    hidden.refuse()
    settings, problems = of_minion(opts)
    if problems:
        raise InputError(problems[0])
    return Store(settings.database)
