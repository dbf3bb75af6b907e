"""How many were in an update at the same time, by what each has noted itself."""

from collections.abc import Iterable


def most_at_once(intervals: Iterable[tuple[float, float]]) -> int:
    """Return in how many of the intervals a moment is, at most; an end may be infinite."""
    moments = []
    for begin, end in intervals:
        moments += [(begin, 1), (end, -1)]
    now = most = 0
    for _, change in sorted(moments):
        now += change
        most = max(most, now)
    return most
