"""Requests of an administrator to a transactional system."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from ...core.errors import InputError, SafeUpdateError
from ...core.host import command, hidden
from ...core.transactional import call as calls
from ...core.transactional import cli, delegate, detect, inside, summary
from ...core.transactional import reboot as reboots
from ...core.transactional import status as statuses
from ...core.transactional.cli import Options, package_words
from ...core.transactional.outcome import Limits
from ...core.transactional.summary import summarise, without_internals
from ...core.transactional.tool import Tool, refuse_inside
from ...ordering import offline_units
from ...patches import UnknownSaltError
from ..updates.inside import RunningMinion

__all__ = [
    "TOOL",
    "Transactions",
    "in_transaction",
    "is_transactional",
    "package_words",
    "perform",
    "register_words",
    "summarise",
    "without_internals",
]

log = logging.getLogger(__name__)

Functions = Mapping[str, Callable[..., Any]]

TOOL = detect.TOOL
_REGISTERS = "SUSEConnect"


def is_transactional() -> bool:
    """Tell whether the tool is installed and the root is a read-only btrfs snapshot."""
    return detect.transactional(command.run)


def in_transaction() -> bool:
    """Tell whether this process runs inside a transaction."""
    return hidden.in_transaction(os.environ)


def register_words(args: str | Sequence[object] | None) -> list[str]:
    """Return ``register ARGS``. Raise InputError if the program for it is missing."""
    places = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/bin"
    if shutil.which(_REGISTERS, path=places) is None:
        raise InputError(
            f"{_REGISTERS}, which registers a system, is not installed; nothing was changed. "
            "Install it in a transaction, and reboot"
        )
    return ["register", *cli.split_words(args, "args")]


def perform(
    path: str, functions: Functions, context: MutableMapping[str, Any], published: Mapping[str, Any]
) -> None:
    """Carry out, inside a transaction, the request in the directory *path*."""
    try:
        offline_units.install(functions.get("transactional_update.perform"))
    except UnknownSaltError as err:
        log.warning("safeupdate: a watched service with a unit file in /etc may fail: %s", err)
    inside.perform(path, functions, context, os.environ, time.time, published)


class Transactions:
    """
    The transactions of this minion, by its configuration.

    *functions* are Salt's. *context* gets the exit status of a call as ``retcode``. Every method
    raises SafeUpdateError; an error says what is in effect.
    """

    def __init__(
        self,
        opts: Mapping[str, Any],
        functions: Functions,
        context: MutableMapping[str, Any],
    ) -> None:
        self._opts = opts
        self._functions = functions
        self._context = context
        self._tool = Tool(run=command.run, host=calls.host(opts))

    def pending(self) -> bool:
        """Tell whether a new snapshot waits for a reboot."""
        refuse_inside(os.environ)
        return self._tool.roots().pending

    def snapshots(self) -> list[dict[str, Any]]:
        return [snapshot.as_dict() for snapshot in self._tool.snapshots()]

    def status(self) -> dict[str, Any]:
        return statuses.status(self._tool)

    def change(
        self,
        words: Sequence[str],
        self_update: bool = False,
        snapshot: str | int | None = None,
        timeout: float | None = None,
        lock_timeout: float | None = None,
        *,
        drop_if_no_change: bool = True,
    ) -> str:
        """Call the tool with a subcommand and its arguments; return what it printed."""
        options = Options(
            self_update=self_update, snapshot=snapshot, drop_if_no_change=drop_if_no_change
        )
        limits = self._limits(timeout, lock_timeout)
        return self._tool.invoke(words, options, limits).check().printed

    def run(
        self,
        command_line: str | Sequence[object],
        self_update: bool,
        snapshot: str | int | None,
        timeout: float | None,
        lock_timeout: float | None,
        keep: bool,
        drop_if_no_change: bool,
    ) -> str:
        """Run a command in a new snapshot; return what it printed."""
        options = Options(
            self_update=self_update,
            snapshot=snapshot,
            keep=keep,
            drop_if_no_change=drop_if_no_change,
            quiet=True,
        )
        limits = self._limits(timeout, lock_timeout)
        return self._tool.run_command(command_line, options, limits).check().printed

    def rollback(self, snapshot: str | int | None, lock_timeout: float | None) -> str:
        """Make another snapshot the default one; return what the tool printed."""
        limits = self._limits(None, lock_timeout)
        return self._tool.rollback(snapshot, limits).check().result.stdout

    def reboot(self, self_update: bool, lock_timeout: float | None) -> str:
        """Reboot by the configured method, inside a transaction after it; return what happens."""
        if in_transaction() and inside.ask_for_reboot(os.environ):
            return "the reboot comes after the transaction"
        limits = self._limits(None, lock_timeout)
        return reboots.reboot(self._tool, self_update=self_update, limits=limits)

    def soft_reboot(self, lock_timeout: float | None) -> str:
        """Reboot user space only; return what happens."""
        return reboots.soft_reboot(self._tool, limits=self._limits(None, lock_timeout))

    def call(self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of Salt in a new snapshot; return what it returned."""
        kwargs = dict(kwargs)
        activate = kwargs.pop("activate_transaction", False)
        own, ours = calls.split_reserved(kwargs)
        reply = calls.call(
            self._tool,
            function,
            args,
            own,
            salt_call=calls.salt_call_words(self._opts),
            options=Options(
                snapshot=ours.get("snapshot", "continue"), keep=bool(ours.get("keep")), quiet=True
            ),
            limits=self._limits(ours.get("timeout"), ours.get("lock_timeout")),
            ask=RunningMinion(self._opts, self._functions),
        )
        # Not even a snapshot that was pending before this call.
        activate = activate and not kwargs.get("test", self._opts.get("test"))
        if reply.reboot_due(activate):
            try:
                reboots.reboot(self._tool, limits=self._limits(None, None))
            except SafeUpdateError as err:
                reply = calls.not_rebooted(reply, function, err, report=bool(ours.get("report")))
        self._context["retcode"] = reply.retcode
        return reply.shown(bool(ours.get("report")))

    def run_states(
        self,
        function: str,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        queue: bool | int | None,
    ) -> Any:
        """
        Call a function that runs states, in a new snapshot.

        If another state run is in the way, wait for it or return what it is, as *queue* says.
        """
        if queue is None:
            queue = self._opts.get("state_queue", False)
        conflict = delegate.wait_or_refuse(
            queue,
            lambda: self._functions["saltutil.is_running"]("state.*"),
            kwargs.get("__pub_jid"),
            time.sleep,
        )
        if conflict:
            self._context["retcode"] = 1
            return conflict
        # The inner run must not wait for this job, which the shared job directory lists.
        return self.call(function, args, {**kwargs, "concurrent": True})

    def run_state(
        self, fun: str, name: str, kwargs: Mapping[str, Any], queue: bool | int | None
    ) -> Any:
        """Run one state in a new snapshot."""
        data, arguments = summary.single_as_high(fun, name, kwargs)
        return self.run_states("state.high", (data,), arguments, queue)

    def _limits(self, timeout: float | None, lock_timeout: float | None) -> Limits:
        return calls.limits(self._opts, timeout, lock_timeout)
