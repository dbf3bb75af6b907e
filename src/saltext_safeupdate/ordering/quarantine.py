"""
Versions in quarantine: a call that would install one leaves out the minion's own packages.

A version that was rolled back must not come again with each highstate. Nothing else depends on
that, so the call is made for everything else, and its result says what was left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.errors import argument
from ..core.frozen import frozen
from ..core.packages.choice import matches
from ..core.packages.request import Change
from ..core.record.store import Quarantined
from ..this_host import Host
from .chunks import listed

_TEXT = (
    "Left out by safeupdate: {names}. {row.package} {row.version} was rolled back on this minion "
    "(update {row.id}: {row.why}), so it is not installed again. {rest} When the cause is "
    "fixed, allow it with safeupdate.unquarantine {version}."
)
_WOULD = (
    "This would be left out by safeupdate: {names}. {row.package} {row.version} was rolled back on "
    "this minion (update {row.id}: {row.why}). When the cause is fixed, allow it with "
    "safeupdate.unquarantine {version}."
)


@frozen
class Refusal:
    """Changes of the own packages that are refused, with the version in quarantine."""

    names: frozenset[str]
    row: Quarantined

    def text(self, rest: str, names: frozenset[str] = frozenset()) -> str:
        return self._told(_TEXT, self.names | names, rest=rest)

    def in_test_mode(self) -> str:
        return self._told(_WOULD, self.names)

    def _told(self, text: str, names: frozenset[str], **given: str) -> str:
        version = argument(self.row.version)
        return text.format(names=listed(names), row=self.row, version=version, **given)


class Quarantine:
    """The versions of the own packages that are not installed again."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def versions(self) -> list[Quarantined]:
        """Return what is in quarantine. Raise RecordError."""
        store = self._host.store
        return store.quarantined() if store.exists() else []

    def refusal(self, changes: Mapping[str, Change]) -> Refusal | None:
        """Return why the changes are refused; None if they are not. Raise RecordError."""
        for row in self.versions() if changes else ():
            old, new = changes.get(row.package, ("", ""))
            if new and new != old and matches(row.version, new):
                return Refusal(names=frozenset(changes), row=row)
        return None
