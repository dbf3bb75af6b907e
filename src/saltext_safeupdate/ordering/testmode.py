"""The comment of a state about ordering in test mode."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..core.errors import SafeUpdateError
from ..core.packages.request import Action, Change, Request
from . import package_calls, results
from .chunks import join_comments, listed, named_packages
from .own_packages import OwnPackages
from .quarantine import Quarantine

log = logging.getLogger(__name__)

_ACTIONS = {
    "installed": Action.INSTALL,
    "latest": Action.INSTALL,
    "removed": Action.REMOVE,
    "purged": Action.PURGE,
    "uptodate": Action.UPGRADE,
}


class TestMode:
    """Adds to the result of a state what would be deferred."""

    def __init__(self, own: OwnPackages, quarantine: Quarantine, service: str) -> None:
        self._own = own
        self._quarantine = quarantine
        self._service = service

    def tell(self, state: Any, low: Mapping[str, Any], ret: dict[str, Any]) -> None:
        if not state.opts.get("test") or low.get("__prereq__"):
            return
        if low["state"] == "pkg" and low["fun"] in _ACTIONS:
            try:
                changes = self._own_changes(low, ret)
                told = self._comment(changes) if changes else ""
            except SafeUpdateError as err:
                # Only a comment depends on it here. The guard meets the same error when it
                # matters.
                log.error("safeupdate: the minion's own packages are not known: %s", err)
                told = ""
            if told:
                ret["comment"] = join_comments(ret.get("comment"), told)
        elif (low["state"], low["fun"]) == ("service", "mod_watch") and (
            str(low.get("name", "")).removesuffix(".service") == self._service
        ):
            ret["comment"] = join_comments(ret.get("comment"), results.WOULD_RESTART)

    def _comment(self, changes: Mapping[str, Change]) -> str:
        refusal = self._quarantine.refusal(changes)
        if refusal is not None:
            return refusal.in_test_mode()
        return results.WOULD_DEFER.format(names=listed(changes))

    def _own_changes(self, low: Mapping[str, Any], ret: Mapping[str, Any]) -> dict[str, Change]:
        """Return what the state would change of the own packages."""
        names = set(map(str, ret.get("changes") or ())) or named_packages(low)
        own = self._own.names
        if not own:
            return {}
        if names & own and not self._quarantine.versions():
            return dict.fromkeys(names & own, Change("", ""))
        asked = dict(package_calls.targets(low))
        targets = tuple((name, asked.get(name)) for name in sorted(names))
        return self._own.changed_by(Request(action=_ACTIONS[low["fun"]], targets=targets))
