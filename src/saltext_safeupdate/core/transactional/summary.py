"""A state run in a transaction, as the result of one state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from .services import is_state_result

# Names of failed or changed states in a comment, at most.
_NAME_LIMIT = 10


# Arguments of state.single that are for the run, not for the state.
_RUN_ARGUMENTS = ("localconfig", "pillar", "pillar_enc", "pillarenv", "saltenv", "test")


def single_as_high(
    fun: str, name: str, kwargs: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    Return the high data for one state, and the arguments of the run.

    state.single hands everything to the state, also that the run may be concurrent, which
    most states refuse.
    """
    module, _, function = str(fun).partition(".")
    if not module or not function or "." in function:
        raise InputError(f"{str(fun)[:100]!r} is no state function; nothing was called")
    run = {key: value for key, value in kwargs.items() if _for_the_run(key)}
    arguments = [{key: value} for key, value in kwargs.items() if not _for_the_run(key)]
    return {name: {module: [function, {"name": name}, *arguments]}}, run


def _for_the_run(key: str) -> bool:
    return key in _RUN_ARGUMENTS or key.startswith(("__", "transaction_", "activate_transaction"))


def without_internals(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a state without those that Salt's compiler adds."""
    return {key: value for key, value in kwargs.items() if not key.startswith("__")}


def summarise(found: object, *, test: bool) -> dict[str, Any]:
    """Return ``changes``, ``result`` and ``comment`` for what a state run returned."""
    if not isinstance(found, dict) or not is_state_result(found):
        return {"changes": {}, "result": False, "comment": f"The states did not run: {found}"}
    changes = {tag: chunk["changes"] for tag, chunk in found.items() if chunk.get("changes")}
    failed = [tag for tag, chunk in found.items() if chunk.get("result") is False]
    undecided = [tag for tag, chunk in found.items() if chunk.get("result") is None]
    said = [f"{len(found)} states ran in a transaction, {len(changes)} with changes"]
    if failed:
        said.append("Failed, and the transaction discarded: " + ", ".join(failed[:_NAME_LIMIT]))
    told = next((chunk for tag, chunk in found.items() if tag.endswith("_|-report")), None)
    if told:
        said.append(str(told.get("comment", "")))
    result = False if failed else None if test and (undecided or changes) else True
    return {
        "changes": {} if failed or test else changes,
        "result": result,
        "comment": ". ".join(said),
    }
