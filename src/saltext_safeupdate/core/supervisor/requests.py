"""What is asked of the supervisor: an update, a restart, or that one is called off."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from ..errors import InputError, LockHeldError, SafeUpdateError, TransitionError
from ..host import locks
from ..prepare.resolution import Resolved
from ..record.parts import Owed
from ..record.phase import Phase
from ..record.update import Update
from .admission import admitted
from .initiator import Initiator, debt


def restart(by: Initiator, *, jid: str = "", reason: str = "") -> Update:
    """
    Ask for a restart as soon as every job is done and delivered; return the record.

    If a restart is to come anyway, that one's record is returned.
    """
    pending = by.latest()
    under_way = pending is not None and not (pending.phase.final or pending.awaits_boot)
    if pending is not None and under_way and by.is_supervised():
        if pending.phase in (Phase.WATCHING, Phase.ROLLING_BACK):
            # Its own restart has been: this one comes when it has ended.
            asked = {"reason": reason, "jid": jid, "processes": by.jobs.processes()}
            by.store.set_fact("restart", asked)
        return pending
    update, lock = begin(by, "restart", jid, reason)
    lock.close()
    return update


def begin(by: Initiator, kind: str, jid: str, reason: str) -> tuple[Update, locks.Lock]:
    """
    Write a record, start its supervisor, and return both the record and the update lock.

    For an update, new jobs are held from then on.
    """
    lock = locks.acquire(by.settings.run_dir, "update", by.busy())
    try:
        owed = by.clear_the_way(kind)
        with admitted(by, at_once=True) if kind == "update" else nullcontext():
            update = by.store.save(by.new_record(kind, jid, reason, owed=owed))
        if kind == "update":
            # Before other jobs are held: it takes a while if a package has to be packed anew.
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
        way_back=way_back,
        staged=replace(update.staged, extensions=beside),
    )


def _start_supervisor(by: Initiator, update: Update) -> None:
    def ready() -> bool:
        # An update needs the drain at once; a restart first waits for the jobs without it.
        return by.is_supervised() and (
            update.kind == "restart" or locks.held(by.settings.run_dir, "drain")
        )

    try:
        by.launch()
        if not by.wait_until(ready):
            by.fail_to_start()
    except OSError as err:
        reason = (
            f"The supervisor could not be started: {err.strerror or err}. Nothing was changed; "
            "look at the space in 'safeupdate:state_dir'."
        )
        by.store.save(update.advance(Phase.FAILED, reason=reason))
        raise SafeUpdateError(reason) from err
    except SafeUpdateError as err:
        by.store.save(update.advance(Phase.FAILED, reason=str(err)))
        raise


def update(by: Initiator, wanted: Resolved, *, jid: str = "", reason: str = "") -> Update:
    """
    Ask the supervisor for an update; return its record.

    The same request again is the same update. Another one takes the place of an update that
    has not begun to install. Requests of a master are numbered: an older one is refused.
    """
    lock = by.writing()
    try:
        last = by.latest()
        if last is not None and _is_same(last, wanted):
            return last
        with admitted(by):
            owed = None if last is None or last.phase.final else _supersede(by, last)
            record = by.new_record(
                "update",
                jid,
                reason,
                request=wanted.request,
                versions_to=dict(wanted.targets),
                owed=owed,
            )
            record = by.store.save(record)
    finally:
        lock.close()
    by.have_supervised(record)
    return record


def _is_same(last: Update, wanted: Resolved) -> bool:
    """Tell whether the record is of this very request. Raise InputError for an older one."""
    if last.request is None:
        return False
    serial, known = wanted.request.serial, last.request.serial
    if serial and serial < known:
        raise InputError(
            f"This request ({serial}) is older than update {last.id} ({known}), which is "
            f"{last.phase.value}. Nothing was changed."
        )
    same = last.request == wanted.request
    return same and (not last.phase.final or bool(serial and serial == known))


def _supersede(by: Initiator, last: Update) -> Owed | None:
    """Make place for a request; return the restart that is owed if that needs none."""
    if not last.may_be_cancelled:
        raise LockHeldError(by.busy())
    by.store.save(last.advance(Phase.CANCELLED, reason="A newer request takes its place."))
    return debt(last)


def cancel(by: Initiator) -> Update:
    """Call off an update or restart that has not begun, or is not activated; return its record."""
    lock = by.writing()
    try:
        last = by.latest()
        if last is None or last.phase.final:
            raise TransitionError("No update and no restart is under way; nothing was changed.")
        if last.awaits_boot and last.phase is Phase.WAITING_FOR_BOOT:
            # The former snapshot becomes the default again.
            reason = "cancelled before the reboot"
            record = by.store.save(last.advance(Phase.ROLLING_BACK, reason=reason))
        elif last.may_be_cancelled:
            return by.store.save(last.advance(Phase.CANCELLED, reason="cancelled"))
        else:
            raise TransitionError(
                f"Update {last.id} is {last.phase.value}: what has begun is brought to its "
                "end. Nothing was changed."
            )
    finally:
        lock.close()
    by.have_supervised(record)
    return record
