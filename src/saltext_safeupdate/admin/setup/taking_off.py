"""What takes safeupdate off a minion: everything is as it was before it was set up."""

from __future__ import annotations

import os
from typing import Any

from ... import factory, hooks
from ...core.errors import LockHeldError, SafeUpdateError
from ...core.host import engine_at_rest, hidden, locks, processes
from ...core.jobs.ledger import Job, State
from ...core.record import owner
from ...core.record.facts import MADE
from ...core.supervisor import leaving
from ...minion import kept_returns, unrecorded
from ...this_host import Host
from .ours import Ours
from .set_up import minion_files

_UNCHANGED = "Nothing was changed."


class TakingOff:
    """
    Everything of ours on this host, and its removal.

    Raises SafeUpdateError if it cannot go now: an update is under way, a job would be lost, or
    somebody has set the minion up by hand.
    """

    def __init__(self, host: Host) -> None:
        hidden.refuse()
        self._host = host
        self._files = Ours(minion_files(host))
        if self._files.by_hand:
            raise SafeUpdateError(
                f"This minion is set up by hand, too: other files list 'safeupdate' in "
                f"{' and '.join(self._files.by_hand)}. {_UNCHANGED} Remove it there, then apply "
                "this again."
            )
        self._refuse_loss()
        self._refuse_slot()
        self._kept = leaving.kept(host.settings)
        # Seconds, so that not all minions restart at once.
        self.jitter = host.settings.restart_jitter

    def changes(self) -> dict[str, Any]:
        """Return the differences, by path, as a state reports them."""
        guard = self._host.stop_guard
        found = self._files.changes()
        if guard is not None and os.path.exists(guard.drop_in):
            found[guard.drop_in] = {"old": "stop guard", "new": ""}
        return found | {path: {"old": "safeupdate", "new": ""} for path in self._kept}

    @property
    def restarts(self) -> bool:
        """Whether the minion has to restart before everything can be removed."""
        return bool(self._files.path) or self._is_used()

    @property
    def stays(self) -> str:
        """Name the settings of others in our file."""
        listed = [f"{key} ({', '.join(names)})" for key, names in self._files.stays.items()]
        if not listed:
            return ""
        return f" {self._files.path} keeps what others have written there: {'; '.join(listed)}."

    def carry_out(self) -> str:
        """
        Take off what can go now, and have the rest go with the next restart if that is needed.

        Return what of it has to stay. Raises SafeUpdateError.
        """
        host, restarts = self._host, self.restarts
        if host.stop_guard is not None:
            host.stop_guard.remove()
        self._files.take_away()
        if not restarts:
            return self._leaving().take_away() if self._kept else ""
        stand_ins = self._files.stand_ins
        # From now on no missed job is reported to the master.
        host.ledger.record_no_more()
        leaving.ask(
            host.store,
            owner.config_file(host.opts),
            # The minion still asks our executor until then, and pip may remove it at once.
            files=[
                *unrecorded.paths(host.opts),
                *kept_returns.paths(host.opts),
                *kept_returns.damaged(host.opts),
                *(stand_ins.present() if stand_ins else ()),
            ],
            directories=[
                *(stand_ins.directories if stand_ins else ()),
                *(host.store.fact(MADE) or ()),
            ],
        )
        return ""

    def _leaving(self) -> leaving.Leaving:
        host = self._host
        return leaving.Leaving(settings=host.settings, store=host.store, owed=host.ledger.owed)

    def _is_used(self) -> bool:
        """Tell whether the minion, or a supervisor, uses the files that would be removed."""
        settings, store = self._host.settings, self._host.store
        if hooks.installed_by():
            return True
        if engine_at_rest.is_looked_after(settings.run_dir):
            return True
        used = [
            name
            for name in ("engine", "supervisor")
            if os.path.exists(os.path.join(settings.run_dir, f"{name}.lock"))
            and locks.held(settings.run_dir, name)
        ]
        last = store.latest() if store.exists() else None
        return bool(used) or (last is not None and not last.phase.final)

    def _refuse_slot(self) -> None:
        """Raise SafeUpdateError if the minion runs from a slot, which it could not leave."""
        slot = factory.active_slot(self._host)
        if slot is not None:
            raise SafeUpdateError(
                f"The minion runs from the slot {slot.ident}. {_UNCHANGED} Leave it with "
                "'safeupdate.rollback to=without_slot', then apply this again."
            )

    def _refuse_loss(self) -> None:
        store, ledger = self._host.store, self._host.ledger
        if not store.exists():
            return
        # Returns that are not stored yet have to be delivered like the others.
        kept_returns.bring_in(self._host.opts, ledger)
        last = store.latest()
        busy = last is not None and not last.phase.final
        if last is not None and busy and (last.kind == "update" or last.awaits_boot):
            raise LockHeldError(
                f"Update {last.id} is under way ({last.phase.value}). {_UNCHANGED} Wait for its "
                "end ('safeupdate.wait') or call it off ('safeupdate.cancel'); then apply it again."
            )
        waiting = [(job, why) for job in ledger.open() if (why := _why_it_waits(job))]
        if waiting:
            named = "; ".join(f"{job.jid} {job.fun} ({why})" for job, why in waiting[:5])
            more = f" and {len(waiting) - 5} more" * (len(waiting) > 5)
            raise LockHeldError(
                f"{len(waiting)} jobs would be lost: {named}{more}. {_UNCHANGED} They are brought "
                "to their end while the minion runs with safeupdate; then apply this again. "
                "'safeupdate.forget' gives a job up."
            )


def _why_it_waits(job: Job) -> str:
    """Return why nobody brings the job to its end but this extension; empty if its process does."""
    if job.state is State.HELD:
        return "held"
    if job.state is State.ACCEPTED:
        return "" if processes.alive(job.owner) else "interrupted"
    if processes.alive(job.runner):
        return ""
    return "its return is not delivered" if job.state is State.FINISHED else "interrupted"
