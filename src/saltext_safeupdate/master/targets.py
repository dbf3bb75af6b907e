"""
The minions of a target, among those whose keys this master has accepted.


Since 3008, a minion tells its master which resources it has, with any names and grains, and Salt
takes them for minions in many targets. Here they are no minions, whatever their names are.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import salt.utils.minions

from ..core.errors import InputError, SafeUpdateError
from . import aiming

log = logging.getLogger(__name__)

# The directories of minions' keys in local files. If a key is in two of them, the last one counts.
_ACCEPTED, _PLACES = "minions", ("minions", "minions_pre", "minions_rejected")

# Targets that only need the names of minions, and such parts of compound ones.
_BY_NAME, _ENGINES_BY_NAME = ("glob", "list", "pcre"), ("L", "E")


def targeted(
    opts: Mapping[str, Any], target: object, tgt_type: str, *, greedy: bool = True
) -> list[str]:
    """
    Return the accepted minions that match, by Salt's own targeting.

    With *greedy*, minions that may match count, too: the master does not know enough about them.
    Raises SafeUpdateError if this Salt may take resources for minions in an unknown way.
    """
    checker = _checker(opts)
    _refuse_unknown(checker)
    accepted = _sound(_looked_at_once(checker))
    if tgt_type == "list":
        # Salt would compare each name with each key, or look for files with each name.
        listed = target.split(",") if isinstance(target, str) else target
        found = listed if isinstance(listed, list | tuple) else ()
    else:
        found = checker.check_minions(target, tgt_type, greedy=greedy)["minions"]
    # Salt also returns minions that only have grains left.
    return sorted(accepted.intersection(found))


def resolved(opts: Mapping[str, Any], target: object, tgt_type: str) -> tuple[list[str], list[str]]:
    """
    Return the accepted minions that match, and the minions that may or may not match.

    Salt alone does not distinguish: it takes an unknown minion for one without the grain, so
    "not G@os:Debian" matches it. Raises InputError if nothing is known about any minion.
    """
    refuse_unknowable(opts, target, tgt_type)
    strict, wide = (set(targeted(opts, target, tgt_type, greedy=each)) for each in (False, True))
    sure = strict & wide
    grains, pillar = _needed(opts, target, tgt_type)
    if grains or pillar:
        sure &= _known(_checker(opts), sure, grains=grains, pillar=pillar)
    return sorted(sure), sorted((strict | wide) - sure)


def refuse_unknowable(opts: Mapping[str, Any], target: object, tgt_type: str) -> None:
    """Raise InputError for a target that needs data which this master does not keep."""
    if tgt_type not in _BY_NAME and not opts.get("minion_data_cache"):
        raise InputError(
            f"This master does not keep grains and pillar ('minion_data_cache: False'), so it does "
            f"not know what {target!r} ({tgt_type}) matches. Nothing was asked or started; name "
            "the minions as a glob, a list or a regular expression."
        )


def _needed(opts: Mapping[str, Any], target: object, tgt_type: str) -> tuple[bool, bool]:
    """Return whether a target needs grains, and whether it needs pillar."""
    if tgt_type in _BY_NAME:
        return False, False
    if tgt_type not in ("compound", "nodegroup"):
        return tgt_type != "pillar", tgt_type == "pillar"
    groups = opts.get("nodegroups") or {}
    words = [f"N@{target}"] if tgt_type == "nodegroup" else _words(target)
    engines: set[str] = set()
    for word in words:
        parts = [word]
        if word.startswith("N@"):
            parts = _words(salt.utils.minions.nodegroup_comp(word[2:], groups))
        engines.update(salt.utils.minions.parse_target(part)["engine"] or "L" for part in parts)
    pillar = engines.intersection("IJ")
    return bool(engines.difference(_ENGINES_BY_NAME, pillar)), bool(pillar)


def _words(target: object) -> list[str]:
    if isinstance(target, list | tuple):
        return [str(word) for word in target]
    return str(target).split()


def _known(checker: Any, minions: Iterable[str], *, grains: bool, pillar: bool) -> set[str]:
    """Return the minions whose grains and pillar this master has, if they are needed."""
    cache = checker.cache
    if hasattr(checker, "key"):
        # Since 3008 they are stored apart, and a missing pillar looks like an empty one.
        return {
            minion
            for minion in minions
            if not (grains and not cache.fetch("grains", minion))
            and not (pillar and not cache.contains("pillar", minion))
        }
    found = {minion: cache.fetch(f"minions/{minion}", "data") or {} for minion in minions}
    return {
        minion
        for minion, data in found.items()
        if not (grains and not data.get("grains")) and not (pillar and data.get("pillar") is None)
    }


def grains_of(opts: Mapping[str, Any], minions: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """Return the grains that this master has of these minions; minions without any are missing."""
    checker = _checker(opts)
    apart = hasattr(checker, "key")
    found: dict[str, Mapping[str, Any]] = {}
    for minion in minions:
        if apart:
            grains = checker.cache.fetch("grains", minion)
        else:
            grains = (checker.cache.fetch(f"minions/{minion}", "data") or {}).get("grains")
        if isinstance(grains, Mapping) and grains:
            found[minion] = grains
    return found


def accepted(opts: Mapping[str, Any]) -> frozenset[str]:
    """Return all minions whose keys this master has accepted."""
    return _sound(_looked_at_once(_checker(opts)))


def _checker(opts: Mapping[str, Any]) -> Any:
    """Return Salt's object that decides about targets, without the resources of minions."""
    checker = salt.utils.minions.CkMinions(dict(opts))
    for name, replacement in _WITHOUT_RESOURCES.items():
        if hasattr(checker, name):
            setattr(checker, name, replacement)
    return checker


