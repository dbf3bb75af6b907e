"""
The guard in front of the package manager and of the minion's own service.

Ordering does not guess from SLS what a state may do. It stops the execution function
that is about to do it: ``pkg.install`` and its like, called by whatever state or module,
with whatever arguments, at the moment where the package manager can be asked what would
change. Inside a state run the state is moved to the end (Deferral); elsewhere the
transaction runs at once, under the same protocol.
"""

from __future__ import annotations

import inspect
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import salt.utils.data
from salt.exceptions import CommandExecutionError

from ..core.errors import CommandError, SafeUpdateError
from ..core.jobs import current as current_job
from ..core.packages.request import Action, Change, Request
from ..core.prepare import resolution
from ..factory import Factory
from . import old_tree, runs
from .loaders import Handler

log = logging.getLogger(__name__)

_ACTIONS = {
    "pkg.install": Action.INSTALL,
    "pkg.remove": Action.REMOVE,
    "pkg.purge": Action.PURGE,
    "pkg.upgrade": Action.UPGRADE,
    "pkg.update": Action.UPGRADE,
    "pkg.autoremove": Action.AUTOREMOVE,
}
# What opens a transaction of a transactional system.
_TRANSACTIONS = tuple(
    f"transactional_update.{name}"
    for name in (
        *("apply", "call", "dup", "highstate", "migration", "patch", "pkg_install", "pkg_remove"),
        *("pkg_update", "run", "single", "sls", "up"),
    )
)
_RESTARTS = ("service.restart", "service.full_restart", "minion.restart")
# Arguments with which these functions do not touch the running system.
_HARMLESS = ("downloadonly", "download_only", "list_only", "test", "root", "installroot")
_PLAIN_VERSION = re.compile(r"^[A-Za-z0-9.+~:_-]+$")

_inside = threading.local()


