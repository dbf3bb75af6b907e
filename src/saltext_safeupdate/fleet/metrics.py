"""
Rollouts and running versions, as metrics.

There are only gauges: collectors for the older Prometheus format refuse a file with a type that the
format does not have. There are no names of minions: each would be a series.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from . import adrift, inventory, standing
from .inventory import PLAIN, REPORT, SENSELESS, UNSUPPORTED, Record
from .rollout import Mode, Rollout, Step

METRIC = "salt_safeupdate_"
FIRST_METRIC = f"# HELP {METRIC}rollouts_unreadable "
# The number of versions with series of their own, because minions name the versions.
_MOST_VERSIONS = 50
_OTHER = "other"
# Why the running version of a minion is not known.
_UNHEARD = ("silent", PLAIN, SENSELESS, UNSUPPORTED)


def metrics(
    rollouts: Iterable[Rollout],
    unreadable: int,
    records: Mapping[str, Record],
    minions: Iterable[str],
    now: float,
) -> str:
    """
    Return the state of rollouts, and of the *minions* of a master, as OpenMetrics text.

    *records* are their newest answers, *unreadable* the number of rollouts that cannot be read.
    """
    lines = [
        _gauge("rollouts_unreadable", "Stored rollouts that cannot be read.", [("", unreadable)]),
        *_of_rollouts(list(rollouts)),
        *_of_minions([records.get(name) for name in sorted(set(minions))], now),
    ]
    return "".join([*lines, "# EOF\n"])


def _of_rollouts(listed: list[Rollout]) -> list[str]:
    steps = [
        (f'rollout="{_escaped(each.plan.id)}",step="{step.value}"', each.count(step))
        for each in listed
        for step in Step
    ]
    down = [(f'rollout="{_escaped(each.plan.id)}"', len(standing.down(each))) for each in listed]
    modes = [
        (f'rollout="{_escaped(each.plan.id)}",mode="{mode.value}"', int(each.mode is mode))
        for each in listed
        for mode in Mode
    ]
    looked = [(f'rollout="{_escaped(each.plan.id)}"', each.looked) for each in listed]
    return [
        _gauge("rollout_minions", "Minions by their step in the rollout.", steps),
        _gauge("rollout_down", "Minions that are or may be away.", down),
        _gauge("rollout_mode", "The mode of the rollout: 1 for the present one.", modes),
        _gauge("rollout_looked_seconds", "When the master has looked after it last.", looked),
    ]


def _of_minions(known: list[Record | None], now: float) -> list[str]:
    heard = [each for each in known if each is not None and not inventory.silent(each, now)]
    reports = [each for each in heard if each.answer == REPORT]
    most = Counter(each.running for each in reports).most_common(_MOST_VERSIONS)
    shown = {version for version, _ in most}
    runs = Counter(
        (each.running if each.running in shown else _OTHER, _phase(each)) for each in reports
    )
    unheard = Counter(each.answer for each in heard)
    unheard["silent"] = len(known) - len(heard)
    begun = [each.drifting for each in reports if each.drifting]
    codes = Counter(code for each in reports for code in adrift.codes(each))
    return [
        _gauge(
            "minions",
            "Minions by the version of Salt that runs, and the phase of their update.",
            [
                (f'version="{_escaped(version)}",phase="{_escaped(phase)}"', number)
                for (version, phase), number in sorted(runs.items())
            ],
        ),
        _gauge(
            "minions_unknown",
            "Minions whose running version is not known, and why.",
            [(f'why="{why}"', unheard[why]) for why in _UNHEARD],
        ),
        _gauge(
            "minions_adrift",
            "Minions whose running or installed version differs from the intended one.",
            [(f'code="{code}"', codes[code]) for code in adrift.CODES],
        ),
        _gauge(
            "drift_oldest_seconds",
            "For how long the oldest of these differences has been seen; 0 without any.",
            [("", round(max(now - min(begun), 0.0), 1) if begun else 0)],
        ),
    ]


def _phase(record: Record) -> str:
    """Return the present phase, or idle: a minion may say anything."""
    phase = record.phase or "idle"
    return phase if phase in inventory.QUIET or phase in _PHASES else _OTHER


_PHASES = frozenset(
    (
        *("requested", "checking", "staging", "waiting", "installing", "delivering", "repairing"),
        *("stepping", "waiting_for_boot", "restarting", "watching", "rolling_back"),
    )
)


def _gauge(name: str, meaning: str, samples: Iterable[tuple[str, float]]) -> str:
    name = f"{METRIC}{name}"
    lines = [f"# HELP {name} {meaning}", f"# TYPE {name} gauge"]
    lines += [
        f"{name}{{{labels}}} {value}" if labels else f"{name} {value}" for labels, value in samples
    ]
    return "".join(f"{line}\n" for line in lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
