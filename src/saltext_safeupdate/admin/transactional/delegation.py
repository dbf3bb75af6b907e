"""Which jobs of a transactional system run in a transaction."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.transactional import delegate
from ...core.transactional.delegate import is_last

__all__ = ["instead", "is_last"]


def instead(
    opts: Mapping[str, Any], data: Mapping[str, Any], args: Sequence[Any]
) -> tuple[str, Sequence[Any]] | None:
    """Return the function that takes a job into a transaction, and its arguments, or None."""
    fun = data.get("fun")
    target = delegate.delegate(fun, opts, data, os.environ)
    if target is None:
        return None
    return target, (fun, *args) if target == delegate.CALL else args
