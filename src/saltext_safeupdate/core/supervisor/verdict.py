"""
The verdict of the supervisor about a minion: a table without effects.

A rollback needs evidence that the new minion itself is at fault. The page "When an update is
undone" of the documentation has the same table, row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

# Salt's exit status if its master refuses its key, and if it refuses the key of its master.
KEY_REFUSED = 77
MASTER_REFUSED = 42
# This many automatic restarts of a process, or of its work, make a loop.
LOOP = 3


class Verdict(Enum):
    """The consequence for an update."""

    # There is no verdict yet.
    WAIT = "wait"
    # It is committed: proven, impossible to prove here, or stopped by somebody, who decides.
    WELL = "well"
    UNPROVEN = "unproven"
    STOPPED = "stopped"
    # It has failed and is not undone: the old version would have the same problem.
    REFUSED = "refused"
    # It is undone: the new minion is at fault.
    ILL = "ill"
    # It is undone: as far as this host can tell, only the new minion did not reach its master.
    # The version is put into quarantine if the old minion does.
    SILENT = "silent"

    @property
    def good(self) -> bool:
        """Whether it is committed."""
        return self in (Verdict.WELL, Verdict.UNPROVEN, Verdict.STOPPED)


class Judgement(NamedTuple):
    """
    A verdict, and its reason for the record.

    In the *reason*, ``{unit}`` stands for the minion's service. *missing*: the reason only says
    what is missing; the watch adds the time that has passed.
    """

    verdict: Verdict
    reason: str = ""
    missing: bool = False


class Probe(Enum):
    """The result of the job that shows that a minion works."""

    # The minion has no master that should get a return.
    NEEDLESS = "needless"
    PENDING = "pending"
    # It has ended, and its return has not arrived.
    ENDED = "ended"
    # Its master has accepted the return, or was reachable and could not store it.
    ANSWERED = "answered"


WAIT = Judgement(Verdict.WAIT)
_REFUSALS = {
    KEY_REFUSED: (
        "its master refuses its key",
        "the key of this minion on the master ('salt-key')",
    ),
    MASTER_REFUSED: (
        "the key of its master is not the one in its configuration",
        "'master_finger', and whether that is your master",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Seen:
    """
    The facts about a minion so far.

    The process: *active* is the state of its unit in systemd's words. *came* tells whether that
    state belongs to a start after the restart. *status* is its last exit status, and *loops* is how
    often it restarted by itself. *stopped* tells whether somebody has stopped it, and *stable*
    whether it has been the same process for long enough. *patient*: a failed one is started again.

    The report of its engine: *reported* tells whether there is one, *had_reported* whether the
    minion before it reported, and *set_up* whether its configuration names that engine.
    *stood_down*: it runs without our hooks, because they do not know its Salt. *had_stood_down*:
    so did the minion before it.

    The *probe*, and the *master*: whether a master got a return of the minion before the update
    (None: unknown). *reachable* tells whether this host reaches a master (None: its address is
    unknown). *engine* tells whether the engine that requests the probe still runs, and *unhooked*
    whether the minion started without our hooks although they know its Salt.
    *pending*: no master has accepted its key yet, and it asked under this name.
    *broken* is why Salt cannot load the module of the probe; *job* is the name of the probe in a
    reason.

    The health check of the administrator: *check* is how it has failed, and *checking* is what it
    waits for. *check_waited*: it has not begun, or other jobs held it up first. *unchecked*: it
    cannot be run. *over*: the time for all of this has passed. *late*: it has passed by the clock,
    which includes the time in which no master was reachable.
    """

    active: str = "active"
    came: bool = True
    status: int = 0
    loops: int = 0
    stopped: bool = False
    stable: bool = False
    patient: bool = False
    reported: bool = True
    had_reported: bool = True
    set_up: bool = True
    stood_down: bool = False
    had_stood_down: bool = False
    probe: Probe = Probe.PENDING
    master: bool | None = True
    reachable: bool | None = None
    engine: bool = True
    unhooked: bool = False
    pending: str = ""
    broken: str = ""
    job: str = "the probe"
    check: str = ""
    checking: str = ""
    check_waited: bool = False
    unchecked: bool = False
    over: bool = False
    late: bool = False

    @property
    def settled(self) -> bool:
        """Whether the probe cannot tell anything more."""
        if self.probe in (Probe.NEEDLESS, Probe.ANSWERED) or self.master is False or self.pending:
            return True
        if self.reachable is False:
            # A minion that reached its master before gets its time: the master may be back soon.
            return self.late or self.over or self.master is None
        return self.over and self.master is None


def decide(seen: Seen) -> Judgement:
    """Return the verdict; the first row that has one decides."""
    for row in _ROWS:
        found = row(seen)
        if found is not None:
            return found
    return WAIT


# -- rows, in the order in which they count ------------------------------------------------


def _stopped(seen: Seen) -> Judgement | None:
    if not seen.stopped:
        return None
    return Judgement(
        Verdict.STOPPED,
        "Somebody has stopped {unit} since its restart, so it stays stopped. There is no proof yet "
        "that the minion works: start it and check it.",
    )


def _key_refused(seen: Seen) -> Judgement | None:
    died = seen.active == "failed" or seen.loops >= LOOP
    if not (died and seen.came and seen.status in _REFUSALS):
        return None
    why, where = _REFUSALS[seen.status]
    return Judgement(
        Verdict.REFUSED,
        f"{{unit}} has ended because {why}. The old version would not change that, so the new one "
        f"stays installed. Check {where}, then start the service.",
    )


def _died(seen: Seen) -> Judgement | None:
    if seen.active != "failed" or not seen.came or seen.patient:
        return None
    return Judgement(
        Verdict.ILL, "{unit} has failed. 'journalctl -u {unit}' and the minion's log say why."
    )


def _loops(seen: Seen) -> Judgement | None:
    if seen.loops < LOOP:
        return None
    return Judgement(Verdict.ILL, f"{{unit}} started {LOOP + 1} times in a row.")


def _no_report(seen: Seen) -> Judgement | None:
    if seen.reported:
        return None
    if not seen.over:
        return WAIT
    runs = seen.active == "active" and seen.came
    if runs and not seen.had_reported:
        return _unproven("no minion with this extension reported, nor did one before the update")
    if runs and not seen.set_up:
        return _unproven(
            "its configuration does not name the engine 'safeupdate' any more, so nothing "
            "reports. Apply safeupdate.enabled, or safeupdate.disabled if that is intended"
        )
    return Judgement(Verdict.ILL, "no minion with this extension reported", missing=True)


def _stood_down(seen: Seen) -> Judgement | None:
    if not seen.stood_down or seen.had_stood_down:
        return None
    return Judgement(
        Verdict.ILL,
        "This extension does not know the new version of Salt and stands down there, so restarts "
        "would lose jobs. First install a version of saltext-safeupdate that knows it.",
    )


def _broken(seen: Seen) -> Judgement | None:
    if not seen.broken or seen.probe is not Probe.ANSWERED:
        return None
    return Judgement(Verdict.ILL, seen.broken)


def _silence(seen: Seen) -> Judgement | None:
    if seen.settled:
        return None
    if not seen.over:
        return WAIT
    if seen.probe is Probe.PENDING and not seen.engine:
        return _unproven(
            "Salt has ended its engine, as it does while the master is away when a minion starts. "
            "Restart the minion"
        )
    if seen.reachable is None:
        return _unproven("the address of its master is not known, so the master may be away")
    if seen.probe is Probe.PENDING:
        return Judgement(Verdict.SILENT, f"{seen.job} did not end", missing=True)
    return Judgement(
        Verdict.SILENT, f"the return of {seen.job} did not reach its master", missing=True
    )


def _check(seen: Seen) -> Judgement | None:
    if seen.check:
        return Judgement(Verdict.ILL, seen.check)
    if not seen.checking:
        return None
    if (seen.over or seen.late) and (seen.reachable is False or not seen.engine):
        return _unchecked()
    if not seen.over:
        return WAIT
    # If it had to wait for others, that time does not count, and the rows below judge the rest.
    return None if seen.check_waited else Judgement(Verdict.ILL, seen.checking, missing=True)


def _unstable(seen: Seen) -> Judgement | None:
    if seen.stable:
        return None
    if not seen.over:
        return WAIT
    return Judgement(Verdict.ILL, "its process did not stay the same", missing=True)


def _check_had_to_wait(seen: Seen) -> Judgement | None:
    if not seen.checking:
        return None
    return Judgement(
        Verdict.UNPROVEN,
        "{unit} runs, but its health check was not over in time, because other jobs came first: "
        f"{seen.checking}. Check its result, or run it by hand.",
    )


def _key_pending(seen: Seen) -> Judgement | None:
    if not seen.pending or seen.probe in (Probe.NEEDLESS, Probe.ANSWERED):
        return None
    return _unproven(
        f"it waits for its key ('salt-key -a {seen.pending}' on the master). Its ID or its key has "
        "changed, or its key was deleted there, so the old version would wait as well"
    )


def _end(seen: Seen) -> Judgement | None:
    if seen.unchecked:
        return _unchecked()
    if seen.unhooked:
        return _unproven("this extension was not installed yet when it started. Restart the minion")
    if seen.probe in (Probe.NEEDLESS, Probe.ANSWERED):
        return Judgement(Verdict.WELL)
    if seen.reachable is False:
        return _unproven("this host does not reach its master")
    if seen.master is None:
        return _unproven("it is not known whether a master got a return of it before the update")
    return _unproven("its master got no return of it before the update either")


_ROWS: tuple[Callable[[Seen], Judgement | None], ...] = (
    _stopped,
    _key_refused,
    _died,
    _loops,
    _no_report,
    _stood_down,
    _broken,
    _silence,
    _check,
    _unstable,
    _check_had_to_wait,
    _key_pending,
    _end,
)


def _unchecked() -> Judgement:
    return Judgement(
        Verdict.UNPROVEN,
        "{unit} runs, but its health check could not be run: it needs a master that can be "
        "reached, and a minion that may run its jobs. Run it by hand.",
    )


def _unproven(why: str) -> Judgement:
    return Judgement(
        Verdict.UNPROVEN, f"{{unit}} runs, but no master has confirmed that it works: {why}."
    )
