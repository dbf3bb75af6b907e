"""The state functions that this minion has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import salt.loader


def load(
    opts: Mapping[str, Any], functions: Mapping[str, Callable[..., Any]]
) -> Mapping[str, Callable[..., Any]]:
    """Return them by name, as a state run of Salt loads them."""
    loaded: Mapping[str, Callable[..., Any]] = salt.loader.states(
        opts, functions, salt.loader.utils(opts), salt.loader.serializers(opts)
    )
    return loaded