def _refuse_unknown(checker: Any) -> None:
    """Raise SafeUpdateError for a Salt in which minions might widen targets."""
    about = {name for name in dir(type(checker)) if "resource" in name}
    if unknown := sorted(about - _WITHOUT_RESOURCES.keys()):
        raise SafeUpdateError(
            f"This Salt is not known: it has {', '.join(unknown)}, by which resources of minions "
            "may be taken for minions. Nothing was asked or started; install a version of "
            "saltext-safeupdate that knows it."
        )


def _nobody(*args: object, **kwargs: object) -> dict[str, list[str]]:
    return {"minions": [], "missing": []}


def _nothing(*args: object, **kwargs: object) -> None:
    """Add nothing to what was found by grains."""


# The methods by which CkMinions of Salt 3008 takes resources for minions.
_WITHOUT_RESOURCES = {
    "_check_resource_minions": _nobody,
    "_augment_grain_match_with_resource_grains": _nothing,
    "_augment_with_resources": list,
}


def _sound(minions: Iterable[str]) -> frozenset[str]:
    """Leave out ambiguous IDs: they could be read as several, or as another one."""
    found = set(minions)
    odd = {minion for minion in found if not aiming.is_sound(minion)}
    if odd:
        log.warning(
            "safeupdate: minions with a comma or with characters that cannot be printed in their "
            "IDs are left alone: %s",
            ", ".join(sorted(map(ascii, odd))),
        )
    return frozenset(found - odd)


def _looked_at_once(checker: Any) -> list[str]:
    """Let Salt read its keys once for all parts of a target; return the accepted ones."""
    if hasattr(checker, "key"):
        local = _local_keys(checker.opts, checker.key.pki_dir)
        if local is not None:
            checker.key.list_keys = lambda: {_ACCEPTED: list(local)}
    accepted = list(checker._pki_minions())
    checker._pki_minions = lambda: list(accepted)
    return accepted


def _local_keys(opts: Mapping[str, Any], pki_dir: str) -> list[str] | None:
    """
    Return the accepted keys that Salt lists; None if they are not files in one place.

    Since 3008, Salt resolves the whole path of each key four times: seconds for thousands.
    """
    places = [os.path.join(pki_dir, place) for place in _PLACES]
    if opts["keys.cache_driver"] != "localfs_key" or opts.get("key_cache") == "sched":
        return None
    if any(map(os.path.islink, places)):
        return None
    states: dict[str, str] = {}
    for place in places:
        try:
            with os.scandir(place) as entries:
                names = [each.name for each in entries if each.is_file(follow_symlinks=False)]
        except FileNotFoundError:
            continue
        except OSError:
            # Salt reports the problem.
            return None
        states |= {name: place for name in names if name[0] != "." and "\\" not in name}
    return [name for name, place in states.items() if place == places[0]]
