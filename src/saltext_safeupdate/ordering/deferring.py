"""The part of a deferred state that runs at once, and the part that waits for the end."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from ..core.errors import SafeUpdateError
from . import parallel, results
from .chunks import for_now, for_the_end, join_comments, without_packages
from .own_packages import OwnPackages
from .runs import Deferral, Pending, Run
from .secured import NoRoomError, Secured, Securing

log = logging.getLogger(__name__)

_REFRESHERS = ("installed", "latest", "uptodate")


class StateCall(NamedTuple):
    """The arguments of one ``State.call``."""

    state: Any
    low: dict[str, Any]
    chunks: Any
    running: Any


class Deferring:
    """Answers for the states that raised a Deferral. *call* calls a state of Salt."""

    def __init__(self, own: OwnPackages, securing: Securing, call: Callable[..., Any]) -> None:
        self._own = own
        self._securing = securing
        self._call = call

    def result(
        self, run: Run, arguments: tuple[Any, dict[str, Any], Any, Any], deferral: Deferral
    ) -> dict[str, Any]:
        """
        Return the result that stands for the state until the end of the run.

        *arguments* are the arguments of ``State.call``.
        """
        called = StateCall(*arguments)
        run.calling += 1
        try:
            called.state.states.inject_globals = {}
            if "provider" in called.low:
                called.state.load_modules()
            if called.low.get("__prereq__"):
                return _prereq_result(called.low, deferral)
            return self._defer(run, called, deferral)
        finally:
            run.calling -= 1

    def _defer(self, run: Run, called: StateCall, deferral: Deferral) -> dict[str, Any]:
        memo, run.memo = run.memo, None
        low = called.low
        if low["state"] == "pkg" and low["fun"] in _REFRESHERS:
            # The metadata was refreshed before this, if that was asked for.
            low = {**low, "refresh": False}
            called = called._replace(low=low)
        names = deferral.told
        start = datetime.datetime.now()
        done = self._do_rest(run, called, deferral)
        if done is not None and done.get("result") is False:
            done["comment"] = join_comments(
                done.get("comment"), results.REST_FAILED.format(names=names)
            )
            return done
        ret = done if done is not None else results.blank(called.state, low, start)
        try:
            secured, told = self._secured(run, deferral)
        except NoRoomError as err:
            return {**ret, "result": False, "comment": join_comments(ret.get("comment"), err)}
        placeholder = {
            **ret,
            "name": low["name"],
            "changes": {**ret["changes"], **results.predicted_changes(deferral)},
            "comment": join_comments(
                ret.get("comment"), results.PREDICTED.format(names=names), told
            ),
        }
        if run.remote:
            placeholder[parallel.MARKER] = parallel.marked(deferral, low)
        run.pending.append(
            Pending(
                state=called.state,
                low=for_the_end(low),
                level=run.levels[-1],
                deferral=deferral,
                done_at_once=done,
                placeholder=placeholder,
                memo=memo,
                secured=secured,
                not_secured=told,
            )
        )
        log.info("safeupdate: %s is deferred to the end of the run", low["__id__"])
        return placeholder

    def _secured(self, run: Run, deferral: Deferral) -> tuple[Secured | None, str]:
        """Return what the end needs, and what to say if that could not be taken."""
        if not any(change.new for change in deferral.changes.values()):
            return None, ""
        try:
            if run.remote:
                # It has a process of its own, which ends before the run does.
                raise SafeUpdateError("it runs in parallel")
            found = self._securing.secure(deferral.request, deferral.names, exact=deferral.exact)
        except NoRoomError:
            raise
        except (SafeUpdateError, OSError) as err:
            return None, results.NOT_SECURED.format(why=err)
        return found, ""

    def _do_rest(self, run: Run, called: StateCall, deferral: Deferral) -> dict[str, Any] | None:
        """Do at once what does not change the own packages; return None if there is nothing."""
        if called.low["state"] != "pkg":
            return None
        low = for_now(called.low)
        called = called._replace(low=low)
        try:
            if "uptodate" in (low["fun"], low.get("sfun")):
                return self._upgrade_rest(run, called, deferral)
            rest = without_packages(low, deferral.names)
            return None if rest is None else self._called(called._replace(low=rest))
        except (Deferral, SafeUpdateError):
            return None

    def _upgrade_rest(
        self, run: Run, called: StateCall, deferral: Deferral
    ) -> dict[str, Any] | None:
        if called.low.get("pkgs"):
            # Salt fails if one of these is not upgraded.
            others = without_packages(called.low, deferral.names)
            if others is None:
                return None
            called = called._replace(low=others)
        with self._own.excluded(run) as possible:
            if possible:
                done = self._called(called)
                failed = done is not None and not done.get("result") and not done.get("changes")
                # A change of the whole distribution may not be possible without the own ones.
                return None if failed and called.low.get("dist_upgrade") else done
        if called.low.get("pkgs") or called.low.get("dist_upgrade"):
            # A change of the whole distribution takes no names, or does not heed them.
            return None
        names = self._own.other_upgrades(deferral.request) if deferral.request else []
        if not names:
            return None
        return self._called(called._replace(low={**called.low, "pkgs": names}))

    def _called(self, called: StateCall) -> dict[str, Any] | None:
        ret = self._call(*called)
        return ret if isinstance(ret, dict) else None


def _prereq_result(low: dict[str, Any], deferral: Deferral) -> dict[str, Any]:
    """Return the result of a state that acted although it was only asked what it would do."""
    low["__prereq__"] = False
    return {
        "name": low["name"],
        "result": None,
        "changes": results.predicted_changes(deferral),
        "comment": results.WOULD_DEFER.format(names=deferral.told),
    }
