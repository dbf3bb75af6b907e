"""
The returners of a job, in addition to its master: from ``salt --return`` and from ``return`` of
the minion.

A job's own process gives its return to them, whether the master has it or not. If the engine
returns instead of a job, this module gives the return to them, once: with ``pub_ret: False`` it
reaches nobody else.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

log = logging.getLogger(__name__)


class Returners:
    """
    Gives returns to returners in a separate thread: some wait for a database that is away.

    *load* loads Salt's returners when one is needed for the first time: most minions have none.
    """

    def __init__(self, opts: Mapping[str, Any], load: Callable[[], Mapping[str, Any]]) -> None:
        self._opts = opts
        self._load = load
        self._given: queue.SimpleQueue[tuple[list[str], dict[str, Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def hand_over(self, call: Mapping[str, Any], load: Mapping[str, Any]) -> None:
        """Give *load*, the return of a job that was published as *call*, to its returners."""
        wanted = names(self._opts, call)
        if not wanted:
            return
        ret = {key: value for key, value in load.items() if key != "cmd"}
        ret |= {key: call[key] for key in ("ret_config", "ret_kwargs") if key in call}
        self._given.put((wanted, ret))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _work(self) -> None:
        returners = self._load()
        while True:
            wanted, ret = self._given.get()
            for name in wanted:
                try:
                    returners[f"{name}.returner"](dict(ret))
                except Exception:
                    # Each returner raises errors of its own, and none is a reason to end.
                    log.exception(
                        "safeupdate: the returner %s did not take the return of job %s",
                        name,
                        ret["jid"],
                    )


def names(opts: Mapping[str, Any], call: Mapping[str, Any]) -> list[str]:
    """Return the names of the returners of a job, as in ``Minion._thread_return`` of Salt."""
    given = [call.get("ret")]
    if not isinstance(call.get("fun"), list | tuple):
        given.append(opts.get("return"))
    texts = [text for text in given if isinstance(text, str)]
    return list(dict.fromkeys(name for text in texts for name in text.split(",") if name))
