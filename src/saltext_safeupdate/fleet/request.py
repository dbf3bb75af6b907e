"""The request of an administrator for a rollout, validated once."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from ..core.errors import InputError, version_text
from . import share, window
from .named import named
from .share import Share
from .window import Period, Window

TARGET_TYPES = ("glob", "list", "grain", "nodegroup", "compound", "pcre", "pillar", "ipcidr")
# An earlier beginning (before 2001) is a mistake: somebody has meant a time of the day.
_EARLIEST = 1e9
_GATE = re.compile(r"[\w.\-]{1,60}")
WAVES = (Share(10, True, 1), Share(30, True, 1), Share(100, True, 1))
UNAVAILABLE, FAILED, SAMPLE = Share(10, True, 1), Share(2, True), Share(90, True)
_PACKAGES = "packages"
_INDEX = "index"
_PLACES = ("/", "file:///", "salt://")
# Settings that were added later; each is off by default.
_LATER = (
    *("closed", "allow_downgrade", "back", "keep", "leave_late", "source", "stage_windows"),
    *("pause_after", "gate_before", "gate_after", "gate_timeout"),
)
# After which waves a person has to resume the rollout.
PAUSES = ("canaries", "groups", "waves")


# Settings that a group may have of its own.
OF_A_GROUP = (
    "canaries",
    "waves",
    "max_unavailable",
    "sample",
    "soak",
    "jitter",
    "windows",
    "closed",
    "minion_timeout",
    "silence_timeout",
    "pause_after",
    "gate_before",
    "gate_after",
)


@dataclass(frozen=True)
class Group:
    """
    Minions that are updated before the next group.

    *own* has the settings that differ from the rollout's, by name.
    """

    name: str
    target: str | tuple[str, ...]
    tgt_type: str = "glob"
    own: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Request:
    """
    The request for a rollout. Durations are in seconds; shares are counts or percentages.

    groups
        The groups to update, in this order. A minion of two groups belongs to the first.
    version
        The version of Salt to update to; empty if only the extension is updated.
    extension
        The version of this extension to update to before Salt; empty to leave it alone.
    canaries
        How many minions of each group go first, on their own; None: by its size.
    waves
        Sizes of the waves of a group, one after the other; the last one repeats. None: by its size.
    max_unavailable
        How many minions may be away at once, for any reason; None: by their number.
    max_failed
        How many may fail or be rolled back before the rollout stops. No canary may.
    sample
        How many of a wave have to be done before the next one begins.
    soak
        How long a wave has to be done before the next one begins.
    jitter
        Over how long the starts of a wave are spread.
    stage
        Whether packages are downloaded before the wave of a minion begins; ``all`` for before the
        first one.
    stage_windows
        When minions may be told to download; empty for always.
    pause_after
        After which waves it pauses until somebody resumes it: ``canaries``, the last one of each of
        the ``groups``, or all ``waves``; empty for none.
    gate_before, gate_after
        Gates that have to say yes before a wave begins, and before it is over: names in the
        configuration of the master.
    gate_timeout
        How long a gate may say no before the rollout stops.
    windows
        When updates may start; empty for always.
    closed
        Days on which no update starts, whatever the windows say.
    at
        When the rollout begins, in epoch seconds; 0 for now.
    minion_timeout
        How long one minion may take.
    silence_timeout
        After how long without an answer a minion counts as away.
    late_timeout
        How long the rollout waits at its end for minions that are away.
    exclude
        Minions that are left alone.
    allow_downgrade
        Whether the version may be older than the one that minions run.
    back
        The rollout that is taken back, or the version, whichever rollouts have installed it: each
        minion goes to the version that it ran before. Otherwise empty.
    keep
        Whether the version that is taken back is kept from all minions.
    source
        Where minions take the version from: ``packages``, or a directory with builds; if empty,
        each uses the same as before.
    leave_late
        Whether it ends without minions that are away or busy, instead of waiting for them: a policy
        includes them the next time.
    """

    groups: tuple[Group, ...]
    version: str = ""
    extension: str = ""
    canaries: int | None = None
    waves: tuple[Share, ...] | None = None
    max_unavailable: Share | None = None
    max_failed: Share = FAILED
    sample: Share = SAMPLE
    soak: float = 300.0
    jitter: float = 30.0
    stage: bool | str = True
    stage_windows: tuple[Window, ...] = ()
    pause_after: str = ""
    gate_before: tuple[str, ...] = ()
    gate_after: tuple[str, ...] = ()
    gate_timeout: float = 3600.0
    windows: tuple[Window, ...] = ()
    closed: tuple[Period, ...] = ()
    at: float = 0.0
    minion_timeout: float = 3600.0
    silence_timeout: float = 120.0
    late_timeout: float = 86400.0
    exclude: frozenset[str] = field(default_factory=frozenset)
    allow_downgrade: bool = False
    back: str = ""
    keep: bool = False
    source: str = ""
    leave_late: bool = False

    @property
    def gates(self) -> set[str]:
        """The names of all its gates."""
        asked = [self.of(group.name) for group in self.groups]
        return {name for each in asked for name in (*each.gate_before, *each.gate_after)}

    def of(self, group: str) -> Request:
        """Return the request for the minions of a group."""
        return self._by_group.get(group, self)

    @cached_property
    def _by_group(self) -> dict[str, Request]:
        return {each.name: replace(self, **dict(each.own)) for each in self.groups if each.own}


def from_mapping(given: Mapping[str, Any]) -> Request:
    """Return the Request in a mapping of plain values, or raise InputError."""
    known = {each.name for each in fields(Request)}
    if strange := sorted(set(given) - known):
        raise InputError(
            f"A rollout has no setting {', '.join(strange)}. Known: {', '.join(sorted(known))}."
        )
    values = {key: _READERS[key](key, value) for key, value in given.items() if value is not None}
    if not values.get("groups"):
        raise InputError("A rollout needs a target.")
    if not any(values.get(name) for name in ("version", "extension", "back")):
        raise InputError(
            "A rollout needs a 'version' of Salt, an 'extension' version, or both; or the name of "
            "another rollout to go 'back' from."
        )
    return Request(**values)


def refuse_time_of_day(given: Mapping[str, Any]) -> None:
    """
    Raise InputError if the given ``at`` is a time of the day.

    Stored requests may have one: it meant "at once" before.
    """
    found = _at("at", given.get("at") or 0)
    if 0 < found < _EARLIEST or found >= window.LATEST:
        raise InputError(
            f"'at' is {found:g}, and has to be in seconds since 1970, or 0 for at once, or such as "
            "'2026-11-25 22:00 Europe/Berlin'. On a command line and in YAML, 20:00 is the number "
            "1200; for times of the day use 'windows'."
        )


def group(name: str, target: object, tgt_type: str) -> Group:
    """Return the group of such a target. Raises InputError if the target is not valid."""
    return _groups("groups", [{"name": name, "target": target, "tgt_type": tgt_type}])[0]


def to_mapping(request: Request) -> dict[str, Any]:
    """Return the request as plain values, which :func:`from_mapping` reads."""
    found: dict[str, Any] = {each.name: getattr(request, each.name) for each in fields(Request)}
    found["groups"] = [group_data(group) for group in request.groups]
    # Defaults that mean "at least 1" are left out: a text cannot express that.
    defaults = {each.name: each.default for each in fields(Request)}
    for name in ("waves", "max_unavailable", "max_failed", "sample"):
        if found[name] == defaults[name]:
            del found[name]
        else:
            found[name] = _plain(found[name])
    for name in ("windows", "closed", "stage_windows", "gate_before", "gate_after"):
        found[name] = _plain(found[name])
    # Earlier versions refuse unknown settings. After a rollback of this extension, they continue
    # rollouts that do not use them.
    for name in _LATER:
        if not found[name] or found[name] == defaults[name]:
            del found[name]
    found["exclude"] = sorted(request.exclude)
    return found


def group_data(group: Group) -> dict[str, Any]:
    """Return a group as plain values, as ``groups`` has them."""
    return {
        "name": group.name,
        "target": list(group.target) if isinstance(group.target, tuple) else group.target,
        "tgt_type": group.tgt_type,
        **{name: _plain(value) for name, value in group.own},
    }


def own_of(request: Request) -> tuple[tuple[str, Any], ...]:
    """Return the settings that a group may have of its own and that differ from the default."""
    defaults = {each.name: each.default for each in fields(Request)}
    found = ((name, getattr(request, name)) for name in OF_A_GROUP)
    return tuple((name, value) for name, value in found if value != defaults[name])


def _plain(value: Any) -> Any:
    """Return a value in the form that :data:`_READERS` accept."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Window | Period):
        return value.text
    return str(value) if isinstance(value, Share) else value


