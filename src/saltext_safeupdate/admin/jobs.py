"""What an administrator may do about single jobs of the ledger."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import salt.payload

from ..core.errors import InputError, LockHeldError, SafeUpdateError
from ..core.host import processes
from ..core.jobs.ledger import Job, State
from ..factory import Factory
from ..minion import queues


def resume(factory: Factory, jid: object) -> dict[str, str]:
    """Start again what was interrupted, and have sent what is finished; say what was done."""
    done = {}
    for job in _open(factory, jid):
        if job.state is State.FINISHED:
            # The engine sends when the database has changed.
            factory.ledger.sent(job.key)
            done[job.key] = "its return is sent"
            continue
        if not factory.ledger.take(job, processes.identity(os.getppid())):
            raise LockHeldError(f"Job {jid} has just been taken up. Nothing was done.")
        full = factory.ledger.full(job.key)
        if full is None or full.call is None:
            raise SafeUpdateError(f"What job {jid} was published with is not kept any more.")
        opts = {**factory.opts, "master": job.master or factory.opts.get("master")}
        if queues.find(opts, job.jid) is None:
            queues.put(opts, salt.payload.loads(full.call))
        done[job.key] = "it is started again"
    return done


def forget(factory: Factory, jid: object) -> list[str]:
    """Drop what is kept of a job: it is neither run nor returned any more."""
    done = []
    for job in _open(factory, jid):
        path = queues.find(factory.opts, job.jid)
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        factory.ledger.forget(job.key)
        done.append(job.key)
    return done


def _open(factory: Factory, jid: object) -> list[Job]:
    """Return what is kept of a job that does not run."""
    if isinstance(jid, bool) or not isinstance(jid, str | int):
        raise InputError("'jid' must be a job ID.")
    found = factory.ledger.find(str(jid)) if factory.ledger.exists() else []
    jobs = [job for job in found if job.state is not State.DELIVERED]
    if not jobs:
        raise InputError(
            f"Nothing is kept of job {jid}: it is delivered or was never accepted. "
            "'safeupdate.jobs' lists what there is."
        )
    if any(_runs(job) for job in jobs):
        raise LockHeldError(f"Job {jid} is running. Nothing was done; wait for its end.")
    return jobs


def _runs(job: Job) -> bool:
    if job.state is State.RUNNING:
        return processes.alive(job.runner)
    return job.state is State.ACCEPTED and processes.alive(job.owner)


def kept(job: Job) -> dict[str, Any]:
    """Return a row as plain data."""
    return {
        "jid": job.jid,
        "fun": job.fun,
        "state": job.state.value,
        "accepted": job.accepted,
        "attempts": job.attempts,
        "sends": job.sends,
        "master": job.master,
    }
