"""
Calls of ``transactional-update``, with a look at what each of them did.

The tool's exit status proves little: 0 may come without a new default snapshot (a
failed ``tukit close``) and, before 5.5, with the snapshot of a command that failed.
So the default snapshot is compared before and after every call.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..errors import InputError, LockHeldError
from ..host import command, hidden
from ..host.command import Run
from . import cli, detect, handover, leftovers, roots
from .cli import Options
from .handover import Directory
from .invocation import BUSY_INTERVAL, Host, Invocation
from .outcome import Call, Limits, Outcome, status_words
from .programs import witness
from .roots import Roots, Snapshot

log = logging.getLogger(__name__)

_ALREADY_DEFAULT = "Active snapshot is already default snapshot"


def refuse_inside(environ: Mapping[str, str]) -> None:
    """Raise InputError inside a transaction: the tool cannot be called from there."""
    if hidden.in_transaction(environ):
        raise InputError(
            "this runs inside a transaction already, and transactions do not nest; "
            "nothing was changed. Call the function itself, or call this from outside"
        )


class Tool:
    """The one way to the tool. *run* starts programs; *environ* is the caller's."""

    def __init__(
        self,
        *,
        run: Run = command.run,
        environ: Mapping[str, str] = os.environ,
        host: Host | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.run = run
        self.environ = environ
        self.host = host or Host()
        self._clock = clock
        self._pause = pause

    def roots(self) -> Roots:
        """Return the running and the default snapshot."""
        return roots.read_roots(self.run, self.host.mountinfo)

    def snapshots(self) -> list[Snapshot]:
        """Return the snapshots of the root file system."""
        return roots.list_snapshots(self.run)

    def lock_holder(self) -> int | None:
        """Return the pid of the process that keeps the tool busy."""
        return detect.lock_holder(self.host.pid_file, self.host.tukit_lock)

    def invoke(
        self,
        words: Sequence[str],
        options: Options | None,
        limits: Limits,
        *,
        directory: Directory | None = None,
        failed: Callable[[], str | None] = lambda: None,
    ) -> Outcome:
        """
        Wait while the tool is busy, call it, and return what it did.

        *directory* is the hand-over of a call, if it has one. *failed* is asked after the
        call and returns why what ran inside failed, or ``None``.
        """
        refuse_inside(self.environ)
        version = cli.tool_version(self.run)
        call = Call(
            argv=cli.build(words, options, version),
            version=version,
            options=options or Options(drop_if_no_change=False),
            limits=limits,
            opens=cli.SUBCOMMANDS[words[0]].opens,
        )
        if directory is not None:
            return self._in_turn(call, directory, failed)
        with handover.opened(self.host.base) as own:
            return self._in_turn(call, own, failed)

    def run_command(
        self, command_line: Sequence[object] | str, options: Options, limits: Limits
    ) -> Outcome:
        """Run a command in a new snapshot; learn its exit status even if the tool hides it."""
        refuse_inside(self.environ)
        words = cli.command_words(command_line)
        if cli.tool_version(self.run) >= cli.DISCARDS_SINCE:
            return self.invoke(words, options, limits)
        with handover.opened(self.host.base) as directory:

            def failed() -> str | None:
                status = directory.exit_status()
                if status is None:
                    return "the command did not come to its own end"
                return None if status == 0 else f"the command failed: {status_words(status)}"

            watched = ["run", *witnessed(directory), *words[1:]]
            return self.invoke(watched, options, limits, directory=directory, failed=failed)

    def rollback(self, snapshot: str | int | None, limits: Limits) -> Outcome:
        """Set the default snapshot; no error if it is the default already."""
        words = cli.rollback_words(snapshot)
        outcome = self.invoke(words, None, limits)
        target = outcome.before.running.number if outcome.before.running else None
        if len(words) > 1:
            target = None if words[1] == "last" else int(words[1])
        now = outcome.after.default.number
        if outcome.failure is None and target not in (None, now):
            return replace(
                outcome,
                failure=f"exit status 0, but the default snapshot is {now}, not {target}; "
                "see snapper list",
            )
        if _ALREADY_DEFAULT in outcome.result.stdout + outcome.result.stderr:
            return replace(outcome, failure=None)
        return outcome

    def sweep(self) -> bool:
        """
        Remove what calls left that ended without a word, as by a reboot of the host.

        Return False if that has to be tried again: what is open now may be at work.
        """
        if not handover.has_leftovers(self.host.base):
            return True
        fd = handover.open_lock(self.host.base)
        try:
            if not _locked(fd) or self.lock_holder() is not None:
                return False
            handover.sweep(self.host.base, self._remove_noted)
        finally:
            os.close(fd)
        return True

    def _in_turn(
        self, call: Call, directory: Directory, failed: Callable[[], str | None]
    ) -> Outcome:
        with self._turn(call.limits) as deadline:
            handover.sweep(self.host.base, self._remove_noted)
            return Invocation(self, call, directory, failed).run(deadline)

    def _remove_noted(self, directory: Path) -> None:
        """Remove the open snapshot of a call whose process was killed, and the tool with it."""
        problem = leftovers.remove_noted(
            self.run, directory, place=self.host.snapshots, bus=self.host.bus
        )
        if problem:
            log.warning("%s", problem)

    @contextmanager
    def _turn(self, limits: Limits) -> Iterator[float]:
        """Wait for other calls of ours, then for foreign ones; yield the deadline."""
        deadline = self._clock() + limits.lock_timeout
        fd = handover.open_lock(self.host.base)
        try:
            while not (_locked(fd) and self.lock_holder() is None):
                self.wait_or_give_up(deadline, limits)
            yield deadline
        finally:
            os.close(fd)

    def wait_or_give_up(self, deadline: float, limits: Limits) -> None:
        """Pause before the next attempt; raise LockHeldError past the deadline."""
        if self._clock() >= deadline:
            holder = self.lock_holder()
            raise LockHeldError(
                f"transactional-update was busy for {limits.lock_timeout:g} s"
                + (f" (process {holder})" if holder else " (another call from Salt)")
                + "; nothing was changed. Try again later, or raise lock_timeout"
            )
        self._pause(BUSY_INTERVAL)

    def pause(self, seconds: float) -> None:
        """Wait."""
        self._pause(seconds)

    def now(self) -> float:
        """Return the time that deadlines are measured with."""
        return self._clock()


def witnessed(directory: Directory, *options: str) -> list[str]:
    """Return what comes before a command inside, so that its exit status can be relied on."""
    program = directory.put_program(
        "witness.py", Path(witness.__file__).read_text(encoding="utf-8")
    )
    return [sys.executable, "-IS", str(program), *options, str(directory.status)]


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
