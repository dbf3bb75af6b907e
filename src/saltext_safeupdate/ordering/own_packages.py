"""The changes that a request would make to the own packages, from the package manager."""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import CommandError
from ..core.packages.request import REMOVALS, Action, Change, Request
from ..this_host import Host
from . import package_calls, runs
from .package_calls import Call

if TYPE_CHECKING:
    from ..core.packages.manager import PackageManager

log = logging.getLogger(__name__)


class OwnPackages:
    """Asks the package manager, which has to be known for all but :attr:`names`."""

    def __init__(self, host: Host) -> None:
        self._host = host

    @property
    def names(self) -> frozenset[str]:
        return self._host.own().names

    @property
    def _manager(self) -> PackageManager:
        return self._host.known_manager()

    def changed_by(self, request: Request) -> dict[str, Change]:
        """Return what the request would change of the own packages."""
        own = self.names
        if not own:
            return {}
        run = runs.current()
        excluded = run.excluded if run is not None and request.action is Action.UPGRADE else ()
        changes: dict[str, Change] = {}
        for part in _parts(request):
            try:
                found = self._manager.simulate(part)
            except CommandError as err:
                # The real call will fail in the same way and say so, or change something. It is
                # deferred if it names an own package.
                log.debug("the package manager cannot simulate: %s", err)
                asked, named = dict(part.targets), own & part.names
                found = dict.fromkeys(named, Change("", ""))
                if request.action not in REMOVALS:
                    now = self._manager.installed(named)
                    found = {name: Change(now.get(name, ""), asked[name] or "*") for name in named}
            changes |= found
        if request.again:
            now = self._manager.installed(own & request.names)
            changes = {name: Change(version, version) for name, version in now.items()} | changes
        return {
            name: change for name, change in changes.items() if name in own and name not in excluded
        }

    def names_to_defer(self, request: Request, changes: frozenset[str]) -> frozenset[str]:
        """Return the own packages among *changes*, and what is requested and pulls one along."""
        own = self.names
        others = [target for target in request.targets if target[0] not in own]
        names = changes | (request.names & own) | self._pulling(request, others)
        if request.names and not request.files and not names & request.names:
            # No single one of them pulls an own package along; several together do.
            names |= request.names
        return names

    def _pulling(
        self, request: Request, targets: Sequence[tuple[str, str | None]]
    ) -> frozenset[str]:
        """Return the targets that pull an own package along, by halving."""
        part = replace(request, targets=tuple(targets), files=())
        if not targets or not self.changed_by(part):
            return frozenset()
        if len(targets) == 1:
            return frozenset({targets[0][0]})
        middle = len(targets) // 2
        return self._pulling(request, targets[:middle]) | self._pulling(request, targets[middle:])

    def removed_along(self, request: Request) -> frozenset[str]:
        """Return the other packages that the removal of own ones takes along."""
        if request.action not in REMOVALS:
            return frozenset()
        try:
            found = self._manager.simulate(request)
        except CommandError as err:
            # As in changed_by: the real call will say so.
            log.debug("the package manager cannot simulate: %s", err)
            return frozenset()
        gone = {name for name, change in found.items() if change.old and not change.new}
        return frozenset(gone - self.names - request.names)

    def is_exact(self, call: Call, request: Request) -> bool:
        """Tell whether the request is all that the call installs, and no lock is in its way."""
        given = call.given
        if package_calls.patches(call) or given.get("force_conf_new") or given.get("reinstall"):
            return False
        if "install_recommends" in given:
            # Only the call itself knows which packages come along.
            return False
        if given.get("sources") and request.targets:
            # There is no file for some of them.
            return False
        # Salt's module for apt takes locks off for a moment.
        if self._manager.name == "apt" or given.get("update_holds"):
            return True
        return not self._manager.version_locked(self.names & request.names)

    def with_unit(self) -> frozenset[str]:
        """Return the packages that have the unit of the minion."""
        services = self._host.services
        unit = services.unit_file(self._host.settings.service) if services is not None else None
        return frozenset(self._manager.owners([unit]) if unit is not None else ())

    def try_out(self, request: Request) -> None:
        """Raise CommandError if the package manager says that the request cannot succeed."""
        for part in _parts(request):
            self._manager.simulate(part)

    def installed(self) -> dict[str, str]:
        """Return the versions of the own packages."""
        return self._manager.installed(self.names)

    def offers(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return the versions on offer, the newest first."""
        return self._manager.candidates(names)

    def other_upgrades(self, request: Request) -> list[str]:
        """
        Return the packages that can be upgraded without any own one; there may be none.

        *request* is the upgrade of everything: its choice of repositories counts for them, too.
        """
        changes = self._manager.simulate(request)
        own = self.names
        return self._upgrades_without_own(
            request, sorted(name for name, each in changes.items() if name not in own and each.old)
        )

    def needed_by_upgrades(self, request: Request) -> frozenset[str]:
        """Return the packages that can only be upgraded with an own one."""
        part = replace(request, full=False)
        changes = self._manager.simulate(part)
        others = {name for name, each in changes.items() if name not in self.names and each.old}
        return frozenset(others.difference(self._upgrades_without_own(part, sorted(others))))

    def _upgrades_without_own(self, request: Request, names: list[str]) -> list[str]:
        """Return the packages whose upgrade pulls no own package along, by halving."""
        part = replace(request, targets=tuple((name, None) for name in names))
        if not names or not self.changed_by(part):
            return names
        if len(names) == 1:
            return []
        middle = len(names) // 2
        return [
            *self._upgrades_without_own(request, names[:middle]),
            *self._upgrades_without_own(request, names[middle:]),
        ]

    def may_change(self, request: Request) -> bool:
        """Tell whether the request may change an own package, also if nobody can say."""
        try:
            return not self.names.isdisjoint(self._manager.simulate(request))
        except CommandError as err:
            log.debug("the package manager cannot simulate: %s", err)
            return True

    @contextmanager
    def excluded(self, run: runs.Run | None, more: frozenset[str] = frozenset()) -> Iterator[bool]:
        """
        Have upgrades of everything leave the own packages alone, and *more*.

        Yields False if the package manager has no way to do that, and in a minion whose jobs are
        threads: what tells the package manager would tell it to all of them.
        """
        if threading.current_thread() is not threading.main_thread():
            yield False
            return
        names = self.names
        with tempfile.TemporaryDirectory(prefix="safeupdate-") as directory:
            env = self._manager.without(sorted(names | more), directory)
            if env is None:
                yield False
                return
            before = {name: os.environ.get(name) for name in env}
            os.environ.update(env)
            if run is not None:
                run.excluded = names
            try:
                yield True
            finally:
                if run is not None:
                    run.excluded = frozenset()
                for name, value in before.items():
                    if value is None:
                        del os.environ[name]
                    else:
                        os.environ[name] = value


def _parts(request: Request) -> list[Request]:
    """Return the package files and the packages that are only named as two requests."""
    if not (request.files and request.targets):
        return [request]
    return [replace(request, targets=()), replace(request, files=())]
