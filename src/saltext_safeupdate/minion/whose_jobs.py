"""
Which minion runs a job while two generations receive and schedule the same jobs.

One of them claims each job. If that is not clear yet, a later check decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ..core.generations.generation import Standing
from ..core.generations.table import Generations
from ..core.record.store import Store
from . import publication
from .complaints import Complaints
from .former_ones import FormerOnes
from .next_one import NextOne
from .own_claims import OwnClaims
from .trial import Trial


class WhoseJobs:
    """Decides for one main process which jobs it starts, by its standing."""

    claims: OwnClaims
    next: NextOne

    def __init__(
        self,
        store: Store,
        complaints: Complaints,
        monotonic: Callable[[], float],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._complaints = complaints
        self._monotonic = monotonic
        self._generations = Generations(store)
        self._former = FormerOnes(self._generations, complaints, monotonic, clock)
        self._trial = Trial(store, complaints, monotonic)
        self.standing = Standing.SERVING
        self._me = ""
        self.waiting: list[tuple[Any, dict[str, Any]]] = []

    def begin(self, me: str, names: Mapping[str, str], port: int) -> None:
        """
        Note the identity of this process, and the *names* by which its event sockets are found.

        *port* is the port on which it asks its master.
        """
        self._me = me
        self.claims = OwnClaims(self._store, self._complaints, self._monotonic, me)
        self.next = NextOne(self._generations, self._complaints, self._monotonic, names, port)

    def is_mine(self, minion: Any, data: dict[str, Any]) -> bool:
        """Tell whether this generation starts a published job."""
        if self.standing is Standing.LEAVING:
            return False
        if self.standing is Standing.SERVING and not self._has_former():
            return True
        name = publication.heard(data)
        if not name:
            return True
        if self._is_put_off(minion, data):
            return False
        return self._claim(name, str(data.get("jid")), again=not publication.name(data))

    def starts(self, due: str, at: float) -> bool:
        """
        Tell whether this generation starts a job of its schedule.

        *due* is the job with its time, if both minions know that time, and *at* is the time in
        epoch seconds; the job may start long after it (``splay``). Empty and 0.0: the job runs
        periodically.
        """
        if self.is_on_trial:
            return False
        if not self._me or self.standing is Standing.LEAVING:
            return not self._me
        if self.standing is Standing.SERVING and not (
            self._has_former() or self._former.may_have_run(at)
        ):
            return True
        if due:
            return self._claim(due, due)
        return self._goes_on

    def _claim(self, name: str, job: str, *, again: bool = False) -> bool:
        mine = self.claims.claim(name, job, again=again)
        # If the claim cannot be recorded, the minion that continues runs the job.
        return self._goes_on if mine is None else mine

    @property
    def _goes_on(self) -> bool:
        """Whether this minion continues: there is no other one, or the other one leaves."""
        alone = self.standing is Standing.SERVING or not self.next.is_there
        return alone or self.serves_on

    def _is_put_off(self, minion: Any, data: dict[str, Any]) -> bool:
        """Keep a job if it is not clear yet which minion runs it; tell whether that is so."""
        if self.standing is Standing.OVERLAPPING and self.is_unannounced():
            # It will be clear in a moment whether the next minion claims its jobs.
            self.waiting.append((minion, data))
            return True
        if self._trial.insists:
            return False
        if self._leaves_jobs or (self._is_shared and self.claims.are_unsettled()):
            self._trial.leave(minion, data)
            return True
        return False

    def _has_former(self) -> bool:
        """Tell whether the former minion takes jobs, or did so a moment ago."""
        if self._former.are_found():
            self._trial.look()
        return self._former.may_run_the_same()

    @property
    def serves_on(self) -> bool:
        """Whether this minion takes all jobs, because the next one may not work."""
        known = self._me in self._trial.before
        return self._trial.goes_on and known and self.standing is Standing.OVERLAPPING

    @property
    def is_on_trial(self) -> bool:
        """Whether the former minion takes all jobs, because this one may not work."""
        # It may be asked before anything else is done.
        return self.standing is Standing.SERVING and self._has_former() and self._leaves_jobs

    @property
    def _leaves_jobs(self) -> bool:
        """Whether this is an unproven minion of the new version, also after its own handover."""
        unproven = self._trial.goes_on and self._me not in self._trial.before
        return unproven and self._former.are_there

    @property
    def _is_shared(self) -> bool:
        """Whether another minion may have begun the jobs that this one receives."""
        return self.standing is Standing.SERVING or self.next.is_there

    def is_unannounced(self) -> bool:
        """Tell whether the next minion may receive jobs, and does not claim its jobs yet."""
        return self.next.is_unannounced(self._me, serves_on=self.serves_on)

    def look(self) -> None:
        """Check which minions are there, and whether an update is on trial."""
        if self.standing is Standing.SERVING:
            # Its queues belong to the former minion, also if no job is published for a while.
            self._has_former()
        if self.standing is Standing.OVERLAPPING or self._former.are_there:
            self._trial.look()
        self._former.look()

    def start_left(self) -> None:
        """Start the jobs that were left to another minion which has not claimed them in time."""
        self._trial.start_left(leaves=self._leaves_jobs or self.claims.settle)

    def names_of_waiting(self) -> list[str]:
        """Return the JIDs of the jobs that wait, or the functions of those that have none."""
        return [str(data.get("jid") or data.get("fun")) for _, data in self.waiting]

    def start_waiting(self) -> None:
        """Start the jobs that have waited, if the next minion has not claimed them."""
        waiting, self.waiting = self.waiting, []
        for minion, data in waiting:
            minion._invoke_execution(data)

    def take_no_more(self) -> None:
        """Leave all jobs to the next minion from now on, also the ones that wait."""
        self.standing, self.waiting = Standing.LEAVING, []
