"""
The database file: how it is opened, its schema, and what happens if it is unreadable.

Connections live for one call and never cross a fork. The schema only grows
(``PRAGMA user_version``): after a rollback, old code reads what new code wrote.
A file that SQLite cannot read is set aside and reported as a failed update; it is
never taken for "nothing pending".
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator

from ..errors import RecordError
from ..host.files import close_to_others, make_private, open_private, who_else_writes
from . import kept, set_aside

log = logging.getLogger(__name__)

SCHEMA_VERSION = 2
# Seconds that a connection waits for another one that writes.
_BUSY_TIMEOUT = 30.0
# The same in the main process of a minion, which has the whole minion to serve.
MAIN_BUSY_TIMEOUT = 5.0
# Seconds between two tries to switch a new file to write-ahead logging.
_LOG_INTERVAL = 0.02

_OPEN_TO_OTHERS = (
    "The database {path} is not used: {other}. Jobs run as usual, without a record, and no update "
    "starts. Check whether somebody has changed it, and move it away if you do not know; then give "
    "file and directory to the user of the daemon, with the modes 0600 and 0700. If it happens at "
    "each start of a container, something gives the volume to a group: in Kubernetes 'fsGroup', "
    "unless 'fsGroupChangePolicy' is 'OnRootMismatch'."
)

# Arguments and returns of jobs are in a separate table, so that their space can be reused when they
# are wiped.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS updates (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, phase TEXT NOT NULL, reason TEXT NOT NULL,
    jid TEXT NOT NULL, pid INTEGER NOT NULL, created REAL NOT NULL, changed REAL NOT NULL,
    versions_from TEXT NOT NULL, versions_to TEXT NOT NULL, unit TEXT NOT NULL,
    extra TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS phases (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, phase TEXT NOT NULL,
    reason TEXT NOT NULL, at REAL NOT NULL, published INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS generations (
    process TEXT PRIMARY KEY, standing TEXT NOT NULL, report TEXT NOT NULL DEFAULT 'null',
    masters TEXT NOT NULL DEFAULT 'null', probe TEXT NOT NULL DEFAULT 'null',
    refused TEXT NOT NULL DEFAULT 'null', idle TEXT NOT NULL DEFAULT 'null',
    changed TEXT NOT NULL DEFAULT 'null'
);
CREATE TABLE IF NOT EXISTS claims (
    name TEXT PRIMARY KEY, process TEXT NOT NULL, at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quarantine (
    package TEXT NOT NULL, version TEXT NOT NULL, id TEXT NOT NULL, reason TEXT NOT NULL,
    at REAL NOT NULL, PRIMARY KEY (package, version)
);
CREATE TABLE IF NOT EXISTS jobs (
    key TEXT PRIMARY KEY, jid TEXT NOT NULL, fun TEXT NOT NULL, master TEXT NOT NULL,
    state TEXT NOT NULL, owner TEXT NOT NULL DEFAULT '', runner TEXT NOT NULL DEFAULT '',
    accepted REAL NOT NULL, changed REAL NOT NULL, attempts INTEGER NOT NULL,
    sends INTEGER NOT NULL DEFAULT 0, retcode INTEGER NOT NULL DEFAULT 0,
    unbegun INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX IF NOT EXISTS jobs_open ON jobs (state) WHERE state != 'delivered';
CREATE INDEX IF NOT EXISTS jobs_jid ON jobs (jid);
CREATE TABLE IF NOT EXISTS contents (key TEXT PRIMARY KEY, call BLOB, payload BLOB);
CREATE TABLE IF NOT EXISTS chunks (
    key TEXT NOT NULL, tag TEXT NOT NULL, digest TEXT NOT NULL, result BLOB NOT NULL,
    PRIMARY KEY (key, tag)
) WITHOUT ROWID
"""


