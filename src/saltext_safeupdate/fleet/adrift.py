"""Minions that do not run what the policy of their master wants."""

from __future__ import annotations

from collections.abc import Container, Mapping

from .inventory import REPORT, Drift, Record
from .versions import reached


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
