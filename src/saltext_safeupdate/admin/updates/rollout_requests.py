"""
What a rollout asks of a minion: how far it is, and to begin, to download, to stop.

Each answer is the whole report. The numbers and versions come from the bus, and are checked.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import salt.version

from ... import factory
from ...core.errors import (
    CommandError,
    HeldError,
    InputError,
    LockHeldError,
    RecordError,
    SafeUpdateError,
    TransitionError,
)
from ...core.host import drained, locks, processes
from ...core.jobs import current
from ...core.packages.choice import matches
from ...core.prepare import holds, resolution
from ...core.prepare.staging import PACKAGES, SLOT
from ...core.record import fence
from ...core.record.parts import Request
from ...core.record.phase import Phase
from ...core.record.typed import Fact
from ...core.record.update import Update
from ...this_host import Host
from ..status.status import drained_until, waits_for
from . import background, extension_updates, installed, updating
from .circumstances import needs_reboot

log = logging.getLogger(__name__)

_VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+~:_-]{0,99}")


class _Prefetch(NamedTuple):
    """A download: what for, how far it is and why it failed, and which process does it."""

    version: str
    extension: str
    state: str
    reason: str
    who: str


_PREFETCH: Fact[_Prefetch] = Fact("prefetch", _Prefetch)
# Obstacles of a request that end by themselves, or when somebody removes them.
_SOON = (LockHeldError, TransitionError, CommandError)


def report(host: Host, question: object = 0) -> dict[str, Any]:
    """Return where this minion is, for its newest numbered request, and what runs on it."""
    return _report(host, _number("question", question, least=0))


def request(
    host: Host,
    functions: updating.Functions,
    number: object,
    version: object = "",
    extension: object = "",
    question: object = 0,
    *,
    allow_downgrade: bool = False,
    back: bool = False,
    source: object = None,
) -> dict[str, Any]:
    """
    Begin an update unless a request of this number or a higher one was taken; report.

    *back* has it go back to a version, by the packages that are kept if they are of this one.
    *source* is where the version comes from, as for :func:`.updating.update`.
    """
    wanted, asked = _number("number", number), _number("question", question, least=0)
    goal = _goal(version, extension)
    salt_version, of_extension = goal
    try:
        asked_for = resolution.request(
            salt_version or None, when="now", allow_downgrade=allow_downgrade, back=back
        )
        _take(host, functions, wanted, asked_for, of_extension, source)
    except SafeUpdateError as err:
        log.info("safeupdate: request %s is not taken: %s", wanted, err)
        told = {"refused": str(err), "again": isinstance(err, _SOON)}
        held = {"held": str(err)} if isinstance(err, HeldError) else {}
        return {**_report(host, asked), **told, **held}
    return _report(host, asked)


def withdraw(host: Host, number: object, question: object = 0) -> dict[str, Any]:
    """Refuse all lower numbers from now on, and call off what has not begun to install; report."""
    from ...core.supervisor import asking

    wanted, asked = _number("number", number), _number("question", question, least=0)
    try:
        asking.withdraw(factory.initiator(host), wanted)
    except SafeUpdateError as err:
        again = isinstance(err, _SOON)
        return {**_report(host, asked), "refused": str(err), "again": again}
    return _report(host, asked)


def prefetch(
    host: Host,
    functions: updating.Functions,
    version: object = "",
    extension: object = "",
    source: object = None,
    spawn: background.Spawn | None = None,
) -> dict[str, Any]:
    """Have what such a request needs downloaded in the background; report."""
    goal = _goal(version, extension)
    found = host.store.fact(_PREFETCH)
    if not (_is_for(found, goal) and (_is_fetching(found) or _is_there(host, found))):
        if not _is_fetching(found):
            host.store.set_fact(_PREFETCH, _prefetch(goal, "asked"))
        (spawn or background.spawner(host.opts))(lambda: _fetch(host, functions, goal, source))
    return _report(host, 0)


# -- requests ------------------------------------------------------------------------------


def _take(
    host: Host,
    functions: updating.Functions,
    number: int,
    wanted: Request,
    extension: str,
    source: object,
) -> None:
    """Begin what is asked for. Raise SafeUpdateError, and change nothing, if that cannot be."""
    from ...core.supervisor import asking

    known = host.store.taken() if host.store.exists() else fence.Taken()
    if number == known.number:
        return
    if number < known.number:
        raise InputError(fence.refusal(number, known))
    if host.settings.hold:
        raise HeldError(host.settings.hold)
    _refuse_beside_another(host)
    job = current.get()
    jid = job.jid if job is not None else ""
    if extension:
        resolved = extension_updates.stage(host, functions, extension)
        by, runs = extension_updates.initiator(host, jid), extension_updates.runs(extension)
    else:
        # It waits for the jobs that run, but not forever: the rollout asks again.
        wanted = updating.with_source(host, wanted, source)
        resolved = updating.resolve(host, functions, wanted)
        if not resolved.in_place and not wanted.source:
            _refuse_locked(host)
        by, runs = updating.initiator(host, resolved, jid), _runs(resolved.targets)
    # A rollout, or a repair.
    reason = f"The master asked for it at {fence.moment(number)}."
    try:
        if not resolved.in_place:
            numbered = resolved.with_serial(number)
            asking.update(by, numbered, jid=jid, reason=reason, once=True)
        elif runs:
            asking.settle(by, number)
        else:
            _restart(host, by, resolved, jid, reason, number)
    except InputError:
        # Another process may have taken the same one meanwhile.
        if host.store.taken().number != number:
            raise


def _restart(
    host: Host, by: Any, resolved: resolution.Resolved, jid: str, reason: str, number: int
) -> None:
    """Have the version run that is installed already."""
    from ...core.supervisor import asking

    if needs_reboot(by.manager, resolved):
        raise SafeUpdateError("It is installed; a reboot activates it. Nothing was changed.")
    last = host.store.latest()
    if last is not None and last.kind == "update" and not last.phase.final:
        raise LockHeldError(by.busy())
    asking.restart(by, jid=jid, reason=reason, number=number)


def _refuse_beside_another(host: Host) -> None:
    """Raise LockHeldError if an update has begun that is brought to its end."""
    last = host.store.latest() if host.store.exists() else None
    if last is not None and not last.phase.final and not last.may_be_cancelled:
        raise LockHeldError(factory.initiator(host).busy())
    if drained.look(host.settings.run_dir) is not None:
        raise LockHeldError(
            "An administrator has this minion take nothing new ('safeupdate.drain'). Nothing was "
            "changed; it ends by itself, or with 'safeupdate.undrain'."
        )
    if locks.held(host.settings.run_dir, "update"):
        raise LockHeldError(
            "An update of the minion begins just now, or packages are being downloaded. Nothing "
            "was changed; try again when that has ended."
        )


def _refuse_locked(host: Host) -> None:
    """Raise HeldError if an administrator has locked the version of an own package."""
    if why := holds.locked(host.known_manager(), host.own().names):
        raise HeldError(why)


def _runs(targets: Mapping[str, str]) -> bool:
    running = str(salt.version.__version__)
    return any(matches(version, running) for version in targets.values())


# -- downloads -----------------------------------------------------------------------------


def _fetch(
    host: Host, functions: updating.Functions, goal: tuple[str, str], source: object
) -> None:
    """Download, unless another process does so already."""
    mine = _prefetch(goal, "running")
    if host.store.claim_fact(_PREFETCH, mine, lambda found: not _is_fetching(found)) != mine:
        return
    version, extension = goal
    try:
        if extension:
            extension_updates.stage(host, functions, extension)
        else:
            updating.stage(host, functions, version, source)
    except (OSError, SafeUpdateError) as err:
        log.warning("safeupdate: %s cannot be downloaded in advance: %s", version or extension, err)
        host.store.set_fact(_PREFETCH, _prefetch(goal, "failed", str(err)))
    else:
        host.store.set_fact(_PREFETCH, _prefetch(goal, "done"))


def _prefetch(goal: tuple[str, str], state: str, reason: str = "") -> _Prefetch:
    """Return what is noted of a download by this process."""
    return _Prefetch(*goal, state, reason, processes.me())


def _is_for(found: _Prefetch | None, goal: tuple[str, str]) -> bool:
    return found is not None and found[:2] == goal


def _is_fetching(found: _Prefetch | None) -> bool:
    return found is not None and found.state == "running" and processes.alive(found.who)


def _is_there(host: Host, found: _Prefetch | None) -> bool:
    """Tell whether what was to be downloaded is there now: installed, or staged."""
    if found is None or found.state != "done":
        return False
    version, extension = found[:2]
    if not version:
        return extension_updates.is_there(host, extension)
    if matches(installed.installed(host)["installed"], version):
        return True
    staged = [host.store.fact(PACKAGES), host.store.fact(SLOT)]
    return any(
        all(matches(target, version) for target in each.targets.values())
        for each in staged
        if each is not None and each.targets
    )


# -- the report ----------------------------------------------------------------------------


def _report(host: Host, question: int) -> dict[str, Any]:
    found = {
        "question": question,
        "number": 0,
        "phase": "idle",
        "reason": "",
        "waits_for": 0,
        "phases": {},
        "reboot": "",
        "staged": "",
        "refused": "",
        "again": False,
        "held": host.settings.hold,
        **installed.running(),
        **drained_until(host.settings.run_dir),
    }
    try:
        return {**found, **installed.known(host), **_progress(host)}
    except RecordError as err:
        # What was taken, and what became of it, is not known: that is said, and nothing else.
        return {**found, "phase": "unknown", "reason": str(err), "problems": [str(err)]}


def _progress(host: Host) -> dict[str, Any]:
    """Return how far the newest numbered request has come."""
    store = host.store
    if not store.exists():
        return {}
    taken, prefetched = store.taken(), store.fact(_PREFETCH)
    update = store.get(taken.update) if taken.update else None
    found: dict[str, Any] = {"number": taken.number, "staged": ""}
    if prefetched is not None and prefetched.state == "failed":
        found["staged"] = "failed"
    elif _is_there(host, prefetched):
        found["staged"] = "done"
    if update is None:
        return found
    return {
        **found,
        "phase": update.phase.value,
        "reason": update.reason,
        "waits_for": len(waits_for(host, update)),
        "phases": _seconds(host, update),
        "reboot": _reboot(update),
    }


def _reboot(update: Update) -> str:
    """Return ``awaited`` if the update waits for a reboot that does not come by itself now."""
    if not update.awaits_boot or update.phase is not Phase.WAITING_FOR_BOOT:
        return ""
    # Only a transactional system needs it.
    from ...core.transactional import reboot

    return "" if reboot.comes_now(update.boot.reboot) else "awaited"


def _seconds(host: Host, update: Update) -> dict[str, float]:
    """Return how long the update was in each phase; the present one counts until its change."""
    rows = host.store.history(update.id)
    found: dict[str, float] = {}
    for row, after in itertools.pairwise(rows):
        found[row.phase] = round(found.get(row.phase, 0.0) + max(after.at - row.at, 0.0), 1)
    return found


def _number(name: str, value: object, *, least: int = 1) -> int:
    """Return a number that came from the bus; a command line may have made a text of it."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,17}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < fence.MOST:
        raise InputError(
            f"'{name}' must be a whole number from {least}, of at most 17 digits. "
            "Nothing was changed."
        )
    return value


def _goal(version: object, extension: object) -> tuple[str, str]:
    """Return the version of Salt or of the extension that is asked for; one of them."""
    goal = tuple("" if each is None else str(each) for each in (version, extension))
    fits = all(
        isinstance(given, str | None) and (not text or _VERSION.fullmatch(text))
        for given, text in zip((version, extension), goal, strict=True)
    )
    if not fits or sum(map(bool, goal)) != 1:
        raise InputError(
            "Ask for a 'version' of Salt or for an 'extension' version, as a text such as "
            "'3008.3'. Nothing was changed."
        )
    return goal[0], goal[1]
