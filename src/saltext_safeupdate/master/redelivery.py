"""Publishing queries, and publishing again under an old JID, as the user of the master."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import salt.client

from ..core.errors import InputError
from ..core.jobs import functions
from . import batches
from .account import QUESTION, TICKET, Account
from .calls import Calls, call

log = logging.getLogger(__name__)

# The call of runners to the engine.
REDELIVER = "redeliver"


class Redelivery:
    """Publishes by way of this master's request server. Use it as a context manager."""

    def __init__(self, opts: Mapping[str, Any], account: Account) -> None:
        self._opts = opts
        self._account = account
        self._client: Any = None

    def __enter__(self) -> Redelivery:
        self._client = salt.client.get_local_client(mopts=dict(self._opts))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.destroy()

    def ask(
        self, minions: Iterable[str], jids: Iterable[str], aims: Sequence[Mapping[str, Any]]
    ) -> str:
        """
        Ask minions which of these jobs they have, and which of the others are meant for them.

        *aims* are as :func:`.aiming.asked` returns them. Returns the JID of the query.
        """
        published = self._client.pub(
            *(sorted(minions), functions.QUERY, [sorted(jids), list(aims)]),
            tgt_type="list",
            nocache=True,
        )
        return str((published or {}).get("jid") or "")

    def question(self, jid: str, minions: Sequence[str], fun: str, arg: Sequence[Any]) -> None:
        """Publish a question of the engine under this JID."""
        # People look in the job cache for changes of minions. Questions every few seconds, which
        # only look at minions, should not fill it.
        looks = not functions.is_recorded(fun) and fun not in functions.CHANGING
        more = {QUESTION: True, **({"nocache": True} if looks else {})}
        self._client.pub(list(minions), fun, list(arg), tgt_type="list", jid=jid, **more)

    def waited_for(self, jid: str, minions: set[str]) -> set[str]:
        """Return the minions that no batch of the master has given up."""
        return batches.waited_for(self._opts, jid, minions)

    def publish(self, number: int, jid: str, minions: Iterable[str]) -> list[str]:
        """
        Publish a job again, under its JID, to these minions; return the ones that are there.

        The request server takes the publication from the account; this only gives it a ticket.
        """
        wanted = sorted(minions)
        ticket = self._account.ticket(number, wanted)
        published = self._client.pub(
            wanted, functions.QUERY, [[]], tgt_type="list", jid=jid, **{TICKET: ticket}
        )
        reached = sorted(set((published or {}).get("minions") or []).intersection(wanted))
        log.info("safeupdate: job %s was published again to %s", jid, ", ".join(reached) or "none")
        return reached


def redeliver(
    calls: Calls,
    minions: Iterable[str],
    timeout: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Let the engine of this master ask the minions, and return its report."""
    given = {"minions": list(minions), "timeout": timeout}
    report, _ = call(calls, REDELIVER, given, timeout, clock=clock, pause=pause)
    return report


def seconds(name: str, value: object) -> float:
    """Return a number of seconds, or raise InputError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise InputError(f"'{name}' must be a number of seconds above 0.")
    return float(value)
