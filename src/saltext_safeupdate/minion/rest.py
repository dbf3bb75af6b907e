"""
The rest of the engine: while there is nothing to do, a minion has no process for it.

An engine has the memory of a minion. When nothing has been open for a minute, it notes what would
be different if there were work (:func:`signs`), and ends. Salt looks every 10 seconds whether an
engine has died, and would start it again: then this compares the signs, and lets it rest as long as
they are the same. Every hour it is started anyway, for changes that leave no sign.

Only the engine of a minion rests that reads its own copy of its code, in which ours is, too: the
process that is forked later must not load another version than the minion has in memory.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..core.errors import LockUnavailableError
from ..core.extensions import ourselves, upgrade
from ..core.generations import code
from ..core.host import engine_at_rest, processes
from ..core.host.locks import Lock
from ..core.jobs import guard_file
from ..core.record.database import Database
from ..core.settings import Settings
from ..patches import instead
from ..this_host import Host
from . import kept_returns, unrecorded

log = logging.getLogger(__name__)

# Our engine, as the configuration names it. Salt calls its function ``start``.
_ENGINE = "safeupdate"
# Seconds in which nothing was to be done before the engine ends, and the longest rest.
_QUIET = 60.0
_LONGEST = 3600.0
# Seconds in which two changes of a file may have the same time: some file systems count seconds.
_TICK = 1.1
# A package manager writes one of these whenever it changes a package.
_INSTALLED = (
    "/var/lib/dpkg/status",
    "/usr/lib/sysimage/rpm/rpmdb.sqlite",
    "/usr/lib/sysimage/rpm/Packages.db",
    "/var/lib/rpm/rpmdb.sqlite",
    "/var/lib/rpm/Packages",
)
# The key of a resting engine in Salt's table, plus the PID that it had. No process can have that
# PID: the kernel's limit is 4,194,304 (proc(5), ``pid_max``), and Salt would end whoever has it.
_NO_PID = 1 << 30


def signs(opts: Mapping[str, Any], settings: Settings, database: Database) -> str:
    """
    Return a digest of what is different as soon as there is work.

    It is the same in a process and in those that it forks only.
    """
    seen = (
        database.stamp(),
        unrecorded.pending(opts),
        bool(kept_returns.paths(opts)),
        guard_file.waited(settings.run_dir),
        code.folders(),
        upgrade.stamp(ourselves.home()),
        *map(code.stamp, _INSTALLED),
    )
    return f"{hash(seen):x}"


class Rest:
    """
    In the engine: its rest.

    *process* is the identity of the minion's main process, *is_quiet* tells whether nothing is to
    be done, as far as that is known without a query, and *is_done* the same by queries and all
    files. An engine that is not *possible* never rests.
    """

    def __init__(
        self,
        host: Host,
        process: str,
        is_quiet: Callable[[], bool],
        is_done: Callable[[], bool],
        *,
        possible: bool,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = host
        self._process = process
        self._is_quiet = is_quiet
        self._is_done = is_done
        self._possible = possible and bool(process)
        self._monotonic = monotonic
        self._quiet_since: float | None = None
        # Whether this engine follows one that rested.
        self.is_over = False

    def goes_on(self, lock: Lock | None) -> bool:
        """
        Tell whether another engine of this minion has begun a rest that is not over.

        If not, this one acts. *lock* is the engine's; without one, none rests.
        """
        if lock is None:
            return False
        if self._possible and _goes_on(self._host.opts, self._host.settings, self._process):
            return True
        before = engine_at_rest.of(self._host.settings.run_dir)
        self.is_over = before is not None and before.process == self._process
        # If it cannot be written, it says nothing as long as this engine has the lock.
        with contextlib.suppress(OSError):
            engine_at_rest.end(lock)
        return False

    def begins(self, lock: Lock | None) -> bool:
        """
        Tell whether the rest begins now: then this engine has to end, and has noted it.

        Raise SafeUpdateError or OSError; then it does not begin.
        """
        if lock is None or not self._possible or not self._is_quiet():
            self._quiet_since = None
            return False
        now = self._monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        if now < self._quiet_since + _QUIET:
            return False
        self._quiet_since = None
        return self._note(lock)

    def _note(self, lock: Lock) -> bool:
        host = self._host
        # Closing the last connection may write. A job may begin at any time.
        host.ledger.close_anchor()
        with contextlib.ExitStack() as otherwise:
            otherwise.callback(host.ledger.anchor)
            time.sleep(_TICK)
            before = signs(host.opts, host.settings, host.store)
            left = unrecorded.pending(host.opts) or kept_returns.paths(host.opts)
            done = not left and self._is_done()
            # These checks see everything that came before the first signs.
            if done and signs(host.opts, host.settings, host.store) == before:
                at = processes.since_boot()
                engine_at_rest.Rest(self._process, before, at, at).write(lock)
                log.debug("safeupdate: the engine rests until there is work")
                otherwise.pop_all()
                return True
        return False


def restarting(settings: Settings) -> Callable[..., Any]:
    """
    Return what takes the place of ``salt.utils.process.ProcessManager.restart_process``.

    In the main process: do not start an engine again that rests.
    """

    def restart(original: Callable[..., Any], manager: Any, pid: int) -> Any:
        entry = manager._process_map.get(pid)
        if entry is None or not is_ours(entry["args"]) or entry["Process"].exitcode != 0:
            return original(manager, pid)
        if pid < _NO_PID and engine_at_rest.of(settings.run_dir) is not None:
            # Another process may get its PID.
            del manager._process_map[pid]
            pid += _NO_PID
            manager._process_map[pid] = entry
        process = entry["Process"]
        if _rests(pid, process, entry["args"][0], settings):
            return instead(original)
        try:
            value = original(manager, pid)
        except OSError as err:
            if pid < _NO_PID:
                raise
            # Salt would never look after any engine again.
            log.error("safeupdate: the engine cannot be started: %s. It is tried again.", err)
            return instead(original)
        if pid not in manager._process_map:
            with contextlib.suppress(ValueError):
                # Salt keeps its pipes open for some time, or has closed them already.
                process.close()
        return value

    return restart


def is_ours(args: Any) -> bool:
    """Tell whether a process that Salt starts with these arguments is our engine."""
    return isinstance(args, tuple | list) and len(args) > 1 and args[1] == f"{_ENGINE}.start"


def living() -> list[Any]:
    """Return the processes of our engines that this process has started and that live."""
    # Salt gives its processes this attribute. After a restart of an engine its name is another.
    return [
        each
        for each in multiprocessing.active_children()
        if getattr(each, "fun", "") == f"{_ENGINE}.start"
    ]


def _rests(pid: int, process: Any, opts: Mapping[str, Any], settings: Settings) -> bool:
    if pid >= _NO_PID and any(each is not process for each in living()):
        # With several masters there are several engines, and one acts.
        return True
    if not _goes_on(opts, settings, processes.me()):
        return False
    _looked(settings)
    return True


def _goes_on(opts: Mapping[str, Any], settings: Settings, process: str) -> bool:
    """Tell whether an engine of the minion with this main process rests, and there is no work."""
    rest = engine_at_rest.of(settings.run_dir)
    if rest is None or rest.process != process:
        return False
    if processes.since_boot() - rest.since >= _LONGEST:
        return False
    try:
        return signs(opts, settings, Database(settings.database)) == rest.signs
    except OSError:
        # The engine says what is wrong there.
        return False


def _looked(settings: Settings) -> None:
    """Note that the minion looks for work."""
    # If it cannot be written, whoever asks takes the engine for lost, which says what is wrong.
    with (
        contextlib.suppress(OSError, LockUnavailableError),
        contextlib.closing(Lock(settings.run_dir, "engine")) as lock,
    ):
        # Nobody but an engine writes otherwise, and none has started yet.
        rest = engine_at_rest.of(settings.run_dir)
        if rest is not None and lock.try_exclusive():
            rest._replace(looked=processes.since_boot()).write(lock)
