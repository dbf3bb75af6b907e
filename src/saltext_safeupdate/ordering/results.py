"""What a state's result says from its deferral to its real end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import salt.state

from .chunks import joined, listed
from .guard import DEFERRED_RESTART
from .runs import Deferral, Level, Pending

MOVED = (
    "Moved to the end of the run by safeupdate: {names} is what the minion itself runs from, and "
    "changing it earlier would lose this run."
)
LATER = (
    "{names} is what the minion itself runs from: it changes at the end of the run, after "
    "everything else."
)
WOULD_MOVE = "This would be deferred to the end of the run: {names} is what the minion runs from."
WOULD_RESTART = "This would be deferred: the minion restarts itself when every job is delivered."
ABORTED = (
    "{names} was left as it was: the run was aborted before its end, where the minion is updated. "
    "Fix what failed and run it again."
)
REST_FAILED = "{names} was left as it was, because the rest of this state failed."


def settle(entry: Pending, result: dict[str, Any], warning: str = "") -> None:
    """Put the real result into the placeholder, which the run's result refers to."""
    placed = entry.placed or {}
    said = placed.get("comment") if placed.get("changes") else ""
    final = {
        **result,
        "changes": {**placed.get("changes", {}), **(result.get("changes") or {})},
        "comment": joined(
            said,
            result.get("comment"),
            MOVED.format(names=listed(entry.deferral.changes)),
            warning,
        ),
        "duration": placed.get("duration", 0) + result.get("duration", 0),
    }
    if entry.placeholder.get("__parallel__"):
        final["__parallel__"] = True
    entry.placeholder.clear()
    entry.placeholder.update(final)


def report(entry: Pending, outermost: Level) -> None:
    """The result belongs to the outermost run too, where a nested one deferred it."""
    if not any(value is entry.placeholder for value in outermost.results.values()):
        outermost.results.setdefault(salt.state._gen_tag(entry.low), entry.placeholder)
    entry.state.event(
        entry.placeholder, len(entry.level.chunks), fire_event=entry.low.get("fire_event")
    )


def aborted(level: Level) -> bool:
    """Without a result for a chunk the run was killed; a failure may also end it for good."""
    for chunk in level.chunks:
        if salt.state._gen_tag(chunk) not in level.results:
            return True
        if level.owner.check_failhard(chunk, level.results):
            return True
    return False


def waits(chunk: Mapping[str, Any], results: Mapping[str, Any]) -> bool:
    """Tell whether a chunk was left out because something did not fail, or did not change."""
    ret = results.get(salt.state._gen_tag(chunk), {})
    return (
        ret.get("__state_ran__") is False
        and ret.get("result") is True
        and any(key.startswith(("onfail", "onchanges")) for key in chunk)
    )


def failed(entry: Pending) -> bool:
    return entry.placeholder.get("result") is False


def failure(results: list[dict[str, Any]]) -> str:
    return "; ".join(str(item.get("comment")) for item in results if item.get("result") is False)


def predicted(deferral: Deferral) -> dict[str, Any]:
    return {
        name: {"old": change.old, "new": change.new} for name, change in deferral.changes.items()
    }


def told(ret: Mapping[str, Any]) -> str:
    """Return the comment with word of the deferred restart."""
    comment = joined(ret.get("comment"))
    return comment if DEFERRED_RESTART in comment else joined(comment, DEFERRED_RESTART)
