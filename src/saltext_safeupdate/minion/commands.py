"""
What jobs have the main process do, and the next one has to do as well.

A job refreshes pillar, grains or modules, and changes schedule or beacons, by an event on the bus
of its own minion. If that one is handed over, the change would be gone with it. So it tells the
next minion the same, in the same order, as soon as that one does what it is told.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import salt.utils.event

from ..core.host import processes
from . import own_bus

log = logging.getLogger(__name__)

_REFRESHES = (
    "module_refresh pillar_refresh grains_refresh matchers_refresh beacons_refresh "
    "resource_refresh environ_setenv"
)
# Of these only what changes something: 'run_job' would start a job twice, and what is only asked
# is answered by the minion of the job.
_CHANGES = {
    "manage_schedule": "add delete modify enable disable enable_job disable_job postpone_job "
    "skip_job reload save_schedule",
    "manage_beacons": "add modify delete enable disable enable_beacon disable_beacon reset",
}
# Salt goes by how a tag begins (``Minion.handle_event``, 3006 to 3008).
_TAGS = tuple(each.encode() for each in (*_REFRESHES.split(), *_CHANGES))
# Different ones that are kept for a next minion that does not come up.
_MOST = 500
# Seconds after which one that listens and has noted nothing of itself has no hooks.
_UNKNOWN = 30.0
# Seconds for which the next one is waited for, and before another try if it could not be told.
_PATIENCE = 60.0
_RETRY = 5.0


class _Command(NamedTuple):
    tag: str
    data: dict[str, Any]
    # Seconds since the boot.
    at: float

    def is_read_by(self, pid: int) -> bool:
        """Tell whether that process has read it from the disk: added again, it might run again."""
        began = int(processes.start_time(pid) or 0) / os.sysconf("SC_CLK_TCK")
        return bool(self.data.get("persist")) and self.at < began


class Commands:
    """
    What this main process was told to do and the next one was not yet.

    *is_ready* says of the one with a PID whether it does what it is told; None: not known.
    """

    def __init__(
        self, monotonic: Callable[[], float], is_ready: Callable[[int], bool | None]
    ) -> None:
        self._monotonic = monotonic
        self._is_ready = is_ready
        self._kept: list[_Command] = []
        self._last = b""
        self._listener, self._since, self._retry_at = 0, 0.0, 0.0

    def keep(self, package: bytes) -> None:
        """Keep what an event tells a main process to do, if it is that."""
        # Each part of the minion, one for each master, gets the same event.
        if not package.startswith(_TAGS) or package == self._last:
            return
        self._last = package
        tag, data = salt.utils.event.SaltEvent.unpack(package)
        changes = next((_CHANGES[each] for each in _CHANGES if tag.startswith(each)), None)
        if changes is None or data.get("func") in changes.split():
            data.pop("_stamp", None)
            # The last one of the same counts: there may be many before the next minion is there.
            self._kept = [each for each in self._kept if each[:2] != (tag, data)][1 - _MOST :]
            self._kept.append(_Command(tag, data, processes.since_boot()))

    def drop(self) -> None:
        """Forget them: there is no next minion."""
        self._kept = []

    @property
    def wait(self) -> bool:
        """Whether there are some for which the next minion is waited for."""
        return bool(self._kept) and processes.since_boot() < self._kept[-1].at + _PATIENCE

    def tell(self, opts: Mapping[str, Any], place: str) -> None:
        """Tell them the minion that listens in *place*, if that is another one and ready."""
        now = self._monotonic()
        if not self._kept or now < self._retry_at:
            return
        opts = {**opts, "sock_dir": place}
        listener = own_bus.listener(opts)
        if listener in (-1, 0, os.getpid()):
            return
        if listener != self._listener:
            self._listener, self._since = listener, now
        ready = self._is_ready(listener)
        if not (now > self._since + _UNKNOWN if ready is None else ready):
            return
        try:
            with salt.utils.event.get_event("minion", opts=opts, listen=False) as event:
                while self._kept:
                    each = self._kept[0]
                    if not (each.is_read_by(listener) or event.fire_event({**each.data}, each.tag)):
                        raise OSError(f"it does not take {each.tag}")
                    log.info("safeupdate: the next minion does %s as well", each.tag)
                    del self._kept[0]
        except Exception as err:  # noqa: BLE001 (it is told, and the handover goes on)
            self._retry_at = now + _RETRY
            log.warning("safeupdate: the next minion cannot be told what jobs change: %s", err)
