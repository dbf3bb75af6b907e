"""The loop of the master's engine."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import salt.utils.event
import salt.utils.jid

from ..core.errors import InputError, LockUnavailableError, RecordError
from ..core.host import processes
from ..core.host.locks import Lock
from . import account as accounts
from . import follower, hooks, questions, rollouts, stocktaking
from .account import Account, path_of
from .calls import Call, Calls
from .gatekeeper import Gatekeeper
from .notes import Notes
from .questions import Asker, Questions
from .redelivery import REDELIVER, Redelivery, seconds
from .rollouts import Rollouts
from .store import Store

log = logging.getLogger(__name__)

# Seconds for which notes gather before they are read.
_GATHER = 0.1
# Seconds after which the account is read even if it does not seem to have changed: two changes in
# one tick of the kernel's clock look like one.
_LOOK_INTERVAL = 5.0
# Seconds that the engine of an earlier master may take to end.
_PATIENCE = 15.0
# Seconds between two looks for outcomes that nobody has fetched.
_TIDY_INTERVAL = 60.0
# Seconds between two tries to use an account that cannot be used.
_ACCOUNT_INTERVAL = 30.0
# Reads of the pipe with answers, one after the other.
_MOST_READS = 64


# The most seconds that it looks back: a job that comes later is not expected any more.
MOST_WINDOW = 900.0


def _for_ever() -> None:
    threading.Event().wait()


def run(
    opts: Mapping[str, Any],
    window: object,
    *,
    wait_for_ever: Callable[[], object] = _for_ever,
) -> None:
    """Serve until the master ends. If that is not safe, say so and do nothing."""
    account = Account(path_of(opts))
    reason = hooks.stood_down()
    look_back = 0.0
    try:
        look_back = min(seconds("window", window), MOST_WINDOW)
        if look_back != window:
            log.warning("safeupdate: 'window' of the engine is at most %g seconds", MOST_WINDOW)
    except InputError as err:
        reason = reason or f"{err} Nothing is published again; correct the engine's options."
    with alone(account):
        if reason:
            log.error("safeupdate: %s", reason)
        _say(account, reason)
        if reason:
            # Salt would restart an ended engine again and again.
            wait_for_ever()
            return
        _serve(opts, account, look_back)


def _serve(opts: Mapping[str, Any], account: Account, look_back: float) -> None:
    owner = owner_of(account, str(opts["id"]))
    with Redelivery(opts, account) as work:
        calls = Calls(account)
        following = follower.Follower(
            work,
            account,
            calls,
            window=look_back,
            patience=patience(opts),
            renewed=lambda: renew(account, owner),
        )
        asking = Questions(work.question, lambda: str(salt.utils.jid.gen_jid(dict(opts))))
        desk = Desk(asking, calls, hooks.answers())
        desk.orders[REDELIVER] = following.take
        driving = _rollouts(opts, owner, asking, desk)
        while True:
            pause = follower.INTERVAL if asking.idle else questions.PACE
            following.heard(hooks.notes().read(pause))
            following.tick()
            desk.tick()
            driving.tick()
            time.sleep(_GATHER)


def patience(opts: Mapping[str, Any]) -> float:
    """Return how many seconds Salt's clients give minions to say that they run a job."""
    wait = float(opts.get("gather_job_timeout") or 10)
    return wait + float(opts.get("syndic_wait") or 0) if opts.get("order_masters") else wait


def owner_of(
    account: Account, master: str, *, pause: Callable[[float], object] = time.sleep
) -> str:
    """Return the name of this master in rollouts, as soon as the account can be used."""
    while True:
        try:
            return rollouts.owner_of(account, master)
        except RecordError as err:
            # Salt would restart an ended engine again and again.
            log.error("safeupdate: nothing is published again yet, and rollouts wait: %s", err)
        pause(_ACCOUNT_INTERVAL)
        _say(account, "")


