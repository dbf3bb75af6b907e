"""
Let the acknowledgement of the master reach the process of the job.

A job's process sends its return through the minion's main process, which passes the
master's answer back as an event. In Salt 3007 (seen in 3007.15) that event is never
sent: ``SaltEvent.fire_event_async`` drops the coroutine that would send it. Every job
then waits until its time is up, and considers a return lost that has arrived.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import Callable
from typing import Any

from ..patches import tell

log = logging.getLogger(__name__)


def waiting_for_what_it_sends(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``fire_event_async``, changed so that it waits for what it sends if necessary."""
    if not inspect.iscoroutinefunction(original):
        return original

    @functools.wraps(original)
    async def fire_event_async(self: Any, data: Any, tag: Any, *args: Any, **kwargs: Any) -> Any:
        sending: list[asyncio.Future[Any]] = []
        if _sends_by_a_pusher(self):
            publish = self.pusher.publish

            def publish_and_note(message: Any) -> Any:
                result = publish(message)
                if inspect.isawaitable(result):
                    # A task may be awaited twice, by the original and by us.
                    result = asyncio.ensure_future(result)
                    sending.append(result)
                return result

            self.pusher.publish = publish_and_note
            try:
                value = await original(self, data, tag, *args, **kwargs)
            finally:
                self.pusher.publish = publish
        else:
            value = await original(self, data, tag, *args, **kwargs)
        # A failure there has always gone unnoticed, and the event is Salt's.
        for failed in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(failed, Exception):
                log.error("An event of the minion was not sent: %s", failed)
        return value

    return fire_event_async


def _sends_by_a_pusher(event: Any) -> bool:
    try:
        return bool(
            not event._run_io_loop_sync and event.connect_pull() and callable(event.pusher.publish)
        )
    except Exception as err:  # noqa: BLE001 (it is told)
        tell("fire_event_async", err)
        return False
