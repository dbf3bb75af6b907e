"""What a state's comment says in test mode about ordering."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from ..core.errors import SafeUpdateError
from ..core.packages.request import Action, Request
from . import results
from .chunks import join_comments, listed, named_packages
from .own_packages import OwnPackages

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

    def __init__(self, own: OwnPackages, service: str) -> None:
        self._own = own
        self._service = service

    def tell(self, state: Any, low: Mapping[str, Any], ret: dict[str, Any]) -> None:
        if not state.opts.get("test") or low.get("__prereq__"):
            return
        if low["state"] == "pkg" and low["fun"] in _ACTIONS:
            names = self._own_packages(low, ret)
            if names:
                ret["comment"] = join_comments(
                    ret.get("comment"), results.WOULD_DEFER.format(names=listed(names))
                )
        elif (low["state"], low["fun"]) == ("service", "mod_watch") and (
            str(low.get("name", "")).removesuffix(".service") == self._service
        ):
            ret["comment"] = join_comments(ret.get("comment"), results.WOULD_RESTART)

    def _own_packages(self, low: Mapping[str, Any], ret: Mapping[str, Any]) -> set[str]:
        """Return the own packages that the state would change."""
        names = set(map(str, ret.get("changes") or ())) or named_packages(low)
        try:
            own = self._own.names
            if names & own or not own:
                return names & own
            targets = tuple((name, None) for name in sorted(names))
            return set(self._own.changed_by(Request(action=_ACTIONS[low["fun"]], targets=targets)))
        except SafeUpdateError as err:
            # Only a comment depends on it here. The guard meets the same error when it matters.
            log.error("safeupdate: the minion's own packages are not known: %s", err)
            return set()
