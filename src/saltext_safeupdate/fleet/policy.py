"""The versions that a fleet is to run, and the next rollout: a function of the known data."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ..core.errors import InputError, version_text
from . import inventory, window
from . import request as requests
from .inventory import REPORT, Record
from .request import Request
from .rollout import Mode
from .text import moment
from .versions import kept_from_all, reached, stand_for_each_other

# A series, which means its newest patch.
_SERIES = re.compile(r"\d{4}")
RUNNING = Mode.RUNNING.value
# The keys of a group itself; all others are settings of its rollouts.
_OWN = ("name", "target", "tgt_type")
# Settings that a policy decides by itself, or that belong to one rollout only.
_NOT_HERE = ("groups", "back", "keep", "at", "leave_late")
_SETTINGS = tuple(each.name for each in fields(Request) if each.name not in _NOT_HERE)


@dataclass(frozen=True)
class Group:
    """Minions and the version that they are to run. *wanted* has the settings of their rollouts."""

    name: str
    wanted: Request

    @property
    def series(self) -> str:
        """The series whose newest patch the group is to run; empty if it is a version."""
        return self.wanted.version if _SERIES.fullmatch(self.wanted.version) else ""


@dataclass(frozen=True)
class Policy:
    """
    The groups of a fleet. A minion of two groups belongs to the first.

    If they go *side by side*, a rollout of one group does not wait for another group's.
    """

    groups: tuple[Group, ...]
    enabled: bool = True
    side_by_side: bool = False


@dataclass(frozen=True, kw_only=True)
class Known:
    """
    The data of a master for one step.

    members, unsure
        The minions of each group, and the minions that may or may not belong to it, by group.
    records, heard
        The minions' answers, and the minions that have just answered; None if none was asked.
    rollouts
        The rollouts that are not over: their mode by name.
    unknown
        Names that a group leaves out, and that no minion with an accepted key has, by group.
    taken
        The minions of these rollouts, each with the name of its rollout.
    quarantined
        Versions that are kept from all minions, and why.
    given_up
        By version of Salt, or of the extension if a group wants nothing else: the minions that are
        not updated to it until somebody has looked, and why.
    drained
        The minions on whose hosts people work, and the message about it.
    newest
        The newest version of each series that a group names; a series is missing if not known.
    master
        The version of the master.
    """

    members: Mapping[str, Sequence[str]]
    records: Mapping[str, Record]
    now: float
    master: str
    unsure: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unknown: Mapping[str, Sequence[str]] = field(default_factory=dict)
    heard: Container[str] | None = None
    rollouts: Mapping[str, str] = field(default_factory=dict)
    taken: Mapping[str, str] = field(default_factory=dict)
    quarantined: Mapping[str, str] = field(default_factory=dict)
    given_up: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    drained: Mapping[str, str] = field(default_factory=dict)
    newest: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Standing:
    """
    The status of a group: the minions that a rollout would update, or leave out, and what it waits

    for. *goal* is its goal in words, *version* the version of Salt; *there* run it. *unknown* are
    names to leave out that no minion has.
    """

    group: str
    goal: str
    version: str
    minions: int
    there: int
    bring: tuple[str, ...]
    left: Mapping[str, str]
    waits: str
    unknown: tuple[str, ...] = ()


# -- reading it ----------------------------------------------------------------------------


def parse(data: object) -> Policy:
    """Return the policy in plain data. Raises InputError for anything that is not understood."""
    if not isinstance(data, Mapping):
        raise InputError("A policy is a mapping with 'groups'.")
    _refuse_strange("A policy", data, ("enabled", "side_by_side", "defaults", "groups"))
    enabled, beside = data.get("enabled", True), data.get("side_by_side", False)
    listed = data.get("groups")
    for name, flag in (("enabled", enabled), ("side_by_side", beside)):
        if not isinstance(flag, bool):
            raise InputError(f"'{name}' of a policy must be true or false.")
    if not isinstance(listed, list) or not listed:
        raise InputError("'groups' of a policy must be a list of groups.")
    defaults = data.get("defaults") or {}
    if not isinstance(defaults, Mapping):
        raise InputError("'defaults' of a policy must be a mapping.")
    _refuse_strange("'defaults' of a policy", defaults, _SETTINGS)
    groups = tuple(_group(number, each, defaults) for number, each in enumerate(listed, 1))
    if len({group.name for group in groups}) < len(groups):
        raise InputError("Two groups of a policy have one name.")
    return Policy(groups, enabled, beside)


def _group(number: int, data: object, defaults: Mapping[str, Any]) -> Group:
    if not isinstance(data, Mapping):
        raise InputError(f"Group {number} of the policy is no mapping.")
    _refuse_strange(f"Group {number} of a policy", data, (*_OWN, *_SETTINGS))
    name = data.get("name")
    if not isinstance(name, str) or not name:
        raise InputError(f"Group {number} of the policy has no 'name'.")
    own = {key: value for key, value in data.items() if key not in _OWN and value is not None}
    settings = {**defaults, **own}
    target = {key: data[key] for key in ("target", "tgt_type") if key in data}
    try:
        if settings.get("version") is not None:
            settings["version"] = version_text("version", settings["version"])
        wanted = requests.from_mapping({**settings, "groups": [{"name": name, **target}]})
    except InputError as err:
        raise InputError(f"Group {name!r} of the policy: {err}") from err
    return Group(name, wanted)


def _refuse_strange(what: str, data: Mapping[Any, Any], known: Collection[str]) -> None:
    if strange := sorted(str(key) for key in data if key not in known):
        raise InputError(
            f"{what} has no setting {', '.join(strange)}. Known: {', '.join(sorted(known))}."
        )


# -- the next step -------------------------------------------------------------------------


def look(policy: Policy, known: Known) -> list[Standing]:
    """Return the status of each group."""
    return [_standing(policy, group, known, mine) for group, mine in _divided(policy, known)]


def following(standings: Sequence[Standing]) -> list[Standing]:
    """Return the groups whose rollout may begin now, the next one first."""
    return [each for each in standings if each.bring and not each.waits]


def wanted_by(policy: Policy, known: Known) -> dict[str, tuple[str, str]]:
    """Return the version of Salt that each minion is to run (empty for any), and its group."""
    return {
        minion: (_version(group, known), group.name)
        for group, mine in _divided(policy, known)
        for minion in mine
        if minion not in group.wanted.exclude
    }


def _divided(policy: Policy, known: Known) -> Iterator[tuple[Group, list[str]]]:
    """Yield each group with its minions; no minion is in two."""
    seen: set[str] = set()
    for group in policy.groups:
        members = {*known.members.get(group.name, ()), *known.unsure.get(group.name, ())}
        yield group, sorted(members - seen)
        seen |= members


def _version(group: Group, known: Known) -> str:
    return known.newest.get(group.series, "") if group.series else group.wanted.version


def _standing(policy: Policy, group: Group, known: Known, mine: Sequence[str]) -> Standing:
    version = _version(group, known)
    there, bring, left = 0, [], {}
    for minion in mine if version or not group.series else ():
        if minion not in group.wanted.exclude and _is_there(group, version, known, minion):
            there += 1
        elif why := _why_not(group, version, known, minion):
            left[minion] = why
        else:
            bring.append(minion)
    goal = " and ".join(
        filter(
            None,
            (
                f"the extension {group.wanted.extension}" if group.wanted.extension else "",
                f"Salt {group.wanted.version}" if group.wanted.version else "",
            ),
        )
    )
    return Standing(
        group=group.name,
        goal=f"{goal} ({version})" if group.series and version else goal,
        version=version,
        minions=len(mine),
        there=there,
        bring=tuple(bring),
        left=left,
        waits=_waits_for(policy, group, version, known, mine),
        unknown=tuple(known.unknown.get(group.name, ())),
    )


def _is_there(group: Group, version: str, known: Known, minion: str) -> bool:
    record = known.records.get(minion)
    if record is None or record.answer != REPORT or (group.wanted.version and not version):
        return False
    if group.wanted.extension not in ("", record.extension):
        return False
    return not version or reached(record.running, record.installed, version)


def _why_not(group: Group, version: str, known: Known, minion: str) -> str:
    """Return why a minion is not updated now; empty if it is."""
    if minion in group.wanted.exclude or minion in known.drained:
        return known.drained.get(minion, "excluded")
    if minion in known.unsure.get(group.name, ()):
        return "its grains or pillar are not known, so nobody knows if it belongs to the group"
    record = known.records.get(minion)
    if record is None or inventory.silent(record, known.now, known.heard):
        return "does not answer; it is updated when it does"
    if record.answer != REPORT:
        return inventory.line({"heard": record.answer, "problems": record.problems}, known.now)
    if minion in known.taken:
        return f"is in the rollout {known.taken[minion]}"
    return _why_not_now(group, version, known, record)


def _why_not_now(group: Group, version: str, known: Known, record: Record) -> str:
    if record.held:
        return f"held: {record.held}"
    if record.phase not in inventory.QUIET:
        return f"an update is under way there: {record.phase}"
    if any(stand_for_each_other(each, version) for each in record.quarantined if version):
        return f"has rolled {version} back; 'safeupdate.unquarantine' there allows it again"
    if inventory.newer(record.running, version) and not group.wanted.allow_downgrade:
        return f"runs {record.running}, which is newer"
    goal = version or group.wanted.extension
    return known.given_up.get(goal, {}).get(record.minion, "")


def _waits_for(
    policy: Policy, group: Group, version: str, known: Known, mine: Sequence[str]
) -> str:
    """Return why no rollout of the group may begin now; empty if one may."""
    return next(_reasons(policy, group, version, known, mine), "")


def _reasons(
    policy: Policy, group: Group, version: str, known: Known, mine: Sequence[str]
) -> Iterator[str]:
    if not policy.enabled:
        yield "the policy is switched off"
    own = {known.taken[minion] for minion in mine if minion in known.taken}
    for name, mode in known.rollouts.items():
        if not policy.side_by_side:
            yield f"the rollout {name} is {mode}, and there is one at a time"
        elif mode != RUNNING:
            # Somebody has to look first: the same may be wrong here.
            yield f"the rollout {name} is {mode}, and nothing begins until it is over"
        elif name in own:
            yield f"the rollout {name} is {mode}, and each group has one at a time"
    if group.series and not version:
        yield (
            f"the newest version of {group.series} is not known: most of the minions that were "
            "asked have to offer it; if only their upgrade steps bring it, name the exact version"
        )
    kept, because = kept_from_all(known.quarantined, version)
    if kept:
        yield f"{kept} is in quarantine: {because}"
    if inventory.newer(version, known.master):
        yield f"{version} is newer than this master, which has {known.master}"
    wanted = group.wanted
    if not window.is_open(wanted.windows, known.now, wanted.closed):
        begin = window.next_begin(wanted.windows, known.now, wanted.closed)
        yield f"closed until {moment(begin)}" if begin < window.NEVER else "no window opens again"
