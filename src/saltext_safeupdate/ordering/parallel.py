"""
States that run in a process of their own.

Such a process writes what it defers to the end of the run into the result of the state. The
process of the run finds it there.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import salt.payload
import salt.state
import salt.utils.files
import salt.utils.hashutils

from ..core.errors import SafeUpdateError
from ..core.packages.request import Change
from . import results, runs
from .chunks import for_the_end, listed, named_packages, without_keys
from .own_packages import OwnPackages
from .runs import Deferral, Level, Pending, Run

MARKER = "__safeupdate_deferred__"


def prepare(run: Run, low: dict[str, Any], own: OwnPackages) -> dict[str, Any]:
    """Remember a state that gets a process of its own, or keep it from getting one."""
    if low["parallel"] and not low.get("__prereq__"):
        if _names_own(low, own):
            # The package manager lets in one process at a time anyway.
            return without_keys(low, "parallel")
        run.levels[-1].parallel.append(salt.state._gen_tag(low))
    return low


def _names_own(low: Mapping[str, Any], own: OwnPackages) -> bool:
    if low["state"] != "pkg":
        return False
    try:
        return bool(named_packages(low) & own.names)
    except SafeUpdateError:
        # The guard meets the same error in a moment, and its caller reports it.
        return False


def call_target(
    original: Callable[..., Any],
    cls: Any,
    instance: Any,
    init_kwargs: Any,
    name: Any,
    cdata: Any,
    low: Any,
    *more: Any,
) -> None:
    """Do what takes the place of ``State._call_parallel_target``."""

    def call() -> None:
        original(cls, instance, init_kwargs, name, cdata, low, *more)

    run = runs.current()
    # A spawned process has neither the instance nor the run.
    if instance is None or run is None:
        call()
    else:
        _call_in_process(call, run, instance, low)


def _call_in_process(
    call: Callable[[], None], run: Run, state: Any, low: Mapping[str, Any]
) -> None:
    """Call a state in its own process; write down what it defers to the end of the run."""
    run.remote = True
    run.calling += 1
    start = datetime.datetime.now()
    # Salt reads the result from there.
    path = os.path.join(
        state.opts["cachedir"],
        state.invocation_id,
        salt.utils.hashutils.sha1_digest(salt.state._gen_tag(low)),
    )
    try:
        call()
    except Deferral as deferral:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        _write(
            path,
            {
                "name": low["name"],
                "result": True,
                "changes": results.predicted_changes(deferral),
                "comment": results.PREDICTED.format(names=deferral.told),
                "start_time": start.time().isoformat(),
                "duration": results.milliseconds_since(start),
                "__parallel__": True,
                MARKER: marked(deferral, low),
            },
        )
    if run.restart_reason or run.left_out:
        with salt.utils.files.fopen(path, "rb") as file:
            ret = salt.state.msgpack_deserialize(file.read())
        results.tell_left_out(ret, run.left_out)
        if run.restart_reason:
            results.announce_restart(ret)
            ret[MARKER] = {**ret.get(MARKER, {}), "restart": run.restart_reason}
        _write(path, ret)


def _write(path: str, ret: Mapping[str, Any]) -> None:
    # It has what the state was given: it is for nobody else to look into.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(salt.state.msgpack_serialize(ret))


def marked(deferral: Deferral, low: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a result carries to the process of the run under :data:`MARKER`."""
    return {
        "changes": {name: list(change) for name, change in deferral.changes.items()},
        "names": sorted(deferral.names),
        "low": salt.payload.dumps(dict(low)),
    }


def collect(run: Run, level: Level) -> None:
    """Read what the states with a process of their own have written into their results."""
    for tag in level.parallel:
        for ret, found in _take_marked(level.results.get(tag)):
            if "restart" in found:
                run.restart_reason = run.restart_reason or found["restart"]
                run.restarted.append(ret)
            if "changes" in found:
                run.pending.append(_pending(ret, found, level))


def fail(level: Level, err: Exception) -> None:
    """Have what has not been collected say so: it is not carried out."""
    for tag in level.parallel:
        for ret, found in _take_marked(level.results.get(tag)):
            names = listed(found.get("changes", ()))
            ret.update(result=False, comment=results.NOT_DEFERRED.format(names=names, error=err))


def _pending(ret: dict[str, Any], found: Mapping[str, Any], level: Level) -> Pending:
    changes = {name: Change(*change) for name, change in found["changes"].items()}
    installs = any(change.new for change in changes.values())
    return Pending(
        state=level.owner,
        low=for_the_end(salt.payload.loads(found["low"])),
        level=level,
        deferral=Deferral(changes, frozenset(found["names"])),
        done_at_once=None,
        placeholder=ret,
        # Its process has ended, and another one carries it out.
        not_secured=results.NOT_SECURED.format(why="it ran in parallel") if installs else "",
    )


def _take_marked(value: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the results in *value* that carry something, and what they have carried."""
    if isinstance(value, dict):
        found = value.pop(MARKER, None)
        if found is not None:
            yield value, found
        for inner in value.values():
            yield from _take_marked(inner)
