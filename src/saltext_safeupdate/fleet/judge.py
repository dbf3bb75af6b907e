"""The meaning of a minion's own answer for its rollout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..core.errors import visible
from .rollout import Goal, Minion, Step
from .versions import reached

# Phases of an answer that are kept.
MOST_PHASES = 40
# Phases of an update that are over.
_ENDS = {
    "rolled_back": Step.ROLLED_BACK,
    "failed": Step.FAILED,
    "cancelled": Step.FAILED,
}
# At these steps, an answer about the minion's request is no verdict on the present goal.
_NOT_ASKED = (Step.WAITING, Step.MISSED, Step.DONE, Step.CANCELLED, Step.HELD)
# Phases of a request that is done.
_AS_ASKED = ("committed", "idle")
# Phases in which nothing is under way.
_QUIET = frozenset(("", "idle", "committed", "postponed", *_ENDS))


@dataclass(frozen=True, kw_only=True)
class Report:
    """
    A minion's authenticated answer to a question of the rollout.

    question
        The number of the question: the newest answer counts, in whatever order they arrive.
    number
        The number of the newest request that the minion has accepted; 0 without one.
    phase
        The phase of the update that belongs to that request.
    refused
        Why the minion does not accept a request; empty if it has.
    held
        Why rollouts leave it alone; empty if they do not.
    again
        The reason of the refusal may be over soon.
    version, installed
        The versions of Salt that run, and that the package has; empty if not known.
    waits_for
        How many jobs the update waits for.
    staged
        ``done`` or ``failed`` if it has downloaded the update, or tried to.
    to_reboot
        It works as before until somebody reboots its host, which activates the update.
    """

    minion: str
    question: int
    number: int = 0
    phase: str = "idle"
    version: str = ""
    installed: str = ""
    extension: str = ""
    reason: str = ""
    refused: str = ""
    held: str = ""
    again: bool = False
    waits_for: int = 0
    staged: str = ""
    to_reboot: bool = False
    phases: Mapping[str, float] = field(default_factory=dict)


def read(minion: str, question: int, answer: object) -> Report | None:
    """
    Return the report in an answer to that question; None if it has no report.

    The answer may have any shape. Only statements of the minion about itself are believed.
    """
    if not isinstance(answer, Mapping):
        return None
    phases = answer.get("phases")
    staged = answer.get("staged")
    return Report(
        minion=minion,
        question=question,
        number=_count(answer.get("number")),
        phase=_text(answer.get("phase"), 40) or "idle",
        version=_text(answer.get("version"), 100),
        installed=_text(answer.get("installed"), 100),
        extension=_text(answer.get("extension"), 100),
        reason=_text(answer.get("reason")),
        refused=_text(answer.get("refused")),
        held=_text(answer.get("held")),
        again=answer.get("again") is True,
        waits_for=_count(answer.get("waits_for")),
        staged=str(staged) if staged in ("done", "failed") else "",
        to_reboot=(answer.get("phase"), answer.get("reboot")) == ("waiting_for_boot", "awaited"),
        phases=_seconds(phases) if isinstance(phases, Mapping) else {},
    )


def _count(value: object) -> int:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63
    return int(str(value)) if fits else 0


def _text(value: object, longest: int = 500) -> str:
    """Return the beginning of a text, in visible characters."""
    return visible(value[:longest])[:longest] if isinstance(value, str) else ""


def _seconds(phases: Mapping[object, object]) -> dict[str, float]:
    found = list(phases.items())[:MOST_PHASES]
    return {
        _text(phase, 40): float(seconds)
        for phase, seconds in found
        if isinstance(phase, str) and isinstance(seconds, int | float) and 0 <= seconds < 1e9
    }


def in_order(reports: Iterable[Report]) -> list[Report]:
    """Return the reports in the order of the questions; two to one question are ordered, too."""
    heard: dict[tuple[str, int], Report] = {}
    for report in reports:
        other = heard.setdefault((report.minion, report.question), report)
        if other is not report and repr(report) < repr(other):
            heard[report.minion, report.question] = report
    return [report for _, report in sorted(heard.items())]


def heed(minion: Minion, report: Report, goal: Goal) -> bool:
    """
    Take a report into account; return whether the minion has made progress by it.

    The verdict depends on the newest answer alone, so any order has the same result.
    """
    if report.question <= minion.answered:
        return False
    minion.answered = report.question
    minion.version, minion.installed = report.version, report.installed
    if report.staged and minion.staged == "asked":
        minion.staged = report.staged
    minion.engaged = _at_work(minion, report)
    before = minion.step
    if minion.step not in _NOT_ASKED:
        _judge(minion, report, goal)
    elif minion.step is Step.WAITING and _awaits_boot(minion, report):
        # It should try again, and has done everything already: another request would be refused.
        minion.come_to(Step.TO_REBOOT)
    elif minion.step is Step.WAITING and report.held and not minion.engaged:
        minion.come_to(Step.HELD, report.held)
    minion.waits_for = report.waits_for if minion.step is Step.UPDATING else 0
    return minion.step is not before


def _at_work(minion: Minion, report: Report) -> bool:
    """Return whether the minion may be at work, for this rollout or for somebody else."""
    if report.phase == "unknown" or (report.number < minion.number and not report.refused):
        # It does not know, or the request may still be on its way.
        return minion.engaged or report.phase not in _QUIET | {"unknown"}
    return report.phase not in _QUIET and not report.to_reboot


def _awaits_boot(minion: Minion, report: Report) -> bool:
    """Return whether its own newest request waits for a reboot."""
    ours = report.number == minion.number > 0 and not minion.cancelled
    return report.to_reboot and ours


def _judge(minion: Minion, report: Report, goal: Goal) -> None:
    if report.number > minion.number:
        if report.phase in _AS_ASKED and not _lacks(report, goal):
            minion.come_to(Step.DONE, "by a newer request of somebody else")
        else:
            minion.come_to(Step.SUPERSEDED, "it has taken a newer request from somebody else")
        return
    if report.refused and minion.step is Step.ASKED and report.number < minion.number:
        _refused(minion, report)
        return
    if report.number < minion.number:
        # The request has not reached it yet, or was lost: it is sent again.
        return
    minion.phase = report.phase
    minion.phases = dict(report.phases)
    if minion.cancelled and report.phase in ("idle", "cancelled"):
        minion.come_to(Step.CANCELLED, "taken back before it began")
    elif report.phase in _AS_ASKED:
        _committed(minion, report, goal)
    elif report.phase in _ENDS:
        # A minion may say no more than how its update has ended.
        why = "" if report.reason == report.phase else report.reason
        minion.come_to(_ENDS[report.phase], why)
    elif report.phase == "postponed":
        minion.come_to(Step.WAITING, report.reason or "postponed: its jobs did not end in time")
    elif not minion.step.settled:
        minion.come_to(Step.TO_REBOOT if report.to_reboot else Step.UPDATING, report.reason)


def _committed(minion: Minion, report: Report, goal: Goal) -> None:
    if wrong := _lacks(report, goal):
        told = f"it says that it is {report.phase}, but runs {', '.join(wrong)}"
        minion.come_to(Step.FAILED, told)
    else:
        minion.come_to(Step.DONE, "")


def _lacks(report: Report, goal: Goal) -> list[str]:
    """Return what runs there instead of the goal; empty if the goal is reached."""
    salt, extension = goal
    wrong = []
    if salt and not reached(report.version, report.installed, salt):
        disk = f" ({report.installed} is installed)" if report.installed else ""
        wrong.append(f"Salt {report.version or 'unknown'}{disk} instead of {salt}")
    if extension and report.extension != extension:
        wrong.append(f"the extension {report.extension or 'unknown'} instead of {extension}")
    return wrong


def _refused(minion: Minion, report: Report) -> None:
    if report.held:
        minion.come_to(Step.HELD, report.held)
    elif report.again:
        minion.come_to(Step.WAITING, report.refused)
    else:
        minion.come_to(Step.REFUSED, report.refused)
