"""An administrator has this minion take no new jobs for a while, and serve those that run."""

from __future__ import annotations

from typing import Any

from ...core import times
from ...core.errors import InputError, SafeUpdateError
from ...core.host import drained
from ...this_host import Host
from . import check
from .jobs import listed
from .status import draining

_LONGEST_REASON = 200


def drain(host: Host, timeout: object, reason: object, zone: object = times.UTC) -> dict[str, Any]:
    """
    Hold new jobs for *timeout* seconds; return what runs, what is held, and until when.

    *zone* is the zone of ``times``, as for :func:`.times.zone`.
    """
    fits = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not fits or not 0 < float(timeout) <= drained.MOST:  # type: ignore[arg-type]
        raise InputError(
            f"'timeout' must be a number of seconds above 0, and at most {drained.MOST:g}. "
            "Nothing was changed."
        )
    times.zone(zone)
    _refuse_foreign(host)
    _refuse_without_hooks(host)
    try:
        drained.begin(
            host.settings.run_dir,
            float(timeout),  # type: ignore[arg-type]
            str(reason)[:_LONGEST_REASON],
        )
    except OSError as err:
        raise _unusable(host, err) from err
    return _shown(host, zone)


def undrain(host: Host) -> dict[str, Any]:
    """Let new jobs start, those that were held first; return what runs and what is held."""
    _refuse_foreign(host)
    try:
        was = drained.end(host.settings.run_dir)
    except OSError as err:
        raise _unusable(host, err) from err
    return {"was_drained": was, **_shown(host)}


def _shown(host: Host, zone: object = times.UTC) -> dict[str, Any]:
    jobs = listed(host)
    return {**draining(host, zone), "running": jobs["running"], "held": jobs["held"]}


def _refuse_foreign(host: Host) -> None:
    """Raise SafeUpdateError if another minion has this one's directories."""
    foreign = host.why_not_ours()
    if foreign:
        raise SafeUpdateError(f"{foreign} Nothing was changed.")


def _refuse_without_hooks(host: Host) -> None:
    """Raise SafeUpdateError if nothing would hold a job."""
    problem = check.unhooked(host)
    if problem:
        raise SafeUpdateError(f"{problem} Nothing was changed: no job would be held.")


def _unusable(host: Host, err: OSError) -> SafeUpdateError:
    return SafeUpdateError(
        f"{host.settings.run_dir} cannot be used: {err.strerror or err}. Nothing was changed; "
        "'safeupdate.check' says more."
    )
