"""Lifting the quarantine of a version: that of the master, and those of the minions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.errors import one_line
from ..fleet import versions
from . import questions, targets
from .planning import REPORT_TIMEOUT, Ask
from .refusals import refuse_unkept
from .replies import Failed
from .store import Store

# Builds of one version that a minion may keep: each is asked for on its own.
MOST = 20


def allow(store: Store, version: str) -> bool:
    """Let rollouts bring a version again. Raises InputError if it is not in quarantine."""
    if not store.allow(version):
        refuse_unkept(store.quarantined(), version)
    return True


def allow_everywhere(
    opts: Mapping[str, Any], store: Store, version: str, *, ask: Ask = questions.ask
) -> dict[str, Any]:
    """
    Let rollouts bring a version again, and have all minions lift their own quarantine of it.

    Returns whether rollouts were kept from it (``lifted``), what was in quarantine on which
    minions (``minions``), where that could not be lifted and why (``failed``), and who did not
    answer (``silent``). Minions are asked first: until they have answered, nobody is brought to it.
    """
    minions = sorted(targets.accepted(opts))
    reports = ask(opts, minions, "safeupdate.report", (), REPORT_TIMEOUT)
    kept: dict[str, list[str]] = {}
    for minion, said in reports.items():
        same = [v for v in _quarantined(said) if versions.stand_for_each_other(v, version)]
        for each in same[:MOST]:
            kept.setdefault(each, []).append(minion)
    lifted: dict[str, list[str]] = {}
    failed: dict[str, str] = {}
    silent = set(minions).difference(reports)
    for each, found in sorted(kept.items()):
        # Who has not answered is not waited for again and again.
        these = [minion for minion in found if minion not in silent]
        if not these:
            continue
        answers = ask(opts, these, "safeupdate.unquarantine", (each,), REPORT_TIMEOUT)
        silent.update(set(these).difference(answers))
        for minion, said in answers.items():
            if isinstance(said, Failed):
                failed[minion] = one_line(said)
            else:
                lifted.setdefault(minion, []).append(each)
    return {
        "version": version,
        "lifted": store.allow(version),
        "minions": lifted,
        "failed": failed,
        "silent": sorted(silent),
        "retcode": int(bool(failed or silent)),
    }


def _quarantined(said: object) -> Iterable[str]:
    listed = said.get("quarantined") if isinstance(said, Mapping) else ()
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
