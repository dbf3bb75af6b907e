"""Facts for pre-flight that only Salt knows."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import salt
from salt.exceptions import SaltException

from ...core.errors import SafeUpdateError
from ...core.host import copy_names
from ...core.prepare.removed_modules import Use, series, used

log = logging.getLogger(__name__)

Functions = Mapping[str, Callable[..., Any]]

_MASTER_VERSION = "safeupdate.master_version"


def master_version(functions: Functions, pillar: Mapping[str, Any]) -> str | None:
    """
    Ask the master for its version and return it; None if the master does not tell.

    A master tells only if it was set up for that: by our runner function in ``peer_run``, or
    by ``pillar_opts``, which puts its version into the pillar.
    """
    try:
        answer = functions["publish.runner"](_MASTER_VERSION)
        if _version(answer) is None and isinstance(pillar.get("master"), Mapping):
            # The pillar in memory may be older than the master.
            answer = functions["pillar.items"]().get("master", {}).get("saltversion")
    except SaltException as err:
        log.debug("safeupdate: the master cannot be asked for its version: %s", err)
        return None
    return _version(answer)


def masters(opts: Mapping[str, Any]) -> tuple[list[str], int]:
    """Return the names of all masters of this minion, and the port that it sends requests to."""
    given = opts.get("master") or ()
    names = [given] if isinstance(given, str) else [str(each) for each in given]
    return names, int(opts.get("master_port") or 0)


def _version(answer: object) -> str | None:
    return answer if isinstance(answer, str) and series(answer) else None


def state_uses(opts: Mapping[str, Any], functions: Functions) -> set[Use]:
    """Return what the highstate of this minion uses of Salt's core, or raise SafeUpdateError."""
    try:
        chunks = functions["state.show_lowstate"](concurrent=True)
    except SaltException as err:
        raise SafeUpdateError(f"The states of this minion cannot be rendered: {err}") from err
    if not isinstance(chunks, list) or not all(isinstance(chunk, Mapping) for chunk in chunks):
        raise SafeUpdateError(f"The states of this minion cannot be rendered: {chunks}")
    # Salt's loader for states is needed here only.
    from ...ordering import state_functions

    return of_core(used(chunks), functions, state_functions.load(opts, functions))


def of_core(uses: Iterable[Use], functions: Functions, states: Functions) -> set[Use]:
    """
    Return those uses that Salt's core provides, each with its file in the core.

    Extensions and synced modules provide the others, or they cannot be loaded now.
    """
    found = set()
    core = os.path.join(os.path.dirname(os.path.realpath(salt.__file__)), "")
    for use in uses:
        try:
            function = (states if use.kind == "states" else functions)[use.function]
        except KeyError:
            continue
        code = inspect.unwrap(function).__globals__
        # The loader's names do not tell: it also calls "int" what pip installed next to Salt.
        file = copy_names.original(str(code.get("__file__", "")))
        if os.path.realpath(file).startswith(core):
            found.add(use._replace(file=str(code["__name__"]).rpartition(".")[2]))
    return found
