"""A disk that is full, or whose machine dies, at the n-th time that something is written to it."""

from __future__ import annotations

import contextlib
import errno
import os

from tests.support.simulated import Killed

# What changes a disk, and of that what takes room on it.
GROWING = ("fsync", "link", "mkdir", "symlink", "write")
CHANGING = (*GROWING, "chmod", "fchmod", "rename", "replace", "rmdir", "unlink", "utime")


class FailingDisk:
    """
    Counts what changes the disk while :meth:`at_work`; *kind* is what happens at the *at*-th time.

    ``full``: that fails, and whatever else takes room; what removes something works. ``kill``: it
    is not done, and nothing behind it is, as after a power cut. ``error``: that alone fails.
    """

    def __init__(self, monkeypatch):
        self._monkeypatch = monkeypatch
        self.done = 0

    @contextlib.contextmanager
    def at_work(self, kind="", at=0):
        self.done, failed = 0, False

        def wrapped(name, call):
            def counted(*args, **kwargs):
                nonlocal failed
                self.done += 1
                now = self.done == at
                if now:
                    failed = True
                if failed and kind == "kill":
                    raise Killed
                if (now or (failed and name in GROWING)) and kind == "full" and name in GROWING:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if now and kind == "error":
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
                return call(*args, **kwargs)

            return counted

        with self._monkeypatch.context() as patch:
            for name in CHANGING:
                patch.setattr(os, name, wrapped(name, getattr(os, name)))
            yield self
