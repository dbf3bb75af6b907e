"""Minions that do not run what is meant for them, and since when."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from .inventory import REPORT, Drift, Record
from .versions import reached, same

# How what runs may differ from what is installed or was asked for, as one minion says it.
CODES = ("not-restarted", "not-as-intended", "extension-not-restarted")


def codes(record: Record) -> list[str]:
    """Return in which of these ways the minion differs."""
    if record.answer != REPORT:
        return []
    known = (
        bool(record.installed) and not same(record.running, record.installed),
        bool(record.intended and record.installed) and not same(record.intended, record.installed),
        bool(record.extension_on_disk) and record.extension != record.extension_on_disk,
    )
    return [code for code, differs in zip(CODES, known, strict=True) if differs]


def noted(record: Record, before: Record | None) -> Record:
    """
    Return a new answer with the time since when the minion differs, by what was known *before*.

    The master has seen it, and the minion cannot say it.
    """
    if not codes(record):
        return replace(record, drifting=0.0)
    since = before.drifting if before is not None else 0.0
    return replace(record, drifting=min(since, record.seen) if since else record.seen)


def by_policy(
    records: Mapping[str, Record],
    meant: Mapping[str, tuple[str, str]],
    heard: Container[str] | None,
) -> list[Drift]:
    """
    Return who does not run what is *meant*: the version that each is to run, and its group.

    *heard* are those that have answered just now; None if nobody was asked.
    """
    return [
        Drift(
            minion,
            "not-by-policy",
            f"{record.running} runs, and the group {group} of the policy is to run {version}.",
            "'salt-run safeupdate.policy' says when a rollout brings it along, or why not.",
        )
        for minion, (version, group) in sorted(meant.items())
        if (record := records.get(minion)) is not None
        and record.answer == REPORT
        and (heard is None or minion in heard)
        and not reached(record.running, record.installed, version)
    ]


def without_key(name: str) -> Drift:
    """Return what is wrong with a name in a target that no minion has."""
    return Drift(
        name,
        "no-key",
        "The target names it, and no minion with an accepted key is called that.",
        "Correct the name, or accept its key with 'salt-key -a'.",
    )
