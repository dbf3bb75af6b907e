"""
States that run in a process of their own.

What they leave for the end of the run they write into their result, where the process of
the run finds it.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from typing import Any

import salt.payload
import salt.state
import salt.utils.files
import salt.utils.hashutils

from ..core.packages.request import Change
from . import results, runs
from .chunks import listed
from .runs import Deferral

MARKER = "__safeupdate_deferred__"


def target(original: Any, instance: Any, low: Mapping[str, Any], args: Any) -> None:
    """In the process of a parallel state: write down what it leaves for the end of the run."""
    run = runs.current()
    if run is None:
        original(*args)
        return
    run.remote = True
    run.calling += 1
    start = datetime.datetime.now()
    path = os.path.join(
        instance.opts["cachedir"],
        instance.invocation_id,
        salt.utils.hashutils.sha1_digest(salt.state._gen_tag(low)),
    )
    try:
        original(*args)
    except Deferral as deferral:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _write(
            path,
            {
                "name": low["name"],
                "result": True,
                "changes": results.predicted(deferral),
                "comment": results.LATER.format(names=listed(deferral.changes)),
                "start_time": start.time().isoformat(),
                "duration": (datetime.datetime.now() - start).total_seconds() * 1000,
                "__parallel__": True,
                MARKER: marked(deferral, low),
            },
        )
    if run.restart:
        with salt.utils.files.fopen(path, "rb") as file:
            ret = salt.state.msgpack_deserialize(file.read())
        ret["comment"] = results.told(ret)
        ret[MARKER] = {**ret.get(MARKER, {}), "restart": run.restart}
        _write(path, ret)


def _write(path: str, ret: Mapping[str, Any]) -> None:
    with salt.utils.files.fopen(path, "wb") as file:
        file.write(salt.state.msgpack_serialize(ret))


def marked(deferral: Deferral, low: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "changes": {name: list(change) for name, change in deferral.changes.items()},
        "names": sorted(deferral.names),
        "low": salt.payload.dumps(dict(low)),
    }


def unmarked(found: Mapping[str, Any]) -> Deferral:
    changes = {name: Change(*change) for name, change in found["changes"].items()}
    return Deferral(changes, frozenset(found["names"]))


def find_marked(value: Any) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    if isinstance(value, dict):
        found = value.pop(MARKER, None)
        if found is not None:
            yield value, found
        for inner in value.values():
            yield from find_marked(inner)