@contextlib.contextmanager
def alone(account: Account, patience: float = _PATIENCE) -> Iterator[None]:
    """
    Become the only engine of this account; wait for that as long as it takes.

    Without locks there may be several, each of which redelivers: the ledgers of the minions keep
    a job from running twice.
    """
    lock: Lock | None = None
    try:
        lock = Lock(os.path.dirname(account.path), "engine")
        if not lock.wait_exclusive(patience):
            log.error(
                "safeupdate: another engine 'safeupdate_redeliver' of this master runs: this one "
                "waits for its end, and does nothing. Name the engine once in 'engines', do not "
                "give two masters one 'cachedir', and restart the master."
            )
            lock.exclusive()
    except LockUnavailableError as err:
        log.error("safeupdate: this engine may not be the only one: %s", err)
    try:
        yield
    finally:
        if lock is not None:
            lock.close()


def _rollouts(opts: Mapping[str, Any], owner: str, asking: Questions, desk: Desk) -> Rollouts:
    """Return the driver of rollouts, and give it the orders about them."""
    bus = salt.utils.event.get_master_event(dict(opts), opts["sock_dir"], listen=False)
    made = Rollouts(
        Store(opts),
        asking,
        lambda tag, data: bus.fire_event(data, tag),
        owner,
        gates=Gatekeeper(opts),
        forget=lambda: stocktaking.forget(opts, None, deleted=True),
    )
    desk.orders |= dict.fromkeys(rollouts.ORDERS, made.take)
    return made


class Desk:
    """Carries out calls of runners, by questions to minions."""

    def __init__(
        self,
        asking: Questions,
        calls: Calls,
        answers: Notes,
        *,
        clock: Callable[[], float] = processes.since_boot,
    ) -> None:
        self._asking = asking
        self._calls = calls
        self._answers = answers
        self._clock = clock
        self._asker = Asker(asking, calls)
        # Other calls of runners, and the functions for them. These return the outcome, or None if
        # it comes later.
        self.orders: dict[str, Callable[[Call], dict[str, Any] | None]] = {}
        self._stamp: tuple[int, ...] = ()
        self._next = self._next_tidying = 0.0

    def tick(self) -> None:
        """Take answers of minions and calls of runners, and do the work that is due."""
        for _ in range(_MOST_READS):
            taken = self._answers.read(0)
            self._asking.heard(taken)
            if not taken:
                break
        try:
            for call in self._taken():
                self._do(call)
            self._asker.tick()
            self._tidy()
        except RecordError as err:
            log.error("safeupdate: %s", err)
        self._asking.tick()

    def _taken(self) -> list[Call]:
        now, stamp = self._clock(), self._calls.account.stamp()
        if stamp == self._stamp and now < self._next:
            return []
        taken = self._calls.take()
        # Later changes of the account are seen the next time.
        self._stamp, self._next = stamp, now + _LOOK_INTERVAL
        return taken

    def _tidy(self) -> None:
        now = self._clock()
        if now >= self._next_tidying:
            self._next_tidying = now + _TIDY_INTERVAL
            self._calls.account.expire()

    def _do(self, call: Call) -> None:
        if call.what == questions.ASK:
            self._asker.take(call)
        elif order := self.orders.get(call.what):
            outcome = order(call)
            if outcome is not None:
                self._calls.finish(call.number, outcome)
        else:
            self._calls.finish(call.number, {"error": f"This engine does not know {call.what!r}."})


def renew(account: Account, owner: str) -> None:
    """Write the facts about the engine into a new account: the old one was set aside."""
    _say(account, "")
    try:
        account.set_fact(rollouts.OWNER, owner)
    except RecordError as err:
        log.error("safeupdate: %s", err)


def _say(account: Account, reason: str) -> None:
    """Write the state of this master for runners, and remove the data of an earlier engine."""
    try:
        if reason:
            # Nobody writes down what ends jobs.
            account.lose()
        elif not account.is_whole():
            account.begin_anew()
        account.set_fact(accounts.STOOD_DOWN, reason)
        account.set_fact(accounts.ENGINE, "started")
        account.forget_tickets()
        account.anchor_anew()
    except RecordError as err:
        log.error("safeupdate: %s", err)
