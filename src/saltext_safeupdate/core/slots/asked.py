"""What pre-flight asks of a package manager, if no package is to change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..packages.request import Change, Request


class NoPackages:
    """
    Answers for an update to a slot: packages stay as they are, and nothing of them is in the way.

    *keyring* is the file of keys by which builds have to be signed; empty if they need not be.
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
        return "Builds need no signature here: whoever can write to their source is trusted."

    def busy(self) -> bool:
        return False

    def unfinished(self, packages: Iterable[str]) -> list[str]:
        return []

    def version_locked(self, packages: Iterable[str]) -> set[str]:
        return set()
