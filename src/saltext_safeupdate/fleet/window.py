"""Maintenance windows: the times in which updates may start, and closed periods."""

from __future__ import annotations

import datetime
import math
import re
import zoneinfo
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..core.errors import InputError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
# Which of the days of that name in a month; the last one is counted from its end.
WHICH = {"first": 1, "second": 2, "third": 3, "fourth": 4, "last": -1}
# The beginning of a window that does not open again.
NEVER = math.inf
# The beginning of the year 9999: no date could be reckoned from much later moments.
LATEST = 253_370_764_800.0
_MINUTES = 1440
# Seconds in which times may repeat when clocks are put back, and the seconds before them.
_TWICE, _NO_TIME = 7200, datetime.timedelta()
# Days within which each day of the week comes, and comes as the first or last one of a month.
_AHEAD, _MONTHS_AHEAD = 9, 70
# The most closed periods before the next open moment.
_MOST_PERIODS = 1000
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_FORM = re.compile(
    r"(?:(?P<days>[a-z0-9,\- ]+?)\s+)?(?P<begin>\d\d:\d\d)\s*-\s*(?P<end>\d\d:\d\d)"
    r"(?:\s+(?P<zone>[a-z][\w/+\-]*))?",
    re.I,
)
_PERIOD = re.compile(
    r"(?P<first>\d{4}-\d\d-\d\d)(?:\s*(?:-|\.\.|to)\s*(?P<last>\d{4}-\d\d-\d\d))?"
    r"(?:\s+(?P<zone>[a-z][\w/+\-]*))?",
    re.I,
)


_MOMENT = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)[T ]+(?P<time>\d\d:\d\d)(?::00)?"
    r"(?:\s*(?P<utc>z)|\s+(?P<zone>[a-z][\w/+\-]*))?",
    re.I,
)


