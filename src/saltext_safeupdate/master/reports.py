"""Rollouts of this master in files: as a page for people, and as metrics."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable

from ..core import times
from ..core.errors import InputError, RecordError
from ..core.host import rights
from ..core.host.files import write_atomic
from ..fleet import metrics as metric
from ..fleet import report
from ..fleet.rollout import Rollout
from .store import Store

# Seconds for which a rollout that has ended stays in the metrics.
RECENT = 7 * 86400.0
# The most of these: each has a series for each step and mode, and a policy begins many.
MOST_OVER = 50
# The end of the names that textfile collectors read.
METRICS = ".prom"


def write_report(
    store: Store,
    name: str,
    path: str,
    *,
    public: bool = False,
    force: bool = False,
    zone: object = times.UTC,
    clock: Callable[[], float] = time.time,
) -> str:
    """
    Write the page of a rollout to a file and return its full path.

    Only the user of the master may read it, unless it is *public*. A file that is no report is
    replaced only by *force*. *zone* is the zone of its times. Raises InputError if there is no such
    rollout, or the file cannot be written.
    """
    target = _target(path)
    if closed := rights.unwritable([target]):
        raise InputError(
            f"{closed} {target} was not written. Give a path in a directory where that user may "
            "write."
        )
    if _is_other_file(target, report.MARK.encode()) and not force:
        raise InputError(
            f"{target} is there and is no report, so it was left alone. Give another path, or "
            "'force=True' to replace it."
        )
    page = report_page(store, name, zone=zone, clock=clock)
    _write(target, page, 0o644 if public else 0o600)
    return target


def report_page(
    store: Store, name: str, *, zone: object = times.UTC, clock: Callable[[], float] = time.time
) -> str:
    """Return the page of a rollout. Raises InputError if there is no such rollout."""
    return report.page(_rollout(store, name), clock(), zone)


def metrics(
    store: Store, minions: Iterable[str] = (), *, clock: Callable[[], float] = time.time
) -> str:
    """
    Return the versions on *minions*, and rollouts under way or recently over, as metrics.

    No minion is asked: the last answers count.
    """
    now = clock()
    unreadable, listed, over = 0, [], []
    for name in store.rollouts():
        try:
            outline = store.outline(name)
        except (InputError, RecordError):
            # The metrics of the others are still true; the number of unreadable ones is a metric.
            unreadable += 1
            continue
        if outline is not None and not outline.mode.final:
            listed.append(name)
        elif outline is not None and now - outline.looked <= RECENT:
            over.append((outline.looked, name))
    listed += [name for _, name in sorted(over)[-MOST_OVER:]]
    found = []
    for name in sorted(listed):
        try:
            rollout = store.rollout(name)
        except (InputError, RecordError):
            unreadable += 1
            continue
        if rollout is not None:
            found.append(rollout)
    names = list(minions)
    return metric.metrics(found, unreadable, store.records(names), names, now)


def write_metrics(
    store: Store,
    path: str,
    minions: Iterable[str] = (),
    *,
    clock: Callable[[], float] = time.time,
) -> str:
    """
    Write the metrics to a file that all users may read, and return its full path.

    A reader sees either the old or the new ones, complete. Raises InputError if the file cannot be
    written, holds something else, or has a name that no collector reads.
    """
    target = _target(path)
    if not target.endswith(METRICS):
        raise InputError(f"Textfile collectors read '*{METRICS}' only; {target} was not written.")
    if closed := rights.unwritable([target]):
        raise InputError(
            f"{closed} {target} was not written. {rights.remedy([target])}. Or give another path."
        )
    if _is_other_file(target, metric.FIRST_METRIC.encode()):
        raise InputError(
            f"{target} is there and does not hold these metrics, so it was left alone. "
            "Give another path."
        )
    _write(target, metrics(store, minions, clock=clock), 0o644)
    return target


def _rollout(store: Store, name: str) -> Rollout:
    found = store.rollout(str(name))
    if found is None:
        known = ", ".join(store.rollouts()[-5:]) or "none"
        raise InputError(f"There is no rollout {name!r}. The newest are: {known}.")
    return found


def _target(path: str) -> str:
    if not path or not isinstance(path, str):
        raise InputError("Give the path of the file to write.")
    return os.path.abspath(os.path.expanduser(path))


def _is_other_file(path: str, mark: bytes) -> bool:
    """Return whether another file is there, with a different beginning from ours."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise InputError(f"{path} is no regular file, so it was left alone. Give another path.")
        with open(path, "rb") as file:
            return mark not in file.read(1000)
    except FileNotFoundError:
        return False
    except OSError as err:
        raise InputError(f"{path} cannot be read: {err.strerror}. It was left alone.") from err


def _write(path: str, text: str, mode: int) -> None:
    try:
        write_atomic(path, text, mode=mode)
    except OSError as err:
        raise InputError(
            f"{path} cannot be written: {err.strerror}. See that its directory exists and the "
            "user of the master may write to it."
        ) from err
