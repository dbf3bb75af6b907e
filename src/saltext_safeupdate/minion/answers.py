"""
Answers that the minion's main process gives by itself, without starting anything.

A master that does not get the return of a job asks with ``saltutil.find_job`` whether the job
exists. A job that is held or interrupted has no process, and nevertheless exists.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import salt.utils.minion

from ..core.errors import SafeUpdateError
from ..core.host import processes
from ..core.jobs import functions, jids
from ..core.jobs.ledger import Ledger, State
from . import publication, queues
from .complaints import Complaints

# Seconds in which a publication may arrive twice, for example while a minion restarts.
_ONCE_MORE = 60.0
# Seconds after the start of a minion in which a master may publish earlier jobs to it again.
_LOOKED_BACK = 900.0
_AS_PUBLISHED = ("jid", "fun", "arg", "tgt", "tgt_type", "user", "ret")


class Answers:
    """Answers from the ledger, from Salt's queues and from its list of running jobs."""

    def __init__(
        self, ledger: Ledger, complaints: Complaints, clock: Callable[[], float] = time.time
    ) -> None:
        self._ledger = ledger
        self._complaints = complaints
        self._clock = clock
        self._began = (clock(), time.monotonic())

    def about_pending(self, minion: Any, data: dict[str, Any]) -> bool:
        """Answer a question for a job that does not run now and will be returned."""
        if data.get("fun") != functions.FIND_JOB:
            return False
        jid = _asked_for(data)
        try:
            jobs = self._ledger.find(jid) if self._ledger.exists() else []
        except SafeUpdateError as err:
            self._complaints.log("job %s cannot be looked up", jid, err)
            return False
        for job in jobs:
            if job.state is State.DELIVERED:
                continue
            if job.state is not State.RUNNING or not processes.alive(job.runner):
                found = {"jid": jid, "fun": job.fun, "state": job.state.value}
                send(minion, data, {**found, **_running(minion.opts, jid)})
                return True
        return False

    def of_ended(self, minion: Any, data: dict[str, Any], key: str) -> None:
        """
        Answer a job whose JID was used before, long after the first job has ended and returned.

        Soon after it, the same publication has only arrived twice, and its return is on its way.
        """
        try:
            job = self._ledger.full(key)
        except SafeUpdateError as err:
            self._complaints.log("job %s cannot be looked up", data["jid"], err)
            return
        if job is None or job.state is not State.DELIVERED or job.key != job.jid:
            return
        if self._clock() - job.accepted < _ONCE_MORE:
            return
        began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(job.accepted))
        text = (
            f"ERROR: This minion has already had a job {job.jid} ({job.fun}, at {began}), and it "
            "runs only one job for each JID. Nothing was done now. Publish it without '--jid', or "
            "with another one; 'salt-run jobs.lookup_jid "
            f"{job.jid}' shows what the first one returned."
        )
        send(minion, data, text, retcode=1)

    def is_of_earlier(self, data: Mapping[str, Any]) -> bool:
        """Tell whether a job was published before this minion began."""
        at, since = self._began
        if time.monotonic() > since + _LOOKED_BACK:
            return False
        made = jids.made_at(str(data.get("jid")))
        return made is not None and made < at

    def note_look(self, data: Mapping[str, Any], describe: Callable[[], Mapping[str, Any]]) -> None:
        """Record a job that only looks: after a restart it would count as missed otherwise."""
        name, fun = publication.name(data), data.get("fun")
        if not name or functions.is_recorded(fun) or not functions.is_redelivered(fun):
            return
        try:
            if self._ledger.accept(name, **describe()) is None:
                self._ledger.delivered(name)
        except SafeUpdateError as err:
            self._complaints.log("job %s may run again", data.get("jid"), err)

    def while_held(self, minion: Any, data: dict[str, Any]) -> bool:
        """While jobs are held, answer calls that need none of the code that is being replaced."""
        if data.get("fun") == functions.FIND_JOB:
            send(minion, data, _running(minion.opts, _asked_for(data)))
            return True
        if data.get("fun") == functions.PING:
            send(minion, data, True)
            return True
        return False


def send(minion: Any, data: Mapping[str, Any], value: Any, retcode: int = 0) -> None:
    """Return *value* for a job from the main process."""
    sending = minion._return_pub_main(as_return(data, value, retcode))
    if asyncio.iscoroutine(sending):
        minion.io_loop.create_task(sending)


def as_return(data: Mapping[str, Any], value: Any, retcode: int = 0) -> dict[str, Any]:
    """Return the message that Salt sends as the return of a job."""
    ret = {
        "return": value,
        "retcode": retcode,
        "success": retcode == 0,
        "jid": data["jid"],
        "fun": data["fun"],
        "fun_args": data.get("arg", []),
    }
    for name in ("user", "master_id"):
        if name in data:
            ret[name] = data[name]
    return ret


def _asked_for(data: Mapping[str, Any]) -> str:
    return str((data.get("arg") or [""])[0])


def _running(opts: Mapping[str, Any], jid: str) -> dict[str, Any]:
    """Answer as ``saltutil.find_job`` does: for a job that runs, or that is held."""
    for job in salt.utils.minion.running(opts):
        if str(job.get("jid")) == jid:
            found: dict[str, Any] = dict(job)
            return found
    path = queues.find(opts, jid)
    if path is None:
        return {}
    # The file is empty if the queue starts the job just now.
    data = queues.read(path) or {"jid": jid}
    return {name: data.get(name) for name in _AS_PUBLISHED}


def is_failure(answer: object) -> bool:
    """
    Tell from the answer of a master whether it has not accepted a return.

    The answer is an empty text if the master's own function has failed. It is False if the master
    refuses the return, for example without a signature that it requires. Otherwise it is None or
    has any other type.
    """
    return answer is False or answer == ""
