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
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import CommandError, InputError, LockHeldError, SafeUpdateError
from ..host import command
from ..host.command import Result, Run
from . import cli, detect, handover, roots
from .cli import Options
from .etc_watch import EtcWatch
from .family import Family
from .handover import Directory
from .outcome import Call, Limits, Outcome, cut_short, failure_of, status_words
from .programs import witness
from .roots import Roots, Snapshot
from .timed import TERM_GRACE, Ended, TimedRun

log = logging.getLogger(__name__)

# Seconds between two looks at a busy tool.
BUSY_INTERVAL = 0.25
# Seconds that going back to the former default may take.
_UNDO_TIMEOUT = 300.0

_BUSY = re.compile(
    r"(?:ERROR: )?(?:Couldn't get lock, is another instance already running\?"
    r"|Another instance of tukit is already running\.?)"
)
_ALREADY_DEFAULT = "Active snapshot is already default snapshot"


@dataclass(frozen=True, kw_only=True)
class Host:
    """Where things lie; tests put other places in."""

    base: Path = handover.BASE
    etc: Path = Path("/etc")
    mountinfo: Path = roots.MOUNTINFO
    pid_file: Path = detect.PID_FILE
    tukit_lock: Path = detect.TUKIT_LOCK


def refuse_inside(environ: Mapping[str, str]) -> None:
    """Raise InputError inside a transaction: the tool cannot be called from there."""
    if detect.in_transaction(environ):
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
        handover.private_directory(self.host.base)
        with self._turn(limits) as deadline:
            handover.sweep(self.host.base)
            if directory is None:
                family = Family(secrets.token_hex(16))
            else:
                family = Family(directory.mark, directory.performer)
            return self._invoke(call, family, deadline, failed)

    def run_command(
        self, command_line: Sequence[object] | str, options: Options, limits: Limits
    ) -> Outcome:
        """Run a command in a new snapshot; learn its exit status even if the tool hides it."""
        refuse_inside(self.environ)
        words = cli.command_words(command_line)
        if cli.tool_version(self.run) >= cli.DISCARDS_SINCE:
            return self.invoke(words, options, limits)
        with handover.opened(self.host.base) as directory:
            program = directory.put_program(
                "witness.py", Path(witness.__file__).read_text(encoding="utf-8")
            )
            seen = [sys.executable, "-I", str(program), str(directory.status)]

            def failed() -> str | None:
                status = directory.exit_status()
                if status is None:
                    return "the command did not come to its own end"
                return None if status == 0 else f"the command failed: {status_words(status)}"

            watched = ["run", *seen, *words[1:]]
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

    @contextmanager
    def _turn(self, limits: Limits) -> Iterator[float]:
        """Wait for other calls of ours, then for foreign ones; yield the deadline."""
        deadline = self._clock() + limits.lock_timeout
        fd = handover.open_lock(self.host.base)
        try:
            while not (_locked(fd) and self.lock_holder() is None):
                self._wait_or_give_up(deadline, limits)
            yield deadline
        finally:
            os.close(fd)

    def _wait_or_give_up(self, deadline: float, limits: Limits) -> None:
        """Pause before the next attempt; raise LockHeldError past the deadline."""
        if self._clock() >= deadline:
            holder = self.lock_holder()
            raise LockHeldError(
                f"transactional-update was busy for {limits.lock_timeout:g} s"
                + (f" (process {holder})" if holder else " (another call from Salt)")
                + "; nothing was changed. Try again later, or raise lock_timeout"
            )
        self._pause(BUSY_INTERVAL)

    def _invoke(
        self, call: Call, family: Family, deadline: float, failed: Callable[[], str | None]
    ) -> Outcome:
        before = self.roots()
        open_before = {snap.key for snap in self.snapshots() if snap.in_progress}
        watch = EtcWatch(self.host.etc, self.host.base / f"etc-edits-{family.mark[:12]}")
        if call.merges_etc:
            watch.start()
        ended: Ended | None = None
        try:
            ended = self._supervised(call, family, deadline, watch)
        finally:
            # Also if this process was told to stop: leave nothing open, nothing pending.
            ended = ended or Ended()
            short = cut_short(ended, call.limits.timeout) is not None
            if short or call.opens:
                # The transaction is over: nothing may go on in its snapshot.
                self._end_all(family, inside_only=not short)
            if short:
                self._remove_open(open_before, keep=call.options.keep)
            outcome = self._judge(call, before, ended, failed())
        return self._with_lost_edits(outcome, watch)

    def _supervised(self, call: Call, family: Family, deadline: float, watch: EtcWatch) -> Ended:
        timed = TimedRun(
            self.run, clock=self._clock, watch=watch.look if call.merges_etc else lambda: None
        )
        while True:
            ended = timed(call.argv, family, timeout=call.limits.timeout)
            if not (ended.result and is_busy(ended.result)):
                return ended
            self._wait_or_give_up(deadline, call.limits)

    def _judge(
        self,
        call: Call,
        before: Roots,
        ended: Ended,
        inner: str | None,
    ) -> Outcome:
        short = cut_short(ended, call.limits.timeout)
        after = self.roots()
        result = ended.result or Result(
            argv=call.argv,
            returncode=-1,
            stdout=ended.error.stdout if ended.error else "",
            stderr=ended.error.stderr if ended.error else "",
        )
        outcome = Outcome(
            call=call,
            result=result,
            before=before,
            after=after,
            failure=short or inner or failure_of(call, result, before, after),
        )
        if call.opens and outcome.failure and outcome.new_default:
            return self._undo(outcome, certain=bool(short or inner))
        return outcome

    def _end_all(self, family: Family, *, inside_only: bool) -> None:
        """Kill what is left of a call, and wait until it is gone."""
        deadline = self._clock() + TERM_GRACE
        while family.send(signal.SIGKILL, inside_only=inside_only):
            if self._clock() >= deadline:
                return
            self._pause(BUSY_INTERVAL / 5)

    def _remove_open(self, open_before: set[tuple[int, str]], *, keep: bool) -> None:
        """Remove the open snapshots of a tool that was killed."""
        for snap in self.snapshots():
            if snap.in_progress and snap.key not in open_before and not keep:
                self._delete(snap.number)

    def _undo(self, outcome: Outcome, *, certain: bool) -> Outcome:
        """A tool before 5.5 made the snapshot of a failed command the default: go back."""
        bad, good = outcome.after.default.number, outcome.before.default.number
        if outcome.call.version >= cli.DISCARDS_SINCE or not certain:
            return replace(
                outcome,
                failure=f"{outcome.failure}. Snapshot {bad} is the default now all the same: "
                f"check it, or go back with transactional_update.rollback {good}",
            )
        self.run((detect.TOOL, "rollback", str(good)), timeout=_UNDO_TIMEOUT, ok=None)
        after = self.roots()
        if after.default != outcome.before.default:
            raise SafeUpdateError(
                f"{outcome.failure}, its snapshot {bad} is the default, and going back to "
                f"{good} did not work. Do not reboot: run transactional_update.rollback {good}"
            )
        if not outcome.call.options.keep:
            self._delete(bad)
        return replace(
            outcome,
            after=after,
            undone=bad,
            failure=f"{outcome.failure}. Its snapshot {bad} was discarded; "
            f"the default is {good} as before",
        )

    def _delete(self, number: int) -> None:
        try:
            self.run(("snapper", "--no-dbus", "delete", str(number)), timeout=roots.QUERY_TIMEOUT)
        except CommandError as err:
            log.warning("snapshot %s could not be deleted, snapper will: %s", number, err)

    def _with_lost_edits(self, outcome: Outcome, watch: EtcWatch) -> Outcome:
        if not outcome.call.merges_etc:
            return outcome
        outcome = replace(outcome, etc_changed=watch.changed())
        lost = watch.finish(merged=outcome.live or outcome.etc_leaked)
        for path, what in lost.items():
            log.warning("transactional-update undid an edit of the live system: %s %s", path, what)
        copies = str(watch.copies) if lost and watch.copies.is_dir() else None
        return replace(outcome, lost_edits=lost, copies=copies)


def is_busy(result: Result) -> bool:
    """Tell whether the tool did nothing because another instance runs; its words alone count."""
    lines = f"{result.stdout}\n{result.stderr}".split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return result.returncode == 1 and bool(said) and all(_BUSY.fullmatch(line) for line in said)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
