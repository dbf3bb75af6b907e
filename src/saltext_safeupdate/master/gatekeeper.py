"""Asks gates in other processes, because the engine must not wait for them."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import CommandError, InputError, one_line
from ..core.host import command
from ..core.host.command import Run
from ..fleet.actions import Check
from ..fleet.checkpoints import Verdict
from . import gate

log = logging.getLogger(__name__)

# Seconds that Salt takes to start a program, in addition to the function's.
_START = 60.0
Said = Callable[[Verdict], object]


def _beside(work: Callable[[], object]) -> None:
    threading.Thread(target=work, daemon=True).start()


class Gatekeeper:
    """
    Asks each gate of a rollout at most once at a time, in a process of its own.

    *opts* are the master's. *beside* does some work without waiting for it.
    """

    def __init__(
        self,
        opts: Mapping[str, Any],
        *,
        run: Run = command.run,
        beside: Callable[[Callable[[], object]], object] = _beside,
    ) -> None:
        self._opts = opts
        self._run = run
        self._beside = beside
        # The newest question to each gate that is being asked, by rollout and name.
        self._asked: dict[tuple[str, str], tuple[int, Said]] = {}
        self._lock = threading.Lock()

    def ask(self, rollout: str, check: Check, said: Said) -> None:
        """
        Ask a gate; *said* gets the answer, in another thread.

        If the gate is being asked already, it first answers that question, and is then asked again:
        an answer is as old as the beginning of the call.
        """
        key = (rollout, check.gate)
        with self._lock:
            at_work = key in self._asked
            self._asked[key] = (check.number, said)
        if not at_work:
            self._beside(lambda: self._work(key))

    def _work(self, key: tuple[str, str]) -> None:
        opens, why = False, "asking it has failed; the log of the master has more"
        with self._lock:
            number, said = self._asked[key]
        try:
            opens, why = self.answer(key[1])
        finally:
            with self._lock:
                again = self._asked[key][0] != number
                if not again:
                    del self._asked[key]
            log.info("safeupdate: the gate %s says %s: %s", key[1], "yes" if opens else "no", why)
            said(Verdict(key[1], number, opens, why))
            if again:
                self._beside(lambda: self._work(key))

    def answer(self, name: str) -> tuple[bool, str]:
        """Ask a gate and wait for it; return whether it says yes, and what it says."""
        try:
            timeout = gate.named(self._opts, name).timeout
            path = str(self._opts["conf_file"])
            # Isolated from the directory of the engine and its environment.
            argv = (sys.executable, "-I", "-m", gate.__name__, path, name)
            printed = self._run(argv, timeout=timeout + _START).stdout
            told = json.loads(printed)
            return told["yes"] is True, str(told["why"])
        except (CommandError, InputError) as err:
            return False, one_line(err)[: gate.LONGEST]
        except (ValueError, LookupError, TypeError) as err:
            return False, f"its answer makes no sense: {one_line(err)[: gate.LONGEST]}"
