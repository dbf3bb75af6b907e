"""The inventory: the newest answer of every minion, the sums, and the drift."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .versions import same

# Seconds without an answer after which a minion counts as silent.
SILENT = 86400.0
# Characters and entries of an answer that are kept.
LONGEST, MOST = 500, 50
SCHEMA = 1
# Kinds of answers: a report; that the minion does not have the function, yet or at all; or
# something else.
REPORT, PLAIN, SENSELESS, UNSUPPORTED = "report", "plain", "senseless", "unsupported"
ANSWERS = (REPORT, PLAIN, SENSELESS, UNSUPPORTED)
# Results of an update, and phases in which nothing is under way.
RESULTS = ("committed", "rolled_back", "failed", "postponed", "cancelled")
QUIET = ("", "idle", "unknown", *RESULTS)
_UNHEARD = {
    PLAIN: "without the extension",
    SENSELESS: "with a senseless answer",
    UNSUPPORTED: "unsupported",
    "silent": "silent",
}
_REPAIRED = {"done": "repaired", "failed": "not repaired", "left": "left alone"}
# Versions that the sums name.
_SHOWN = 5
# Salt's messages about a function that a minion does not have.
_NO_FUNCTION = ("is not available", "__virtual__ returned False")


@dataclass(frozen=True, kw_only=True)
class Record:
    """
    The data of a minion about itself, from its authenticated answer to a question.

    answer
        The kind of the answer: ``report``, ``plain`` (it has no such function: the extension is
        missing, or too old), ``unsupported`` (it can never have it), or ``senseless`` (an error, or
        no report). Only a report says more; for the others, *problems* has the text.
    running, installed, intended
        The version of Salt that runs, that the package manager knows, and that was requested
        last.
    way
        How Salt was installed: the package manager, ``pip``, or ``unknown``.
    held
        Why rollouts leave it alone, by its own settings; empty if they do not.
    seen, drifting
        When it answered, and since when this master has seen it differ (0 if it does not), in
        epoch seconds.
    """

    minion: str
    seen: float
    answer: str = REPORT
    running: str = ""
    installed: str = ""
    intended: str = ""
    extension: str = ""
    extension_on_disk: str = ""
    build: str = ""
    phase: str = ""
    way: str = ""
    last_result: str = ""
    held: str = ""
    quarantined: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    drifting: float = 0.0


_FIELDS = fields(Record)
_NAMES = tuple(each.name for each in _FIELDS)


@dataclass(frozen=True)
class Drift:
    """Something that is not as it should be, and its repair."""

    minion: str
    code: str
    problem: str
    fix: str
    repair: str = ""


def is_lacking(answer: object) -> bool:
    """Return whether Salt answered that the minion does not have the function."""
    return isinstance(answer, str) and any(words in answer for words in _NO_FUNCTION)


def from_answer(minion: str, answer: object, now: float, unsupported: str = "") -> Record:
    """
    Return the record of an answer. No part of it is trusted.

    *unsupported* is why a minion without the function can never have it.
    """
    if not isinstance(answer, Mapping):
        what = str(answer)[:LONGEST] if isinstance(answer, str) else type(answer).__name__
        kind = PLAIN if is_lacking(answer) else SENSELESS
        if kind == PLAIN and unsupported:
            kind, what = UNSUPPORTED, unsupported
        return Record(minion=minion, seen=now, answer=kind, problems=(text(what),))
    if not isinstance(answer.get("running"), str) or not answer["running"]:
        why = ("it does not say what it runs",)
        return Record(minion=minion, seen=now, answer=SENSELESS, problems=why)
    found: dict[str, Any] = {}
    for each in _FIELDS:
        told = answer.get(each.name)
        if each.name in ("quarantined", "problems"):
            listed = told if isinstance(told, list | tuple) else ()
            found[each.name] = tuple(text(part) for part in listed[:MOST])
        else:
            found[each.name] = text(told)
    return Record(**{**found, "minion": minion, "seen": now, "answer": REPORT, "drifting": 0.0})


def text(told: object) -> str:
    """Return one line of visible characters; a terminal would obey others."""
    if isinstance(told, str) and len(told) <= LONGEST and told.isprintable():
        return told
    text = " ".join(told[: 4 * LONGEST].split()) if isinstance(told, str) else ""
    return "".join(char if char.isprintable() else "?" for char in text)[:LONGEST]


def to_data(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _NAMES}


def from_data(data: object) -> Record:
    """Return the stored record; keys of other versions are left out. Raises ValueError."""
    known = data if isinstance(data, Mapping) else {}
    values: dict[str, Any] = {}
    for each in _FIELDS:
        value = known.get(each.name, "" if each.name in ("minion", "seen") else each.default)
        if each.name in ("quarantined", "problems"):
            value = tuple(value) if isinstance(value, list | tuple) else None
            fits = value is not None and all(isinstance(part, str) for part in value)
        elif each.name in ("seen", "drifting"):
            # Nothing can be compared with a number that is not finite.
            fits = isinstance(value, int | float) and 0 <= value < math.inf
        else:
            fits = isinstance(value, str) and (each.name != "minion" or value != "")
            fits = fits and (each.name != "answer" or value in ANSWERS)
        if not fits:
            raise ValueError(f"its '{each.name}' is {str(known.get(each.name))[:50]!r}")
        values[each.name] = value
    return Record(**values)


def roll_up(
    records: Iterable[Record],
    expected: Iterable[str],
    now: float,
    heard: Container[str] | None = None,
) -> dict[str, Any]:
    """
    Return the sums over the *expected* minions.

    *heard* are the minions that have just answered; if it is None, a minion is silent if its
    answer is too old.
    """
    known = {record.minion: record for record in records}
    names = sorted(set(expected))
    there = [known[n] for n in names if n in known and not silent(known[n], now, heard)]
    reports = [record for record in there if record.answer == REPORT]
    versions = Counter(record.running for record in reports)
    phases = _sorted(Counter(r.phase for r in reports if r.phase not in QUIET))
    results = _sorted(Counter(r.last_result for r in reports if r.last_result in RESULTS))
    by_version = _sorted(versions)
    unheard = {
        PLAIN: sum(record.answer == PLAIN for record in there),
        SENSELESS: sum(record.answer == SENSELESS for record in there),
        UNSUPPORTED: sum(record.answer == UNSUPPORTED for record in there),
        "silent": len(names) - len(there),
    }
    shown = list(by_version.items())[:_SHOWN]
    parts = [f"{n} of {len(names)} on {version}" for version, n in shown]
    if rest := len(reports) - sum(n for _, n in shown):
        parts.append(f"{rest} on {len(versions) - len(shown)} other versions")
    if busy := sum(phases.values()):
        parts.append(f"{busy} under way")
    parts += [f"{n} {what.replace('_', ' ')}" for what, n in results.items() if what != "committed"]
    parts += [f"{n} {_UNHEARD[what]}" for what, n in unheard.items() if n]
    return {
        "summary": ", ".join(parts) or "no minions",
        "minions": len(names),
        "versions": by_version,
        "extensions": _sorted(Counter(record.extension or "unknown" for record in reports)),
        "phases": phases,
        "results": results,
        **unheard,
    }


def _sorted(counted: Counter[str]) -> dict[str, int]:
    return dict(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))


def silent(record: Record, now: float, heard: Container[str] | None = None) -> bool:
    return now - record.seen > SILENT if heard is None else record.minion not in heard


def rows(
    records: Mapping[str, Record],
    expected: Iterable[str],
    now: float,
    heard: Container[str] | None = None,
) -> dict[str, dict[str, Any]]:
    """
    Return the data about each of the *expected* minions.

    ``heard`` is ``report``, ``plain``, ``unsupported`` or ``senseless`` as in :class:`Record`,
    ``silent`` if the answer is too old, or ``unknown`` if it has never answered.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in sorted(set(expected)):
        record = records.get(name)
        if record is None:
            found[name] = {"heard": "unknown"}
            continue
        data = to_data(record)
        del data["minion"], data["answer"]
        found[name] = {
            "heard": "silent" if silent(record, now, heard) else record.answer,
            **data,
            "quarantined": list(record.quarantined),
            "problems": list(record.problems),
        }
    return found


