"""The update of this master, by the minion of its host that runs from the same packages."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import salt
import salt.config

from ..core.errors import InputError, SafeUpdateError, one_line
from ..core.host import rights
from ..core.host.minions import registered
from ..core.settings import Settings
from . import questions, targets
from .newest import PLAN_TIMEOUT, Ask
from .replies import Failed

# The finding of a minion with a master on its host.
_BESIDE = "master-beside"
_NOTHING = "Nothing was changed."
_UNDER_WAY = (
    "The update is under way. This master stops while packages change, so nobody can ask it then: "
    "'salt-call --local safeupdate.status' on this host shows its status, and 'salt-call --local "
    "safeupdate.wait' waits for its end."
)


def configured_id(opts: Mapping[str, Any]) -> str:
    """Return the ID that the configuration next to the master's gives a minion of this host."""
    path = os.path.join(os.path.dirname(os.path.abspath(str(opts["conf_file"]))), "minion")
    try:
        return str(salt.config.minion_config(path)["id"])
    except OSError as err:
        raise InputError(
            f"The user {rights.user()} of this process may not read {err.filename}, so the minion "
            f"of this host is not known. {_NOTHING} Name it with 'minion': 'salt-call --local "
            "grains.get id', as root, says its ID."
        ) from err


def update(
    opts: Mapping[str, Any],
    version: str,
    minion: str | None = None,
    *,
    when: str = "idle",
    allow_downgrade: bool = False,
    test: bool = False,
    ask: Ask = questions.ask,
    registry: str = Settings.registry_dir,
    accepted: Callable[[Mapping[str, Any]], Collection[str]] = targets.accepted,
    configured: Callable[[Mapping[str, Any]], str] = configured_id,
) -> dict[str, Any]:
    """
    Let the minion of this host update itself, and this master with it; return its answer.

    With *test*, return its plan. *registry* is the directory with notes of minions of this host.
    Raises InputError without such a minion, and SafeUpdateError if it refuses or does not answer.
    """
    name = minion or _beside(registry) or configured(opts)
    if name not in accepted(opts):
        raise InputError(
            f"{name} is no minion of this master: its key is not accepted. {_NOTHING} Accept it "
            "first; or have the minion updated by its own master, or by 'salt-call "
            "safeupdate.update' on this host."
        )
    wanted = {"version": version, "allow_downgrade": allow_downgrade}
    plan = _planned(name, ask(opts, [name], "safeupdate.plan", wanted, PLAN_TIMEOUT).get(name))
    if test:
        return {"minion": name, **plan}
    answers = ask(opts, [name], "safeupdate.update", {**wanted, "when": when}, PLAN_TIMEOUT)
    said = answers.get(name)
    if isinstance(said, Failed):
        raise SafeUpdateError(f"{name} refuses: {one_line(said)}")
    if not isinstance(said, Mapping):
        raise SafeUpdateError(
            f"{name} did not answer in {PLAN_TIMEOUT:.0f} s, so the update may have begun: see "
            "'salt-call --local safeupdate.status' on this host."
        )
    begun = {"comment": _UNDER_WAY} if said.get("update") else {}
    return {"minion": name, **said, **begun}


def _beside(registry: str) -> str:
    """
    Return the one minion of this host that runs from the code of this process.

    Empty if this user may not see what minions have noted: a packaged master does not run as root.
    """
    code = os.path.realpath(str(salt.__file__))
    found = [
        each.id
        for each in registered(registry)
        if each.runs and any(code.startswith(os.path.join(root, "")) for root in each.roots)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"Several minions of this host run from the packages of this master: "
            f"{', '.join(sorted(found))}. {_NOTHING} Name one of them with 'minion': they are all "
            "updated at once."
        )
    if os.geteuid() != 0 and not os.access(registry, os.R_OK | os.X_OK, effective_ids=True):
        return ""
    raise InputError(
        "No minion with this extension runs on this host from the packages of this master, so "
        f"nobody could update it. {_NOTHING} Install and set up a minion here; if one is here "
        "whose 'safeupdate:registry_dir' is another, name it with 'minion'."
    )


def _planned(name: str, said: object) -> Mapping[str, Any]:
    """Return the plan of the minion. Raises SafeUpdateError if anything prevents it."""
    if said is None:
        raise SafeUpdateError(
            f"{name} did not answer in {PLAN_TIMEOUT:.0f} s. {_NOTHING} See whether it runs, and "
            "'salt-call safeupdate.check' on its host."
        )
    if not isinstance(said, Mapping):
        told = f": {one_line(said)}" if isinstance(said, Failed) else ""
        raise SafeUpdateError(
            f"{name} has no plan{told}. {_NOTHING} Set this extension up there "
            "(state safeupdate.enabled), and try again."
        )
    listed = said.get("findings")
    found = (
        [each for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    )
    blocking = [each for each in found if each.get("blocking")]
    if blocking:
        told = " ".join(
            f"[{each.get('code')}] {each.get('problem')} {each.get('fix')}" for each in blocking
        )
        raise SafeUpdateError(f"{one_line(told)} {_NOTHING}")
    # If the version is installed already, no master has to be updated along with it.
    if said.get("changes") != {} and not any(each.get("code") == _BESIDE for each in found):
        raise SafeUpdateError(
            f"An update of {name} does not include this master: the master runs from other "
            f"packages, on another host, or not as a service of systemd. {_NOTHING} Update this "
            "master as it was installed."
        )
    return said
