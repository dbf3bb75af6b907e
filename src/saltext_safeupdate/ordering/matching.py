"""Whether a target means this minion, by Salt's own matchers, its grains and its pillar."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

import salt.loader

log = logging.getLogger(__name__)

# Kinds of targets for which Salt minds the delimiter of a publication.
_MINDING_DELIMITER = ("grain", "grain_pcre", "pillar")


def decided(opts: Mapping[str, Any], targets: Iterable[Mapping[str, Any]]) -> list[bool | None]:
    """
    Return of each target whether it means this minion; None if that cannot be decided.

    A target has ``tgt``, ``tgt_type`` and ``delimiter``, as a publication has them.
    """
    given = dict(opts)
    matchers = salt.loader.matchers(given)
    return [_decided(given, matchers, target) for target in targets]


def _decided(
    opts: dict[str, Any], matchers: Mapping[str, Any], target: Mapping[str, Any]
) -> bool | None:
    kind, tgt = target["tgt_type"], target["tgt"]
    if kind == "glob" and _is_of_resource(opts, tgt):
        return False
    match = matchers.get(f"{kind}_match.match")
    if match is None:
        # Salt itself lets such a publication pass by.
        return False
    try:
        if kind in _MINDING_DELIMITER:
            return bool(match(tgt, delimiter=target["delimiter"], opts=opts))
        return bool(match(tgt, opts=opts))
    except Exception:  # A matcher may raise anything: on a broken pillar, on data of any shape.
        log.exception("safeupdate: it cannot be told whether %r (%s) means this minion", tgt, kind)
        return None


def _is_of_resource(opts: Mapping[str, Any], tgt: object) -> bool:
    """Tell whether Salt takes the target for one of this minion's resources (since 3008)."""
    resources = opts.get("resources")
    if not isinstance(resources, Mapping):
        return False
    return any(tgt in names for names in resources.values() if isinstance(names, list | tuple))
