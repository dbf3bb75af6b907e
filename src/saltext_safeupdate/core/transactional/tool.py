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
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import InputError, LockHeldError, SafeUpdateError
from ..host import command, hidden, processes
from ..host.command import Result, Run
from . import cli, detect, handover, leftovers, roots
from .cli import Options
from .etc_watch import EtcWatch
from .family import Family, Process
from .handover import Directory
from .outcome import Call, Limits, Outcome, failure_of, status_words, why_cut_short
from .programs import witness
from .roots import Roots, Snapshot, Subvolume
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
    bus: Path = leftovers.BUS
    snapshots: Path = roots.PLACE


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

    def _in_turn(
        self, call: Call, directory: Directory, failed: Callable[[], str | None]
    ) -> Outcome:
        with self._turn(call.limits) as deadline:
            handover.sweep(self.host.base, self._remove_noted)
            return _Invocation(self, call, directory, failed).run(deadline)

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


class _Invocation:
    """One call of the tool while it is its turn."""

    def __init__(
        self, tool: Tool, call: Call, directory: Directory, failed: Callable[[], str | None]
    ) -> None:
        self._tool = tool
        self._call = call
        self._directory = directory
        self._failed = failed
        self._family = Family(directory.mark, directory.performer)
        self._watch = EtcWatch(tool.host.etc, tool.host.base / f"etc-edits-{directory.mark[:12]}")
        self._running: Subvolume | None = None
        self._mine: Subvolume | None = None

    def run(self, deadline: float) -> Outcome:
        """Call the tool, put right what it left, and return what it did."""
        call = self._call
        before = self._tool.roots()
        self._running = before.running
        known = {snap.key for snap in self._tool.snapshots()}
        if call.merges_etc:
            self._watch.start()
        ended: Ended | None = None
        try:
            ended = self._supervised(deadline)
        finally:
            # Also if this process was told to stop: leave nothing open, nothing pending.
            ended = ended or Ended()
            short = why_cut_short(ended, call.limits.timeout)
            if short or call.opens:
                # The transaction is over: nothing may go on in its snapshot.
                self._end_all(inside_only=short is None)
            left = self._left_open(known) if short or call.options.keep else []
            problems = [] if call.options.keep else self._delete(left)
            outcome = self._judge(before, known, ended)
        if outcome.failure is not None:
            outcome = self._told(outcome, left, problems)
        return self._with_lost_edits(outcome)

    def _supervised(self, deadline: float) -> Ended:
        timed = TimedRun(self._tool.run, clock=self._tool.now, watch=self._look)
        while True:
            ended = timed(self._call.argv, self._family, timeout=self._call.limits.timeout)
            if not (ended.result and is_busy(ended.result)):
                return ended
            self._tool.wait_or_give_up(deadline, self._call.limits)

    def _look(self, members: Sequence[Process]) -> None:
        """Note the snapshot, for the case that this process is killed, and edits of /etc."""
        inside = [process.pid for process in members if process.inside]
        if not inside:
            return
        if self._mine is None:
            found = leftovers.of_processes(inside)
            if found is not None and found != self._running:
                self._mine = found
                try:
                    leftovers.note(self._directory.path, found)
                except OSError as err:
                    # It is needed only if this process is killed.
                    log.warning("snapshot %s is not noted: %s", found.number, err)
        if self._call.merges_etc:
            # When the command has ended the tool merges: then a change is no edit.
            self._watch.look(lambda: any(map(processes.start_time, inside)))

    def _judge(self, before: Roots, known: Collection[tuple[int, str]], ended: Ended) -> Outcome:
        call = self._call
        short, inner = why_cut_short(ended, call.limits.timeout), self._failed()
        after = self._tool.roots()
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
            cut_short=short is not None,
        )
        if call.opens and outcome.failure and outcome.new_default:
            return self._undo(outcome, known, certain=bool(short or inner))
        return outcome

    def _end_all(self, *, inside_only: bool) -> None:
        """Kill what is left of the call, and wait until it is gone."""
        deadline = self._tool.now() + TERM_GRACE
        while self._family.send(signal.SIGKILL, inside_only=inside_only):
            if self._tool.now() >= deadline:
                return
            self._tool.pause(BUSY_INTERVAL / 5)

    def _left_open(self, known: Collection[tuple[int, str]]) -> list[int]:
        """Return the open snapshots of this call: the one that was seen, or all new ones."""
        new = [
            snap.number
            for snap in self._tool.snapshots()
            if snap.in_progress and snap.key not in known
        ]
        mine = self._mine
        return [number for number in new if number == mine.number] if mine else new

    def _delete(self, numbers: Sequence[int]) -> list[str]:
        """Delete snapshots; return what did not work."""
        tried = (
            leftovers.delete(self._tool.run, number, self._tool.host.bus) for number in numbers
        )
        return [problem for problem in tried if problem]

    def _undo(
        self, outcome: Outcome, known: Collection[tuple[int, str]], *, certain: bool
    ) -> Outcome:
        """The snapshot of a failed command is the default: go back to the former one."""
        bad, good = outcome.after.default, outcome.before.default
        run, host = self._tool.run, self._tool.host
        numbers = {snap.number for snap in self._tool.snapshots() if snap.key in known}
        ours = bad == self._mine if self._mine else bad.number not in numbers
        if not (certain and ours and roots.exists(run, good, host.snapshots)):
            return replace(
                outcome,
                failure=f"{outcome.failure}. Snapshot {bad.number} is the default now all the same "
                f"(before it was {good.number}): check it, or go back with "
                f"transactional_update.rollback {good.number}",
            )
        run((detect.TOOL, "rollback", str(good.number)), timeout=_UNDO_TIMEOUT, ok=None)
        after = self._tool.roots()
        if after.default != good:
            raise SafeUpdateError(
                f"{outcome.failure}, its snapshot {bad.number} is the default, and going back to "
                f"{good.number} did not work. Do not reboot: run transactional_update.rollback "
                f"{good.number}"
            )
        problems = [] if outcome.call.options.keep else self._delete([bad.number])
        said = f"Its snapshot {bad.number} was discarded" if not problems else problems[0]
        return replace(
            outcome,
            after=after,
            undone=bad.number,
            kept=bad.number if outcome.call.options.keep else None,
            failure=f"{outcome.failure}. The default is {good.number} as before"
            + ("" if outcome.call.options.keep else f". {said}"),
        )

    def _told(self, outcome: Outcome, left: Sequence[int], problems: Sequence[str]) -> Outcome:
        """Add to the failure which snapshot was kept, and which one could not be deleted."""
        if self._call.options.keep and left:
            outcome = replace(outcome, kept=left[0])
        said = [str(outcome.failure), *problems]
        if outcome.kept:
            said.append(
                f"Its snapshot {outcome.kept} was kept: look at "
                f"{self._tool.host.snapshots}/{outcome.kept}/snapshot, then remove it with "
                f"snapper delete {outcome.kept}"
            )
        return replace(outcome, failure=". ".join(said))

    def _with_lost_edits(self, outcome: Outcome) -> Outcome:
        watch = self._watch
        if not outcome.call.merges_etc:
            return outcome
        outcome = replace(outcome, etc_changed=watch.changed())
        lost = watch.finish(merged=outcome.live or outcome.etc_leaked)
        for path, what in lost.items():
            log.warning("transactional-update undid an edit of the live system: %s %s", path, what)
        copies = str(watch.copies) if lost and watch.copies.is_dir() else None
        return replace(outcome, lost_edits=lost, copies=copies)


def witnessed(directory: Directory, *options: str) -> list[str]:
    """Return what comes before a command inside, so that its exit status can be relied on."""
    program = directory.put_program(
        "witness.py", Path(witness.__file__).read_text(encoding="utf-8")
    )
    return [sys.executable, "-IS", str(program), *options, str(directory.status)]


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
