"""The request of a rollout that takes another one back: the former version of each minion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InputError
from . import request as requests
from . import versions
from .request import OF_A_GROUP, Group
from .rollout import Minion, Rollout, Step, said

# Settings that a way back inherits from the rollout that it takes back, unless they are given.
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
# Minions that were not updated, or were rolled back.
_STAYED = (Step.REFUSED, Step.HELD, Step.CANCELLED, Step.ROLLED_BACK)
# Settings that would contradict ``back``: it says already which versions minions go to.
_NOT_BESIDE = ("version", "extension", "groups", "allow_downgrade", "stage", "source")


def ran(minion: Minion, wanted: str) -> str:
    """Return the version to go back to for a minion that is asked for the *wanted* version."""
    there = minion.installed or minion.version
    if minion.version and versions.stand_for_each_other(there, wanted):
        # It is installed already, and another version runs.
        return minion.version
    return there


def is_version(back: str) -> bool:
    """Return whether *back* is a version and not a rollout, whose name has no dot."""
    return "." in back


def before(taken: Sequence[Rollout], version: str = "") -> dict[str, str]:
    """
    Return the version that each minion ran when a rollout in *taken* first asked it for another.

    The newest rollout is last. If a *version* is taken back, rollouts to other versions may be
    among them: minions that have another version since then keep it. The version is empty if nobody
    noted it: an earlier version of the extension was driving the rollout at that time.
    """
    found: dict[str, str] = {}
    for rollout in taken:
        ours = _brings(rollout, version)
        for name, each in rollout.minions.items():
            if ours and (each.before or _went(rollout, each)):
                found[name] = each.before or found.get(name, "")
            elif not ours and each.step is Step.DONE:
                found.pop(name, None)
    return found


def _brings(rollout: Rollout, version: str) -> bool:
    """Return whether it installs the version that is taken back, if a version is."""
    wanted = rollout.plan.request.version
    return not version or versions.stand_for_each_other(wanted, version)


def _went(rollout: Rollout, minion: Minion) -> bool:
    """Return whether it was asked for another version of Salt, and may have it."""
    version, _ = rollout.goals[min(minion.part, len(rollout.goals) - 1)]
    return bool(version) and minion.number > 0 and minion.step not in _STAYED


def barred(
    back: str, version: str, known: Mapping[str, str], quarantined: Mapping[str, str]
) -> dict[str, str]:
    """
    Return the minions that cannot go back, and why; *known* has the former version of each.

    *back* is the rollout or version that is taken back, and *version* the version itself.
    Minions say themselves what they ran: one that names a bad version stays, and does not keep
    others from going back. If all came from another build of the version, all may go back.
    """
    same = {name for name, each in known.items() if versions.stand_for_each_other(each, version)}
    found: dict[str, str] = {}
    for name, each in known.items():
        kept, because = versions.kept_from_all(quarantined, each)
        if not each:
            found[name] = (
                f"its version before {back} is not known: an earlier version of the "
                "extension has asked it. Name the version, with 'allow_downgrade=True'"
            )
        elif kept:
            found[name] = f"came from {each}, and {kept} is in quarantine: {because}"
        elif name in same and len(same) < sum(map(bool, known.values())):
            found[name] = f"came from {each}, the version that is taken back; name another one"
    return found


def settings(
    taken: Sequence[Rollout], back: str, given: Mapping[str, Any], group: Group | None
) -> dict[str, Any]:
    """
    Return the settings of the rollout that takes *back* the version of the *taken* ones.

    The groups, waves and limits are the same; it does not soak, and its packages are kept on the
    minions. *group* is a part of it. The version is kept from all minions then, unless only a part
    goes back. Raises InputError if no minion can go back, or *given* names another version.
    """
    if odd := sorted(set(_NOT_BESIDE).intersection(given)):
        raise InputError(
            f"{', '.join(odd)} cannot be given with 'back': each minion goes to the version that "
            "it ran before. Nothing was started."
        )
    version = back if is_version(back) else ""
    ours = [each for each in taken if _brings(each, version)]
    if not all(each.plan.request.version for each in ours):
        raise InputError(
            f"The rollout {back} did not install a version of Salt, so there is nothing to go back "
            "from. Nothing was started."
        )
    known = before(taken, version)
    if not any(known.values()):
        raise InputError(
            f"No minion was asked to update by {'a rollout of ' if version else 'the rollout '}"
            f"{back} according to its record, so there is nothing to go back from. Nothing was "
            "started; if an earlier version of the extension has driven it, name the version, with "
            "'allow_downgrade=True'."
        )
    old = requests.to_mapping(ours[-1].plan.request)
    inherited = {key: old[key] for key in _SAME if key in old}
    if version:
        # Several rollouts had limits of their own: each group keeps its settings.
        inherited = {key: each for key, each in inherited.items() if key not in OF_A_GROUP}
    groups = [group] if group is not None else _groups(ours, known, apart=bool(version))
    return {
        **inherited,
        "soak": 0,
        "stage": False,
        "keep": group is None,
        **given,
        "back": back,
        "groups": [requests.group_data(each) for each in groups],
    }


def keep(made: Rollout, version: str) -> None:
    """Keep the *version* that is taken back from all minions, from the first look on."""
    if not made.plan.request.keep or not version:
        return
    if any(versions.stand_for_each_other(version, each) for each in made.versions):
        # Two builds of one version: nobody could go back to the other one.
        return
    made.keeps = version
    made.because = f"taken back by the rollout {made.plan.id}{said(made.by)}"


def _groups(taken: Sequence[Rollout], known: Mapping[str, str], *, apart: bool) -> list[Group]:
    """
    Return the groups of the rollouts, with the names of the minions that can go back.

    Each minion is in the group of its newest rollout. If they were *apart*, a group has the
    settings of its rollout as its own.
    """
    of: dict[str, str] = {}
    own: dict[str, tuple[tuple[str, Any], ...]] = {}
    for rollout in taken:
        wanted = rollout.plan.request
        for each in wanted.groups:
            had = requests.own_of(wanted.of(each.name)) if apart else each.own
            own[each.name] = tuple((key, value) for key, value in had if key != "soak")
        of |= {name: group for name, group in rollout.plan.group_of.items() if name in known}
    found: dict[str, list[str]] = {}
    for name, group in of.items():
        found.setdefault(group, []).append(name)
    return [
        Group(group, tuple(names), "list", own.get(group, ())) for group, names in found.items()
    ]
