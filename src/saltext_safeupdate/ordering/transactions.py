"""
The minion's own packages in the transactions of a transactional system.

What a transaction has done to them shows when it is closed: then a version in quarantine is taken
back, and the boot into any other is watched.
"""

from __future__ import annotations

import logging

from salt.exceptions import CommandExecutionError

from .. import factory
from ..core.errors import InputError, SafeUpdateError
from ..core.prepare import resolution
from ..core.supervisor.adoption import adopt
from ..core.supervisor.initiator import Initiator
from ..core.transactional.closing import Refusal
from ..core.transactional.roots import Subvolume
from ..this_host import Host

log = logging.getLogger(__name__)


class Look:
    """
    Looks at the own packages in what the call of *fun* by the job *jid* has made the default.

    Raises CommandExecutionError if that could not be told afterwards; nothing was changed then.
    """

    def __init__(self, host: Host, fun: str, jid: str) -> None:
        self._fun = fun
        self._jid = jid
        self._adopted = False
        try:
            self._by: Initiator = factory.initiator(host, jid)
            self._before = self._by.versions()
            self._bad = self._by.store.quarantined() if self._by.store.exists() else []
        except SafeUpdateError as err:
            raise CommandExecutionError(str(err)) from err

    def __call__(self, base: Subvolume | None) -> Refusal | None:
        """Return why the new default snapshot may not stay, or have its boot watched."""
        try:
            after = self._by.versions()
            resolution.refuse_quarantined(after, self._before, self._bad)
        except InputError as err:
            bad = {row.package for row in self._bad if after.get(row.package) == row.version}
            return Refusal(reason=str(err), packages=sorted(bad))
        except SafeUpdateError as err:
            log.error("safeupdate: what is in the new snapshot is not known: %s", err)
        else:
            self._adopt(base)
        return None

    def end(self) -> None:
        """Have the boot watched if the next one starts something new, whoever made that."""
        if not self._adopted:
            self._adopt(None)

    def _adopt(self, base: Subvolume | None) -> None:
        self._adopted = True
        back = vars(base) if base else None
        try:
            adopt(self._by, self._before, base=back, jid=self._jid, reason=self._fun)
        except (SafeUpdateError, OSError) as err:
            # The transaction is complete, and its result is returned.
            log.error("safeupdate: the boot into the new snapshot is not watched: %s", err)


def refuse_to_apply(host: Host) -> None:
    """
    Raise CommandExecutionError if the pending snapshot has another version of the minion.

    Applied, it would lie below the minion that runs, and nobody would watch the next restart.
    """
    manager, waiting = host.manager, host.activation.waiting
    if manager is None or not waiting:
        return
    try:
        own = sorted(host.own().names)
        new, now = manager.installed(own), manager.running(own)
    except SafeUpdateError as err:
        raise CommandExecutionError(str(err)) from err
    if new != now:
        named = ", ".join(f"{name} {version}" for name, version in sorted(new.items()))
        raise CommandExecutionError(
            f"{waiting} It has another version of the minion ({named or 'none'}). Applied, its "
            "files would replace those that the running minion reads. Nothing was changed: reboot "
            "instead, or call the update off with 'safeupdate.cancel' first."
        )


def end_what_was_left(host: Host, jid: str) -> None:
    """Have an update end whose snapshot somebody has made the default no more."""
    try:
        by = factory.initiator(host, jid)
        last = by.latest()
        if last is not None and last.awaits_boot and by.versions() != last.versions_to:
            by.have_supervised(last)
    except (SafeUpdateError, OSError) as err:
        log.error("safeupdate: the update that was left still waits for a boot: %s", err)