def _groups(name: str, value: object) -> tuple[Group, ...]:
    if isinstance(value, str):
        value = [{"target": value}]
    if not isinstance(value, Sequence) or not value:
        raise InputError("'groups' must be a list of targets.")
    found: list[Group] = []
    for number, each in enumerate(value, 1):
        entry = {"target": each} if isinstance(each, str) else each
        known = {"name", "target", "tgt_type", *OF_A_GROUP}
        if not isinstance(entry, Mapping) or not set(entry) <= known:
            raise InputError(
                "Each of 'groups' is a target, or has 'name', 'target', 'tgt_type', and of the "
                f"settings of a rollout {', '.join(OF_A_GROUP)}."
            )
        target, tgt_type = entry.get("target"), str(entry.get("tgt_type") or "glob")
        if tgt_type not in TARGET_TYPES:
            raise InputError(f"There are no targets of the type {tgt_type!r}.")
        if isinstance(target, list | tuple):
            target, tgt_type = tuple(named("target", target)), "list"
        if not target or not isinstance(target, str | tuple):
            raise InputError("A group of a rollout has no target.")
        name = str(entry.get("name") or f"group {number}")
        found.append(Group(name, target, tgt_type, _own(name, entry)))
    if len({group.name for group in found}) < len(found):
        raise InputError("Two groups of a rollout have one name.")
    return tuple(found)


