"""
States that follow a deferred change in a run and name the same packages are deferred as well.

A state that looked at them now would see packages that the run is about to change: it would find a
minion installed that the end of the run removes. So it waits, whatever it would do, and the
deferred states run in their order. Before the first one runs, :meth:`Following.refusal`
judges all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import salt.utils.pkg
from salt.exceptions import CommandExecutionError

from ..core.errors import SafeUpdateError
from ..core.packages.request import REMOVALS, Action, Change, Request
from . import chosen, package_calls, runs
from .chunks import listed, named_packages
from .own_packages import OwnPackages
from .package_calls import Call
from .quarantine import Quarantine
from .runs import Deferral, Pending, Run

_NOTHING = "Nothing was changed: {why}"
_ALONG = (
    "{lost} would be removed along with {named}, and no state installs it again. Name it in the "
    "state that installs {named}."
)
_NOT_ON_OFFER = (
    "this run removes {name} and installs it again, and no repository has {version}. Add the "
    "repository before that, or leave out the removal."
)
_NEEDED = (
    "{names}, which this run has installed, would be removed along with {named}. Remove {named} "
    "before that in the run, or leave out the removal."
)
_IMPOSSIBLE = (
    "this run removes {names} and installs it again, and the package manager says that the "
    "installation would fail: {err}"
)


class Following:
    """Knows the own packages as the deferred states of a run will make them."""

    def __init__(self, own: OwnPackages, quarantine: Quarantine) -> None:
        self._own = own
        self._quarantine = quarantine

    # -- while the states are called ---------------------------------------------

    def state(self, state: Any, cdata: Mapping[str, Any]) -> None:
        """
        Raise Deferral if a state function names packages that are waited for.

        *state* is the object of Salt's engine that is about to call it, *cdata* says with what.
        """
        # In test mode nothing is deferred, so there is nothing to wait for.
        if _waiting() is None or state.opts.get("test"):
            return
        given = dict(cdata["kwargs"])
        if cdata["args"]:
            given["name"] = cdata["args"][0]
        try:
            names = self.behind(named_packages(given))
            deferral = self._of_state(state, cdata["full"], given, names) if names else None
        except SafeUpdateError as err:
            raise CommandExecutionError(str(err)) from err
        if deferral is not None:
            raise deferral

    def function(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Be in front of an execution function that names packages: call it, or defer."""
        self.wait(args, kwargs)
        return original(*args, **kwargs)

    def wait(self, *given: Any) -> None:
        """Raise Deferral if the arguments of a function name packages that are waited for."""
        names = self.behind(_texts(given))
        if names:
            raise Deferral({}, names, follows=True)

    def behind(self, named: Collection[str]) -> frozenset[str]:
        """Return which of the *named* packages an earlier state of this run is deferred for."""
        run = _waiting()
        return self._waited_for(run, named) if run is not None else frozenset()

    def _waited_for(self, run: Run, named: Collection[str]) -> frozenset[str]:
        """Return what is *named* of the own packages, and of what is deferred with them."""
        deferred = (entry.deferral for entry in run.pending)
        return self._own.names.union(*(each.names | each.along for each in deferred)) & set(named)

    def _of_state(
        self,
        state: Any,
        fun: str,
        given: dict[str, Any],
        names: frozenset[str],
    ) -> Deferral:
        if fun not in ("pkg.installed", "pkg.latest"):
            return Deferral({}, names, follows=True)
        call = Call("pkg.install", inspect.unwrap(state.functions["pkg.install"]), (), given)
        if salt.utils.pkg.check_refresh(state.opts, given.get("refresh")):
            # As the state would: the deferred states are judged by what is on offer.
            call = package_calls.refresh_first(call.with_arguments(refresh=True))
            salt.utils.pkg.clear_rtag(state.opts)
        request = package_calls.requested(*call)
        if request is None:
            return Deferral({}, names, follows=True)
        request = chosen.exactly(request, call)
        changes = self.predicted(request, self._own.changed_by(request), names)
        if fun == "pkg.installed" and not request.files:
            # Without a version, any is good enough.
            asked = {name for name, version in request.targets if version}
            changes = {
                name: change
                for name, change in changes.items()
                if not change.old or name in asked or name not in names
            }
        exact = self._own.is_exact(call, request)
        return Deferral(changes, names, request, follows=True, exact=exact)

    def predicted(
        self,
        request: Request,
        changes: Mapping[str, Change],
        names: Collection[str] = (),
    ) -> dict[str, Change]:
        """
        Return what the request changes of the own packages after all that waits in this run.

        *changes* is what it would change now, *names* the packages that its state names.
        """
        run = runs.current()
        if run is None or not run.pending:
            return dict(changes)
        now = self._own.installed()
        then = dict(now)
        for entry in run.pending:
            then.update({name: change.new for name, change in entry.deferral.changes.items()})
        named = {*changes, *names, *request.names} & self._own.names
        found = {}
        for name in sorted(named):
            old, new = then.get(name, ""), changes[name].new if name in changes else now.get(name)
            if request.action in REMOVALS:
                new = ""
            elif request.action is Action.UPGRADE and not old:
                continue
            if (new or "") != old:
                found[name] = Change(old, new or "")
        return found

    # -- at the end of the run -----------------------------------------------------

    @staticmethod
    def again(pending: Iterable[Pending]) -> frozenset[str]:
        """Return the own packages that deferred states remove and have installed in the end."""
        gone: set[str] = set()
        back: set[str] = set()
        for entry in pending:
            for name, change in entry.deferral.changes.items():
                if change.new and name in gone:
                    back.add(name)
                elif change.old and not change.new:
                    gone.add(name)
                    back.discard(name)
        return frozenset(back)

    def refusal(self, pending: Sequence[Pending]) -> str:
        """Return why the deferred states may not run, or an empty text. Raise SafeUpdateError."""
        back = self.again(pending)
        why = self._why_not(pending, back)
        return _NOTHING.format(why=why) if why else ""

    def _why_not(self, pending: Sequence[Pending], back: frozenset[str]) -> str:
        for entry in pending:
            request, changes = entry.deferral.request, entry.deferral.changes
            if request is None:
                continue
            if request.action in REMOVALS:
                why = self._why_not_removed(request, pending, back)
            elif entry.deferral.follows or back.intersection(changes):
                taken = entry.secured is not None
                why = self._why_not_installed(request, changes, frozenset() if taken else back)
            else:
                continue
            if why:
                return why
        return ""

    def _why_not_removed(
        self, request: Request, pending: Sequence[Pending], back: frozenset[str]
    ) -> str:
        named = listed(request.names)
        known = frozenset().union(*(entry.deferral.along for entry in pending))
        needed = self._own.removed_along(request) - known
        if needed:
            return _NEEDED.format(names=listed(needed), named=named)
        gone = {name for name, change in self._own.changed_by(request).items() if not change.new}
        if not back & gone:
            return ""
        wanted = frozenset().union(*(_removed_by_name(entry) for entry in pending))
        lost = self._own.with_unit() & gone - back - wanted
        return _ALONG.format(lost=listed(lost), named=named) if lost else ""

    def _why_not_installed(
        self, request: Request, changes: Mapping[str, Change], back: frozenset[str]
    ) -> str:
        refused = self._quarantine.refusal(changes)
        if refused is not None:
            return refused.in_test_mode()
        names = back & request.names
        if not names:
            return ""
        try:
            self._own.try_out(request)
            offers = self._own.offers(names)
        except SafeUpdateError as err:
            return _IMPOSSIBLE.format(names=listed(names), err=err)
        now = self._own.installed()
        for name, asked in request.targets:
            if name not in names:
                continue
            # The installed version is no offer any more when it is removed.
            if not offers[name] or (asked == now.get(name) and asked not in offers[name]):
                return _NOT_ON_OFFER.format(name=name, version=asked or "it")
        return ""


def _waiting() -> Run | None:
    """Return the run of this thread if a state of it is called after a deferred one."""
    run = runs.current()
    return run if run and run.pending and run.inside and not run.finishing else None


def _texts(given: Any) -> set[str]:
    """Return the texts among the arguments of a call, however they are nested."""
    if isinstance(given, dict):
        return _texts([*given, *given.values()])
    if isinstance(given, list | tuple):
        return set().union(*map(_texts, given))
    return set(given.split(",")) if isinstance(given, str) else set()


def _removed_by_name(entry: Pending) -> frozenset[str]:
    request = entry.deferral.request
    return request.names if request is not None and request.action in REMOVALS else frozenset()
