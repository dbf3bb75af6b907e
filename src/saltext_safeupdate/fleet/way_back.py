"""What a rollout that takes another one back asks for: where each minion came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import InputError
from . import request as requests
from . import versions
from .request import Group
from .rollout import Minion, Rollout, Step, said

# What a way back takes over from the rollout that it takes back, unless somebody says otherwise.
_SAME = (
    "canaries",
    "waves",
    "max_unavailable",
    "max_failed",
    "sample",
    "jitter",
    "windows",
    "closed",
    "minion_timeout",
    "silence_timeout",
    "late_timeout",
)
# Who has not gone anywhere, or has come back.
_STAYED = (Step.REFUSED, Step.HELD, Step.CANCELLED, Step.ROLLED_BACK)
# What would say twice where minions go to.
_NOT_BESIDE = ("version", "extension", "groups", "allow_downgrade", "stage", "source")


def ran(minion: Minion, wanted: str) -> str:
    """Return what a minion is to go back to that is asked for the *wanted* version."""
    there = minion.installed or minion.version
    if minion.version and versions.stand_for_each_other(there, wanted):
        # It is installed already, and something else runs.
        return minion.version
    return there


def before(rollout: Rollout) -> dict[str, str]:
    """
    Return what each minion ran when the rollout asked it for another version of Salt.

    That is empty for those of whom nobody has noted it: an earlier version of the extension was
    driving the rollout when they were asked.
    """
    found = rollout.minions.items()
    return {name: each.before for name, each in found if each.before or _went(rollout, each)}


def _went(rollout: Rollout, minion: Minion) -> bool:
    """Tell whether it was asked for another version of Salt, and may be there."""
    version, _ = rollout.goals[min(minion.part, len(rollout.goals) - 1)]
    return bool(version) and minion.number > 0 and minion.step not in _STAYED


def barred(
    rollout: Rollout, known: Mapping[str, str], quarantined: Mapping[str, str]
) -> dict[str, str]:
    """
    Return who cannot go back to where it came from, and why; *known* is what each ran before.

    Minions say themselves what they ran: one that names a bad version stays, and keeps nobody else
    from going back. If all came from another build of the version, all may.
    """
    version = rollout.plan.request.version
    same = {name for name, each in known.items() if versions.stand_for_each_other(each, version)}
    found: dict[str, str] = {}
    for name, each in known.items():
        kept, because = versions.kept_from_all(quarantined, each)
        if not each:
            found[name] = (
                f"what it ran before {rollout.plan.id} is not known: an earlier version of the "
                "extension has asked it. Name the version, with 'allow_downgrade=True'"
            )
        elif kept:
            found[name] = f"came from {each}, and {kept} is in quarantine: {because}"
        elif name in same and len(same) < sum(map(bool, known.values())):
            found[name] = f"came from {each}, which is what is taken back; name another version"
    return found


def settings(rollout: Rollout, given: Mapping[str, Any], group: Group | None) -> dict[str, Any]:
    """
    Return the settings of the rollout that takes this one back; *group* is a part of it.

    The groups, waves and limits are the same; it does not soak, and its packages are kept on the
    minions. The version is kept from everybody then, unless only a part goes back. Raises
    InputError if nobody can go back, or *given* says otherwise where to.
    """
    name = rollout.plan.id
    if odd := sorted(set(_NOT_BESIDE).intersection(given)):
        raise InputError(
            f"{', '.join(odd)} cannot be given with 'back': each minion goes to what it ran "
            "before. Nothing was started."
        )
    if not rollout.plan.request.version:
        raise InputError(
            f"The rollout {name} did not bring a version of Salt, so there is nothing to go back "
            "from. Nothing was started."
        )
    known = before(rollout)
    if not any(known.values()):
        raise InputError(
            f"No minion was asked to update by the rollout {name} as far as it says, so there is "
            "nothing to go back from. Nothing was started; for one that an earlier version of the "
            "extension has driven, name the version, with 'allow_downgrade=True'."
        )
    old = requests.to_mapping(rollout.plan.request)
    groups = [group] if group is not None else _groups(rollout, known)
    return {
        **{key: old[key] for key in _SAME if key in old},
        "soak": 0,
        "stage": False,
        "keep": group is None,
        **given,
        "back": name,
        "groups": [requests.group_data(each) for each in groups],
    }


def keep(made: Rollout, version: str) -> None:
    """Have the *version* that is taken back kept from everybody, from the first look on."""
    if not made.plan.request.keep:
        return
    if any(versions.stand_for_each_other(version, each) for each in made.versions):
        # Two builds of one version: nobody could go back to the other one.
        return
    made.keeps = version
    made.because = f"taken back by the rollout {made.plan.id}{said(made.by)}"


def _groups(rollout: Rollout, known: Mapping[str, str]) -> list[Group]:
    """Return the groups of the rollout by the names of those who can go back."""
    found: dict[str, list[str]] = {}
    for wave in rollout.plan.waves:
        found.setdefault(wave.group, []).extend(name for name in wave.minions if name in known)
    own = {each.name: each.own for each in rollout.plan.request.groups}
    return [
        Group(group, tuple(names), "list", own.get(group, ()))
        for group, names in found.items()
        if names
    ]