def _own(group: str, entry: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return the settings that a group has of its own."""
    given = [(key, entry[key]) for key in OF_A_GROUP if entry.get(key) is not None]
    try:
        return tuple((key, _READERS[key](key, value)) for key, value in given)
    except InputError as err:
        raise InputError(f"The group {group}: {err}") from err


def _version(name: str, value: object) -> str:
    return "" if value == "" else version_text(name, value)


def _seconds(name: str, value: object) -> float:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits or not 0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise InputError(f"'{name}' must be a number of seconds.")
    return float(value)  # type: ignore[arg-type]


def _at(name: str, value: object) -> float:
    """Return a moment, given in seconds since 1970 or as people write it."""
    if not isinstance(value, str):
        return _seconds(name, value)
    found = window.moment(value)
    if found < _EARLIEST:
        raise InputError(f"'{name}' is {value!r}, which is long past. Nothing was started.")
    return found


def _timeout(name: str, value: object) -> float:
    found = _seconds(name, value)
    if not found:
        raise InputError(f"'{name}' must be a number of seconds above 0.")
    return found


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"'{name}' must be a number of minions, or 0.")
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"'{name}' must be true or false.")
    return value


def _stage(name: str, value: object) -> bool | str:
    if value == "all":
        return "all"
    if not isinstance(value, bool):
        raise InputError(f"'{name}' must be true, false or 'all'.")
    return value


def _pause(name: str, value: object) -> str:
    if value not in ("", *PAUSES):
        raise InputError(f"'{name}' must be one of {', '.join(PAUSES)}, or be left out.")
    return str(value)


def _gates(name: str, value: object) -> tuple[str, ...]:
    found = tuple(str(each).strip() for each in _listed(value))
    if not all(map(_GATE.fullmatch, found)):
        raise InputError(f"'{name}' has names of gates: letters, digits, '_', '.' and '-'.")
    return found


def _listed(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


def _source(name: str, value: object) -> str:
    if value in ("", _PACKAGES, _INDEX):
        return str(value)
    if not isinstance(value, str) or not value.startswith(_PLACES):
        raise InputError(
            f"'{name}' must be 'packages', 'index', or a directory with builds: an absolute path "
            "of the minions, or a salt:// path."
        )
    return value


def _names(name: str, value: object) -> frozenset[str]:
    """Return names that are a list, or a text with commas between them."""
    found = value.split(",") if isinstance(value, str) else named(name, _listed(value))
    return frozenset(filter(None, (each.strip() for each in found)))


def _waves(name: str, value: object) -> tuple[Share, ...]:
    found = tuple(share.parse(name, each) for each in _listed(value))
    if not found:
        raise InputError("'waves' needs at least one size.")
    return found


_READERS: dict[str, Any] = {
    "groups": _groups,
    "version": _version,
    "extension": _version,
    "canaries": _count,
    "waves": _waves,
    "max_unavailable": share.parse,
    "max_failed": lambda name, value: share.parse(name, value, zero=True),
    "sample": lambda name, value: share.parse(name, value, zero=True),
    "soak": _seconds,
    "jitter": _seconds,
    "stage": _stage,
    "stage_windows": lambda _, value: tuple(window.parse(each) for each in _listed(value)),
    "pause_after": _pause,
    "gate_before": _gates,
    "gate_after": _gates,
    "gate_timeout": _timeout,
    "windows": lambda _, value: tuple(window.parse(each) for each in _listed(value)),
    "closed": lambda _, value: tuple(window.period(each) for each in _listed(value)),
    "at": _at,
    "minion_timeout": _timeout,
    "silence_timeout": _timeout,
    "late_timeout": _seconds,
    "exclude": _names,
    "allow_downgrade": _flag,
    "back": _version,
    "keep": _flag,
    "source": _source,
    "leave_late": _flag,
}
