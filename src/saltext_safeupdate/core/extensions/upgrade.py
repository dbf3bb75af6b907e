"""
Whether an installed version of this extension differs from the running one.

A look is one ``stat`` of a file that every installation writes again. An installation that is still
writing is ignored: it has ended when nothing has changed from one look to the next.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable

from . import ourselves

# Seconds between two looks.
_INTERVAL = 20.0


def stamp(home: str) -> tuple[int, ...]:
    """Return what differs after each installation of this extension in *home*."""
    try:
        seen = os.stat(os.path.join(home, "__init__.py"))
    except OSError:
        return ()
    return (seen.st_ino, seen.st_mtime_ns, seen.st_size)


class Upgrade:
    """
    Looks, now and then, at what is installed in *home*.

    The version in the memory of the minion's main process is *running*; its children have it.
    *before* is the :func:`stamp` of when the minion has loaded it, if that is known.
    """

    def __init__(
        self,
        home: str | None = None,
        running: str | None = None,
        before: tuple[int, ...] | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._home = home or ourselves.home()
        self._running = running or ourselves.running_version()
        self._monotonic = monotonic
        self._look_at = monotonic()
        self._done = self._seen = stamp(self._home)
        # An engine that is started again in the same minion finds what came before.
        self._pending = ourselves.version_in(self._home) != self._running or (
            before is not None and before != self._seen
        )

    def noticed(self) -> str:
        """Return the version that is on disk if another one was installed; empty if not."""
        now = self._monotonic()
        if now < self._look_at:
            return ""
        self._look_at = now + _INTERVAL
        before, self._seen = self._seen, stamp(self._home)
        if self._seen != before or not (self._pending or self._seen != self._done):
            return ""
        # Empty if it was removed.
        return ourselves.version_in(self._home)

    def tidy(self) -> None:
        """
        Remove the metadata of earlier versions next to the installed one's.

        pip leaves them if it installs into a target, as the bundle has it do. Each of them would
        have to be uninstalled by itself, and until then Salt looks for an extension that is gone.
        """
        infos = ourselves.metadata(os.path.dirname(self._home))
        found = filter(os.path.exists, (os.path.join(info, "METADATA") for info in infos))
        for path in sorted(found, key=os.path.getmtime)[:-1]:
            shutil.rmtree(os.path.dirname(path), ignore_errors=True)

    def is_as_noted(self) -> bool:
        """Tell whether the last look found the version in memory."""
        return not self._pending and self._seen == self._done == stamp(self._home)

    def settle(self) -> None:
        """Say that the minion restarts for it: it is not noticed again."""
        self._done, self._pending = self._seen, False
