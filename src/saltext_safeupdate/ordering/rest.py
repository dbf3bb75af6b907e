"""A call without the minion's own packages, if their version is in quarantine."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NoReturn

from salt.exceptions import CommandExecutionError

from ..core.errors import CommandError
from ..core.packages.request import Action, Request
from . import chosen, package_calls, runs
from .own_packages import OwnPackages
from .package_calls import Call
from .quarantine import Refusal
from .runs import LeftOut

log = logging.getLogger(__name__)

# The key for the text in the answer of an upgrade of everything, next to the changed packages.
KEY = "safeupdate"
_REST = "Everything else was done without it."
_NO_REST = "Nothing was changed."
_TRIED = "Everything else was tried without it."


class Rest:
    """Makes calls without the own packages."""

    def __init__(self, own: OwnPackages) -> None:
        self._own = own

    def make(self, call: Call, request: Request, refusal: Refusal) -> Any:
        """
        Make the call without the own packages, and without what pulls them along.

        Return its result if the call is about everything; else raise CommandExecutionError,
        which carries what the rest has changed.
        """
        if patches := package_calls.patches(call):
            return self._make_other_patches(call, patches, refusal)
        if request.action is Action.UPGRADE and not request.names:
            return self._upgrade_rest(call, request, refusal)
        names = self._own.names_to_defer(request, refusal.names)
        rest = package_calls.without(call, names)
        if rest is None or self._changes_own(rest):
            raise self._failure(refusal.text(_NO_REST))
        named = names & request.names
        try:
            changes = rest.make()
        except CommandExecutionError as err:
            _fail(err, refusal.text(_TRIED, named), named=True)
        raise self._failure(refusal.text(_REST, named), changes)

    def _make_other_patches(
        self, call: Call, patches: Mapping[str, Request | None], refusal: Refusal
    ) -> Any:
        """Install the patches that leave the own packages alone; fail if there are others."""
        kept = frozenset(
            patch
            for patch, request in patches.items()
            if request is None or self._own.may_change(request)
        )
        others = [patch for patch in patches if patch not in kept]
        if not others:
            raise self._failure(refusal.text(_NO_REST, kept))
        rest = call.with_arguments(advisory_ids=others) if kept else call
        # Several together may need what none of them does alone.
        with self._own.excluded(runs.current()) as possible:
            if not possible and self._bring_own_together(rest, others):
                raise self._failure(refusal.text(_NO_REST, kept))
            changes = rest.make()
        if kept:
            raise self._failure(refusal.text(_REST, kept), changes)
        return changes

    def _bring_own_together(self, call: Call, patches: list[str]) -> bool:
        request = package_calls.together(call, patches) if len(patches) > 1 else None
        return request is not None and self._own.may_change(request)

    def _changes_own(self, call: Call) -> bool:
        request = package_calls.requested(call.fun, call.original, call.args, call.kwargs)
        return request is not None and bool(self._own.changed_by(chosen.exactly(request, call)))

    def _upgrade_rest(self, call: Call, request: Request, refusal: Refusal) -> Any:
        names: frozenset[str] = frozenset()
        try:
            possible, changes = self._without(call)
        except CommandExecutionError as err:
            names = self._in_the_way(call, request, err)
            if not names:
                _fail(err, refusal.text(_TRIED))
            try:
                possible, changes = self._without(call, names)
            except CommandExecutionError as again:
                _fail(again, refusal.text(_TRIED, names))
        if not possible:
            changes = self._upgrade_by_names(call, request, refusal)
        text = refusal.text(_REST, names)
        told = _tell(LeftOut(text=text, named=False, changes=changes))
        # The comment of a state says it. A function only has its return.
        return changes if told else {**changes, KEY: text}

    def _without(self, call: Call, more: frozenset[str] = frozenset()) -> tuple[bool, Any]:
        """Make the call so that it leaves the own packages alone, and *more*, if that can be."""
        with self._own.excluded(runs.current(), more) as possible:
            return possible, call.make() if possible else None

    def _in_the_way(
        self, call: Call, request: Request, err: CommandExecutionError
    ) -> frozenset[str]:
        """
        Return the packages without which an upgrade would succeed that has changed nothing.

        zypper changes a whole distribution, or nothing if one package needs one that is locked.
        """
        whole = request.full and package_calls.only(call, []) is not None
        if not whole or (isinstance(err.info, dict) and err.info.get("changes")):
            return frozenset()
        try:
            return self._own.needed_by_upgrades(request)
        except CommandError as simulated:
            log.debug("safeupdate: what is in the way is not known: %s", simulated)
            return frozenset()

    def _upgrade_by_names(self, call: Call, request: Request, refusal: Refusal) -> Any:
        """Upgrade the other packages by their names: there is no way to leave some out."""
        others = self._own.other_upgrades(request)
        rest = package_calls.only(call, others)
        if request.full or rest is None:
            # It takes no names, or does not heed them.
            raise self._failure(refusal.text(_NO_REST))
        try:
            return rest.make() if others else {}
        except CommandExecutionError as err:
            _fail(err, refusal.text(_TRIED))

    def _failure(self, text: str, changes: Any = None) -> CommandExecutionError:
        """Return the error that says *text*, and what was changed in the way Salt does."""
        changed = changes if isinstance(changes, dict) else {}
        _tell(LeftOut(text=text, named=True, changes=changed))
        return CommandExecutionError(text, info={"changes": changed} if changed else None)


def _fail(err: CommandExecutionError, text: str, *, named: bool = False) -> NoReturn:
    """Raise the error of what was tried, which says *text* as well."""
    if _tell(LeftOut(text=text, named=named, changes={})):
        raise err
    raise CommandExecutionError(f"{err.error} {text}", info=err.info) from err


def _tell(left_out: LeftOut) -> bool:
    """Have the result of the state say it; return whether one is being called."""
    log.warning("safeupdate: %s", left_out.text)
    run = runs.current()
    if run is None or not run.inside:
        return False
    run.left_out.append(left_out)
    return True