def line(row: Mapping[str, Any], now: float) -> str:
    """Return a row in one line."""
    heard = row["heard"]
    if heard == "unknown":
        return "has never answered"
    if heard == "silent":
        running = f", ran {row['running']} then" if row["running"] else ""
        return f"silent for {_age(now - row['seen'])}{running}"
    if heard == PLAIN:
        return "does not have this extension, or one that is too old"
    if heard == UNSUPPORTED:
        return f"unsupported: {'; '.join(row['problems'])}"
    if heard == SENSELESS:
        return f"gave a senseless answer: {'; '.join(row['problems'])}"
    parts = [row["running"]]
    parts += [
        f"{what} {row[key]}"
        for key, what, usual in (
            ("installed", "installed", row["running"]),
            ("intended", "intended", row["running"]),
            ("extension_on_disk", "extension on disk", row["extension"]),
        )
        if row[key] and not same(usual, row[key])
    ]
    parts += [row["phase"]] if row["phase"] not in QUIET else []
    ended = row["last_result"]
    parts += [ended.replace("_", " ")] if ended not in ("", "committed") else []
    parts += [f"held: {row['held']}"] if row["held"] else []
    parts += [f"{len(row['problems'])} problems"] if row["problems"] else []
    return ", ".join(parts)


def drift_summary(drifts: Iterable[Drift], minions: Sequence[str]) -> str:
    """Return in one line how many of the minions have drifted, and how."""
    listed = list(drifts)
    codes = Counter(code for _, code in {(drift.minion, drift.code) for drift in listed})
    well = len(minions) - len({drift.minion for drift in listed})
    parts = [f"{well} of {len(minions)} as they should be"]
    return ", ".join([*parts, *(f"{n} {code}" for code, n in _sorted(codes).items())])


