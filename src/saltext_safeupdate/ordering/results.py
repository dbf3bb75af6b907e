"""The result of a deferred state, from its deferral to its real end."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from typing import Any

import salt.state

from ..core.packages.request import Change
from .chunks import join_comments, listed
from .runs import Deferral, LeftOut, Level, Pending

# Requisites by which a state acts because of a change.
_REACTING = ("onchanges", "onchanges_any", "watch", "watch_any", "listen")
DEFERRED = (
    "Deferred to the end of the run by safeupdate: the minion itself runs from {names}, and "
    "changing that earlier would lose this run. 'safeupdate.wait' returns when the new minion "
    "serves; until then jobs may run on the earlier one."
)
PREDICTED = (
    "The minion itself runs from {names}: that changes at the end of the run, after everything "
    "else."
)
WOULD_DEFER = "This would be deferred to the end of the run: the minion itself runs from {names}."
# Whether it can be handed over is known when it restarts: jobs may end, or begin, before that.
DEFERRED_RESTART = (
    "The minion restarts itself without waiting for jobs if it can be handed over, and otherwise "
    "as soon as every job has ended and its return has been delivered."
)
WOULD_RESTART = f"This would be deferred to the end of the run. {DEFERRED_RESTART}"
ABORTED = (
    "{names} did not change: the run was aborted before its end, when the minion would have been "
    "updated. Fix what failed and run it again."
)
NOT_DEFERRED = (
    "Because of an error of safeupdate, {names} could not be deferred to the end of the run and "
    "did not change: {error}. The log of the minion has more of it; please report that."
)
UNFINISHED = (
    "It is not known whether {names} changed: an error of safeupdate ended the end of the run: "
    "{error}. See 'safeupdate.status', and the log of the minion; please report what it says."
)
NOT_SECURED = (
    "What it installs could not be taken here ({why}): its repositories and files have to stay as "
    "they are until the end of the run."
)
NOT_COME = "{names} did not change as this state had said: {versions}."
REACTED = "These states have reacted to a change that did not come: {states}."
REST_FAILED = "{names} did not change, because the rest of this state failed."


def blank(state: Any, low: Mapping[str, Any], start: datetime.datetime) -> dict[str, Any]:
    """Return the result of a state that has done nothing so far, with the next run number."""
    ret = {
        "name": low["name"],
        "result": True,
        "changes": {},
        "comment": "",
        "__sls__": low.get("__sls__"),
        "__run_num__": state._State__run_num,
        "__id__": low["__id__"],
        "start_time": start.time().isoformat(),
        "duration": milliseconds_since(start),
    }
    state._State__run_num += 1
    return ret


def milliseconds_since(start: datetime.datetime) -> float:
    return (datetime.datetime.now() - start).total_seconds() * 1000


def settle(entry: Pending, result: dict[str, Any], warning: str = "") -> None:
    """Put the real result into the placeholder, which the run's result refers to."""
    done = entry.done_at_once or {}
    said = done.get("comment") if done.get("changes") else ""
    final = {
        **result,
        "changes": {**done.get("changes", {}), **(result.get("changes") or {})},
        "comment": join_comments(
            said,
            result.get("comment"),
            DEFERRED.format(names=entry.deferral.told),
            entry.not_secured,
            warning,
        ),
        "duration": done.get("duration", 0) + result.get("duration", 0),
    }
    if entry.placeholder.get("__parallel__"):
        final["__parallel__"] = True
    entry.placeholder.clear()
    entry.placeholder.update(final)


def settle_aborted(entry: Pending) -> None:
    """Make the placeholder say that the run was aborted, and what was done before that."""
    done = entry.done_at_once or {}
    entry.placeholder.update(
        result=False,
        changes=done.get("changes", {}),
        comment=join_comments(done.get("comment"), ABORTED.format(names=entry.deferral.told)),
    )


def settle_unfinished(entry: Pending, err: Exception) -> None:
    """Make the placeholder say that nobody knows what became of it."""
    names = entry.deferral.told
    entry.placeholder.update(
        result=False,
        changes=(entry.done_at_once or {}).get("changes", {}),
        comment=join_comments(
            (entry.done_at_once or {}).get("comment"),
            UNFINISHED.format(names=names, error=err),
        ),
    )


