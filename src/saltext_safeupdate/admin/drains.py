"""An administrator has this minion take no new jobs for a while, and serve those that run."""

from __future__ import annotations

from typing import Any

from ..core.errors import InputError, SafeUpdateError
from ..core.host import drained
from ..factory import Factory
from . import check
from .jobs import listed
from .status import draining

_LONGEST_REASON = 200


def drain(factory: Factory, timeout: object, reason: object) -> dict[str, Any]:
    """Hold new jobs for *timeout* seconds; return what runs, what is held, and until when."""
    fits = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not fits or not 0 < float(timeout) <= drained.MOST:  # type: ignore[arg-type]
        raise InputError(
            f"'timeout' must be a number of seconds above 0, and at most {drained.MOST:g}. "
            "Nothing was changed."
        )
    _refuse_foreign(factory)
    _refuse_without_hooks(factory)
    try:
        drained.begin(
            factory.settings.run_dir,
            float(timeout),  # type: ignore[arg-type]
            str(reason)[:_LONGEST_REASON],
        )
    except OSError as err:
        raise _unusable(factory, err) from err
    return _shown(factory)


def undrain(factory: Factory) -> dict[str, Any]:
    """Let new jobs start, those that were held first; return what runs and what is held."""
    _refuse_foreign(factory)
    try:
        was = drained.end(factory.settings.run_dir)
    except OSError as err:
        raise _unusable(factory, err) from err
    return {"was_drained": was, **_shown(factory)}


def _shown(factory: Factory) -> dict[str, Any]:
    jobs = listed(factory)
    return {**draining(factory), "running": jobs["running"], "held": jobs["held"]}


def _refuse_foreign(factory: Factory) -> None:
    """Raise SafeUpdateError if another minion has this one's directories."""
    foreign = factory.why_not_ours()
    if foreign:
        raise SafeUpdateError(f"{foreign} Nothing was changed.")


def _refuse_without_hooks(factory: Factory) -> None:
    """Raise SafeUpdateError if nothing would hold a job."""
    problem = check.unhooked(factory)
    if problem:
        raise SafeUpdateError(f"{problem} Nothing was changed: no job would be held.")


def _unusable(factory: Factory, err: OSError) -> SafeUpdateError:
    return SafeUpdateError(
        f"{factory.settings.run_dir} cannot be used: {err.strerror or err}. Nothing was changed; "
        "'safeupdate.check' says more."
    )
