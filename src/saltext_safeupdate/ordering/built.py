"""The objects that order state runs, built together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.settings import Settings
from ..this_host import Host
from . import parallel, resume
from .calling import Calling
from .deferring import Deferring
from .ending import Ending
from .guard import Guard
from .ordering import Ordering
from .own_packages import OwnPackages
from .quarantine import Quarantine
from .resume import Resume
from .testmode import TestMode


class Built:
    """The functions that take the place of Salt's: in ``State``, and in front of functions."""

    def __init__(self, host: Host, settings: Settings, no_time: float | None = None) -> None:
        own = OwnPackages(host)
        quarantine = Quarantine(host)
        guard = Guard(host, own, quarantine)
        resuming = Resume(settings, resume.NO_TIME if no_time is None else no_time)
        ordering = Ordering(resuming, Ending(guard, resuming.call))
        calling = Calling(
            ordering=ordering,
            deferring=Deferring(own, resuming.call),
            resume=resuming,
            test_mode=TestMode(own, quarantine, settings.service),
            own=own,
            run_dir=settings.run_dir,
        )
        self.around_call = calling.around_call
        self.call_high: Callable[..., Any] = ordering.call_high
        self.call_chunks: Callable[..., Any] = ordering.call_chunks
        self.call_target: Callable[..., Any] = parallel.call_target
        self.handlers = {**guard.handlers(), **ordering.handlers()}
