"""
Jobs that are suspended: they continue after a restart of the minion or of the system.

Such a job has no process meanwhile. It is held in the ledger, in no queue, until the process that
it waits for has ended, or its time is up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from ..frozen import frozen
from ..record.database import Database

# The ledger stores a state that restarts under its tag with this prefix.
SUSPENDED = "suspended "


class Suspended(BaseException):
    """
    This job continues after a restart, under its JID.

    It is not an Exception, because code on its way turns exceptions into results.
    """


class Interrupted(BaseException):
    """
    This job cannot continue, and must not begin again: its results are not known any more.

    It is not an Exception for the same reason.
    """


@frozen
class Suspension:
    """
    The event that a suspended job waits for.

    *process* is the identity of the process that has to end: PID 1 for the system, which is another
    process after each boot, also in a container; or the main process of the minion. *until* uses
    the clock since boot. *timeout* is the given number of seconds. *ended* tells why the job does
    not continue; empty if it does.
    """

    process: str
    until: float
    timeout: float
    ended: str = ""

    @classmethod
    def of(cls, text: str) -> Suspension:
        """Read a :attr:`text`; an unreadable one is over."""
        try:
            found = json.loads(text)
            return cls(
                process=str(found["process"]),
                until=float(found["until"]),
                timeout=float(found["timeout"]),
                ended=str(found.get("ended", "")),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return cls(process="", until=0.0, timeout=0.0)

    @property
    def text(self) -> str:
        said = {"process": self.process, "until": self.until, "timeout": self.timeout}
        return json.dumps({**said, "ended": self.ended} if self.ended else said)

    def has_come(self, alive: Callable[[str], bool]) -> bool:
        """Tell whether the process is gone."""
        return not alive(self.process)

    def is_over(self, alive: Callable[[str], bool], uptime: Callable[[], float]) -> bool:
        """Tell whether the job has nothing to wait for any more."""
        return self.has_come(alive) or uptime() >= self.until


class Suspensions(Database):
    """The rows of suspended jobs in the ledger."""

    def begin(
        self,
        key: str,
        tag: str,
        suspension: Suspension,
        results: Mapping[str, bytes] | None = None,
        left: Iterable[str] = (),
    ) -> bool:
        """
        Record that a job is suspended, under the *tag* by which its state finds the record again.

        *results* are the results of its states so far, by tag. The notes that the states around it
        have begun and must not begin again are *left* with it, and deleted. It is still running:
        ``put_back`` of the ledger records its end. Tell whether the job is known, and nobody has
        ended it.
        """
        with self.transaction() as db:
            done = db.execute(
                "UPDATE jobs SET awaits = ? WHERE key = ? AND state = 'running' AND awaits = ''",
                (suspension.text, key),
            ).rowcount
            if done:
                db.executemany(
                    "DELETE FROM chunks WHERE key = ? AND tag = ?", [(key, each) for each in left]
                )
                rows = {tag: suspension.text.encode(), **(results or {})}
                db.executemany(
                    "INSERT OR REPLACE INTO chunks (key, tag, digest, result) VALUES (?, ?, '', ?)",
                    [(key, each, result) for each, result in rows.items()],
                )
        return bool(done)

    def has_progress(self, key: str) -> bool:
        """Tell whether states of a job are recorded: then it continues and does not begin."""
        with self.connection() as db:
            return bool(
                db.execute("SELECT EXISTS (SELECT 1 FROM chunks WHERE key = ?)", (key,)).fetchone()[
                    0
                ]
            )

    def of(self, key: str) -> str:
        """Return the suspension of a job as text; empty if it was never suspended."""
        with self.connection() as db:
            row = db.execute(
                "SELECT result FROM chunks WHERE key = ? AND substr(tag, 1, ?) = ?",
                (key, len(SUSPENDED), SUSPENDED),
            ).fetchone()
        return "" if row is None else bytes(row[0]).decode(errors="replace")

    def call_off(self, keys: Iterable[str], by: str) -> None:
        """
        Keep jobs from running that are held or will soon be suspended: the function *by* ends them.

        A job may be in a queue; it does not start from there either.
        """
        ended = _ended(f"it was ended by {by!r}")
        with self.transaction() as db:
            db.executemany(
                "UPDATE jobs SET awaits = ? WHERE key = ? AND state IN ('held', 'running')",
                [(ended, key) for key in keys],
            )

    def end_old(self, before: float, why: str) -> None:
        """Keep all jobs from continuing, or from beginning, that are as they were *before*."""
        with self.transaction() as db:
            db.execute(
                "UPDATE jobs SET awaits = ?, unbegun = max(unbegun, attempts = 0), "
                "state = CASE state WHEN 'accepted' THEN 'held' ELSE state END "
                "WHERE changed < ? AND state IN ('accepted', 'held', 'running')",
                (_ended(why), before),
            )

    def drop(self, key: str, tag: str, left: Mapping[str, str] | None = None) -> None:
        """Delete it: there is no restart. The states that were *left* continue; digests by tag."""
        with self.transaction() as db:
            db.execute("UPDATE jobs SET awaits = '' WHERE key = ?", (key,))
            db.execute("DELETE FROM chunks WHERE key = ? AND tag = ?", (key, tag))
            db.executemany(
                "INSERT OR REPLACE INTO chunks (key, tag, digest, result) VALUES (?, ?, ?, x'')",
                [(key, each, digest) for each, digest in (left or {}).items()],
            )


def _ended(why: str) -> str:
    return Suspension(process="", until=0.0, timeout=0.0, ended=why).text
