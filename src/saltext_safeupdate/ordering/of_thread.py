"""The state run of this thread, for what asks for it also where there is none."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .runs import Run

local = threading.local()


def current() -> Run | None:
    run: Run | None = getattr(local, "run", None)
    return run
