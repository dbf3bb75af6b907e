"""
Jobs that are suspended: they go on behind a restart of the minion or of the system.

Such a job has no process meanwhile. It is held in the ledger, in no queue, until the process whose
end it waits for is gone, or its time is up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

from ..frozen import frozen
from ..record.database import Database

# What the ledger has of a state that restarts is under its tag with this before it.
SUSPENDED = "suspended "


class Suspended(BaseException):
    """
    This job goes on behind a restart, under its JID.

    It is no Exception, because what lies between turns exceptions into results.
    """


class Interrupted(BaseException):
    """
    This job cannot go on, and must not begin anew: what it had done is not known any more.

    It is no Exception for the same reason.
    """


@frozen
class Suspension:
    """
    What a suspended job waits for.

    *process* is the identity of the process that is to end: PID 1 for the system, which is another
    one after each boot, also in a container; the main process of the minion for that. *until* is
    by the clock since boot, *timeout* what it was given, in seconds. *ended* names the function by
    which somebody has ended the job: then it does not go on.
    """

    process: str
    until: float
    timeout: float
    ended: str = ""

    @classmethod
    def of(cls, text: str) -> Suspension:
        """Read what :attr:`text` has written; what cannot be read is over."""
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
        """Tell whether the job has nothing to wait for, or not any more."""
        return self.has_come(alive) or uptime() >= self.until


class Suspensions(Database):
    """What the ledger has of suspended jobs."""

    def begin(
        self,
        key: str,
        tag: str,
        suspension: Suspension,
        results: Mapping[str, bytes] | None = None,
        left: Iterable[str] = (),
    ) -> bool:
        """
        Record that a job is suspended, under the *tag* by which its state finds that again.

        *results* are what its states have come to so far, by tag. That the states around it have
        begun and must not begin again, which are *left* with it, is dropped. It is still running:
        the ledger records by ``put_back`` that it is not any more. Return whether the job is known,
        and nobody has ended it.
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
        """Tell whether states of a job are recorded: it goes on, and does not begin."""
        with self.connection() as db:
            return bool(
                db.execute("SELECT EXISTS (SELECT 1 FROM chunks WHERE key = ?)", (key,)).fetchone()[
                    0
                ]
            )

    def of(self, key: str) -> str:
        """Return what a job has waited for, as text; empty if it never was suspended."""
        with self.connection() as db:
            row = db.execute(
                "SELECT result FROM chunks WHERE key = ? AND substr(tag, 1, ?) = ?",
                (key, len(SUSPENDED), SUSPENDED),
            ).fetchone()
        return "" if row is None else bytes(row[0]).decode(errors="replace")

    def call_off(self, keys: Iterable[str], by: str) -> None:
        """
        Have jobs that are suspended, or may be in a moment, not go on: the function *by* ends them.

        A job that was suspended before may lie in a queue; it does not start from there either.
        """
        ended = Suspension(process="", until=0.0, timeout=0.0, ended=by).text
        with self.transaction() as db:
            db.executemany(
                "UPDATE jobs SET awaits = ? WHERE key = ? AND (awaits != '' OR state = 'running' "
                "OR EXISTS (SELECT 1 FROM chunks WHERE key = jobs.key AND substr(tag, 1, ?) = ?)) "
                "AND state IN ('held', 'running')",
                [(ended, key, len(SUSPENDED), SUSPENDED) for key in keys],
            )

    def drop(self, key: str, tag: str, left: Mapping[str, str] | None = None) -> None:
        """Forget it: nobody restarts. The states that were *left* go on; by tag, their digests."""
        with self.transaction() as db:
            db.execute("UPDATE jobs SET awaits = '' WHERE key = ?", (key,))
            db.execute("DELETE FROM chunks WHERE key = ? AND tag = ?", (key, tag))
            db.executemany(
                "INSERT OR REPLACE INTO chunks (key, tag, digest, result) VALUES (?, ?, ?, x'')",
                [(key, each, digest) for each, digest in (left or {}).items()],
            )
