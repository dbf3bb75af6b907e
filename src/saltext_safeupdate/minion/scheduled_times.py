"""The due times of jobs in the minion's schedule with ``once``, ``when`` or ``cron``."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import salt.utils.schedule

_FIXED = {"once", "when", "cron"}
_SECOND = datetime.timedelta(seconds=1)
_ONCE_FORMAT = "%Y-%m-%dT%H:%M:%S"


def is_of_salt(name: str) -> bool:
    """Tell whether Salt itself has put the job there: its mine, its masters, its grains."""
    return name.startswith("__")


def is_of_each(name: str) -> bool:
    """Tell whether each generation needs the job for its own connection to a master."""
    return name.startswith("__master")


def of_fixed_time(opts: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the names and the descriptions of jobs that Salt runs only at their time."""
    for name, job in jobs(opts).items():
        if isinstance(job, Mapping) and _FIXED & job.keys() and job.get("enabled", True):
            yield name, job


@contextlib.contextmanager
def only(schedule: Any, keep: Callable[[str], bool]) -> Iterator[None]:
    """Let Salt see no other jobs of the schedule inside this context."""
    whole = schedule._get_schedule

    def some(*args: Any, **kwargs: Any) -> dict[str, Any]:
        listed = whole(*args, **kwargs).items()
        return {name: job for name, job in listed if keep(name) or not isinstance(job, Mapping)}

    schedule._get_schedule = some
    try:
        yield
    finally:
        del schedule._get_schedule


@contextlib.contextmanager
def at_its_time(schedule: Any, name: str, at: datetime.datetime) -> Iterator[None]:
    """Let Salt see only this job inside this context, as one that is due *at* that time."""
    job = schedule._get_schedule()[name]
    # It is late enough, so no splay delays it. Without the key, Salt takes the global one.
    had = {"splay": job["splay"]} if "splay" in job else {}
    job |= {"_next_fire_time": at, "_run": True, "_splay": None, "splay": 0}
    try:
        with only(schedule, name.__eq__):
            yield
    finally:
        del job["splay"]
        job |= had


def jobs(opts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the jobs from the pillar and from the minion."""
    found: dict[str, Any] = {}
    for source in (opts.get("pillar"), opts):
        given = source.get("schedule") if isinstance(source, Mapping) else None
        found |= given if isinstance(given, dict) else {}
    return found


def interval(opts: Mapping[str, Any]) -> datetime.timedelta:
    """Return the time from one check of the schedule to the next."""
    given = opts.get("loop_interval", 1)
    return given if isinstance(given, datetime.timedelta) else datetime.timedelta(seconds=given)


def of(job: Mapping[str, Any], opts: Mapping[str, Any]) -> list[datetime.datetime]:
    """
    Return when a job is due; empty if that cannot be read.

    Salt stores the next time when it checks the job. A minion that starts while jobs are held has
    not checked it yet.
    """
    noted = job.get("_next_fire_time")
    if isinstance(noted, datetime.datetime):
        return [noted.replace(tzinfo=None)]
    if "once" in job:
        named, form = [job["once"]], str(job.get("once_fmt", _ONCE_FORMAT))
    else:
        when, form = job["when"], ""
        named = [_named(each, opts) for each in (when if isinstance(when, list) else [when])]
    found = (_read(each, form) for each in named)
    return [each.replace(tzinfo=None) for each in found if each is not None]


def last_of(
    job: Mapping[str, Any], opts: Mapping[str, Any], now: datetime.datetime
) -> datetime.datetime | None:
    """
    Return the last time until *now* that a job names; None if it names none (``seconds``).

    It is the same for each minion with this configuration, because the random part of a ``splay``
    is left out.
    """
    if "cron" in job:
        croniter: Any = getattr(salt.utils.schedule, "croniter", None)
        try:
            found = croniter.croniter(job["cron"], now + _SECOND).get_prev(datetime.datetime)
        except (AttributeError, KeyError, ValueError):
            # Salt does not run it either.
            return None
        return cast(datetime.datetime, found)
    if not _FIXED & job.keys():
        return None
    named = {key: value for key, value in job.items() if key != "_next_fire_time"}
    return max((at for at in of(named, opts) if at <= now), default=None)


def last_start(
    job: Mapping[str, Any], opts: Mapping[str, Any], until: datetime.datetime
) -> datetime.datetime | None:
    """Return when a job last had to start, until then: at its time, or when its splay has ended."""
    if _is_put_off(job, opts, until):
        return None
    drawn = job.get("_splay")
    ends = drawn.replace(tzinfo=None) if isinstance(drawn, datetime.datetime) else None
    found = (last_of(job, opts, until), ends)
    return max((at for at in found if at is not None and at <= until), default=None)


def bring_forward(opts: Mapping[str, Any], now: datetime.datetime) -> bool:
    """
    Make jobs start at the next check that a ``splay`` has delayed from a time which has passed.

    Any moment up to the end of their splay is as good as the one that Salt has drawn. Tell whether
    there are any.
    """
    found = False
    for job in jobs(opts).values():
        if isinstance(job, dict) and _is_put_off(job, opts, now):
            job["_splay"], found = now, True
    return found


def _is_put_off(job: Mapping[str, Any], opts: Mapping[str, Any], now: datetime.datetime) -> bool:
    drawn, splay = job.get("_splay"), job.get("splay")
    most = splay.get("end") if isinstance(splay, Mapping) else splay
    # Salt does not delay a job with 'once'.
    if not isinstance(drawn, datetime.datetime) or not isinstance(most, int) or "once" in job:
        return False
    at, drawn = last_of(job, opts, now), drawn.replace(tzinfo=None)
    if at is None or has_run(job, at):
        return False
    # It may be delayed from a future time.
    return now < drawn <= at + datetime.timedelta(seconds=most)


def start_what_is_put_off(minions: Iterable[Any]) -> None:
    """Start the jobs of these minions that a splay delays from a time which has passed."""
    # With several masters all parts share one; before the first connection there is no schedule.
    found = {id(each): each for each in (getattr(one, "schedule", None) for one in minions) if each}
    for schedule in found.values():
        if bring_forward(schedule.opts, datetime.datetime.now()):
            schedule.eval()


def has_run(job: Mapping[str, Any], at: datetime.datetime) -> bool:
    """Tell whether Salt has begun the job that was due then, or we have left it out."""
    last = job.get("_last_run")
    return isinstance(last, datetime.datetime) and last.replace(tzinfo=None) >= at


def _named(when: Any, opts: Mapping[str, Any]) -> Any:
    """Return the time that pillar or grains define for a name."""
    for source in (opts.get("pillar"), opts.get("grains")):
        whens = source.get("whens") if isinstance(source, Mapping) else None
        if isinstance(whens, Mapping) and isinstance(when, str) and when in whens:
            return whens[when]
    return when


def _read(given: Any, form: str) -> datetime.datetime | None:
    """Return the time; None if it is not a time: Salt logs that when it checks the job."""
    if isinstance(given, datetime.datetime):
        return given
    try:
        if form:
            return datetime.datetime.strptime(given, form)
        # Salt works without it as well: then it ignores such jobs.
        parser = getattr(salt.utils.schedule, "dateutil_parser", None)
        return parser.parse(given) if parser is not None else None
    except (TypeError, ValueError, OverflowError):
        return None
