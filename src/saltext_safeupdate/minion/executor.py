"""The work of the executor in the process of a job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..core.jobs import functions


def needs_hooks(data: Mapping[str, Any]) -> bool:
    """Tell whether the process of this job needs our hooks."""
    return functions.needs_hooks(data.get("fun"))


@contextlib.contextmanager
def one_connection() -> Iterator[None]:
    """Let code inside this context open the database only once."""
    from ..core.record import kept

    kept.begin()
    try:
        yield
    finally:
        kept.end()


def begin(
    opts: Mapping[str, Any], data: Mapping[str, Any], *, late: bool = False
) -> Mapping[str, Any] | str | None:
    """
    Take this job's share of the jobs lock, unless it has one or only reads.

    A function that ends jobs also ends suspended ones; then the answer is the message about that.

    *late* tells that no process before this one has our hooks. Then a job is held if its minion may
    not start it now; the answer is what Salt has to take for its return.

    Raise LockHeldError if salt-call may start nothing while an update holds new jobs.
    """
    # A salt-call that only reads starts as fast as without us.
    from ..core.jobs import current
    from ..core.settings import of_minion

    answer = None
    if functions.ends(data.get("fun"), data.get("arg")) is not None:
        from . import calling_off

        answer = calling_off.call_off(of_minion(opts)[0], data)
    if current.get() is not None:
        # Its main process has taken the share, as it does for each job.
        return answer
    # A job of a minion has 'ret', a job of salt-call does not.
    late = late and "ret" in data
    needs_lock = functions.needs_lock(data.get("fun"))
    if not needs_lock and not late:
        return answer
    settings, _ = of_minion(opts)
    if late:
        from . import late_jobs

        if needs_lock and opts.get("multiprocessing", True):
            return late_jobs.begin(opts, data, settings)
        # Nobody could release the lock for a thread.
        late_jobs.settle(data, settings)
        return answer
    current.ensure(settings, str(data.get("jid", "")))
    return None
