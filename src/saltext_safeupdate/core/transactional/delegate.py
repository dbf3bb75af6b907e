"""Which calls the executor sends into a transaction, and which state runs are in the way."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..host import hidden

# State runs have a function of their own in transactional_update.
STATE_RUNS = {
    "state.apply": "transactional_update.apply",
    "state.highstate": "transactional_update.highstate",
    "state.single": "transactional_update.single",
    "state.sls": "transactional_update.sls",
}
CALL = "transactional_update.call"

# Modules whose functions write to the root file system; the list of Salt 3006 and 3007.
DELEGATED_MODULES = (
    *("ansible", "cabal", "chef", "cmd", "composer", "cp", "cpan", "cyg", "file", "freeze"),
    *("nix", "npm", "pip", "pkg", "puppet", "pyenv", "rbenv", "scp"),
)
DELEGATED_FUNCTIONS: tuple[str, ...] = ()

# Seconds between two looks at the state runs that a queued one waits for.
QUEUE_INTERVAL = 1.0


def delegate(
    function: object,
    opts: Mapping[str, Any],
    data: Mapping[str, Any],
    environ: Mapping[str, str],
) -> str | None:
    """Return the function that takes *function* into a transaction; ``None``: leave it."""
    if not isinstance(function, str) or hidden.in_transaction(environ):
        return None
    if function in STATE_RUNS:
        return STATE_RUNS[function]
    modules = _names(opts, "delegated_modules", DELEGATED_MODULES)
    functions = _names(opts, "delegated_functions", DELEGATED_FUNCTIONS)
    per_call = data.get("executor_opts")
    for more in (opts, per_call if isinstance(per_call, Mapping) else {}):
        modules |= _names(more, "add_delegated_modules", ())
        functions |= _names(more, "add_delegated_functions", ())
    inside = function in functions or function.partition(".")[0] in modules
    return CALL if inside else None


def _names(opts: Mapping[str, Any], key: str, default: Sequence[str]) -> set[str]:
    value = opts.get(key)
    if value is None:
        return set(default)
    if isinstance(value, str):
        value = value.split(",")
    return {str(name).strip() for name in value}


def is_last(opts: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    """Tell whether no executor comes after this one, so that it has to call by itself."""
    names = data.get("module_executors") or opts.get("module_executors") or ()
    if isinstance(names, str):
        try:
            names = ast.literal_eval(names)
        except (ValueError, SyntaxError):
            names = names.strip("[] ").split(",")
    if isinstance(names, str):
        names = [names]
    return [str(name).strip(" '\"") for name in names][-1:] == ["transactional_update"]


def wait_or_refuse(
    queue: bool | int,
    running: Callable[[], Sequence[Mapping[str, Any]]],
    jid: str | None,
    pause: Callable[[float], None],
) -> list[str] | None:
    """
    Wait for the state runs before this one, or return those that are in the way.

    ``queue=True`` waits however many there are, a number only for so many.
    """
    waited = False
    while True:
        others = _others(running(), jid, earlier=bool(queue))
        if not others:
            return None
        refused = not queue or (queue is not True and not waited and len(others) > queue)
        if refused:
            return [
                f'The function "{job.get("fun")}" is running as PID {job.get("pid")} '
                f"with jid {job.get('jid')}"
                for job in others
            ]
        waited = True
        pause(QUEUE_INTERVAL)


def _others(
    jobs: Sequence[Mapping[str, Any]], jid: str | None, *, earlier: bool
) -> list[Mapping[str, Any]]:
    """Return the other jobs; of those that wait too, only the ones that came *earlier*."""
    others = [job for job in jobs if jid is None or str(job.get("jid")) != str(jid)]
    if not earlier or jid is None:
        return others
    return [job for job in others if str(job.get("jid")) < str(jid)]
