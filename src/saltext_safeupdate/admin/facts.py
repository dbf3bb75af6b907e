"""What pre-flight has to know that only Salt can tell."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import salt
import salt.loader
from salt.exceptions import SaltException

from ..core.errors import SafeUpdateError
from ..core.prepare.removed_modules import Use, series, used

log = logging.getLogger(__name__)

_ASK_MASTER = "safeupdate.master_version"


def master_version(
    functions: Mapping[str, Callable[..., Any]], pillar: Mapping[str, Any]
) -> str | None:
    """
    Return the version of the master, asked now; None where it does not tell.

    A minion learns of it only where the master was set up so: by our runner function in
    ``peer_run``, or by ``pillar_opts``, which puts it into the pillar.
    """
    try:
        told = functions["publish.runner"](_ASK_MASTER)
        if _version(told) is None and isinstance(pillar.get("master"), Mapping):
            # The pillar in memory may be older than the master.
            told = functions["pillar.items"]().get("master", {}).get("saltversion")
    except SaltException as err:
        log.debug("safeupdate: the master cannot be asked for its version: %s", err)
        return None
    return _version(told)


def _version(told: object) -> str | None:
    return told if isinstance(told, str) and series(told) else None


def state_uses(opts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]) -> set[Use]:
    """Return what the highstate of this minion uses of Salt's core, or raise SafeUpdateError."""
    try:
        chunks = functions["state.show_lowstate"](concurrent=True)
    except SaltException as err:
        raise SafeUpdateError(f"The states of this minion cannot be rendered: {err}") from err
    if not isinstance(chunks, list) or not all(isinstance(chunk, Mapping) for chunk in chunks):
        raise SafeUpdateError(f"The states of this minion cannot be rendered: {chunks}")
    return of_core(used(chunks), functions, _states(opts, functions))


def of_core(
    uses: Iterable[Use],
    functions: Mapping[str, Callable[..., Any]],
    states: Mapping[str, Callable[..., Any]],
) -> set[Use]:
    """
    Return the uses with the file of the core that each comes from.

    Left out is what an extension or a synced module provides, and what cannot be loaded now.
    """
    found = set()
    core = os.path.join(os.path.dirname(os.path.realpath(salt.__file__)), "")
    for use in uses:
        try:
            function = (states if use.kind == "states" else functions)[use.function]
        except KeyError:
            continue
        code = inspect.unwrap(function).__globals__
        # The loader's own names do not tell: what lies beside Salt counts as "int" there.
        if os.path.realpath(str(code.get("__file__", ""))).startswith(core):
            found.add(use._replace(file=str(code["__name__"]).rpartition(".")[2]))
    return found


def _states(
    opts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Mapping[str, Callable[..., Any]]:
    loaded: Mapping[str, Callable[..., Any]] = salt.loader.states(
        opts, functions, salt.loader.utils(opts), salt.loader.serializers(opts)
    )
    return loaded
