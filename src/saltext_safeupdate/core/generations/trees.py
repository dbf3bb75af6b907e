"""
The trees of code that something reads while the originals are replaced, each with its owner.

A tree is a linked copy of a directory of code (:mod:`..host.linked_copy`). It is in the table
before it is made, and out of it after it is gone: whoever cleans up finds all of them there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..host import linked_copy
from ..record.store import Store


class Trees:
    """The trees of the minion of a database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, owner: str) -> dict[str, str]:
        """Return the trees of an owner, by the directories of code that they stand for."""
        if not self._store.exists():
            return {}
        with self._store.connection() as db:
            rows = db.execute("SELECT root, path FROM trees WHERE owner = ?", (owner,)).fetchall()
        return dict(rows)

    def make(self, roots: Sequence[str], owner: str) -> dict[str, str]:
        """
        Copy each of these directories for an owner; return the trees as :meth:`of`. Idempotent.

        Raises OSError if one cannot be made, and removes those that were.
        """
        wanted = {root: linked_copy.copy_path(root, owner) for root in roots}
        with self._store.transaction() as db:
            db.executemany(
                "INSERT OR REPLACE INTO trees (path, root, owner) VALUES (?, ?, ?)",
                [(path, root, owner) for root, path in wanted.items()],
            )
        try:
            return linked_copy.make(roots, owner)
        except OSError:
            self.remove(owner)
            raise

    def remove(self, owner: str) -> None:
        """Remove the trees of an owner. Idempotent. Raises OSError."""
        found = self.of(owner)
        if found:
            linked_copy.remove(found.values())
            with self._store.transaction() as db:
                db.execute("DELETE FROM trees WHERE owner = ?", (owner,))

    def remove_others(self, roots: Sequence[str], owner: str) -> None:
        """Remove all trees beside these directories but those of an owner. Raises OSError."""
        kept = set(self.of(owner).values())
        linked_copy.remove(
            path
            for path in linked_copy.leftovers(roots)
            if path.removesuffix(linked_copy.PART) not in kept
        )
        with self._store.connection() as db:
            rows = db.execute("SELECT path FROM trees").fetchall()
        gone = [row for row in rows if not os.path.isdir(row[0]) and row[0] not in kept]
        if gone:
            with self._store.transaction() as db:
                db.executemany("DELETE FROM trees WHERE path = ?", gone)
