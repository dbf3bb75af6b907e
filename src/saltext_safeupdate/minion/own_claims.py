"""Claims of the main process of a minion while another one receives the same jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..core.errors import SafeUpdateError
from ..core.generations.claims import Claims
from ..core.generations.table import Generations
from ..core.record.store import Store
from .complaints import Complaints

# Claims that are also stored here: enough for the seconds by which one may lag behind the other.
_KNOWN = 1000
# Seconds in which the other minion writes its claims again after the database was lost.
_SETTLES = 5.0


class OwnClaims:
    """
    The claims of the process *me*, which outlive the loss of the database.

    Until the other process has written its own claims again, it is unknown whose a job is that it
    may have begun.
    """

    def __init__(
        self, store: Store, complaints: Complaints, monotonic: Callable[[], float], me: str
    ) -> None:
        self._claims = Claims(store)
        self._generations = Generations(store)
        self._complaints = complaints
        self._monotonic = monotonic
        self._me = me
        self._names: deque[str] = deque(maxlen=_KNOWN)
        self._was_known = False
        self._lost_at: float | None = None

    def claim(self, name: str, job: str, *, again: bool = False) -> bool | None:
        """
        Claim a job; tell whether it is this minion's, None if the claim cannot be recorded.

        *again* is the argument of :meth:`Claims.claim`.
        """
        try:
            mine = self._claims.claim(name, self._me, again=again)
        except SafeUpdateError as err:
            self._complaints.log("which minion runs job %s cannot be recorded", job, err)
            return None
        if mine:
            self._names.append(name)
        return mine

    def forget(self) -> None:
        """Delete old claims. Raise SafeUpdateError."""
        self._claims.forget()

    def renew(self) -> None:
        """Write the claims that are stored here again, because the database was lost."""
        try:
            self._claims.renew(self._names, self._me)
        except SafeUpdateError as err:
            self._complaints.tell(err)

    @property
    def settle(self) -> bool:
        """Whether the database was found to be lost a moment ago."""
        return self._lost_at is not None and self._monotonic() < self._lost_at + _SETTLES

    def are_unsettled(self) -> bool:
        """Check whether the database was lost a moment ago, with the claims of the other minion."""
        if self._lost_at is None and self._is_lost():
            self._lost_at = self._monotonic()
            self.renew()
        return self.settle

    def _is_lost(self) -> bool:
        try:
            known = self._generations.of(self._me) is not None
        except SafeUpdateError as err:
            self._complaints.tell(err)
            return False
        self._was_known = self._was_known or known
        return self._was_known and not known