class Database:
    """
    One SQLite file. Every write is on disk when the call returns, unless it says otherwise.

    A subclass for another file has its own ``SCHEMA``, ``VERSION`` and ``ADDED``. Its ``SETTING``
    names the setting with the path of the file. ``ADDED`` are the columns that files of version 1
    lack: the table, the column, and its type.
    """

    SCHEMA = _SCHEMA
    VERSION = SCHEMA_VERSION
    ADDED: tuple[tuple[str, str, str], ...] = (("jobs", "awaits", "TEXT NOT NULL DEFAULT ''"),)
    SETTING = "safeupdate:state_dir"

    def __init__(
        self,
        path: str,
        *,
        clock: Callable[[], float] = time.time,
        busy_timeout: float = _BUSY_TIMEOUT,
    ) -> None:
        self.path = path
        self._clock = clock
        self._busy_timeout = busy_timeout
        self._anchor: sqlite3.Connection | None = None

    def exists(self) -> bool:
        return os.path.exists(self.path)

    def problem(self) -> str:
        """Return why nothing can be written; empty if it can. Creates nothing."""
        if self.exists():
            try:
                with self.connection(durable=False) as db:
                    _try_to_write(db)
                    return ""
            except RecordError as err:
                return str(err)
        place = os.path.dirname(self.path)
        while not os.path.exists(place):
            place = os.path.dirname(place)
        if not os.access(place, os.W_OK | os.X_OK):
            return str(self._error(f"{place} cannot be written"))
        room = os.statvfs(place)
        # Some file systems count no files.
        if not room.f_bfree or (room.f_files and not room.f_ffree):
            return str(self._error(f"the file system of {place} is full"))
        return ""

    def stamp(self) -> tuple[int, ...]:
        """Return something that changes whenever the database does, without opening it."""
        parts: list[int] = []
        for path in (self.path, self.path + "-wal"):
            try:
                stat = os.stat(path)
            except OSError:
                # It is not there, or opening it says why it cannot be used.
                parts += (0, 0, 0)
            else:
                parts += (stat.st_ino, stat.st_mtime_ns, stat.st_size)
        return tuple(parts)

    def anchor(self) -> None:
        """
        Keep one connection open, so that no other one is closed last.

        The last one empties the write-ahead log into the database, which each job would
        have to wait for. Only for a process that does not fork, such as an engine.

        It is kept only if it can write: while one that cannot is open, no other connection of the
        process can write. Raises RecordError.
        """
        if self._anchor is None:
            with contextlib.ExitStack() as opened:
                db = self._opened("FULL")
                try:
                    opened.callback(db.close)
                    _try_to_write(db)
                except sqlite3.Error as err:
                    raise self._error(err) from err
                opened.pop_all()
            self._anchor = db

    def close_anchor(self) -> None:
        """Close that connection; :meth:`anchor` opens another one."""
        anchor, self._anchor = self._anchor, None
        if anchor is not None:
            anchor.close()

    def scrub(self) -> None:
        """Empty the write-ahead log, and with it what was deleted; not while somebody reads."""
        with self.connection() as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    @contextlib.contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """
        Yield a connection in a write transaction.

        Without *durable* it outlives the death of every process, and a power cut only once
        any durable transaction has followed it.
        """
        with self.connection(durable=durable) as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                with contextlib.suppress(sqlite3.Error):
                    db.rollback()
                raise
            db.commit()

    @contextlib.contextmanager
    def connection(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        synchronous = "FULL" if durable else "NORMAL"
        which = kept.which(self.path)
        taken = kept.take(which)
        db = taken or self._opened(synchronous)
        try:
            if taken is not None:
                db.execute(f"PRAGMA synchronous = {synchronous}")
                db.execute(f"PRAGMA busy_timeout = {round(self._busy_timeout * 1000)}")
            yield db
        except sqlite3.Error as err:
            db.close()
            # This exact class means that the file is damaged, or no database.
            if type(err) is sqlite3.DatabaseError:
                self._set_aside(err)
            raise self._error(err) from err
        except BaseException:
            db.close()
            raise
        kept.give_back(which, db)

    def _opened(self, synchronous: str) -> sqlite3.Connection:
        """Open it; set it aside if it is unreadable, and begin a new one. Raises RecordError."""
        try:
            return self._open(synchronous)
        except sqlite3.OperationalError as err:
            raise self._error(err) from err
        except sqlite3.DatabaseError as err:
            self._set_aside(err)
            try:
                return self._open(synchronous)
            except sqlite3.Error as again:
                raise self._error(again) from again

    def _open(self, synchronous: str) -> sqlite3.Connection:
        if not os.path.exists(self.path):
            self._create()
        try:
            other = who_else_writes(self.path)
        except OSError as err:
            raise self._error(err.strerror or str(err)) from err
        if other:
            raise RecordError(_OPEN_TO_OTHERS.format(path=self.path, other=other))
        db = sqlite3.connect(self.path, timeout=self._busy_timeout, isolation_level=None)
        try:
            db.execute(f"PRAGMA synchronous = {synchronous}")
            db.execute("PRAGMA secure_delete = ON")
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version < self.VERSION:
                self._keep_log(db)
                self._migrate(db)
            elif version > self.VERSION and not self._compatible(db):
                raise RecordError(
                    f"{self.path} was written by a newer version (schema {version}, known: "
                    f"{self.VERSION}). Nothing was changed; install the newer extension again."
                )
        except BaseException:
            db.close()
            raise
        return db

    def _create(self) -> None:
        directory = os.path.dirname(self.path)
        try:
            make_private(directory)
            close_to_others(directory)
            os.close(open_private(self.path))
        except OSError as err:
            raise RecordError(
                f"{self.path} cannot be made: {err.strerror}. Nothing was changed; check the "
                f"permissions and the file system of its directory, and '{self.SETTING}'."
            ) from err

    def _keep_log(self, db: sqlite3.Connection) -> None:
        """Have SQLite write ahead: for this it does not wait by itself if others open it too."""
        deadline = time.monotonic() + self._busy_timeout
        while True:
            try:
                db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as err:
                if "locked" not in str(err) or time.monotonic() >= deadline:
                    raise
                time.sleep(_LOG_INTERVAL)
            else:
                return

    @classmethod
    def _migrate(cls, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        for statement in cls.SCHEMA.split(";"):
            db.execute(statement)
        for table, column, kind in cls.ADDED:
            if column not in _columns(db, table):
                db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}")
        if db.execute("PRAGMA user_version").fetchone()[0] < cls.VERSION:
            db.execute(f"PRAGMA user_version = {cls.VERSION}")
        db.execute("COMMIT")

    @classmethod
    def _compatible(cls, db: sqlite3.Connection) -> bool:
        """Newer schemas only add: this code reads them if its own tables and columns are there."""
        with sqlite3.connect(":memory:", isolation_level=None) as known:
            cls._migrate(known)
            tables = known.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            wanted = {name: _columns(known, name) for (name,) in tables}
        known.close()
        return all(columns <= _columns(db, name) for name, columns in wanted.items())

    def _set_aside(self, err: sqlite3.DatabaseError) -> None:
        """Rename an unreadable file and start a new one that records this."""
        directory = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Only one of those who find it unreadable may do it.
            fcntl.flock(directory, fcntl.LOCK_EX)
            if self._readable():
                return
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._clock()))
            aside = f"{self.path}.unreadable-{stamp}"
            log.error("safeupdate: %s is unreadable (%s); set aside as %s", self.path, err, aside)
            for suffix in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    os.rename(self.path + suffix, aside + suffix)
            set_aside.tidy(glob.escape(f"{self.path}.unreadable-") + "*")
            self._start_anew(stamp, aside, err)
        except sqlite3.Error as again:
            raise self._error(again) from again
        except OSError as again:
            raise RecordError(
                f"{self.path} is unreadable ({err}) and cannot be set aside: {again.strerror}. "
                "Jobs run as usual; move it away by hand."
            ) from again
        finally:
            os.close(directory)

    def _readable(self) -> bool:
        try:
            db = sqlite3.connect(self.path, timeout=self._busy_timeout)
            try:
                return bool(db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
            finally:
                db.close()
        except sqlite3.Error:
            return False

    def _start_anew(self, stamp: str, aside: str, err: sqlite3.DatabaseError) -> None:
        now = self._clock()
        reason = (
            f"The database was unreadable ({err}). It was set aside as {aside}. It is not known "
            "whether an update was under way, and which jobs ran: compare the installed with the "
            "running version and check the jobs from before, then start the update again."
        )
        row = (f"unreadable-{stamp}", "update", "failed", reason, "", 0, now, now)
        db = self._open("FULL")
        try:
            db.execute("BEGIN IMMEDIATE")
            db.execute(
                "INSERT OR REPLACE INTO updates (id, kind, phase, reason, jid, pid, created, "
                "changed, versions_from, versions_to, unit, extra) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{}', '{}', '{}', '{}')",
                row,
            )
            db.execute(
                "INSERT INTO phases (id, phase, reason, at) VALUES (?, 'failed', ?, ?)",
                (row[0], reason, now),
            )
            db.execute("COMMIT")
        finally:
            db.close()

    def _error(self, err: sqlite3.Error | str) -> RecordError:
        return RecordError(
            f"The database {self.path} cannot be used: {self._named(err)}. "
            "Jobs run as usual, but lost jobs cannot be recovered, and no update starts until it "
            "can be written again (check the space and the permissions of its directory)."
        )

    def _named(self, err: sqlite3.Error | str) -> str:
        """
        Return the error with its reason if a file cannot be opened: SQLite does not name it.

        Makes no file and changes none: a log that root makes would belong to root.
        """
        if "unable to open" not in str(err):
            return str(err)
        # Only this one: closing any of the others would drop the locks of this process on it.
        log_file = f"{self.path}-wal"
        try:
            os.close(os.open(log_file, os.O_RDWR | os.O_NOFOLLOW))
        except FileNotFoundError:
            return f"{err}{self._not_made(log_file)}"
        except OSError as reason:
            return f"{err} ({log_file}: {reason.strerror})"
        return str(err)

    @staticmethod
    def _not_made(path: str) -> str:
        """Return why a file cannot be made, in brackets: one without a name is tried instead."""
        try:
            os.close(os.open(os.path.dirname(path), os.O_RDWR | os.O_TMPFILE, 0o600))
        except OSError as reason:
            # Some file systems have no such files; the directory says nothing then.
            unknown = reason.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)
            return "" if unknown else f" ({path}: {reason.strerror})"
        return ""


def _try_to_write(db: sqlite3.Connection) -> None:
    """Write and roll back: a transaction can begin although nothing can be written."""
    db.execute("BEGIN IMMEDIATE")
    version = db.execute("PRAGMA user_version").fetchone()[0]
    db.execute(f"PRAGMA user_version = {version}")
    db.execute("ROLLBACK")


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
