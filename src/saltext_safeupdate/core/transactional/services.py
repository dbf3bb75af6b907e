"""
Restarts and reboots that a transaction asked for, done when they can work.

Inside, systemctl ignores them and reports success. If the transaction changed /etc only,
its change is live afterwards, and the services are restarted then. If a new snapshot waits
for the reboot, a restart would start the old code: the reboot does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..host.command import Run
from .programs.recorder import UNIT_VERBS

# Seconds that systemctl gets for one unit.
RESTART_TIMEOUT = 180.0
# The minion's own units: restarting them would end the job that does it.
OWN_UNITS = ("salt-minion", "venv-salt-minion")

_UNIT = re.compile(r"[A-Za-z0-9:_.@\\][A-Za-z0-9:_.@\\-]{0,254}")
_REBOOTS = ("kexec", "reboot", "soft-reboot")
# What Salt's service states say if no systemd runs.
_OFFLINE = "Running in OFFLINE mode"
_STATE_VERBS = {"running": "start", "dead": "stop"}


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What was asked for: ``(verb, unit)`` in order, a reboot, or something else."""

    units: Sequence[tuple[str, str]] = ()
    reboot: bool = False
    refused: Sequence[str] = ()


def read_wishes(recorded: Sequence[Mapping[str, Any]], value: object, *, test: bool) -> Wishes:
    """Gather what was recorded inside, and what the service states in *value* left undone."""
    units: dict[tuple[str, str], None] = {}
    refused: dict[str, None] = {}
    reboot = False
    for wish in recorded:
        action, names = wish["action"], wish.get("units", ())
        if action in UNIT_VERBS and isinstance(names, list):
            verb = "try-restart" if action == "condrestart" else action
            names = [name for name in names if isinstance(name, str) and _UNIT.fullmatch(name)]
            units.update({(verb, _short(name)): None for name in names})
        elif action in _REBOOTS:
            reboot = True
        else:
            refused[str(action)[:50]] = None
    if not test:
        for verb, name in _left_by_states(value):
            if not any(unit == name for _, unit in units):
                units[verb, name] = None
    return Wishes(units=tuple(units), reboot=reboot, refused=tuple(refused))


def _left_by_states(value: Any) -> list[tuple[str, str]]:
    if not is_state_result(value):
        return []
    found = []
    for tag, chunk in value.items():
        verb = _STATE_VERBS.get(tag.rpartition("_|-")[2])
        name = chunk.get("name") if isinstance(chunk, dict) else None
        if verb and tag.startswith("service_|-") and isinstance(name, str):
            left = _OFFLINE in str(chunk.get("comment")) and _UNIT.fullmatch(name)
            found += [(verb, _short(name))] if left else []
    return found


def is_state_result(value: Any) -> bool:
    """Tell whether *value* is what a state run returns."""
    return isinstance(value, dict) and bool(value) and all("_|-" in str(tag) for tag in value)


def _short(unit: str) -> str:
    return unit.removesuffix(".service")


@dataclass(kw_only=True)
class Settled:
    """What became of the wishes about services."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    at_reboot: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    own: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return what is not empty as plain data."""
        return {name: found for name, found in vars(self).items() if found}


def settle(wishes: Wishes, run: Run, *, failed: bool, live: bool) -> Settled:
    """Restart what can be restarted now; say what happens to the rest."""
    settled = Settled()
    for verb, unit in wishes.units:
        words = f"{verb} {unit}"
        if failed:
            settled.skipped.append(words)
        elif not live:
            settled.at_reboot.append(words)
        elif unit in OWN_UNITS:
            settled.own.append(words)
        else:
            result = run(("systemctl", verb, unit), timeout=RESTART_TIMEOUT, ok=None)
            if result.returncode == 0:
                settled.done.append(words)
            else:
                settled.failed[words] = (
                    result.stderr.strip()[-500:] or f"exit status {result.returncode}"
                )
    return settled
