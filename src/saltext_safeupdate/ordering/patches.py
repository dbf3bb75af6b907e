"""The table of what the ordering replaces. For now one row that puts in everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import salt.state

from ..core.settings import Settings
from ..factory import Factory
from ..patches import Patch
from . import hook, loaders, resume
from .guard import Guard


def patches(factory: Factory, settings: Settings) -> list[Patch]:
    """Return the table."""

    def replace(original: Callable[..., Any]) -> Callable[..., Any]:
        guard = Guard(factory)
        ordering = hook.install(guard, resume.install(settings))
        loaders.install({**guard.handlers(), **ordering.handlers()})
        found: Callable[..., Any] = salt.state.State.call
        return found

    # Salt's decorator hides its parameters.
    return [Patch(salt.state.State, "call", (), replace)]