class Guard:
    """Wraps the functions of every loader that loads them."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory
        # What is to be known of the newest transaction of this process.
        self.warning = ""

    # -- packages --------------------------------------------------------------

    def handlers(self) -> dict[str, Handler]:
        """Return what stands in front of which execution function."""
        return {
            **dict.fromkeys(_ACTIONS, self.package),
            **dict.fromkeys(_TRANSACTIONS, self.transaction),
            **dict.fromkeys(_RESTARTS, self.service),
        }

    def package(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Call *original*, at once or never, or raise Deferral."""
        run = runs.current()
        if getattr(_inside, "transaction", False) or self.factory.manager is None:
            return original(*args, **kwargs)
        request = interpret(fun, original, args, kwargs)
        if request is None:
            return original(*args, **kwargs)
        kwargs = _refreshed(original, kwargs)
        try:
            changes = self.touched(request)
        except SafeUpdateError as err:
            raise CommandExecutionError(str(err)) from err
        if not changes:
            return original(*args, **kwargs)
        self._refuse_quarantined(changes)
        if run is not None and run.inside and not run.finishing:
            raise runs.Deferral(changes, self._pulling(request, frozenset(changes)))
        return self.transact(
            lambda: original(*args, **kwargs), f"{fun}: {', '.join(sorted(changes))}"
        )

    def _refuse_quarantined(self, changes: Mapping[str, Change]) -> None:
        store = self.factory.store
        try:
            resolution.refuse_quarantined(
                {name: change.new for name, change in changes.items()},
                {},
                store.quarantined() if store.exists() else (),
            )
        except SafeUpdateError as err:
            raise CommandExecutionError(str(err)) from err

    def touched(self, request: Request) -> dict[str, Change]:
        """Return what the request would change of the own packages."""
        manager = self.factory.manager
        own = self.factory.own().names
        if manager is None or not own:
            return {}
        run = runs.current()
        excluded = run.excluded if run is not None and request.action is Action.UPGRADE else ()
        changes: dict[str, Change] = {}
        for part in _parts(request):
            try:
                found = manager.simulate(part)
            except CommandError as err:
                # The real call will fail the same way and say so, at the end if it names us.
                log.debug("the package manager cannot simulate: %s", err)
                found = {name: Change("", "") for name in own & part.names}
            changes |= found
        return {
            name: change for name, change in changes.items() if name in own and name not in excluded
        }

    def others(self) -> list[str]:
        """Return what an upgrade of everything but the own packages changes; may be nothing."""
        manager = self.factory.manager
        assert manager is not None  # noqa: S101
        own = self.factory.own().names
        changes = manager.simulate(Request(action=Action.UPGRADE))
        return self._harmless(
            sorted(name for name, change in changes.items() if name not in own and change.old)
        )

    def _harmless(self, names: list[str]) -> list[str]:
        """Return those of the packages whose upgrade pulls no own one along, by halving."""
        request = Request(action=Action.UPGRADE, targets=tuple((name, None) for name in names))
        if not names or not self.touched(request):
            return names
        middle = len(names) // 2
        return self._harmless(names[:middle]) + self._harmless(names[middle:]) if middle else []

    def _pulling(self, request: Request, touched: frozenset[str]) -> frozenset[str]:
        """Return the names that belong to the end: own ones, and those that pull one along."""
        own = self.factory.own().names
        names = set(touched)
        for target in request.targets:
            single = Request(action=request.action, targets=(target,), release=request.release)
            if target[0] in own or self.touched(single):
                names.add(target[0])
        if request.names and not request.files and not names & request.names:
            # It takes several of them together.
            names |= request.names
        return frozenset(names)

    @contextmanager
    def leaving_out(self, run: runs.Run) -> Iterator[bool]:
        """Let upgrades of everything leave the own packages alone; yield False without a way."""
        manager = self.factory.manager
        assert manager is not None  # noqa: S101
        names = self.factory.own().names
        with tempfile.TemporaryDirectory(prefix="safeupdate-") as directory:
            env = manager.without(sorted(names), directory)
            if env is None:
                yield False
                return
            before = {name: os.environ.get(name) for name in env}
            os.environ.update(env)
            run.excluded = names
            try:
                yield True
            finally:
                run.excluded = frozenset()
                for name, value in before.items():
                    if value is None:
                        del os.environ[name]
                    else:
                        os.environ[name] = value

    def transact(
        self,
        work: Callable[[], Any],
        reason: str,
        failure: Callable[[Any], str] = lambda result: "",
    ) -> Any:
        """Run *work* as the quiet transaction; its errors become Salt's."""

        def alone() -> Any:
            _inside.transaction = True
            try:
                return work()
            finally:
                _inside.transaction = False

        try:
            job = current_job.ensure(self.factory.settings)
            transaction = self.factory.transaction(old_tree.redirect, job.jid)
            result = transaction.change(
                alone, job.lock, jid=job.jid, reason=reason, failure=failure
            )
        except (SafeUpdateError, OSError) as err:
            raise CommandExecutionError(str(err)) from err
        self.warning = transaction.warning
        if self.warning:
            log.warning("safeupdate: %s", self.warning)
        return result

    def transaction(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Have the next boot watched where the transaction changed the own packages."""
        manager = self.factory.manager
        if getattr(_inside, "transaction", False) or manager is None or manager.snapshots is None:
            return original(*args, **kwargs)
        job = current_job.get()
        jid = job.jid if job is not None else ""

        from ..core.supervisor.adoption import adopt

        initiator = self.factory.initiator(jid)
        try:
            before = initiator.versions()
        except SafeUpdateError as err:
            raise CommandExecutionError(str(err)) from err
        _inside.transaction = True
        try:
            result = original(*args, **kwargs)
        finally:
            _inside.transaction = False
        try:
            adopt(initiator, before, jid=jid, reason=fun)
        except (SafeUpdateError, OSError) as err:
            # What it did is done, and is told.
            log.error("safeupdate: nobody looks after the boot into the new snapshot: %s", err)
        return result

    # -- the service -----------------------------------------------------------

    def service(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Turn a restart of the minion's own service into a deferred one."""
        if fun != "minion.restart":
            name = str(args[0] if args else kwargs.get("name", ""))
            if name.removesuffix(".service") != self.factory.settings.service:
                return original(*args, **kwargs)
        run = runs.current()
        if run is not None:
            run.restart = run.restart or f"{fun} in a state run"
            run.restart_asked = True
        else:
            self.request_restart(fun)
        if fun == "minion.restart":
            return {"pid": None, "killed": None, "restart": {}, "comment": [DEFERRED_RESTART]}
        return True

    def request_restart(self, reason: str) -> None:
        from ..core.supervisor import requests

        try:
            job = current_job.get()
            jid = job.jid if job is not None else ""
            requests.restart(self.factory.initiator(jid), jid=jid, reason=reason)
        except (SafeUpdateError, OSError) as err:
            raise CommandExecutionError(str(err)) from err


DEFERRED_RESTART = (
    "The minion restarts itself as soon as every job has ended and its return has been delivered."
)


def interpret(
    fun: str, original: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
) -> Request | None:
    """Return what the call asks of the package manager; None where it changes nothing here."""
    if fun not in _ACTIONS or any(salt.utils.data.is_true(kwargs.get(key)) for key in _HARMLESS):
        return None
    if any(kwargs.get(key) for key in ("root", "installroot")):
        return None
    try:
        bound = inspect.signature(original).bind_partial(*args, **kwargs).arguments
    except TypeError:
        # The call will fail with the same complaint.
        return None
    given = {**bound, **bound.get("kwargs", {})}
    targets = tuple(_targets(given))
    files = tuple(
        str(path)
        for source in given.get("sources") or ()
        for path in (source.values() if isinstance(source, dict) else (source,))
        if os.path.isabs(str(path))
    )
    sourced = tuple(
        (str(name), None)
        for source in given.get("sources") or ()
        if isinstance(source, dict)
        for name, path in source.items()
        if not os.path.isabs(str(path))
    )
    action = _ACTIONS[fun]
    if given.get("advisory_ids"):
        # Patches: nobody can say beforehand which packages they hold.
        action = Action.UPGRADE
    return Request(
        action=action,
        targets=targets + sourced,
        files=files,
        release=str(given["fromrepo"]) if given.get("fromrepo") else None,
        full=bool(given.get("dist_upgrade")),
    )


def _targets(given: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    if given.get("sources"):
        return
    pkgs = given.get("pkgs")
    if pkgs:
        for entry in pkgs if isinstance(pkgs, list | tuple) else [pkgs]:
            if isinstance(entry, dict):
                for name, version in entry.items():
                    yield str(name), _version(version)
            else:
                yield str(entry), None
    elif given.get("name"):
        names = str(given["name"]).split(",")
        version = _version(given.get("version")) if len(names) == 1 else None
        for name in names:
            yield name.strip(), version


def _parts(request: Request) -> list[Request]:
    """Package files are asked for apart from packages that are only named."""
    if not (request.files and request.targets):
        return [request]
    return [replace(request, targets=()), replace(request, files=())]


def _version(given: Any) -> str | None:
    """A condition or a pattern is the package manager module's to resolve."""
    text = str(given or "")
    return text if _PLAIN_VERSION.match(text) and text != "latest" else None


def _refreshed(original: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Refresh the metadata now where the call would, so that both see the same versions."""
    parameter = inspect.signature(original).parameters.get("refresh")
    default = parameter.default if parameter is not None else False
    refresh_db = original.__globals__.get("refresh_db")
    if refresh_db is None or not salt.utils.data.is_true(kwargs.get("refresh", default)):
        return kwargs
    refresh_db()
    return {**kwargs, "refresh": False}
