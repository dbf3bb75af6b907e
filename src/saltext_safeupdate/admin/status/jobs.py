"""The jobs of this minion, and what an administrator may do about single ones."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from typing import Any

import salt.payload

from ...core import times
from ...core.errors import InputError, LockHeldError, SafeUpdateError
from ...core.generations import absence
from ...core.host import processes
from ...core.jobs import current
from ...core.jobs import jids as job_ids
from ...core.jobs.ledger import UNKNOWN, Job, State
from ...core.jobs.meant import AWAY, MISSED, NOT_MEANT, UNDECIDED, about
from ...minion import queues, unrecorded
from ...minion.masters import ONE_OF_SEVERAL
from ...ordering import matching
from ...this_host import Host

# Answers of the minion about a publication whose target does not match it.
_SAID = {False: NOT_MEANT, None: UNDECIDED}


def listed(host: Host, zone: object = times.UTC) -> dict[str, Any]:
    """
    Return the jobs that run, those that are held, and what the ledger has of jobs.

    *zone* is the zone of ``times``, as for :func:`.times.zone`. Raises InputError if it is unknown.
    """
    times.zone(zone)
    rows = host.ledger.open() if host.ledger.exists() else []
    return {
        "running": host.running_jobs(),
        "held": [f"{job.get('jid')} {job.get('fun')}" for job in queues.listed(host.opts)],
        "undelivered": [
            times.beside(
                {"jid": row.jid, "fun": row.fun, "since": row.changed, "sends": row.sends},
                ("since",),
                zone,
            )
            for row in rows
            if row.state is State.FINISHED
        ],
        "recorded": [times.beside(_described(row), ("accepted",), zone) for row in rows],
    }


def _described(job: Job) -> dict[str, Any]:
    return {
        "jid": job.jid,
        "fun": job.fun,
        "state": job.state.value,
        "accepted": job.accepted,
        "attempts": job.attempts,
        "sends": job.sends,
        "master": job.master,
    }


def accepted(
    host: Host, jids: object, aims: object = None, *, blind: bool = False
) -> dict[str, str]:
    """
    Return the states of those jobs that this minion has, in its ledger or in a queue.

    The state is "unknown" if the minion may have run the job without a record; with *blind*, it
    runs all jobs in that way. *aims* are targets, each with its publications and their ages. If the
    minion does not have the job of a publication, the answer says whether it has missed it, or the
    publication is not for it (:mod:`..core.jobs.meant`).
    """
    if not isinstance(jids, list) or not all(isinstance(jid, str | int) for jid in jids):
        raise InputError("'jids' must be a list of job IDs.")
    targets = _targets(aims)
    wanted = [str(jid) for jid in jids]
    queued = {str(job.get("jid")): "held" for job in queues.listed(host.opts)}
    if host.ledger.exists():
        blind = blind or unrecorded.pending(host.opts)
        known = host.ledger.known(wanted, ahead=_ahead(), blind=blind)
    else:
        known = dict.fromkeys(wanted, UNKNOWN)
    # A job in a queue is known, even if the ledger does not have it.
    for jid in wanted:
        if known.get(jid, UNKNOWN) == UNKNOWN and jid in queued:
            known[jid] = queued[jid]
    return known | _missed(host, targets, known)


def _targets(aims: object) -> list[dict[str, Any]]:
    listed = [] if aims is None else aims
    if not isinstance(listed, list) or not all(
        isinstance(aim, dict)
        and isinstance(aim.get("jobs"), dict)
        and isinstance(aim.get("ages", {}), dict)
        and isinstance(aim.get("tgt_type"), str)
        and isinstance(aim.get("delimiter"), str)
        and "tgt" in aim
        for aim in listed
    ):
        raise InputError(
            "'aims' must be a list of targets, each with 'tgt', 'tgt_type', 'delimiter', 'jobs' "
            "and 'ages'."
        )
    return listed


def _missed(host: Host, targets: list[dict[str, Any]], known: dict[str, str]) -> dict[str, str]:
    """Return of each publication of an unknown job whether this minion has missed it."""
    # Salt's matchers are loaded only if there is a question for them.
    wanted = [aim for aim in targets if not known.keys() >= set(map(str, aim["jobs"].values()))]
    found: dict[str, str] = {}
    if not wanted:
        return found
    pid = os.getppid() if host.opts.get("multiprocessing", True) else os.getpid()
    main = processes.identity(pid)
    away = absence.of(host.store, host.services, host.settings.service, main)
    for aim, meant in zip(wanted, matching.decided(host.opts, wanted), strict=True):
        for number, jid in aim["jobs"].items():
            if str(jid) not in known:
                age = aim.get("ages", {}).get(number)
                found[about(number)] = _SAID.get(meant) or _said(away, age)
    return found


def _said(away: Iterable[absence.Absence], age: object) -> str:
    if isinstance(age, bool) or not isinstance(age, int | float):
        return UNDECIDED
    return MISSED if any(each.covers(age) for each in away) else AWAY


def _ahead() -> float:
    """Return by how many seconds the clock of the master that asks is ahead of ours, or 0."""
    job = current.get()
    made = job_ids.made_at(job.jid) if job is not None else None
    return 0.0 if made is None else max(0.0, made - time.time())


def resume(host: Host, jid: object) -> dict[str, str]:
    """Start an interrupted job again, have a finished one sent; say what was done."""
    done = {}
    for job in _open(host, jid):
        if job.state is State.FINISHED:
            # The engine sends as soon as it sees that the database has changed.
            host.ledger.sent(job.key)
            done[job.key] = "its return is sent"
            continue
        if not host.ledger.take(job, processes.identity(os.getppid())):
            raise LockHeldError(
                f"Job {jid} has just been taken up by another process. Nothing was done."
            )
        full = host.ledger.full(job.key)
        if full is None or full.call is None:
            raise SafeUpdateError(
                f"The ledger no longer has the call of job {jid}, so it cannot be started again. "
                "'safeupdate.forget' removes the job."
            )
        opts = _opts_of(host, job)
        if queues.find(opts, job.jid) is None:
            queues.put(opts, salt.payload.loads(full.call))
        done[job.key] = "it is started again"
    return done


def forget(host: Host, jid: object) -> list[str]:
    """Remove a job from the ledger and from the queue: it is neither run nor returned."""
    done = []
    for job in _open(host, jid):
        path = queues.find(_opts_of(host, job), job.jid)
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        host.ledger.forget(job.key)
        done.append(job.key)
    return done


def _open(host: Host, jid: object) -> list[Job]:
    """Return the rows of a job that does not run and is not delivered."""
    if isinstance(jid, bool) or not isinstance(jid, str | int):
        raise InputError("'jid' must be a job ID.")
    found = host.ledger.find(str(jid)) if host.ledger.exists() else []
    jobs = [job for job in found if job.state is not State.DELIVERED]
    if not jobs:
        raise InputError(
            f"There is no open job {jid}: it is delivered or was never accepted. "
            "'safeupdate.jobs' lists the open ones."
        )
    if any(_runs(job) for job in jobs):
        raise LockHeldError(f"Job {jid} is running. Nothing was done; wait for its end.")
    return jobs


def _opts_of(host: Host, job: Job) -> dict[str, Any]:
    """Return the opts with the master in charge of the job: each has a queue of its own."""
    present = host.opts.get("master")
    keeps = host.opts.get("master_type") not in ONE_OF_SEVERAL
    return {**host.opts, "master": (keeps and job.master) or present}


def _runs(job: Job) -> bool:
    if job.state is State.RUNNING:
        return processes.alive(job.runner)
    return job.state is State.ACCEPTED and processes.alive(job.owner)
