"""
Restarts, reboots and updates that a transaction asked for, done when they can work.

Inside, systemctl ignores them and reports success. If the transaction changed /etc only,
its change is live afterwards, and the services are restarted then. If a new snapshot waits
for the reboot, a restart would start the old code: the reboot does it. What concerns the
minion itself is asked of the one that runs: inside, its database and its locks are hidden.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import SafeUpdateError
from ..host.command import Run
from .programs.recorder import UNIT_VERBS

# Seconds that systemctl gets for one unit.
RESTART_TIMEOUT = 180.0
# The minion's own units: stopping them would end the job that does it.
OWN_UNITS = ("salt-minion", "venv-salt-minion")
# Requests to the running minion begin like this.
MINION = "safeupdate."
RESTART = "safeupdate.restart"
# The program of the stop guard, which lies outside of the snapshots.
GUARD = "safeupdate.guard"

_BY_REBOOT = "The minion restarts with the reboot that the new snapshot waits for."

# Asks the running minion for a wish; returns its answer. Raises SafeUpdateError.
Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_UNIT = re.compile(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]{0,254}")
_REBOOTS = ("kexec", "reboot", "soft-reboot")
# The comments of Salt's service states if no systemd runs.
OFFLINE = "Running in OFFLINE mode"
# Says whether the boot starts a unit.
AT_BOOT = "boot"
_NOT_BY_BOOT = {
    True: "the boot into the new snapshot starts it again, as it is enabled. "
    "Set 'enable: false' in the state",
    False: "the boot into the new snapshot does not start it, as it is not enabled. "
    "Set 'enable: true' in the state",
}
_STATE_VERBS = {"running": "start", "dead": "stop"}
# The states of systemd for a unit that needs no start, or no stop.
_AS_WANTED = {"start": "active", "stop": "inactive"}


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """
    What was asked for: ``(verb, unit)`` in order, a reboot, or something else.

    *minion* is what the running minion is asked for: ``action``, and the arguments. ``state``
    is the tag of the state that asks, if it is a state. *enabled* says which units the boot into
    the new snapshot starts, as far as that is known.
    """

    units: Sequence[tuple[str, str]] = ()
    reboot: bool = False
    refused: Sequence[str] = ()
    minion: Sequence[Mapping[str, Any]] = ()
    enabled: Mapping[str, bool] = field(default_factory=dict)


def read_wishes(recorded: Sequence[Mapping[str, Any]], value: object, *, test: bool) -> Wishes:
    """Gather what was recorded inside, and what the service states in *value* left undone."""
    units: dict[tuple[str, str], None] = {}
    refused: dict[str, None] = {}
    enabled: dict[str, bool] = {}
    minion = []
    reboot = False
    for wish in recorded:
        action, names = wish["action"], wish.get("units", ())
        if action == AT_BOOT and isinstance(names, list):
            enabled.update({_short(str(name)): bool(wish.get("enabled")) for name in names})
        elif action in UNIT_VERBS and isinstance(names, list):
            verb = "try-restart" if action == "condrestart" else action
            names = [name for name in names if isinstance(name, str) and _UNIT.fullmatch(name)]
            units.update({(verb, _short(name)): None for name in names})
        elif action in _REBOOTS:
            reboot = True
        elif action.startswith(MINION):
            minion.append(wish)
        else:
            refused[str(action)[:50]] = None
    if not test:
        for verb, name in _left_by_states(value):
            if not any(unit == name for _, unit in units):
                units[verb, name] = None
    return Wishes(
        units=tuple(units),
        reboot=reboot,
        refused=tuple(refused),
        minion=tuple(minion),
        enabled=enabled,
    )


def _left_by_states(value: Any) -> list[tuple[str, str]]:
    if not is_state_result(value):
        return []
    found = []
    for tag, chunk in value.items():
        verb = _STATE_VERBS.get(tag.rpartition("_|-")[2])
        name = chunk.get("name") if isinstance(chunk, dict) else None
        if verb and tag.startswith("service_|-") and isinstance(name, str):
            left = OFFLINE in str(chunk.get("comment")) and _UNIT.fullmatch(name)
            found += [(verb, _short(name))] if left else []
    return found


def is_state_result(value: Any) -> bool:
    """Tell whether *value* is what a state run returns."""
    return isinstance(value, dict) and bool(value) and all("_|-" in str(tag) for tag in value)


def _short(unit: str) -> str:
    return unit.removesuffix(".service")


@dataclass(kw_only=True)
class Settled:
    """
    The results of the wishes.

    *not_done* says why a unit will not be as asked for, now or after the boot.
    *states* has what the result of a state becomes, by its tag, *answers* what the running
    minion answered to a function.
    """

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    at_reboot: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    deferred: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)
    not_done: dict[str, str] = field(default_factory=dict)
    states: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return what is not empty as plain data."""
        return {name: found for name, found in vars(self).items() if found}


