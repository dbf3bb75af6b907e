"""
Who is meant by a target: minions whose keys this master has accepted.

Since 3008, a minion tells its master which resources it has, of any names and grains, and Salt
takes them for minions in many targets. Here they are none, whatever they are called.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import Any

import salt.utils.minions

from . import aiming

log = logging.getLogger(__name__)

# Where local files keep the keys of minions. Of a key in two places, the last one counts.
_ACCEPTED, _PLACES = "minions", ("minions", "minions_pre", "minions_rejected")


def targeted(
    opts: Mapping[str, Any], target: object, tgt_type: str, *, greedy: bool = True
) -> list[str]:
    """
    Return the accepted minions that are meant, by Salt's own targeting.

    Those of whom the master does not know whether they are count if it is *greedy*.
    """
    checker = _checker(opts)
    accepted = _sound(_looked_at_once(checker))
    if tgt_type == "list":
        # Salt compares each name with each key, or looks for files of each name.
        listed = target.split(",") if isinstance(target, str) else target
        found = listed if isinstance(listed, list | tuple) else ()
    else:
        found = checker.check_minions(target, tgt_type, greedy=greedy)["minions"]
    # Salt has others in it as well: minions of which only grains are left.
    return sorted(accepted.intersection(found))


def accepted(opts: Mapping[str, Any]) -> frozenset[str]:
    """Return all minions whose keys this master has accepted."""
    return _sound(_looked_at_once(_checker(opts)))


def _checker(opts: Mapping[str, Any]) -> Any:
    """Return what decides about targets in Salt, without what minions say of resources."""
    checker = salt.utils.minions.CkMinions(dict(opts))
    for name, replacement in _WITHOUT_RESOURCES.items():
        if hasattr(checker, name):
            setattr(checker, name, replacement)
    return checker


def _nobody(*args: object, **kwargs: object) -> dict[str, list[str]]:
    return {"minions": [], "missing": []}


def _nothing(*args: object, **kwargs: object) -> None:
    """Add nothing to what was found by grains."""


# Where CkMinions of Salt 3008 takes resources for minions.
_WITHOUT_RESOURCES = {
    "_check_resource_minions": _nobody,
    "_augment_grain_match_with_resource_grains": _nothing,
    "_augment_with_resources": list,
}


def _sound(minions: Iterable[str]) -> frozenset[str]:
    """Leave out IDs that could be taken for several, or for another one."""
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
    """Have Salt look at its keys once for all parts of a target; return those it has accepted."""
    if hasattr(checker, "key"):
        local = _local_keys(checker.opts, checker.key.pki_dir)
        if local is not None:
            checker.key.list_keys = lambda: {_ACCEPTED: list(local)}
    accepted = list(checker._pki_minions())
    checker._pki_minions = lambda: list(accepted)
    return accepted


def _local_keys(opts: Mapping[str, Any], pki_dir: str) -> list[str] | None:
    """
    Return the accepted keys that Salt lists; None if they are not kept as files in one place.

    Since 3008, Salt follows the whole path of each key four times: seconds for thousands.
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
            # Salt says what is wrong.
            return None
        states |= {name: place for name in names if name[0] != "." and "\\" not in name}
    return [name for name, place in states.items() if place == places[0]]
