"""
Remove this extension from a host, with everything it stores, when nothing needs it any more.

An administrator asks for it before the restart after which the minion runs without the extension.
The supervisor of that restart removes everything, because it is the last one that needs it. While
a job is not complete, nothing is removed, and the reason is shown.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ..errors import SafeUpdateError
from ..generations import own_tree
from ..host import engine_at_rest, inherited, minions
from ..host.files import remove, remove_directory
from ..host.locks import Lock
from ..record.facts import LEAVING, Asked
from ..record.phase import Phase
from ..record.store import Store
from ..settings import Settings
from .context import Context

log = logging.getLogger("salt-safeupdate")

# Seconds for processes that began before the restart: a job of salt-call, or the engine of a minion
# that ends.
_TIMEOUT = 60.0
# Our files below 'state_dir' and 'run_dir'; their temporary names begin with a dot.
_STATE = (
    *("revisions", "staged", "staged-extension", "staged-slot", "unpacked-*", "supervisor-*"),
    "index-*",
    *("settings-*.json", inherited.FILE, "stop_guard.sh"),
    # This is the last: the rest can be found as long as it is there.
    "safeupdate.db*",
)
_RUN = ("*.lock", "bypass", "waited", "handover.*")
# Directories that several minions share. They are removed with the last of these minions.
_SHARED = ("minions", "registry", "salt-safeupdate")


def ask(
    store: Store, config: str, files: Sequence[str] = (), directories: Sequence[str] = ()
) -> None:
    """
    Have everything that is stored for the minion of *config* removed after the next restart.

    *files* elsewhere are removed as well, and *directories* if they are empty then.
    """
    asked = Asked(config=config, files=tuple(files), directories=tuple(directories))
    store.set_fact(LEAVING, asked)


def is_asked(store: Store) -> bool:
    """Tell whether the minion will soon run without this extension."""
    return store.fact(LEAVING) is not None


def finish(context: Context) -> None:
    """Remove everything if that was requested and the minion runs without this extension."""
    store = context.store
    if not is_asked(store):
        return
    last = store.latest()
    if last is None or last.kind != "restart" or last.phase is not Phase.COMMITTED:
        return
    problem = Leaving(
        settings=context.settings,
        store=store,
        owed=context.owed,
        jobs=context.locks.jobs,
        monotonic=context.monotonic,
        sleep=context.sleep,
    ).take_away()
    if problem:
        log.error("%s", problem)
        store.save(replace(last, reason=problem))


@dataclass(kw_only=True)
class Leaving:
    """
    Removes everything that this extension stores. No minion and no engine may use it any more.

    *owed* names what would be lost with it. *jobs* is the ``jobs`` lock if this process has it
    open.
    """

    settings: Settings
    store: Store
    owed: Callable[[], Sequence[str]]
    jobs: Lock | None = None
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def take_away(self) -> str:
        """Remove everything, or remove nothing and return why."""
        settings = self.settings
        try:
            for name in ("engine", "jobs"):
                ours = self.jobs if name == "jobs" else None
                lock = ours or Lock(settings.run_dir, name)
                free = lock.wait_exclusive(_TIMEOUT, clock=self.monotonic, sleep=self.sleep)
                if not free or (name == "engine" and self._rests_on()):
                    return self._kept(
                        "The minion still runs with it."
                        if name == "engine"
                        else "Jobs that began with it did not end."
                    )
            owed = self.owed()
            if owed:
                return self._kept(f"The following would be lost: {'; '.join(owed)}.")
            self._remove(self.store.fact(LEAVING))
        except (SafeUpdateError, OSError) as err:
            return self._kept(str(err))
        return ""

    def _rests_on(self) -> bool:
        """Tell whether an engine rests whose minion continues: an earlier one looks no more."""
        deadline = self.monotonic() + _TIMEOUT
        while engine_at_rest.is_looked_after(self.settings.run_dir):
            if self.monotonic() >= deadline:
                return True
            self.sleep(1.0)
        return False

    def _kept(self, reason: str) -> str:
        return (
            f"The minion runs without safeupdate, and {self.settings.state_dir} was kept: {reason} "
            "Apply the state safeupdate.disabled again when that is settled; safeupdate.jobs lists "
            "the jobs, and safeupdate.enabled lets them be completed."
        )

    def _remove(self, asked: Asked | None) -> None:
        settings = self.settings
        for each in minions.registered(settings.registry_dir):
            if each.state_dir == settings.state_dir:
                # Another minion that runs from them has its own copies.
                own_tree.sweep(each.roots, everything=True)
        if asked is not None:
            remove(minions.path_of(settings.registry_dir, asked.config))
        for path in filter(os.path.isabs, asked.files if asked is not None else ()):
            remove(path)
        for directory, patterns in ((settings.run_dir, _RUN), (settings.state_dir, _STATE)):
            for path in ours_in(directory, patterns):
                _remove_tree(path)
        _remove_empty(settings.registry_dir)
        for directory in (settings.run_dir, settings.state_dir):
            _remove_empty(directory)
        for directory in filter(os.path.isabs, asked.directories if asked is not None else ()):
            remove_directory(directory)


def kept(settings: Settings) -> list[str]:
    """Return the directories that contain files of ours."""
    both = ((settings.state_dir, _STATE), (settings.run_dir, _RUN))
    return [directory for directory, patterns in both if ours_in(directory, patterns)]


def ours_in(directory: str, patterns: Iterable[str]) -> list[str]:
    """Return the paths of our files in the directory, in the order of the patterns."""
    try:
        names = sorted(os.listdir(directory))
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = [
        name
        for pattern in patterns
        for name in names
        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f".{pattern}.*")
    ]
    return [os.path.join(directory, name) for name in dict.fromkeys(found)]


def _remove_tree(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        remove(path)


def _remove_empty(directory: str) -> None:
    """Remove the directory if it is empty, and the shared directories above it."""
    if remove_directory(directory):
        parent = os.path.dirname(directory)
        if os.path.basename(parent) in _SHARED:
            _remove_empty(parent)