def judge(entry: Pending, ret: dict[str, Any], installed: Mapping[str, str]) -> None:
    """Have a result fail if what it had said about the packages has not come true."""
    wrong = {}
    for name, change in entry.deferral.changes.items():
        now = installed.get(name, "")
        if not _has_come(change, now):
            said = {"": "removed", "*": "another version"}.get(change.new, change.new)
            wrong[name] = f"{name} is {now or 'not installed'}, not {said}"
    if wrong and ret.get("result") is not False:
        told = NOT_COME.format(names=listed(wrong), versions="; ".join(wrong.values()))
        ret.update(result=False, comment=join_comments(ret.get("comment"), told))


def _has_come(change: Change, now: str) -> bool:
    """
    Tell whether a package is what was said.

    If the package manager could not say, that is a pattern, a comparison, or nothing at all.
    """
    if "*" in change.new or change.new.startswith(("<", ">")):
        return now != change.old or (change.new != "*" and fnmatch(now, change.new))
    return now == change.new or not (change.old or change.new)


def tell_reacted(entry: Pending) -> None:
    """Have a deferred state that has failed name those that took its prediction for a change."""
    low, level = entry.low, entry.level
    names = (low["__id__"], low["name"])

    def reacted(chunk: Mapping[str, Any]) -> bool:
        if level.results.get(salt.state._gen_tag(chunk), {}).get("__state_ran__") is False:
            return False
        wanted = (
            pair
            for key in _REACTING
            for each in chunk.get(key) or ()
            if isinstance(each, Mapping)
            for pair in each.items()
        )
        return any(kind in (low["state"], "id") and name in names for kind, name in wanted)

    found = listed({str(chunk["__id__"]) for chunk in level.chunks if reacted(chunk)})
    if entry.deferral.changes and found:
        told = REACTED.format(states=found)
        entry.placeholder["comment"] = join_comments(entry.placeholder.get("comment"), told)


def report(entry: Pending, outermost: Level) -> None:
    """Fire the event of the result; show a nested run's result in the outermost run, too."""
    if not any(value is entry.placeholder for value in outermost.results.values()):
        outermost.results.setdefault(salt.state._gen_tag(entry.low), entry.placeholder)
    entry.state.event(
        entry.placeholder, len(entry.level.chunks), fire_event=entry.low.get("fire_event")
    )


def is_aborted(level: Level) -> bool:
    """
    Tell whether a run did not come to its end.

    A run that was killed has no result for some of its chunks; a failure may end it too.
    """
    for chunk in level.chunks:
        if salt.state._gen_tag(chunk) not in level.results:
            return True
        if level.owner.check_failhard(chunk, level.results):
            return True
    return False


def waited(chunk: Mapping[str, Any], results: Mapping[str, Any]) -> bool:
    """Tell whether a chunk did not run because something did not fail, or did not change."""
    ret = results.get(salt.state._gen_tag(chunk), {})
    return (
        ret.get("__state_ran__") is False
        and ret.get("result") is True
        and any(key.startswith(("onfail", "onchanges")) for key in chunk)
    )


def failures(results: list[dict[str, Any]]) -> str:
    return "; ".join(str(item.get("comment")) for item in results if item.get("result") is False)


def predicted_changes(deferral: Deferral) -> dict[str, Any]:
    return {
        name: {"old": change.old, "new": change.new} for name, change in deferral.changes.items()
    }


def announce_restart(ret: dict[str, Any]) -> None:
    """Have the comment say, once, that the restart is deferred."""
    comment = join_comments(ret.get("comment"))
    if DEFERRED_RESTART not in comment:
        comment = join_comments(comment, DEFERRED_RESTART)
    ret["comment"] = comment


def tell_left_out(ret: dict[str, Any], left_out: Iterable[LeftOut]) -> None:
    """Have the result say what was left out, fail if that was named, and show the rest."""
    for each in left_out:
        comment = join_comments(ret.get("comment"))
        if each.text not in comment:
            ret["comment"] = join_comments(comment, each.text)
        # Some state functions forget what was changed before an error.
        ret["changes"] = {**each.changes, **(ret.get("changes") or {})}
        if each.named:
            ret["result"] = False
