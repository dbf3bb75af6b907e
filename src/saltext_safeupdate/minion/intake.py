"""
The hook on ``salt.minion.Minion``, in the minion's main process and in those of the jobs.

Every job, fresh or from one of Salt's queues, passes ``_invoke_execution``. There it is
written into the ledger and gets its hold on the lock of the jobs, before the fork, so
that no job is between "published" and "known". While an update keeps new jobs from
starting, the job goes to Salt's own queue on disk instead, and the next minion runs it
under its JID. Nothing has to be imported for that, so it works while the tree on disk is
being replaced.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any, NamedTuple

import salt.minion
import salt.payload
import salt.utils.files
import salt.utils.minion
import salt.utils.schedule
import salt.utils.state
from salt.exceptions import SaltReqTimeoutError

from ..core.errors import SafeUpdateError
from ..core.host import locks, processes
from ..core.host.locks import Lock
from ..core.jobs import current, functions, update_wait
from ..core.jobs.ledger import Ledger, State
from ..core.record.store import Store
from ..core.settings import Settings
from ..ordering import frozen
from . import queues

log = logging.getLogger(__name__)

# Seconds that the main process waits for the database; it has the whole minion to serve.
_MAIN_BUSY_TIMEOUT = 5.0
# Held jobs that start together, each time that Salt looks into its queue (it does so several
# times a second): all at once they are too many for a host that has just restarted its minion.
TOGETHER = max(2, os.cpu_count() or 1)
# Seconds that a job waits for its turn to send its return. The minion's main process sends one
# after the other, and each counts the time that it waits there: many at once all come too late,
# are sent again, and nothing gets through any more. Whoever waits longer leaves it to the engine,
# and ends: for each job that is there the main process stands still for 10 ms, again and again.
TURN_TIMEOUT = 2.0
# Seconds between two log lines that say the same of an unusable database.
_COMPLAIN_INTERVAL = 60.0


class Ticket(NamedTuple):
    """What a job takes along into its process: its hold, where it has one, and its key."""

    lock: Lock
    key: str


class Intake:
    """Record jobs, count them, hold them, and keep their returns until they have arrived."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._tickets: dict[int, Ticket] = {}
        self._ledger = Ledger(settings.database, busy_timeout=_MAIN_BUSY_TIMEOUT)
        self._store = Store(settings.database, busy_timeout=_MAIN_BUSY_TIMEOUT)
        self._began = time.time()
        self._main = (0, "")
        self._complained = 0.0
        # The masters whose queues are as the last minion should have left them.
        self._restored: set[str] = set()

    # -- main process ----------------------------------------------------------

    def draining(self) -> bool:
        return locks.held(self.settings.run_dir, "drain")

    def process(self, original: Any, minion: Any, args: Any, kwargs: Any) -> Any:
        """Work on a queue, unless what is in it is to be held anyway."""
        if self.draining():
            return None
        master = str(minion.opts.get("master", ""))
        if master not in self._restored:
            self._restored.add(master)
            try:
                queues.restore(minion.opts, self._known)
            except OSError as err:
                log.error(
                    "safeupdate: what the last minion left in its queues cannot be put back (%s): "
                    "fix the permissions below 'cachedir' and restart the minion",
                    err.strerror or err,
                )
        return original(minion, *args, **kwargs)

    @staticmethod
    def tidy(original: Any, minion: Any) -> None:
        """
        Let a minion look after its ended jobs, unless it is being torn down just now.

        Salt does that in its handler of SIGTERM, in the middle of whatever it is at, and then
        goes on with what is not there any more.
        """
        try:
            original(minion)
        except AttributeError:
            if minion._running is not False:
                raise

    def invoke(self, original: Any, minion: Any, data: dict[str, Any]) -> Any:
        """Start the job with its hold, or hold it back, or leave it where it is known."""
        queued = bool(data.pop(queues.MARK, False))
        kept = bool(data.pop(queues.KEPT, False))
        if data.get("fun") == functions.FIND_JOB and self._answered(minion, data):
            return None
        if functions.waits_for_update(data.get("fun")) and self._waits(minion, data):
            return None
        lock = Lock(self.settings.run_dir, "jobs")
        counted = not self.draining() and lock.try_shared()
        if not counted and not functions.starts_at_once(data.get("fun")):
            lock.close()
            self._hold(minion, data, queued)
            return None
        key: str | None = key_of(data)
        if key:
            key = self._accept(minion, data, key, _over(queued, kept))
        if key is None:
            lock.close()
            return None
        self._tickets[id(data)] = Ticket(lock, key)
        process = None
        try:
            process = original(minion, data)
        finally:
            if process is None or minion.opts.get("multiprocessing", True):
                # A child has the open file too; a thread closes it at its end.
                self._tickets.pop(id(data), None)
                lock.close()
        return process

    def _waits(self, minion: Any, data: dict[str, Any]) -> bool:
        """Hold a job that waits for an update, until the engine sees that its wait is over."""
        key = key_of(data)
        try:
            known = self._ledger.full(key) if self._ledger.exists() else None
            now = time.time()
            accepted = known.accepted if known is not None else now
            if not key or update_wait.over(self._store, data, accepted, now):
                return False
            self._ledger.hold(key, **self._described(minion, data))
        except SafeUpdateError as err:
            self._complain("job %s cannot wait", data.get("jid"), err)
            return False
        return True

    def _accept(
        self, minion: Any, data: dict[str, Any], key: str, over: tuple[State, ...]
    ) -> str | None:
        """Write the job down; return its key, empty without a record, None if it is known."""
        try:
            described = self._described(minion, data)
            known = self._ledger.accept(key, **described, over=over)
            if (
                known is State.RUNNING
                and minion.opts.get("resume_jobs_on_restart")
                and self._abandoned(key)
            ):
                # Salt resumes what a restart interrupted, by itself and under its JID.
                known = self._ledger.accept(key, **described, over=(State.RUNNING,))
        except SafeUpdateError as err:
            self._complain("job %s runs without a record", data.get("jid"), err)
            return ""
        if known is None:
            return key
        log.info("safeupdate: job %s is known (%s) and not run again", data["jid"], known.value)
        return None

    def _abandoned(self, key: str) -> bool:
        job = self._ledger.full(key)
        return job is not None and not processes.alive(job.runner)

    def queue(self, original: Any, minion: Any, data: dict[str, Any]) -> Any:
        """Record what Salt puts into its queue, unless it is known already."""
        queued = bool(data.pop(queues.MARK, False))
        key = key_of(data)
        if key:
            try:
                known = self._ledger.hold(key, **self._described(minion, data))
                if known is State.ACCEPTED and id(data) in self._tickets:
                    # Its process could not be started.
                    self._ledger.put_back(key, "")
                elif known is not None and not queued:
                    log.info(
                        "safeupdate: job %s is known (%s) and not queued again",
                        data["jid"],
                        known.value,
                    )
                    return None
            except SafeUpdateError as err:
                self._complain("job %s is queued without a record", data.get("jid"), err)
        data[queues.KEPT] = True
        # It may lie there for a while, with what it was given.
        with salt.utils.files.set_umask(0o077):
            return original(minion, data)

    @staticmethod
    def most(original: Any, minion: Any) -> int:
        """Return how many jobs may run; while the queue is worked on, a few more than do."""
        limit = int(original(minion))
        if not getattr(minion, "_process_queue_processing_active", False):
            return limit
        running = [each for each in minion.subprocess_list.processes if each.is_alive()]
        return min(limit, len(running) + TOGETHER)

    def _hold(self, minion: Any, data: dict[str, Any], queued: bool) -> None:
        if data.get("fun") == functions.FIND_JOB:
            arguments = data.get("arg") or [""]
            self._answer(minion, data, _running(minion.opts, str(arguments[0])), 0)
            return
        if data.get("fun") == functions.PING:
            # Needs nothing of what is being replaced, and asks whether we are there.
            self._answer(minion, data, True, 0)
            return
        if queued:
            data[queues.MARK] = True
        minion._queue_job(data)
        jid = str(data.get("jid"))
        if queues.find(minion.opts, jid) is None and not self._known(jid):
            self._answer(
                minion,
                data,
                "ERROR: An update of the minion is under way and this job could not be kept for "
                "afterwards, because the queue of the minion cannot be written. It was not run; "
                "make space under 'cachedir' and send it again.",
                1,
            )
            return
        log.info("safeupdate: job %s is held until the minion has restarted", jid)

    def _known(self, jid: str) -> bool:
        try:
            return any(job.state is not State.HELD for job in self._ledger.find(jid))
        except SafeUpdateError:
            return False

    def _answered(self, minion: Any, data: dict[str, Any]) -> bool:
        """Answer for a job that does not run now but will be returned."""
        arguments = data.get("arg") or [""]
        jid = str(arguments[0])
        try:
            jobs = self._ledger.find(jid) if self._ledger.exists() else []
        except SafeUpdateError as err:
            self._complain("job %s cannot be looked up", jid, err)
            return False
        for job in jobs:
            if job.state is State.DELIVERED:
                continue
            if job.state is not State.RUNNING or not processes.alive(job.runner):
                found = {"jid": jid, "fun": job.fun, "state": job.state.value}
                self._answer(minion, data, {**found, **_running(minion.opts, jid)}, 0)
                return True
        return False

    @staticmethod
    def _answer(minion: Any, data: dict[str, Any], value: Any, retcode: int) -> None:
        """Return from the main process, without starting anything."""
        ret = {
            "return": value,
            "retcode": retcode,
            "success": retcode == 0,
            "jid": data["jid"],
            "fun": data["fun"],
            "fun_args": data.get("arg", []),
        }
        for key in ("user", "master_id"):
            if key in data:
                ret[key] = data[key]
        sending = minion._return_pub_main(ret)
        if asyncio.iscoroutine(sending):
            minion.io_loop.create_task(sending)

    def scheduled(self, original: Any, schedule: Any, args: Any, kwargs: Any) -> Any:
        """Start a scheduled job with its hold. None starts while draining: see ``eval``."""
        lock = Lock(self.settings.run_dir, "jobs")
        if not lock.try_shared():
            lock.close()
            log.info("safeupdate: a scheduled job is left out while the minion is updated")
            return None
        previous = current.get()
        current.begin(current.Job(jid="", lock=lock))
        try:
            return original(schedule, *args, **kwargs)
        finally:
            current.end()
            if previous is not None:
                current.begin(previous)

    # -- the job's process or thread -------------------------------------------

    def target(self, original: Any, cls: Any, minion: Any, opts: Any, data: Any, rest: Any) -> Any:
        """Run the job as the one that this process or thread is for."""
        ticket = self._tickets.pop(id(data), None)
        if ticket is None:
            return original(minion, opts, data, *rest)
        forked = opts.get("multiprocessing", True)
        attempt = self._begin(ticket.key)
        job = current.Job(
            jid=str(data.get("jid", "")), lock=ticket.lock, key=ticket.key, attempt=attempt
        )
        current.begin(job)
        try:
            if not attempt:
                log.info("safeupdate: job %s is taken care of elsewhere", job.jid)
                return None
            if forked and self.draining():
                self._keep_to_old_tree()
            if forked and minion is not None and not minion.connected:
                # Without a connection Salt drops the return; with a record it only waits.
                minion.connected = True
            value = original(minion, opts, data, *rest)
            if job.key and not job.returned:
                self._ended_without_return(opts, job)
            return value
        finally:
            if not forked:
                current.end()

    def _keep_to_old_tree(self) -> None:
        """Have what looks at an update import this minion's code while that is replaced."""
        try:
            update = self._store.latest() if self._store.exists() else None
        except SafeUpdateError as err:
            self._complain("where the old code is kept cannot be looked up for job %s", "-", err)
            return
        # A minion that was started meanwhile is not the one whose code was kept.
        if update is not None and not update.phase.final and update.created > self._began:
            copies = update.code.copies
            frozen.redirect({root: copy for root, copy in copies.items() if os.path.isdir(copy)})

    def _begin(self, key: str) -> int:
        if not key:
            return 1
        try:
            return Ledger(self.settings.database).begin(key, processes.me())
        except SafeUpdateError as err:
            self._complain("job %s runs without a record", key, err)
            return 1

    def _ended_without_return(self, opts: Any, job: current.Job) -> None:
        """It put itself into the queue of the states, or is not to return."""
        ledger = Ledger(self.settings.database)
        try:
            if queues.find(opts, job.jid) is not None:
                ledger.put_back(job.key, processes.me())
            else:
                for found in ledger.find(job.jid):
                    if found.key == job.key and found.runner == processes.me():
                        ledger.delivered(job.key)
        except SafeUpdateError as err:
            self._complain("the end of job %s is not recorded", job.jid, err)

    def prepared(self, load: dict[str, Any]) -> dict[str, Any]:
        """Keep what Salt is about to send."""
        job = current.get()
        if job is None or not job.key or str(load.get("jid")) != job.jid:
            return load
        try:
            code = load.get("retcode")
            Ledger(self.settings.database).finish(
                job.key, salt.payload.dumps(load), code if isinstance(code, int) else 0
            )
            job.kept = True
        except SafeUpdateError as err:
            self._complain("the return of job %s is sent without a record", job.jid, err)
        return load

    def return_pub(self, original: Any, minion: Any, ret: Any, args: Any, kwargs: Any) -> Any:
        """Send the return; it stays kept where the master did not acknowledge it."""
        job = current.get()
        jid = str(ret.get("jid", ""))
        key = job.key if job is not None and job.jid == jid else ""
        if job is not None and job.jid == jid:
            job.returned = True
        arrived = False
        try:
            value = original(minion, ret, *args, **kwargs)
            arrived = value != "" or not minion.opts.get("pub_ret", True)
        finally:
            # Also where Salt fails to send at all.
            self._settle(minion, ret, jid, key, arrived=arrived)
        return value

    def send(self, original: Any, minion: Any, load: dict[str, Any], timeout: Any) -> Any:
        """Send a return when it is its turn; what is kept may be left to the engine."""
        job = current.get()
        if load.get("cmd") != "_return":
            return original(minion, load, timeout)
        turn = self._turn(load)
        if turn is None and job is not None and job.kept and str(load.get("jid")) == job.jid:
            raise SaltReqTimeoutError("Too many returns wait to be sent; the engine sends this one")
        try:
            return original(minion, load, timeout)
        finally:
            if turn is not None:
                turn.close()

    def _turn(self, load: dict[str, Any]) -> Lock | None:
        try:
            return locks.take_turn(self.settings.run_dir, locks.RETURNS, TURN_TIMEOUT)
        except SafeUpdateError as err:
            self._complain("the return of job %s waits for no turn", load.get("jid"), err)
            return None

    def _settle(
        self, minion: Any, ret: dict[str, Any], jid: str, key: str, *, arrived: bool
    ) -> None:
        try:
            if arrived and key:
                Ledger(self.settings.database).delivered(key)
            elif not arrived and not key:
                self._keep(minion, ret, jid)
        except SafeUpdateError as err:
            if arrived:
                self._complain("the delivery of job %s is not recorded", jid, err)
            else:
                log.error("The return of job %s did not arrive and cannot be kept: %s", jid, err)
            return
        if not arrived:
            log.warning("The return of job %s did not arrive; it is kept and sent again", jid)

    def _keep(self, minion: Any, ret: dict[str, Any], jid: str) -> None:
        load = {"cmd": "_return", "id": minion.opts["id"], **ret}
        Ledger(self.settings.database).keep(
            f"{jid}:{os.getpid()}:{time.time_ns()}",
            jid=jid,
            fun=_fun(ret),
            master=str(minion.opts.get("master", "")),
            payload=salt.payload.dumps(load),
        )

    # -- both ------------------------------------------------------------------

    def _described(self, minion: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {
            "jid": str(data["jid"]),
            "fun": _fun(data),
            "master": str(minion.opts.get("master", "")),
            "call": salt.payload.dumps(data),
            "owner": self._me(),
        }

    def _me(self) -> str:
        if self._main[0] != os.getpid():
            self._main = (os.getpid(), processes.me())
        return self._main[1]

    def _complain(self, what: str, jid: object, err: SafeUpdateError) -> None:
        """Say it at most once a minute: every job meets the same error."""
        if time.monotonic() - self._complained >= _COMPLAIN_INTERVAL or not self._complained:
            self._complained = time.monotonic()
            log.error(f"safeupdate: {what}: %s", jid, err)


def key_of(data: dict[str, Any]) -> str:
    """Return the job's name in the ledger; empty where it is not recorded."""
    if "jid" not in data or data.get("fun") in (None, ""):
        return ""
    if not functions.is_recorded(data["fun"]):
        return ""
    resource = data.get("resource_target")
    if isinstance(resource, dict):
        return f"{data['jid']}/{resource.get('type')}:{resource.get('id')}"
    return str(data["jid"])


def _over(queued: bool, kept: bool) -> tuple[State, ...]:
    """Return the states in which a known job may start, by where it comes from."""
    if not queued:
        return ()
    # A state run that puts itself into a queue may not have written that down yet.
    return (State.HELD,) if kept else (State.HELD, State.RUNNING)


def _fun(data: dict[str, Any]) -> str:
    fun = data.get("fun", "")
    return ",".join(map(str, fun)) if isinstance(fun, list | tuple) else str(fun)


def _running(opts: Any, jid: str) -> dict[str, Any]:
    """Answer like ``saltutil.find_job``: a running job, or one that is held."""
    for job in salt.utils.minion.running(opts):
        if str(job.get("jid")) == jid:
            found: dict[str, Any] = dict(job)
            return found
    path = queues.find(opts, jid)
    if path is None:
        return {}
    # Empty: the queue runs it just now.
    data = queues.read(path) or {"jid": jid}
    return {key: data.get(key) for key in ("jid", "fun", "arg", "tgt", "tgt_type", "user", "ret")}


def supported() -> bool:
    """Tell whether this Salt has the queue on disk that holding a job relies on."""
    return all(
        hasattr(salt.minion.Minion, name)
        for name in (
            "_get_effective_process_count_max",
            "_invoke_execution",
            "_queue_job",
            "process_process_queue",
        )
    )


def without_payload(record: logging.LogRecord) -> bool:
    """Leave out of Salt's error what it could not send: all that a job was given and returns."""
    if str(record.msg).startswith("Timeout encountered while sending"):
        record.args = tuple(
            {key: arg.get(key) for key in ("cmd", "jid")} if isinstance(arg, dict) else arg
            for arg in record.args or ()
        )
    return True


def install(settings: Settings) -> None:
    """Put the hook in place."""
    intake = Intake(settings)
    logging.getLogger(salt.minion.__name__).addFilter(without_payload)
    minion = salt.minion.Minion
    handle = minion._handle_decoded_payload
    invoke, queue = minion._invoke_execution, minion._queue_job
    target = minion.__dict__["_target"].__func__
    prepare, return_pub = minion._prepare_return_pub, minion._return_pub
    send = minion._send_req_sync

    def _handle_decoded_payload(self: Any, data: Any) -> Any:
        # Salt marks what comes from one of its queues, and takes the mark off before it starts.
        if isinstance(data, dict) and data.get("__ignore_process_count_max"):
            data[queues.MARK] = True
        return handle(self, data)

    def _invoke_execution(self: Any, data: dict[str, Any]) -> Any:
        return intake.invoke(invoke, self, data)

    def _queue_job(self: Any, data: dict[str, Any]) -> Any:
        return intake.queue(queue, self, data)

    def _target(cls: Any, minion_instance: Any, opts: Any, data: Any, *rest: Any) -> Any:
        return intake.target(target.__get__(cls), cls, minion_instance, opts, data, rest)

    def _prepare_return_pub(self: Any, ret: Any, ret_cmd: str = "_return") -> Any:
        load = prepare(self, ret, ret_cmd)
        return intake.prepared(load) if ret_cmd == "_return" else load

    def _return_pub(self: Any, ret: Any, *args: Any, **kwargs: Any) -> Any:
        return intake.return_pub(return_pub, self, ret, args, kwargs)

    def _send_req_sync(self: Any, load: Any, timeout: Any) -> Any:
        return intake.send(send, self, load, timeout)

    tidy = minion.cleanup_subprocesses

    def _cleanup_subprocesses(self: Any) -> None:
        intake.tidy(tidy, self)

    minion.cleanup_subprocesses = _cleanup_subprocesses
    limit = minion._get_effective_process_count_max

    def _get_effective_process_count_max(self: Any) -> Any:
        return intake.most(limit, self)

    minion._get_effective_process_count_max = _get_effective_process_count_max
    schedule = salt.utils.schedule.Schedule
    run_job = schedule._run_job

    def _run_job(self: Any, *args: Any, **kwargs: Any) -> Any:
        return intake.scheduled(run_job, self, args, kwargs)

    schedule._run_job = _run_job
    schedule.eval = _unless_draining(intake, schedule.eval)
    minion._handle_decoded_payload = _handle_decoded_payload
    minion._invoke_execution = _invoke_execution
    minion._queue_job = _queue_job
    minion._target = classmethod(_target)
    minion._prepare_return_pub = _prepare_return_pub
    minion._return_pub = _return_pub
    minion._send_req_sync = _send_req_sync
    for name in ("process_process_queue", "process_state_queue"):
        for cls in (minion, salt.minion.MinionManager):
            if name in cls.__dict__:
                setattr(cls, name, _processing(intake, cls.__dict__[name]))


def _unless_draining(intake: Intake, original: Any) -> Any:
    """What would only be held is not begun."""

    def process(self: Any, *args: Any, **kwargs: Any) -> Any:
        if intake.draining():
            return None
        return original(self, *args, **kwargs)

    process.__name__ = original.__name__
    return process


def _processing(intake: Intake, original: Any) -> Any:
    def process(self: Any, *args: Any, **kwargs: Any) -> Any:
        return intake.process(original, self, args, kwargs)

    process.__name__ = original.__name__
    return process