def lines(found: Mapping[str, Any], *, details: bool = False) -> list[str]:
    """Return the inventory, or the drift, as lines: the sums first, then the minions."""
    shown = [found["summary"]]
    if found.get("only"):
        shown.append(f"{len(found['rows'])} of them are {' or '.join(found['only'])}")
    for minion, row in found.get("rows", {}).items():
        shown.append(f"{text(minion)}: {line(row, found['at'])}")
        if details:
            known = {**row, "times": None, **row.get("times", {})}
            told = {k: "; ".join(v) if isinstance(v, list) else v for k, v in known.items() if v}
            shown += [f"    {key}: {value}" for key, value in told.items()]
    for drift in found.get("drift", ()):
        shown.append(f"{text(drift['minion'])}: {drift['code']}: {drift['problem']}")
        shown.append(f"    {drift['fix']}")
    for kind, minions in found.get("repaired", {}).items():
        shown += [f"{text(minion)}: {_REPAIRED[kind]}: {why}" for minion, why in minions.items()]
    return [*shown, *found["unreadable"]]


def _age(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172800 else f"{seconds / 86400:.0f} d"


def drift(
    record: Record | None,
    minion: str,
    master: str,
    now: float,
    heard: Container[str] | None = None,
) -> list[Drift]:
    """Return the drift of one minion; *master* is its master's version."""
    if record is None:
        return [
            Drift(
                minion,
                "unknown",
                "It has never answered.",
                "See whether the host runs; 'salt-key -d' removes its key if it is gone for good.",
            )
        ]
    if silent(record, now, heard):
        return [
            Drift(
                minion,
                "silent",
                f"It has not answered for {_age(now - record.seen)}.",
                "See whether the host runs; 'salt-key -d' removes its key if it is gone for good.",
            )
        ]
    if record.answer == PLAIN:
        return [
            Drift(
                minion,
                "plain",
                "It does not have this extension, or one that is too old to report.",
                "Install the extension there and restart the minion.",
            )
        ]
    if record.answer == UNSUPPORTED:
        # Nobody can do anything about that.
        return []
    if record.answer == SENSELESS:
        return [
            Drift(
                minion,
                "senseless",
                f"It gave a senseless answer: {'; '.join(record.problems)}",
                "Look at the log of the minion.",
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
                f"{record.installed} is installed, {record.intended} was requested.",
                "Update it with a rollout, or by 'safeupdate.update'.",
                "update",
            )
        )
    if record.running and newer(record.running, master):
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


def newer(version: str, than: str) -> bool:
    """Return whether a version is newer than another one; none is newer than an unknown one."""
    return bool(than) and _key(version) > _key(than)


def _key(version: str) -> tuple[int, ...]:
    digits = []
    for part in version.replace("-", ".").replace("+", ".").split("."):
        # Not by isdigit(), which "²" is: a minion may say anything.
        if not part.isdecimal():
            break
        digits.append(int(part))
    return tuple(digits)