@dataclass(frozen=True)
class Window:
    """
    Minutes of the day from *begin* to *end*, on *days* (0 is Monday), in the time of *zone*.

    With *dates*, it is only on these; with *which*, only on that one of these days in a month (-1
    is the last). If its end is not after its beginning, it lasts over midnight, and belongs to the
    day on which it begins. The wall clock counts: in the night in which clocks are put forward or
    back, a window is an hour shorter or longer.
    """

    text: str
    days: frozenset[int]
    begin: int
    end: int
    zone: str
    which: int = 0
    dates: frozenset[datetime.date] = frozenset()

    def contains(self, now: float) -> bool:
        """Return whether *now* (epoch seconds) is in the window."""
        local = datetime.datetime.fromtimestamp(now, zoneinfo.ZoneInfo(self.zone))
        minute, day = local.hour * 60 + local.minute, local.date()
        if self.begin < self.end:
            return self._is_on(day) and self.begin <= minute < self.end
        if minute >= self.begin:
            return self._is_on(day)
        return self._is_on(day - datetime.timedelta(days=1)) and minute < self.end

    def begins(self, now: float) -> float:
        """Return when it begins next, in epoch seconds; *now* if it is open, ``NEVER`` if never."""
        if self.contains(now):
            return now
        zone = zoneinfo.ZoneInfo(self.zone)
        today = datetime.datetime.fromtimestamp(now, zone).date()
        if self._clocks_are_put_back(now, zone):
            # A time that is over on the wall clock may come again.
            for at in range(int(now) // 60 * 60 + 60, int(now) + _TWICE, 60):
                if self.contains(at):
                    return float(at)
        hour, minute = divmod(self.begin, 60)
        for day in self._days_from(today):
            local = datetime.datetime.combine(day, datetime.time(hour, minute), zone)
            first, last = sorted(local.replace(fold=fold).timestamp() for fold in (0, 1))
            # In the night in which clocks change, a time may come twice, or not at all: then the
            # window begins when they are put forward.
            for at in range(int(first), int(last) + 1, 60):
                if at > now and self.contains(at):
                    return float(at)
        return NEVER

    def _clocks_are_put_back(self, now: float, zone: datetime.tzinfo) -> bool:
        """Return whether clocks are put back soon."""
        here, there = (datetime.datetime.fromtimestamp(at, zone) for at in (now, now + _TWICE))
        return (here.utcoffset() or _NO_TIME) > (there.utcoffset() or _NO_TIME)

    def _is_on(self, day: datetime.date) -> bool:
        """Return whether it begins on that day."""
        if self.dates:
            return day in self.dates
        if day.weekday() not in self.days:
            return False
        if self.which < 0:
            return (day + datetime.timedelta(days=7)).month != day.month
        return self.which in (0, (day.day - 1) // 7 + 1)

    def _days_from(self, today: datetime.date) -> Iterator[datetime.date]:
        if self.dates:
            yield from sorted(day for day in self.dates if day >= today)
            return
        for ahead in range(_MONTHS_AHEAD if self.which else _AHEAD):
            day = today + datetime.timedelta(days=ahead)
            if self._is_on(day):
                yield day


@dataclass(frozen=True)
class Period:
    """Whole days, from *first* to *last*, in the time of *zone*, in which no update starts."""

    text: str
    first: datetime.date
    last: datetime.date
    zone: str

    def contains(self, now: float) -> bool:
        local = datetime.datetime.fromtimestamp(now, zoneinfo.ZoneInfo(self.zone))
        return self.first <= local.date() <= self.last

    def ends(self) -> float:
        """Return when it is over, in epoch seconds; ``NEVER`` if it lasts forever."""
        if self.last.year == datetime.MAXYEAR:
            # No date can be calculated from it.
            return NEVER
        after = self.last + datetime.timedelta(days=1)
        zone = zoneinfo.ZoneInfo(self.zone)
        return datetime.datetime.combine(after, datetime.time(), zone).timestamp()


def parse(text: object) -> Window:
    """
    Return the window for a text such as ``mon-fri 22:00-04:00 Europe/Berlin``.

    Instead of days of the week there may be dates (``2026-11-25``), or one day of a month
    (``first sun``). Days are optional (then every day), and so is the zone (then UTC). Raises
    InputError.
    """
    found = _FORM.fullmatch(str(text).strip())
    if found is None:
        raise InputError(
            f"The window {text!r} is not understood. Write 'mon-fri 22:00-04:00 Europe/Berlin': "
            "days, times and the time zone; without days it is every day, without zone UTC. "
            "Instead of days, there may be dates such as '2026-11-25', or 'first sun'."
        )
    begin, end = (_minutes(found[key], text) for key in ("begin", "end"))
    if begin in (end, _MINUTES):
        raise InputError(f"The window {text!r} has no length.")
    days, which, dates = _days(found["days"], text)
    zone = _zone(found["zone"], f"The window {text!r}")
    return Window(str(text).strip(), days, begin, end, zone, which, dates)


def period(text: object) -> Period:
    """
    Return the closed period for a text such as ``2026-12-20 - 2027-01-06 Europe/Berlin``.

    One date is one day; without a zone it is UTC. Raises InputError.
    """
    found = _PERIOD.fullmatch(str(text).strip())
    if found is None:
        raise InputError(
            f"The closed period {text!r} is not understood. Write '2026-12-20 - 2027-01-06 "
            "Europe/Berlin': the first day, the last one, and the time zone; one date is one day, "
            "without a zone it is UTC."
        )
    what = f"The closed period {text!r}"
    first = _date(found["first"], what)
    last = _date(found["last"], what) if found["last"] else first
    if last < first:
        raise InputError(f"{what} ends before it begins.")
    return Period(str(text).strip(), first, last, _zone(found["zone"], what))


def moment(text: object) -> float:
    """
    Return the moment for a text such as ``2026-11-25 22:00 Europe/Berlin``, in epoch seconds.

    Without a zone it is UTC. If it comes twice, because clocks are put back, it is the first one.
    Raises InputError, also if it is left out because they are put forward.
    """
    found = _MOMENT.fullmatch(str(text).strip())
    what = f"The moment {str(text)[:80]!r}"
    if found is None:
        raise InputError(
            f"{what} is not understood. Write '2026-11-25 22:00 Europe/Berlin': the date, the "
            "time and the time zone; without a zone it is UTC."
        )
    minutes = _minutes(found["time"], text)
    if minutes == _MINUTES:
        raise InputError(f"{what} has the impossible time 24:00; write 00:00 of the next day.")
    zone = zoneinfo.ZoneInfo(_zone(None if found["utc"] else found["zone"], what))
    local = datetime.datetime.combine(
        _date(found["date"], what), datetime.time(*divmod(minutes, 60)), zone
    )
    at = local.timestamp()
    if not 0 <= at < LATEST:
        raise InputError(f"{what} is no time at which updates could start. Give another one.")
    if datetime.datetime.fromtimestamp(at, zone).replace(fold=0) != local.replace(fold=0):
        raise InputError(f"{what} does not exist: clocks are put forward then. Give another one.")
    return at


def is_open(windows: Iterable[Window], now: float, closed: Iterable[Period] = ()) -> bool:
    """Return whether updates may start now. Without windows they may, except in closed periods."""
    listed = tuple(windows)
    if any(each.contains(now) for each in closed):
        return False
    return not listed or any(each.contains(now) for each in listed)


def next_begin(windows: Iterable[Window], now: float, closed: Iterable[Period] = ()) -> float:
    """Return when updates may start next, in epoch seconds; ``NEVER`` if never again."""
    listed, shut = tuple(windows), tuple(closed)
    at = now
    for _ in range(_MOST_PERIODS):
        at = min((each.begins(at) for each in listed), default=at)
        if at == NEVER:
            break
        ends = [each.ends() for each in shut if each.contains(at)]
        if not ends:
            return at
        at = max(ends)
        if at == NEVER:
            break
    return NEVER


def _minutes(text: str, whole: object) -> int:
    hours, minutes = (int(part) for part in text.split(":"))
    if minutes > 59 or hours > 24 or hours * 60 + minutes > _MINUTES:
        raise InputError(f"The window {whole!r} has the impossible time {text}.")
    return hours * 60 + minutes


def _zone(given: str | None, what: str) -> str:
    zone = given or "UTC"
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as err:
        raise InputError(f"{what} names the unknown time zone {zone!r}.") from err
    return zone


def _date(text: str, what: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise InputError(f"{what} has the impossible date {text}.") from None


def _days(text: str | None, whole: object) -> tuple[frozenset[int], int, frozenset[datetime.date]]:
    """Return the days of the week, which of them in a month, and the dates, if these are meant."""
    if not text:
        return frozenset(range(7)), 0, frozenset()
    parts = re.split(r"[,\s]+", text.strip().lower())
    if all(map(_DATE.fullmatch, parts)):
        dates = frozenset(_date(part, f"The window {whole!r}") for part in parts)
        return frozenset(range(7)), 0, dates
    which = WHICH.get(parts[0], 0) if len(parts) == 2 else 0
    days: set[int] = set()
    for part in parts[1:] if which else parts:
        first, dash, last = part.partition("-")
        try:
            one, other = (DAYS.index(day[:3]) for day in (first, last if dash else first))
        except ValueError:
            raise InputError(
                f"The window {whole!r} has the unknown day {part!r}. Days are {', '.join(DAYS)}, "
                f"{', '.join(WHICH)} of one of them in a month, or dates."
            ) from None
        days |= {(one + step) % 7 for step in range((other - one) % 7 + 1)}
    return frozenset(days), which, frozenset()
