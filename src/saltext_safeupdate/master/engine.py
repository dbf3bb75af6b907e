"""The loop of the master's engine."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import InputError, RecordError
from . import account as accounts
from . import follower, hooks
from .account import Account, path_of
from .redelivery import Redelivery, seconds

log = logging.getLogger(__name__)

# Seconds for which notes gather before they are read.
_GATHER = 0.1


def _for_ever() -> None:
    threading.Event().wait()


def run(
    opts: Mapping[str, Any],
    window: object,
    *,
    wait_for_ever: Callable[[], object] = _for_ever,
) -> None:
    """Redeliver until the master ends. Where that is not safe, say so and do nothing."""
    account = Account(path_of(opts))
    reason = hooks.stood_down()
    look_back = 0.0
    try:
        look_back = seconds("window", window)
    except InputError as err:
        reason = reason or f"{err} Nothing is published again; correct the engine's options."
    if reason:
        log.error("safeupdate: %s", reason)
    _say(account, reason)
    if reason:
        # Salt would start an engine that ends again and again.
        wait_for_ever()
        return
    with Redelivery(opts, account) as work:
        following = follower.Follower(work, account, window=look_back)
        while True:
            following.heard(hooks.notes().read(follower.INTERVAL))
            following.tick()
            time.sleep(_GATHER)


def _say(account: Account, reason: str) -> None:
    """Tell the runner how this master stands, and clear what an earlier engine has left."""
    try:
        account.set_fact(accounts.STOOD_DOWN, reason)
        account.set_fact(accounts.ENGINE, "started")
        account.forget_tickets()
        account.anchor()
    except RecordError as err:
        log.error("safeupdate: %s", err)
