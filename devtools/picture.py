"""The result of an experiment, on one screen."""

from __future__ import annotations

from collections.abc import Sequence

from devtools import tracks
from devtools.outcome import Job, Outcome
from devtools.report import LABELS

LABEL_WIDTH, CELL_WIDTH, BAR_WIDTH = 18, 28, 60
MARKS = {tracks.GOOD: "=", tracks.LATE: "~", tracks.LOST: "X", tracks.WORK: "#"}
LEGEND = "= until its return   ~ held, then answered   X lost   # packages change"


def picture(outcomes: Sequence[Outcome]) -> str:
    """Return table and timelines of one pair of versions: at most 24 lines of 80 columns."""
    first = outcomes[0]
    lines = [f"== A highstate updates salt-minion {first.old} -> {first.new}, under load ==", ""]
    lines += table(outcomes)
    last = max(map(tracks.end, outcomes))
    for out in outcomes:
        lines += ["", *_bars(out, last)]
    return "\n".join([*lines, LEGEND])


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the rows as lines."""
    return [_row(name, cells) for name, cells in rows(outcomes)]


def rows(outcomes: Sequence[Outcome]) -> list[tuple[str, list[str]]]:
    """Return what became of everything that was sent, and of the minion; the heads first."""
    return [
        ("", [LABELS[out.extension] for out in outcomes]),
        ("highstate", [_highstate(out) for out in outcomes]),
        ("long jobs", [_sum(out, "long-") for out in outcomes]),
        ("jobs after them", [_sum(out, "follow-up-") for out in outcomes]),
        ("test.ping", [_returned(out.pings) for out in outcomes]),
        ("service", [_service(out) for out in outcomes]),
        ("version running", [out.running_after or "NO ANSWER" for out in outcomes]),
    ]


def _row(name: str, cells: Sequence[str]) -> str:
    return (name.ljust(LABEL_WIDTH) + "".join(cell.ljust(CELL_WIDTH) for cell in cells)).rstrip()


def _highstate(out: Outcome) -> str:
    if out.highstate.lost:
        return "LOST"
    good = sum(bool(ok) for ok in out.states.values())
    return f"returned, {good} of {len(out.states)} states"


def _sum(out: Outcome, prefix: str) -> str:
    jobs = [job for job in out.jobs if job.label.startswith(prefix)]
    twice = sum((job.started, job.ended) != (1, 1) and not job.lost for job in jobs)
    return _returned(jobs) + (f", {twice} NOT ONCE" if twice else "")


def _returned(jobs: Sequence[Job]) -> str:
    lost = sum(job.lost for job in jobs)
    return f"{lost} of {len(jobs)} LOST" if lost else f"{len(jobs)} of {len(jobs)} returned"


def _service(out: Outcome) -> str:
    before, after = (
        each.get("ActiveState", "?") for each in (out.service_before, out.service_after)
    )
    return after if before == after else f"{before}, then {after.upper()}"


def _bars(out: Outcome, last: float) -> list[str]:
    scale = BAR_WIDTH / last
    step = next(each for each in (10, 20, 30, 60, 120, 300, 600, 3600) if each * scale >= 8)
    ruler = [" "] * (BAR_WIDTH + 8)
    for second in range(0, int(last) + 1, step):
        at, text = int(second * scale), f"{second} s" if second == 0 else str(second)
        ruler[at : at + len(text)] = text
    head = "with the extension" if out.extension else LABELS[False]
    lines = [head.ljust(LABEL_WIDTH) + "".join(ruler).rstrip()]
    for track in tracks.few(out):
        cells = [" "] * BAR_WIDTH
        # A loss is visible even if a later ping was not lost.
        for span in sorted(track.spans, key=lambda span: span.kind == tracks.LOST):
            begin = min(int(span.begin * scale), BAR_WIDTH - 1)
            stop = max(begin + 1, min(round(span.end * scale), BAR_WIDTH))
            cells[begin:stop] = MARKS[span.kind] * (stop - begin)
        lines.append(f"  {track.name}".ljust(LABEL_WIDTH) + "".join(cells).rstrip())
    return lines
