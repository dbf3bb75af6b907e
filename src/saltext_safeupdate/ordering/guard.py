"""
The guard in front of the package manager and of the minion's own service.

Ordering does not guess from SLS what a state may do. It stops the execution function that is
about to do it: ``pkg.install`` and its like, whichever state or module calls it, with whatever
arguments. At that moment the package manager can be asked what would change. In a state run
the state is deferred to the end of the run (Deferral). Elsewhere the transaction runs at once,
under the same protocol.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from salt.exceptions import CommandExecutionError

from ..core.errors import SafeUpdateError
from ..core.jobs import current as current_job
from ..core.packages.request import Change, Request
from ..this_host import Host
from . import below_slot, chosen, names, old_tree, package_calls, runs, turns
from .following import Following
from .loaders import Handler
from .own_packages import OwnPackages
from .package_calls import Call
from .quarantine import Quarantine
from .results import DEFERRED_RESTART

log = logging.getLogger(__name__)

_COMMAND = "'minion_restart_command' is not called: the service is restarted, and that ends no job."

_inside = threading.local()


class Guard:
    """Decides what happens to a call of an execution function that may change the minion."""

    def __init__(
        self, host: Host, own: OwnPackages, quarantine: Quarantine, following: Following
    ) -> None:
        self._host = host
        self._own = own
        self._quarantine = quarantine
        self._following = following
        # Notices for the administrator about the newest transaction of this process.
        self.warning = ""

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers, by the execution functions that they stand in front of."""
        return {
            **dict.fromkeys(package_calls.ACTIONS, self._package),
            **dict.fromkeys(names.HOLDS, self._following.function),
            **dict.fromkeys(names.TRANSACTIONS, self._transaction),
            **dict.fromkeys(names.RESTARTS, self._service),
            names.APPLY_SNAPSHOT: self._apply,
            names.BACK: self._back,
        }

    # -- packages --------------------------------------------------------------

    def _package(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Call *original*, at once or in a transaction, or raise Deferral."""
        run = runs.current()
        if _is_inside_transaction():
            return self._at_the_end(fun, original, args, kwargs)
        if not self._can_look():
            return original(*args, **kwargs)
        request = package_calls.requested(fun, original, args, kwargs)
        if request is None:
            return original(*args, **kwargs)
        with turns.of_job(self._host.settings) as waited:
            if waited:
                package_calls.forget_installed(original)
            call = package_calls.refresh_first(Call(fun, original, args, kwargs))
            try:
                request = chosen.exactly(request, call)
                changes = self._own.changed_by(request)
                behind = self._following.behind(request.names)
                if (changes or behind) and not self._can_change():
                    changes, behind = {}, frozenset()
                below_slot.refuse(self._host, changes)
                # Calls that wait for earlier ones are judged together with them.
                refusal = None if behind else self._quarantine.refusal(changes)
                if refusal is not None:
                    from .rest import Rest

                    return Rest(self._own).make(call, request, refusal)
                if changes or behind:
                    self._defer(run, call, request, changes, behind)
            except SafeUpdateError as err:
                raise CommandExecutionError(str(err)) from err
            if not changes:
                return call.make()
        reason = f"{fun}: {', '.join(sorted(changes))}"
        return self.transact(call.make, reason, anew=request.again)

    @staticmethod
    def _at_the_end(
        fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Install what was taken for a deferred call; make any other one."""
        run = runs.current()
        if run is None or run.secured is None:
            return original(*args, **kwargs)
        secured = run.secured
        if not secured.is_meant_by(package_calls.requested(fun, original, args, kwargs)):
            return original(*args, **kwargs)
        try:
            return secured.install()
        except SafeUpdateError as err:
            raise CommandExecutionError(str(err)) from err
        finally:
            package_calls.forget_installed(original)

    def _defer(
        self,
        run: runs.Run | None,
        call: Call,
        request: Request,
        changes: Mapping[str, Change],
        behind: frozenset[str],
    ) -> None:
        """Raise Deferral if the call is made by a state that the end of a run can call again."""
        if run is None or not run.inside or run.finishing:
            return
        raise runs.Deferral(
            self._following.predicted(request, changes),
            self._own.names_to_defer(request, frozenset(changes)) | behind,
            request,
            along=self._own.removed_along(request),
            follows=bool(behind),
            exact=self._own.is_exact(call, request),
        )

    def _can_look(self) -> bool:
        """Tell whether what the own packages are found with is there; Salt's own works without."""
        try:
            return None not in (self._host.manager, self._host.services)
        except ImportError as err:
            return _missing(err)

    @staticmethod
    def _can_change() -> bool:
        """Tell whether what a transaction needs is there, before anything has begun."""
        try:
            from .. import factory
            from ..core.generations import activation
            from ..core.host import backup, daemons
            from ..core.prepare import beside, resolution
            from ..core.supervisor import adoption, asking, initiator, neighbours, quiet_transaction
            from ..core.transactional import closing
            from . import rest, transactions
        except ImportError as err:
            return _missing(err)
        needed = (adoption, asking, initiator, neighbours, quiet_transaction, resolution, beside)
        return all((*needed, factory, activation, backup, daemons, closing, rest, transactions))

    def transact(
        self,
        work: Callable[[], Any],
        reason: str,
        failure: Callable[[Any], str] = lambda result: "",
        again: Sequence[str] = (),
        anew: bool = False,
    ) -> Any:
        """
        Run *work* as the quiet transaction; its errors become Salt's.

        *again* are the packages that it removes and has to have installed in the end. *anew*: it
        installs packages also in the version that is there.
        """

        from .. import factory

        def alone() -> Any:
            with _transaction_of_this_thread():
                return work()

        try:
            job = current_job.ensure(self._host.settings)
            transaction = factory.transaction(self._host, old_tree.redirect, job.jid)
            try:
                result = transaction.change(
                    alone,
                    job.share(),
                    job.packages,
                    jid=job.jid,
                    reason=reason,
                    failure=failure,
                    again=again,
                    anew=anew,
                )
            finally:
                # It keeps others from the packages until this process has ended.
                job.packages = transaction.packages or job.packages
        except (SafeUpdateError, OSError) as err:
            raise CommandExecutionError(str(err)) from err
        self.warning = transaction.warning
        if self.warning:
            log.warning("safeupdate: %s", self.warning)
        return result

    # -- transactional systems -------------------------------------------------

    def _transaction(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Look at the own packages in what the transaction has made the default snapshot."""
        if _is_inside_transaction() or not self._has_snapshots():
            return original(*args, **kwargs)
        from ..core.transactional import closing
        from .transactions import Look

        look = Look(self._host, fun, _jid())
        try:
            with _transaction_of_this_thread(), closing.looked_at_by(look):
                return original(*args, **kwargs)
        finally:
            look.end()

    def _apply(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Refuse to put another version below the running minion."""
        if self._has_snapshots():
            from . import transactions

            transactions.refuse_to_apply(self._host)
        return original(*args, **kwargs)

    def _back(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Have an update end that the host has left."""
        result = original(*args, **kwargs)
        if self._has_snapshots():
            from . import transactions

            transactions.end_what_was_left(self._host, _jid())
        return result

    def _has_snapshots(self) -> bool:
        """Tell whether this is a transactional system, and what looks after it is there."""
        return self._can_look() and self._can_change() and self._host.activation.by_boot

    # -- the service -----------------------------------------------------------

    def host_goes_down(self) -> bool:
        return self._host.services.goes_down()

    def leave_to_next_boot(self, pending: Sequence[runs.Pending]) -> None:
        """Have the next boot begin what is deferred; its errors become Salt's."""
        from . import next_boot

        try:
            next_boot.leave(self._host, pending, _jid())
        except (SafeUpdateError, OSError) as err:
            raise CommandExecutionError(str(err)) from err

    def _service(
        self, fun: str, original: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """
        Defer a restart of the minion's own service.

        Salt's ``minion.kill`` is a restart by whatever watches the minion, and so is
        ``minion.restart`` with 'minion_restart_command': both would end all jobs. Where nothing of
        ours can restart the minion, they work as with plain Salt.
        """
        of_minion = fun.startswith("minion.")
        if not of_minion:
            name = str(args[0] if args else kwargs.get("name", ""))
            if name.removesuffix(".service") != self._host.settings.service:
                return original(*args, **kwargs)
        if not self._can_change() or (of_minion and self._cannot_restart()):
            return original(*args, **kwargs)
        run = runs.current()
        if run is not None:
            run.ask_for_restart(f"{fun} in a state run")
        else:
            self.request_restart(fun)
        if not of_minion:
            return True
        named = fun == "minion.restart" and self._host.opts.get("minion_restart_command")
        comment = [DEFERRED_RESTART, *([_COMMAND] if named else ())]
        ret = {"killed": None, "retcode": 0, "comment": comment}
        return ret if fun == "minion.kill" else {**ret, "pid": None, "restart": {}}

    def _cannot_restart(self) -> bool:
        """Tell whether the minion has no service, and no keeper, that could restart it."""
        services, unit = self._host.services, self._host.settings.service
        return services is None or bool(services.obstacle(unit))

    def request_restart(self, reason: str) -> None:
        """Request the deferred restart; its errors become Salt's."""
        from .. import factory
        from ..core.supervisor import asking

        try:
            jid = _jid()
            asking.restart(factory.initiator(self._host, jid), jid=jid, reason=reason)
        except (SafeUpdateError, OSError) as err:
            raise CommandExecutionError(str(err)) from err


def _missing(err: ImportError) -> bool:
    """Log that a part of this package is gone; jobs do without it."""
    log.error(
        "safeupdate: the own packages change as with plain Salt: a part of saltext-safeupdate is "
        "missing (%s). Install it again for the minion's Python.",
        err,
    )
    return False


def _jid() -> str:
    job = current_job.get()
    return job.jid if job is not None else ""


def _is_inside_transaction() -> bool:
    return getattr(_inside, "transaction", False)


@contextmanager
def _transaction_of_this_thread() -> Iterator[None]:
    """Let calls of this thread pass the guard: the transaction is under way."""
    _inside.transaction = True
    try:
        yield
    finally:
        _inside.transaction = False
