"""Answers to pre-flight in place of a package manager, if no package will change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..packages.request import Change, Request


class NoPackages:
    """
    Answers for an update to a slot: packages stay as they are, so none of them is in the way.

    *keyring* is the file with the keys that must sign builds; empty if no signature is needed.
    """

    def __init__(self, keyring: str) -> None:
        self._keyring = keyring

    def simulate(self, request: Request) -> dict[str, Change]:
        return {}

    def needs(self, what: Mapping[str, str]) -> int:
        return 0

    def needs_to_secure(self, packages: Sequence[str]) -> int:
        return 0

    def signature_policy(self) -> str | None:
        if self._keyring:
            return None
        return "Builds need no signature here: anybody who can write to their source is trusted."

    def busy(self) -> bool:
        return False

    def unfinished(self, packages: Iterable[str]) -> list[str]:
        return []

    def version_locked(self, packages: Iterable[str]) -> set[str]:
        return set()
