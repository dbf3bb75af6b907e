"""The objects that look after the own packages, built together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.settings import Settings
from ..this_host import Host
from .deferring import Deferring
from .following import Following
from .guard import Guard
from .own_packages import OwnPackages
from .quarantine import Quarantine
from .secured import Securing
from .testmode import TestMode


class OfPackages:
    """A run needs them as soon as a state may change own packages. *call* calls a state."""

    def __init__(self, host: Host, settings: Settings, call: Callable[..., Any]) -> None:
        quarantine = Quarantine(host)
        self.own = OwnPackages(host)
        self.securing = Securing(host)
        self.following = Following(self.own, quarantine)
        self.guard = Guard(host, self.own, quarantine, self.following)
        self.handlers = self.guard.handlers()
        self.deferring = Deferring(self.own, self.securing, call)
        self.test_mode = TestMode(self.own, quarantine, settings.service)
