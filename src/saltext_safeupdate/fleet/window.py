"""Maintenance windows: the times of a week in which minions may be started on their update."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from dataclasses import dataclass

from ..core.errors import InputError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY, _MINUTES = 86400, 1440
_FORM = re.compile(
    r"(?:(?P<days>[a-z,\- ]+?)\s+)?(?P<begin>\d\d:\d\d)\s*-\s*(?P<end>\d\d:\d\d)"
    r"(?:\s+(?P<zone>[\w/+\-]+))?",
    re.I,
)


@dataclass(frozen=True)
class Window:
    """
    Minutes of the day from *begin* to *end*, on *days* (0 is Monday), in the time of *zone*.

    One whose end is not after its begin lasts over midnight; it belongs to the day on which it
    begins. The wall clock counts: on the night in which clocks are put forward or back, a window
    is an hour shorter or longer.
    """

    text: str
    days: frozenset[int]
    begin: int
    end: int
    zone: str

    def contains(self, now: float) -> bool:
        """Tell whether *now* (epoch seconds) lies in the window."""
        local = datetime.datetime.fromtimestamp(now, zoneinfo.ZoneInfo(self.zone))
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self.begin < self.end:
            return day in self.days and self.begin <= minute < self.end
        if minute >= self.begin:
            return day in self.days
        return (day - 1) % 7 in self.days and minute < self.end

    def begins(self, now: float) -> float:
        """Return when it begins next, in epoch seconds; *now* if it is open."""
        if self.contains(now):
            return now
        zone = zoneinfo.ZoneInfo(self.zone)
        today = datetime.datetime.fromtimestamp(now, zone).date()
        hour, minute = divmod(self.begin, 60)
        for ahead in range(9):
            day = today + datetime.timedelta(days=ahead)
            if day.weekday() not in self.days:
                continue
            at = datetime.datetime.combine(day, datetime.time(hour, minute), zone).timestamp()
            # A time that the clocks leave out that night is taken from the hour before.
            if at > now and (self.contains(at) or self.contains(at + 3600)):
                return at
        raise AssertionError("a window without days")  # pragma: no cover


def parse(text: object) -> Window:
    """
    Return the window that is meant by ``mon-fri 22:00-04:00 Europe/Berlin``.

    Days are optional (then every day), and so is the zone (then UTC). Raises InputError.
    """
    found = _FORM.fullmatch(str(text).strip())
    if found is None:
        raise InputError(
            f"The window {text!r} is not understood. Write 'mon-fri 22:00-04:00 Europe/Berlin': "
            "days, times and the time zone; without days it is every day, without zone UTC."
        )
    begin, end = (_minutes(found[key], text) for key in ("begin", "end"))
    if begin in (end, _MINUTES):
        raise InputError(f"The window {text!r} has no length.")
    zone = found["zone"] or "UTC"
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise InputError(f"The window {text!r} names the unknown time zone {zone!r}.") from err
    return Window(str(text).strip(), _days(found["days"], text), begin, end, zone)


def is_open(windows: tuple[Window, ...], now: float) -> bool:
    """Tell whether minions may be started now. Without windows they always may."""
    return not windows or any(window.contains(now) for window in windows)


def next_begin(windows: tuple[Window, ...], now: float) -> float:
    """Return when one of the windows is open next, in epoch seconds."""
    return min((window.begins(now) for window in windows), default=now)


def _minutes(text: str, whole: object) -> int:
    hours, minutes = (int(part) for part in text.split(":"))
    if minutes > 59 or hours > 24 or hours * 60 + minutes > _MINUTES:
        raise InputError(f"The window {whole!r} has the impossible time {text}.")
    return hours * 60 + minutes


def _days(text: str | None, whole: object) -> frozenset[int]:
    if not text:
        return frozenset(range(7))
    days: set[int] = set()
    for part in re.split(r"[,\s]+", text.strip().lower()):
        first, dash, last = part.partition("-")
        try:
            one, other = (DAYS.index(day[:3]) for day in (first, last if dash else first))
        except ValueError:
            raise InputError(
                f"The window {whole!r} has the unknown day {part!r}. Days are {', '.join(DAYS)}."
            ) from None
        days |= {(one + step) % 7 for step in range((other - one) % 7 + 1)}
    return frozenset(days)
