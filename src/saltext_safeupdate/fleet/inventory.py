"""What runs where: the newest answer of every minion, the sums, and what has drifted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from .versions import same

# Seconds after which a minion that was not heard of counts as silent.
SILENT = 86400.0
# Characters and entries of an answer that are kept.
LONGEST, MOST = 500, 50


@dataclass(frozen=True, kw_only=True)
class Record:
    """
    What a minion has said of itself, in its authenticated answer to a question.

    running, installed, intended
        The version of Salt that runs, that the package manager knows, and that was asked for
        last.
    way
        How Salt was installed: the package manager, ``pip``, or ``unknown``.
    seen
        When it answered, in epoch seconds.
    """

    minion: str
    seen: float
    running: str = ""
    installed: str = ""
    intended: str = ""
    extension: str = ""
    extension_on_disk: str = ""
    build: str = ""
    phase: str = ""
    way: str = ""
    result: str = ""
    quarantined: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drift:
    """Something that is not as it should be, and what repairs it."""

    minion: str
    code: str
    problem: str
    fix: str
    repair: str = ""


def from_answer(minion: str, answer: object, now: float) -> Record | None:
    """Return the record that an answer means; None if it is none. Nothing of it is trusted."""
    if not isinstance(answer, Mapping):
        return None
    found: dict[str, Any] = {}
    for each in fields(Record):
        told = answer.get(each.name)
        if each.name in ("quarantined", "problems"):
            listed = told if isinstance(told, list | tuple) else ()
            found[each.name] = tuple(str(part)[:LONGEST] for part in listed[:MOST])
        else:
            found[each.name] = str(told or "")[:LONGEST]
    return Record(**{**found, "minion": minion, "seen": now})


def to_data(record: Record) -> dict[str, Any]:
    return asdict(record)


def from_data(data: object) -> Record:
    """Return the stored record; keys of other versions are left out. Raises ValueError."""
    known = data if isinstance(data, Mapping) else {}
    values: dict[str, Any] = {}
    for each in fields(Record):
        value = known.get(each.name, "" if each.name in ("minion", "seen") else each.default)
        if each.name in ("quarantined", "problems"):
            value = tuple(value) if isinstance(value, list | tuple) else None
            fits = value is not None and all(isinstance(part, str) for part in value)
        elif each.name == "seen":
            # What is not finite compares with nothing.
            fits = isinstance(value, int | float) and 0 <= value < math.inf
        else:
            fits = isinstance(value, str) and (each.name != "minion" or value != "")
        if not fits:
            raise ValueError(f"its '{each.name}' is {str(known.get(each.name))[:50]!r}")
        values[each.name] = value
    return Record(**values)


def roll_up(records: Iterable[Record], expected: Iterable[str], now: float) -> dict[str, Any]:
    """Return the sums over the *expected* minions: by version, by phase, the silent ones."""
    known = {record.minion: record for record in records}
    names = sorted(set(expected))
    heard = [known[name] for name in names if name in known and not silent(known[name], now)]
    versions = Counter(record.running or "unknown" for record in heard)
    results = Counter(record.result for record in heard if record.result)
    found = {
        "minions": len(names),
        "versions": dict(versions.most_common()),
        "results": dict(results.most_common()),
        "silent": len(names) - len(heard),
    }
    parts = [f"{n} of {len(names)} on {version}" for version, n in versions.most_common()]
    parts += [f"{n} {what.replace('_', ' ')}" for what, n in results.items() if what != "committed"]
    if found["silent"]:
        parts.append(f"{found['silent']} silent")
    return {"summary": ", ".join(parts) or "no minions", **found}


def silent(record: Record, now: float, after: float = SILENT) -> bool:
    return now - record.seen > after


def drift(record: Record | None, minion: str, master: str, now: float) -> list[Drift]:
    """Return what is not as it should be with one minion; *master* is its master's version."""
    if record is None:
        return [
            Drift(
                minion,
                "unknown",
                "Nothing is known of this minion.",
                "Ask it with 'salt-run safeupdate.versions', or remove its key.",
            )
        ]
    if silent(record, now):
        return [
            Drift(
                minion,
                "silent",
                f"It has not answered for {(now - record.seen) / 3600:.0f} hours.",
                "See whether the host runs; 'salt-run safeupdate.forget' drops its record.",
            )
        ]
    found = []
    if record.installed and record.running and not same(record.running, record.installed):
        found.append(
            Drift(
                minion,
                "not-restarted",
                f"{record.running} runs, {record.installed} is installed.",
                "Restart the minion with 'safeupdate.restart'.",
                "restart",
            )
        )
    if record.intended and record.installed and not same(record.intended, record.installed):
        found.append(
            Drift(
                minion,
                "not-as-intended",
                f"{record.installed} is installed, {record.intended} was asked for.",
                "Update it with a rollout, or by 'safeupdate.update'.",
                "update",
            )
        )
    if master and record.running and _key(record.running) > _key(master):
        found.append(
            Drift(
                minion,
                "newer-than-master",
                f"It runs {record.running}, its master {master}.",
                "Update the master first; Salt does not support newer minions.",
            )
        )
    if record.extension_on_disk and record.extension != record.extension_on_disk:
        found.append(
            Drift(
                minion,
                "extension-not-restarted",
                f"The extension {record.extension} runs, {record.extension_on_disk} is installed.",
                "Restart the minion with 'safeupdate.restart'.",
                "restart",
            )
        )
    found += [
        Drift(
            minion,
            "quarantined",
            f"{version} is in quarantine here.",
            "See 'safeupdate.revisions'; 'safeupdate.unquarantine' allows it again.",
        )
        for version in record.quarantined
    ]
    found += [
        Drift(minion, "set-up", problem, "See 'safeupdate.check' on the minion.")
        for problem in record.problems
    ]
    return found


def _key(version: str) -> tuple[int, ...]:
    digits = []
    for part in version.replace("-", ".").replace("+", ".").split("."):
        if not part.isdigit():
            break
        digits.append(int(part))
    return tuple(digits)