class Settling:
    """Does what can be done now; says what happens to the rest."""

    def __init__(self, run: Run, ask: Ask, *, failed: bool, live: bool) -> None:
        self._run = run
        self._ask = ask
        self._failed = failed
        self._live = live
        self._reloaded = False
        self._settled = Settled()

    def __call__(self, wishes: Wishes) -> Settled:
        """Settle *wishes*, the minion's own last."""
        for verb, unit in wishes.units:
            self._settle_unit(verb, unit, wishes.enabled.get(unit))
        for wish in wishes.minion:
            if wish["action"] == RESTART:
                self._restart_minion("the minion", str(wish.get("reason", ""))[:200])
            else:
                self._settle_minion(wish)
        return self._settled

    def _settle_unit(self, verb: str, unit: str, enabled: bool | None) -> None:
        words = f"{verb} {unit}"
        if unit in OWN_UNITS and verb == "stop":
            self._settled.own.append(words)
        elif unit in OWN_UNITS and verb != "start":
            self._restart_minion(words, words)
        elif enabled is (verb == "stop") and not (self._failed or self._live):
            self._settled.not_done[words] = _NOT_BY_BOOT[enabled]
        elif self._postponed(words):
            return
        else:
            self._systemctl(words, verb, unit)

    def _postponed(self, words: str) -> bool:
        """Tell whether it cannot be done now, and note what happens to it."""
        if self._failed:
            self._settled.skipped.append(words)
        elif not self._live:
            self._settled.at_reboot.append(words)
        return self._failed or not self._live

    def _systemctl(self, words: str, verb: str, unit: str) -> None:
        if not self._reloaded:
            # The unit itself may have come with the transaction.
            self._run(("systemctl", "daemon-reload"), timeout=RESTART_TIMEOUT, ok=None)
            self._reloaded = True
        if verb in _AS_WANTED and self._active(unit) == _AS_WANTED[verb]:
            return
        result = self._run(("systemctl", verb, unit), timeout=RESTART_TIMEOUT, ok=None)
        if result.returncode == 0:
            self._settled.done.append(words)
        else:
            self._settled.failed[words] = (
                result.stderr.strip()[-500:] or f"exit status {result.returncode}"
            )

    def _active(self, unit: str) -> str:
        found = self._run(("systemctl", "is-active", unit), timeout=RESTART_TIMEOUT, ok=None)
        return found.stdout.strip()

    def _restart_minion(self, words: str, reason: str) -> None:
        if self._postponed(words):
            if not self._failed:
                self._settled.answers[RESTART] = {"comment": _BY_REBOOT}
            return
        try:
            if RESTART not in self._settled.answers:
                self._settled.answers[RESTART] = self._ask({"action": RESTART, "reason": reason})
        except SafeUpdateError as err:
            self._settled.failed[words] = str(err)
        else:
            self._settled.deferred.append(words)

    def _settle_minion(self, wish: Mapping[str, Any]) -> None:
        action, tag = str(wish["action"]), wish.get("state")
        if self._failed:
            answer: Mapping[str, Any] = {
                "result": False,
                "changes": {},
                "comment": "Not asked for: the transaction failed, and nothing of it is in effect.",
            }
            if not tag and action != GUARD:
                self._settled.skipped.append(action)
        else:
            try:
                answer = self._ask({**wish, "live": self._live})
            except SafeUpdateError as err:
                self._settled.failed[action] = str(err)
                return
        if tag:
            self._settled.states[str(tag)] = answer
        else:
            self._settled.answers[action] = answer


def settle(wishes: Wishes, run: Run, ask: Ask, *, failed: bool, live: bool) -> Settled:
    """Do what can be done now; say what happens to the rest."""
    return Settling(run, ask, failed=failed, live=live)(wishes)
