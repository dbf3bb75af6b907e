"""Requests to the supervisor: an update, a restart, or to cancel one."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from ..errors import InputError, LockHeldError, SafeUpdateError, TransitionError
from ..host import locks
from ..prepare.resolution import Resolved
from ..record import fence
from ..record.facts import RESTART, STEPS_BEGUN
from ..record.parts import Owed, Progress, Staged
from ..record.phase import PROVING, Phase
from ..record.update import Update
from .initiator import Initiator, debt
from .one_at_a_time import admitted


def restart(
    by: Initiator, *, jid: str = "", reason: str = "", number: int = 0, delay: float = 0.0
) -> Update:
    """
    Request the deferred restart; return the record.

    It waits *delay* seconds first. If a restart is coming anyway, its record is returned. A request
    is refused if its *number* is not the newest.
    """
    pending = by.latest()
    under_way = pending is not None and not (pending.phase.final or pending.awaits_boot)
    if pending is not None and under_way and by.is_supervised():
        if number:
            by.store.take(number, pending.id)
        if pending.phase in (Phase.WATCHING, Phase.ROLLING_BACK):
            # Its own restart is over: this one comes when that update has ended.
            asked = Owed(jid=jid, reason=reason, processes=by.jobs.processes())
            by.store.set_fact(RESTART, asked)
            if not by.is_supervised():
                # It has ended meanwhile. The next supervisor takes a request that is still there.
                by.launch()
        return pending
    progress = Progress(delay=delay)
    update, lock = begin(by, "restart", jid, reason, number=number, progress=progress)
    lock.close()
    return update


def begin(
    by: Initiator, kind: str, jid: str, reason: str, *, number: int = 0, **parts: Any
) -> tuple[Update, locks.Lock]:
    """
    Write a record, start its supervisor, and return both the record and the update lock.

    For an update, new jobs are held from then on. *number* is the number of the request, if any.
    """
    lock = locks.acquire(by.settings.run_dir, "update", by.busy())
    try:
        owed = by.clear_the_way(kind)
        with admitted(by, at_once=True) if kind == "update" else nullcontext():
            record = by.new_record(kind, jid, reason, owed=owed, **parts)
            update = by.store.save(record, number=number)
        if kind == "update":
            # Do this before other jobs are held: repacking a package takes a while.
            update = by.store.save(_secured(by, update))
        _start_supervisor(by, update)
        update = by.store.save(update.advance(Phase.WAITING))
    except BaseException:
        lock.close()
        raise
    return update, lock


def _secured(by: Initiator, update: Update) -> Update:
    revisions = by.revisions
    way_back = revisions.secure(update.id, sorted(update.versions_from), update.way_back.paths)
    beside = by.stage_extensions(revisions.directory(update.id))
    return replace(
        update,
        way_back=replace(way_back, kept=update.way_back.kept),
        staged=replace(update.staged, extensions=beside),
    )


def _start_supervisor(by: Initiator, update: Update) -> None:
    def ready() -> bool:
        # An update needs the drain at once; a restart first waits for the jobs without it.
        return by.is_supervised() and (
            update.kind == "restart"
            or update.beside_jobs
            or locks.held(by.settings.run_dir, "drain")
        )

    try:
        by.launch()
        if not by.wait_until(ready):
            by.fail_to_start()
    except OSError as err:
        reason = (
            f"The supervisor could not be started: {err.strerror or err}. Nothing was changed; "
            "check the free space in 'safeupdate:state_dir'."
        )
        by.store.save(update.advance(Phase.FAILED, reason=reason))
        raise SafeUpdateError(reason) from err
    except SafeUpdateError as err:
        by.store.save(update.advance(Phase.FAILED, reason=str(err)))
        raise


def update(
    by: Initiator,
    wanted: Resolved,
    *,
    jid: str = "",
    reason: str = "",
    once: bool = False,
    at_boot: bool = False,
) -> Update:
    """
    Request an update from the supervisor; return its record.

    Repeating the same request returns the same update. A different one replaces an update that
    has not begun to install, and comes after a restart that has begun. Requests of a master are
    numbered: an older one is refused. *once* says that all requests with one number are the same. A
    job may make different requests with one number. *at_boot*: the host goes down, and the next
    boot starts the supervisor.
    """
    number = wanted.request.serial
    last = by.latest()
    if last is not None and last.kind == "restart" and last.phase in PROVING and by.is_supervised():
        # It waits for no job any more. If it takes too long, the request is refused below.
        by.wait_end(last)
    lock = by.writing()
    try:
        last, taken = by.latest(), by.store.taken()
        if number and number < taken.number:
            raise InputError(fence.refusal(number, taken))
        if number and number == taken.number:
            before = by.store.get(taken.update)
            if before is not None and (once or before.request == wanted.request):
                return before
        if last is not None and not last.phase.final and last.request == wanted.request:
            if number:
                by.store.take(number, last.id)
            return last
        with admitted(by):
            record = by.new_record(
                "update",
                jid,
                reason,
                request=wanted.request,
                versions_to=dict(wanted.targets),
                staged=Staged(files=wanted.files),
                owed=None if last is None or last.phase.final else debt(last),
            )
            if at_boot:
                record = _at_boot(by, record)
            record = by.store.save(record, *_superseded(by, last), number=number, again=not once)
    finally:
        lock.close()
    if not at_boot:
        by.have_supervised(record)
    return record


def _at_boot(by: Initiator, record: Update) -> Update:
    """Return the record with the service as the boot has it; without it, have a watchdog begin."""
    starts = {"enabled": "active", "disabled": "inactive"}.get(record.unit["enabled"])
    record = replace(record, unit={**record.unit, "active": starts or record.unit["active"]})
    if not record.ran_before:
        by.arm({})
    return record


def settle(by: Initiator, number: int) -> None:
    """
    Accept a request for a state that is already there, and cancel a waiting update.

    Raise InputError if a newer request is known, LockHeldError if an update has begun.
    """
    lock = by.writing()
    try:
        last = by.latest()
        changes = last if last is not None and last.kind == "update" else None
        by.store.take(number, "", *_superseded(by, changes))
    finally:
        lock.close()


def withdraw(by: Initiator, number: int) -> None:
    """
    Refuse all requests of lower numbers from now on, and cancel the update of the newest one.

    An update that has begun to install continues. Raise InputError if a newer request is known.
    """
    under_way = by.store.withdraw(number)
    if not under_way:
        return
    try:
        lock = by.writing()
    except LockHeldError:
        # It is beginning just now; its phase shows that.
        return
    try:
        record = by.store.get(under_way)
        if record is not None and record.may_be_cancelled:
            by.store.save(record.advance(Phase.CANCELLED, reason="The request was withdrawn."))
    finally:
        lock.close()
    _have_steps_taken_back(by)


def _superseded(by: Initiator, last: Update | None) -> list[Update]:
    """Return the record that has to make way for a request, cancelled; it is not written."""
    if last is None or last.phase.final:
        return []
    if not last.may_be_cancelled:
        raise LockHeldError(by.busy())
    return [last.advance(Phase.CANCELLED, reason="A newer request takes its place.")]


def cancel(by: Initiator) -> Update:
    """Cancel an update or restart that has not begun, or is not activated; return its record."""
    lock = by.writing()
    try:
        last = by.latest()
        if last is None or last.phase.final:
            raise TransitionError("No update and no restart is under way; nothing was changed.")
        if last.awaits_boot and last.phase is Phase.WAITING_FOR_BOOT:
            # The former snapshot becomes the default again.
            reason = "It was cancelled with 'safeupdate.cancel', before the reboot."
            record = by.store.save(last.advance(Phase.ROLLING_BACK, reason=reason))
        elif last.may_be_cancelled:
            reason = "It was cancelled with 'safeupdate.cancel'."
            record = by.store.save(last.advance(Phase.CANCELLED, reason=reason))
        else:
            raise TransitionError(
                f"Update {last.id} is {last.phase.value}: it has begun, and will be completed. "
                "Nothing was changed."
            )
    finally:
        lock.close()
    if record.phase.final:
        _have_steps_taken_back(by)
    else:
        by.have_supervised(record)
    return record


def _have_steps_taken_back(by: Initiator) -> None:
    """Start a supervisor, unless one lives, to undo the steps that ran before the update."""
    if by.store.fact(STEPS_BEGUN) is not None and not by.is_supervised():
        by.launch()
