"""What the main process of a minion has claimed while another one hears the same jobs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ..core.errors import SafeUpdateError
from ..core.generations.claims import Claims
from ..core.generations.table import Generations
from ..core.record.store import Store
from .complaints import Complaints

# Claims that are known here, too: those of the seconds by which one may lag behind the other.
_KNOWN = 1000
# Seconds in which the other one writes its claims down anew, once the database was lost.
_SETTLES = 5.0


class OwnClaims:
    """
    The claims of the process *me*, which outlive the loss of the database.

    Until the other process has written down its own again, nobody can tell whose a job is that it
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
        Tell whether it is this one's from now on; None if that cannot be written down.

        *again* is that of :meth:`Claims.claim`.
        """
        try:
            mine = self._claims.claim(name, self._me, again=again)
        except SafeUpdateError as err:
            self._complaints.log("who runs job %s cannot be written down", job, err)
            return None
        if mine:
            self._names.append(name)
        return mine

    def forget(self) -> None:
        """Forget those of long ago. Raises SafeUpdateError."""
        self._claims.forget()

    def renew(self) -> None:
        """Write those that are known here down again, as the database was lost."""
        try:
            self._claims.renew(self._names, self._me)
        except SafeUpdateError as err:
            self._complaints.tell(err)

    @property
    def settle(self) -> bool:
        """Whether the database was found to be lost a moment ago."""
        return self._lost_at is not None and self._monotonic() < self._lost_at + _SETTLES

    def are_unsettled(self) -> bool:
        """Look whether the database was lost a moment ago, and with it what the other one has."""
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
