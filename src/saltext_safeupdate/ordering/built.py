"""The objects that order state runs, built together."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..core.settings import Settings
from ..this_host import Host
from . import names
from .calling import Calling
from .ending import Ending
from .ordering import Ordering
from .recording import NO_TIME, Recording

if TYPE_CHECKING:
    from .of_packages import OfPackages


class Built:
    """
    The functions that take the place of Salt's: in ``State``, and in front of functions.

    A run of one state, such as by ``state.single`` of a ``salt-call``, begins without what most
    states do not need. Any other run begins with all of it, because one of its states may replace
    this package.
    """

    def __init__(self, host: Host, settings: Settings, no_time: float = NO_TIME) -> None:
        self._host = host
        self._settings = settings
        self._recording = Recording(settings, no_time)
        self._ordering = Ordering(
            host, self._recording, Ending(self._packages, self._recording.call)
        )
        calling = Calling(
            ordering=self._ordering,
            packages=self._packages,
            recording=self._recording,
        )
        self.around_call = calling.around_call
        self.handlers = {
            **dict.fromkeys(names.GUARDED, self._guarded),
            **self._ordering.handlers(),
        }

    def load(self) -> None:
        """Load what is left, for this process and its children."""
        self._recording.resume()
        self._packages()

    def call_target(self, *args: Any) -> Any:
        from . import parallel

        return parallel.call_target(*args)

    def call_high(self, *args: Any) -> Any:
        self.load()
        return self._ordering.call_high(*args)

    def call_chunks(self, *args: Any) -> Any:
        self.load()
        return self._ordering.call_chunks(*args)

    def call_state(self, *args: Any) -> None:
        self._packages().following.state(*args)

    def call_function(self, *args: Any) -> None:
        self._packages().following.wait(*args)

    def _packages(self) -> OfPackages:
        return self._of_packages

    @cached_property
    def _of_packages(self) -> OfPackages:
        from .of_packages import OfPackages

        return OfPackages(self._host, self._settings, self._recording.call)

    def _guarded(self, fun: str, *args: Any) -> Any:
        return self._packages().handlers[fun](fun, *args)
