"""
Which minion of this host a database belongs to.

Two minions that wrote to one database would take each other's jobs for their own: a master
publishes one job under one JID to both. The owner is known by its configuration file, so it may
be given another minion ID.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..errors import UnreadableError
from .store import Store
from .typed import Fact


class Owner(NamedTuple):
    """A minion of this host: the path of its configuration file, and its ID."""

    config: str
    id: str


OWNER: Fact[Owner] = Fact("owner", Owner)


def claim(
    store: Store, opts: Mapping[str, Any], exists: Callable[[str], bool] = os.path.exists
) -> str:
    """
    Note that the database is this minion's; if it is another one's, return why it is not.

    A minion whose configuration directory is gone owns nothing any more. Raises RecordError.
    """
    wanted = _minion(opts)

    def is_free(owner: Owner | None) -> bool:
        return owner is None or not _is_of_another(owner, wanted, exists)

    try:
        found = store.claim_fact(OWNER, wanted, is_free)
    except UnreadableError:
        # An invalid owner owns nothing.
        store.set_fact(OWNER, wanted)
        return ""
    return _refusal(store.path, found, wanted, exists)


def why_not_ours(
    store: Store, opts: Mapping[str, Any], exists: Callable[[str], bool] = os.path.exists
) -> str:
    """Return why the database is not this minion's; empty if it is. Raises RecordError."""
    return _refusal(store.path, store.replaceable(OWNER), _minion(opts), exists)


def config_file(opts: Mapping[str, Any]) -> str:
    """Return the path of the configuration file, by which a minion of this host is known."""
    return os.path.realpath(str(opts.get("conf_file") or "/etc/salt/minion"))


def _minion(opts: Mapping[str, Any]) -> Owner:
    return Owner(config_file(opts), str(opts.get("id", "")))


def _is_of_another(owner: Owner, wanted: Owner, exists: Callable[[str], bool]) -> bool:
    return owner.config != wanted.config and exists(os.path.dirname(owner.config))


def _refusal(path: str, owner: Owner | None, wanted: Owner, exists: Callable[[str], bool]) -> str:
    if owner is None or not _is_of_another(owner, wanted, exists):
        return ""
    return refusal(f"The database {path}", f"{owner.id!r} ({owner.config})", wanted.config)


def refusal(what: str, other: object, config: str) -> str:
    """Say what belongs to another minion, and what that means for the one of *config*."""
    return (
        f"{what} belongs to the minion {other}, and this is the minion of {config}. Jobs run here "
        "as with plain Salt: they are not held, recorded or waited for."
    )
