"""One call of ``transactional-update``, and what is put right around it."""

from __future__ import annotations

import logging
import re
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ..errors import SafeUpdateError
from ..host import processes
from ..host.command import Result, Run
from . import closing, detect, handover, leftovers, roots
from .etc_watch import EtcWatch
from .family import Family, Process
from .handover import Directory
from .outcome import Call, Limits, Outcome, failure_of, why_cut_short
from .roots import Roots, Snapshot, Subvolume
from .timed import TERM_GRACE, Ended, TimedRun

log = logging.getLogger(__name__)

# Seconds between two looks at a busy tool, or at what is left of a call.
BUSY_INTERVAL = 0.25
# Seconds that going back to the former default may take.
_UNDO_TIMEOUT = 300.0

_BUSY = re.compile(
    r"(?:ERROR: )?(?:Couldn't get lock, is another instance already running\?"
    r"|Another instance of tukit is already running\.?)"
)


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


class Turn(Protocol):
    """The part of the tool that a call uses during its turn."""

    run: Run
    host: Host

    def roots(self) -> Roots: ...

    def snapshots(self) -> list[Snapshot]: ...

    def wait_or_give_up(self, deadline: float, limits: Limits) -> None: ...

    def pause(self, seconds: float) -> None: ...

    def now(self) -> float: ...


class Invocation:
    """One call of the tool while it is its turn."""

    def __init__(
        self, tool: Turn, call: Call, directory: Directory, failed: Callable[[], str | None]
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
        if call.opens and not outcome.failure and outcome.new_default:
            outcome = self._looked_at(outcome, known)
        if call.opens and outcome.failure and outcome.new_default:
            certain = bool(short or inner or outcome.refusal)
            return self._undo(outcome, known, certain=certain)
        return outcome

    def _is_ours(self, bad: Subvolume, known: Collection[tuple[int, str]]) -> bool:
        """Tell whether this call has made the snapshot."""
        if self._mine:
            return bad == self._mine
        return bad.number not in {
            snap.number for snap in self._tool.snapshots() if snap.key in known
        }

    def _looked_at(self, outcome: Outcome, known: Collection[tuple[int, str]]) -> Outcome:
        """Ask whether the new default snapshot may stay."""
        if not self._is_ours(outcome.after.default, known):
            return outcome
        refusal = closing.refusal(self._call.base(outcome.before))
        if refusal is None:
            return outcome
        return replace(outcome, refusal=refusal, failure=refusal.reason.rstrip("."))

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
        if not (certain and self._is_ours(bad, known) and roots.exists(run, good, host.snapshots)):
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
        if watch.put_back:
            log.info("edits of the live system are put back: %s", ", ".join(watch.put_back))
        for path, what in lost.items():
            log.warning("transactional-update undid an edit of the live system: %s %s", path, what)
        copies = str(watch.copies) if lost and watch.copies.is_dir() else None
        return replace(outcome, lost_edits=lost, copies=copies, put_back=watch.put_back)


def is_busy(result: Result) -> bool:
    """Tell whether the tool did nothing because another instance runs; its words alone count."""
    lines = f"{result.stdout}\n{result.stderr}".split("\n")
    said = [line.strip() for line in lines if line.strip()]
    return result.returncode == 1 and bool(said) and all(_BUSY.fullmatch(line) for line in said)
