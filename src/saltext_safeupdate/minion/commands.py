"""
Commands of jobs to the main process that the next main process must carry out as well.

A job refreshes pillar, grains or modules, and changes the schedule or beacons, by an event on the
bus of its own minion. If that minion is handed over, the change would be lost with it. So it
passes the same events on to the next minion, in the same order, as soon as that one accepts them.
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
# Only the functions that change something: 'run_job' would start a job twice, and the minion of
# the job answers questions.
_CHANGES = {
    "manage_schedule": "add delete modify enable disable enable_job disable_job postpone_job "
    "skip_job reload save_schedule",
    "manage_beacons": "add modify delete enable disable enable_beacon disable_beacon reset",
}
# Salt compares the beginning of a tag (``Minion.handle_event``, 3006 to 3008).
_TAGS = tuple(each.encode() for each in (*_REFRESHES.split(), *_CHANGES))
# How many different commands are stored for a next minion that does not come up.
_MOST = 500
# Seconds after which a minion that listens and has recorded nothing about itself has no hooks.
_UNKNOWN = 30.0
# Seconds to wait for the next minion, and before another attempt if it could not be told.
_PATIENCE = 60.0
_RETRY = 5.0


class _Command(NamedTuple):
    tag: str
    data: dict[str, Any]
    # Seconds since the boot.
    at: float

    def is_read_by(self, pid: int) -> bool:
        """Tell whether that process has read it from the disk: sent again, it might run twice."""
        began = int(processes.start_time(pid) or 0) / os.sysconf("SC_CLK_TCK")
        return bool(self.data.get("persist")) and self.at < began


class Commands:
    """
    Commands that this main process got, and the next one has not got yet.

    *is_ready* tells whether the minion with a PID accepts commands; None: unknown.
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
        """Store an event if it is a command to a main process."""
        # Each part of the minion, one for each master, gets the same event.
        if not package.startswith(_TAGS) or package == self._last:
            return
        self._last = package
        tag, data = salt.utils.event.SaltEvent.unpack(package)
        changes = next((_CHANGES[each] for each in _CHANGES if tag.startswith(each)), None)
        if changes is None or data.get("func") in changes.split():
            data.pop("_stamp", None)
            # Only the last of equal commands counts: many may come before the next minion is there.
            self._kept = [each for each in self._kept if each[:2] != (tag, data)][1 - _MOST :]
            self._kept.append(_Command(tag, data, processes.since_boot()))

    def drop(self) -> None:
        """Discard them: there is no next minion."""
        self._kept = []

    @property
    def wait(self) -> bool:
        """Whether to wait for the next minion because of these commands."""
        return bool(self._kept) and processes.since_boot() < self._kept[-1].at + _PATIENCE

    def tell(self, opts: Mapping[str, Any], place: str) -> None:
        """Pass them on to the minion that listens in *place*, if it is another one and ready."""
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
                        raise OSError(f"it does not accept {each.tag}")
                    log.info("safeupdate: the next minion does %s as well", each.tag)
                    del self._kept[0]
        except Exception as err:  # noqa: BLE001 (it is logged, and the handover continues)
            self._retry_at = now + _RETRY
            log.warning("safeupdate: the next minion cannot be told about changes by jobs: %s", err)
