"""Lifting the quarantine of a version on the master and on minions."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import salt.utils.event
from salt.exceptions import SaltException

from ..core.errors import one_line
from ..fleet import rollout as rollouts
from ..fleet import versions
from . import questions, targets
from .newest import Ask
from .planning import REPORT_TIMEOUT
from .refusals import refuse_unkept
from .replies import Failed
from .store import Store

log = logging.getLogger(__name__)

# Fires an event: tag and data.
Tell = Callable[[str, dict[str, object]], object]
# The most builds of one version that a minion may keep: each is lifted on its own.
MOST = 20


def allow(
    opts: Mapping[str, Any],
    store: Store,
    version: str,
    *,
    by: str = "",
    tell: Tell | None = None,
    clock: Callable[[], float] = time.time,
) -> bool:
    """
    Let rollouts install a version again; note and announce who does it (*by*).

    Raises InputError if it is not in quarantine.
    """
    if not store.allow(version, by, clock()):
        refuse_unkept(store.quarantined(), version)
    _say(opts, version, by, tell)
    return True


def _say(opts: Mapping[str, Any], version: str, by: str, tell: Tell | None) -> None:
    """Send an event. If the event bus is away, nothing is undone."""
    data: dict[str, object] = {"version": version, "by": by}
    log.info("safeupdate: %s is allowed again%s", version, rollouts.said(by))
    with contextlib.suppress(SaltException, OSError):
        (tell or _fire(opts))("salt/run/safeupdate/allowed", data)


def _fire(opts: Mapping[str, Any]) -> Tell:
    bus = salt.utils.event.get_master_event(dict(opts), opts["sock_dir"], listen=False)
    return lambda tag, data: bus.fire_event(data, tag)


def allow_everywhere(
    opts: Mapping[str, Any],
    store: Store,
    version: str,
    *,
    by: str = "",
    ask: Ask = questions.ask,
    tell: Tell | None = None,
    clock: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """
    Let rollouts install a version again, and let all minions lift their own quarantine of it.

    *by* is the person.
    Returns whether rollouts were kept from it (``lifted``), the versions in quarantine by minion
    (``minions``), the minions on which it could not be lifted and why (``failed``), and the minions
    that did not answer (``silent``). Minions are asked first: before that, none is updated to it.
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
        # A minion that has not answered is not waited for repeatedly.
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
    if here := store.allow(version, by, clock()):
        _say(opts, version, by, tell)
    return {
        "version": version,
        "lifted": here,
        "minions": lifted,
        "failed": failed,
        "silent": sorted(silent),
        "retcode": int(bool(failed or silent)),
    }


def _quarantined(said: object) -> Iterable[str]:
    listed = said.get("quarantined") if isinstance(said, Mapping) else ()
    return [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
