"""
The program that asks a gate: it calls the runner function that the master's configuration names.


It is a process of its own, because such a function may take long, and may do anything. The answer
goes to the process that has started it, and not by the event bus or the job cache, which minions
can write to.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TextIO

import salt.config
import salt.runner

from ..core.errors import InputError, one_line
from . import redelivery

OPTION = "safeupdate_gates"
# Seconds that a gate has to answer, unless its configuration says otherwise.
TIMEOUT = 300.0
# The most characters of its answer that are kept.
LONGEST = 300


@dataclass(frozen=True)
class Gate:
    """A runner function of the administrator, with its arguments."""

    fun: str
    arg: list[Any] = field(default_factory=list)
    kwarg: dict[str, Any] = field(default_factory=dict)
    timeout: float = TIMEOUT


def named(opts: Mapping[str, Any], name: str) -> Gate:
    """Return the gate of that name. Raises InputError if the configuration has no valid one."""
    found = opts.get(OPTION)
    listed = found if isinstance(found, Mapping) else {}
    if name not in listed:
        known = ", ".join(sorted(map(str, listed))) or "none"
        raise InputError(
            f"The configuration of the master has no gate {name!r} in '{OPTION}'. It has {known}. "
            "Nothing was started."
        )
    told = listed[name]
    if isinstance(told, str):
        told = {"fun": told}
    strange = set(told) - {"fun", "arg", "kwarg", "timeout"} if isinstance(told, Mapping) else {0}
    fits = not strange and isinstance(told.get("fun"), str)
    fits = fits and isinstance(told.get("arg", []), list)
    if not fits or not isinstance(told.get("kwarg", {}), dict):
        raise InputError(
            f"The gate {name!r} in '{OPTION}' is not valid: give the name of a runner function, or "
            "a mapping with 'fun', and perhaps 'arg' (a list), 'kwarg' (a mapping) and 'timeout'. "
            "Nothing was started."
        )
    timeout = redelivery.seconds("timeout", told.get("timeout", TIMEOUT))
    return Gate(told["fun"], told.get("arg", []), told.get("kwarg", {}), timeout)


def said(returned: object) -> tuple[bool, str]:
    """
    Return whether *returned* is a yes, and its comment.

    A yes is ``True``, a mapping whose ``result`` is ``True``, or one whose ``retcode`` is 0, as an
    orchestration returns. Everything else is a no, also if the function fails.
    """
    if isinstance(returned, Mapping):
        told = returned.get("comment") or returned.get("error") or ""
        if "result" in returned:
            return returned["result"] is True, one_line(told)[:LONGEST]
        code = returned.get("retcode")
        yes = isinstance(code, int) and not isinstance(code, bool) and code == 0
        return yes, "" if yes else one_line(told or f"it has returned {code!r}")[:LONGEST]
    return returned is True, "" if returned is True else one_line(returned)[:LONGEST]


def ask(opts: Mapping[str, Any], name: str) -> tuple[bool, str]:
    """Call the function of a gate; return whether it says yes, and its comment."""
    gate = named(opts, name)
    with salt.runner.RunnerClient(dict(opts)) as client:
        found = client.cmd(
            gate.fun, list(gate.arg), kwarg=dict(gate.kwarg), print_event=False, full_return=True
        )
    if not found.get("success", False):
        # The last line of a traceback names the error.
        last = str(found.get("return") or "").strip().splitlines()[-1:]
        return False, one_line("".join(last))[:LONGEST] or f"{gate.fun} has failed"
    return said(found.get("return"))


def main(path: str, name: str, out: TextIO) -> int:
    """Ask the gate of the master with that configuration file, and write its answer to *out*."""
    try:
        yes, why = ask(salt.config.master_config(path), name)
    except (InputError, LookupError) as err:
        yes, why = False, one_line(err)
    out.write(f"{json.dumps({'yes': yes, 'why': why})}\n")
    return 0


if __name__ == "__main__":
    # Output of the function and of its programs does not belong to the answer.
    with os.fdopen(os.dup(1), "w") as answer:
        os.dup2(2, 1)
        sys.exit(main(sys.argv[1], sys.argv[2], answer))
