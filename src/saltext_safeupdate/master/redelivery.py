"""Publishing queries, and publishing again under an old JID, as the user of the master."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import salt.client

from ..core.errors import InputError, SafeUpdateError
from ..core.jobs import functions
from . import account as accounts
from . import questions
from .account import QUESTION, TICKET, Account

log = logging.getLogger(__name__)

# Seconds beyond its own timeout that the engine has to write its report.
_REPORT_TIMEOUT = 30.0


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
        # People look in the job cache for what was done to minions. What only looks at them, every
        # few seconds, is not worth a place there.
        looks = not functions.is_recorded(fun) and fun not in functions.CHANGING
        more = {QUESTION: True, **({"nocache": True} if looks else {})}
        self._client.pub(list(minions), fun, list(arg), tgt_type="list", jid=jid, **more)

    def publish(
        self, number: int, jid: str, minions: Iterable[str], times: Mapping[str, int]
    ) -> list[str]:
        """
        Publish a job again, under its JID, to these minions; return those that are there.

        The request server publishes what the account says; from here it only gets a ticket.
        """
        wanted = sorted(minions)
        ticket = self._account.ticket(number, wanted, times)
        published = self._client.pub(
            wanted, functions.QUERY, [[]], tgt_type="list", jid=jid, **{TICKET: ticket}
        )
        reached = sorted(set((published or {}).get("minions") or []).intersection(wanted))
        log.info("safeupdate: job %s was published again to %s", jid, ", ".join(reached) or "none")
        return reached


def redeliver(
    account: Account,
    minions: Iterable[str],
    timeout: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Have the engine of this master ask the minions, and return its report."""
    reason = account.fact(accounts.STOOD_DOWN)
    if reason:
        raise SafeUpdateError(reason)
    if not account.fact(accounts.ENGINE):
        raise SafeUpdateError(
            f"There is no account of what this master has published ({account.path}), so nothing "
            "is published again. Run 'salt-run safeupdate.setup', which adds the engine "
            "'safeupdate_redeliver', and restart the master."
        )
    number = account.ask(minions, timeout)
    try:
        began, ran = clock(), False
        while True:
            state, report = account.outcome(number)
            if state == "done":
                return report
            passed = clock() - began
            gone = questions.engine_is_gone(account)
            # One that has no lock was never seen to run, and may well do so.
            ran = ran or not gone
            if state is None or (state and gone and ran):
                raise SafeUpdateError(
                    "The engine 'safeupdate_redeliver' has ended or was started anew meanwhile. "
                    "What it has published again is in the log of the master; ask again."
                )
            if not state and gone and passed > questions.GONE_TIMEOUT:
                raise SafeUpdateError(
                    "The engine 'safeupdate_redeliver' of this master does not run, and nothing "
                    "was published again. See whether salt-master runs, and what its log says of "
                    "the engine."
                )
            if not state and passed > questions.TAKEN_TIMEOUT:
                raise SafeUpdateError(
                    "The engine 'safeupdate_redeliver' does not answer, and nothing was published "
                    "again. Is the master running, and does its log tell of the engine?"
                )
            if passed > timeout + questions.TAKEN_TIMEOUT + _REPORT_TIMEOUT:
                raise SafeUpdateError(
                    "The engine 'safeupdate_redeliver' has not finished in time. What it has "
                    "published again is in the log of the master."
                )
            pause(questions.LOOK_INTERVAL)
    finally:
        account.withdraw(number)


def seconds(name: str, value: object) -> float:
    """Return a number of seconds, or raise InputError."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
        raise InputError(f"'{name}' must be a number of seconds above 0.")
    return float(value)
