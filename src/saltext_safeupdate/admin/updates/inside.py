"""
The functions and states of safeupdate inside a transaction.

The database, the locks and the service of the minion are hidden there. Functions that change the
snapshot run. Functions that concern the running minion are passed to it when the transaction is
closed. All others are refused (:class:`~saltext_safeupdate.this_host.Host`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from salt.exceptions import SaltException

from ...core.errors import SafeUpdateError
from ...core.host import hidden
from ...core.host.command import Run
from ...core.host.command import run as run_command
from ...core.jobs import functions as table
from ...core.jobs.stop_guard import StopGuard
from ...core.settings import Settings
from ...core.transactional import inside
from ...core.transactional.services import GUARD, RESTART
from ...this_host import settings_of
from . import steering, updated
from .updating import Functions

_UNITS = "/etc/systemd/system"
# Seconds that systemctl gets.
_TIMEOUT = 30.0

_LATER = "The request is passed to the running minion when the transaction is closed."
_NOBODY = (
    "Nobody is there who would do this after the transaction: it was not started by "
    "transactional_update.call, apply, sls, highstate or single. Nothing was done; use one of "
    "these, or call it outside."
)


def here() -> bool:
    """Tell whether this process runs inside a transaction."""
    return hidden.in_transaction(os.environ)


def asked(fun: str, **arguments: Any) -> dict[str, Any] | None:
    """
    Inside a transaction, have the running minion asked for *fun* afterwards; None outside.

    Raises SafeUpdateError if *fun* cannot be requested, or nobody would run it.
    """
    if not here():
        return None
    if not table.is_asked_after_transaction(fun):
        hidden.refuse()
    _ask({"action": fun, **arguments})
    return {"comment": _LATER}


def _ask(wish: Mapping[str, Any]) -> None:
    if not inside.ask(os.environ, wish):
        raise SafeUpdateError(_NOBODY)


def update_asked(
    low: Mapping[str, Any],
    version: Any,
    *,
    allow_downgrade: bool,
    test: bool,
    source: str | None = None,
) -> dict[str, Any]:
    """
    Have the running minion carry out the state ``safeupdate.updated`` afterwards.

    *low* is the state's data: the result appears under its ID. Raises SafeUpdateError if nobody
    would do it.
    """
    tag = "_|-".join(str(low.get(key, "")) for key in ("state", "__id__", "name", "fun"))
    asked(
        "safeupdate.update",
        state=tag,
        version=version,
        allow_downgrade=allow_downgrade,
        test=test,
        **({} if source is None else {"source": source}),
    )
    return {"result": None if test else True, "changes": {}, "comment": _LATER}


@dataclass(frozen=True)
class Snapshot:
    """The minion in the snapshot of a transaction, as far as it can be set up there."""

    opts: Mapping[str, Any]
    settings: Settings
    # Its drop-in only; a transactional system has systemd.
    stop_guard: StopGuard
    # It is hidden.
    store: None = None


def snapshot(opts: Mapping[str, Any], *, run: Run = run_command, units: str = _UNITS) -> Snapshot:
    """Return what is set up here. Raise SafeUpdateError if nobody would do the rest afterwards."""
    if not os.environ.get(inside.WISHES):
        raise SafeUpdateError(_NOBODY)
    settings = settings_of(opts)
    return Snapshot(opts, settings, _GuardPart(settings, program=False, run=run, units=units))


class _GuardPart(StopGuard):
    """The drop-in of the stop guard, which lies in the snapshot, or its program, which does not."""

    def __init__(self, settings: Settings, *, program: bool, run: Run, units: str = _UNITS) -> None:
        super().__init__(settings, run=run, units=units)
        self._is_program = program

    def wanted(self) -> dict[str, str]:
        found = super().wanted()
        return {path: found[path] for path in found if (path == self.program) is self._is_program}


def ask_for_guard() -> None:
    """Have the running minion look after the program of the stop guard. Raises SafeUpdateError."""
    _ask({"action": GUARD})


class RunningMinion:
    """Does what was asked for inside a transaction that is closed now."""

    def __init__(
        self, opts: Mapping[str, Any], functions: Functions, run: Run = run_command
    ) -> None:
        self._run = run
        self._opts = opts
        self._functions = functions

    def __call__(self, wish: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what the function answers. Raises SafeUpdateError."""
        action = wish["action"]
        try:
            if action == GUARD:
                return self._place_guard(live=bool(wish.get("live")))
            if not table.is_asked_after_transaction(action):
                raise SafeUpdateError(f"{str(action)[:50]} cannot be requested in a transaction.")
            if action == RESTART:
                return self._restart(f"{wish.get('reason')}, in a transaction")
            return self._update(wish)
        except SaltException as err:
            raise SafeUpdateError(str(err)) from err

    def _restart(self, reason: str) -> Mapping[str, Any]:
        if steering.restart_after_run(reason):
            return {"comment": "The minion restarts after this state run."}
        answer: Mapping[str, Any] = self._functions[RESTART](reason=reason)
        return answer

    def _update(self, wish: Mapping[str, Any]) -> Mapping[str, Any]:
        version, downgrade = wish.get("version"), bool(wish.get("allow_downgrade"))
        where = {"source": wish["source"]} if "source" in wish else {}
        if "state" in wish:
            return updated.updated(
                self._functions,
                version,
                allow_downgrade=downgrade,
                test=bool(wish.get("test")),
                **where,
            )
        answer: Mapping[str, Any] = self._functions["safeupdate.update"](
            version,
            when=wish.get("when", "idle"),
            allow_downgrade=downgrade,
            refresh=bool(wish.get("refresh", True)),
            **where,
        )
        return answer

    def _place_guard(self, *, live: bool) -> Mapping[str, Any]:
        """Write the program of the stop guard; its drop-in came with the transaction."""
        guard = _GuardPart(settings_of(self._opts), program=True, run=self._run)
        changed = guard.install()
        if live:
            self._run(("systemctl", "daemon-reload"), timeout=_TIMEOUT)
        return {"changed": changed}
