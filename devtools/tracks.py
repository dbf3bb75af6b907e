"""What happened in an experiment, as spans of time: for the picture and for the page."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from devtools.outcome import Job, Outcome

# A ping that took longer was held, or the minion was busy.
PROMPT = 3.0
GOOD, LATE, LOST, WORK = "good", "late", "lost", "work"


@dataclass(frozen=True)
class Span:
    """Something from *begin* to *end*, in seconds since the first job was published."""

    begin: float
    end: float
    kind: str
    text: str


@dataclass(frozen=True)
class Track:
    """One line of a timeline."""

    name: str
    spans: tuple[Span, ...]


def origin(out: Outcome) -> float:
    """Return the time that the spans begin at, in seconds of the host's clock."""
    return min((job.published for job in (*out.jobs, *out.pings)), default=out.began)


def end(out: Outcome) -> float:
    """Return the last second of the timeline."""
    zero = origin(out)
    seen = [moment.time for moment in out.timeline]
    seen += [job.returned or job.published for job in (*out.jobs, *out.pings)]
    return max(1.0, max(seen, default=zero) - zero)


def every(out: Outcome) -> list[Track]:
    """Return a track for each job, and the tracks of :func:`few`."""
    jobs = [Track(job.label, _jobs(out, [job])) for job in out.jobs if job.label != "highstate"]
    highstate, _, *others = few(out)
    return [highstate, *jobs, *others]


def few(out: Outcome) -> list[Track]:
    """Return the tracks that tell the story: what ran, what changed, and who answered."""
    long = [job for job in out.jobs if job.label.startswith("long-")]
    return [
        Track("highstate", _jobs(out, [job for job in out.jobs if job.label == "highstate"])),
        Track(f"{len(long)} long jobs", _jobs(out, long)),
        Track("package changes", _packages(out)),
        Track("test.ping", _jobs(out, out.pings)),
    ]


def _jobs(out: Outcome, jobs: Iterable[Job]) -> tuple[Span, ...]:
    zero, last = origin(out), end(out)
    found = []
    for job in jobs:
        begin = job.published - zero
        if job.lost:
            stop = begin + 1 if job.function == "test.ping" else last
            found.append(Span(begin, stop, LOST, f"{job.label}: its return was lost"))
            continue
        stop = job.returned - zero if job.returned else last
        late = job.function == "test.ping" and stop - begin > PROMPT
        text = f"{job.label}: returned after {stop - begin:.1f} s"
        # A ping is shown when it was sent: the next one follows a second later.
        if job.function == "test.ping":
            stop = begin + 1
        found.append(Span(begin, stop, LATE if late else GOOD, text))
    return tuple(found)


def _packages(out: Outcome) -> tuple[Span, ...]:
    zero = origin(out)
    seen = [moment for moment in out.timeline if moment.what.startswith("dpkg: ")]
    if not seen:
        return ()
    begin, stop = seen[0].time - zero, seen[-1].time - zero
    return (Span(begin, stop, WORK, f"packages change for {stop - begin:.1f} s"),)
