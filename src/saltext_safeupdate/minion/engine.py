"""The loop of the minion's engine, for work that no process of a job can do."""

from __future__ import annotations

import functools
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import factory
from ..core.errors import LockUnavailableError, SafeUpdateError
from ..core.extensions import ourselves
from ..core.extensions.upgrade import Upgrade
from ..core.generations import absence, code, own_tree, replaced
from ..core.generations.generation import Report
from ..core.generations.replaced import Row
from ..core.host import processes
from ..core.host.locks import Lock, drop_inherited
from ..core.host.minions import register
from ..core.jobs.problems import Problems
from ..core.jobs.ticker import Ticker
from ..this_host import Host
from . import changed, handing_over, kept_returns, own_code, unrecorded, upgraded
from .complaints import Complaints
from .delivery import Delivery
from .masters import Masters, addresses
from .rest import Rest
from .returners import Returners
from .waited_restart import WaitedRestart

# Seconds between two attempts to restart a minion without hooks.
_ASK_AGAIN = 60.0
# Seconds that the engine of the last minion may still take to end.
_PATIENCE = 15.0


def run(
    opts: Mapping[str, Any],
    functions: Mapping[str, Any],
    *,
    hooked: bool,
    late: bool = False,
    returners: Callable[[], Mapping[str, Any]] = dict,
    table: Sequence[Row] = (),
) -> None:
    """
    Run until the minion ends, or nothing is left to do (:mod:`.rest`).

    *functions* are Salt's execution functions, *returners* loads its returners. *hooked* tells
    whether the minion has our hooks: without them no return of a job is recorded, so none proves
    that a master hears from it. *late*: the minion has no hooks because this extension could not
    be loaded when it started. Then it has to restart, once.
    *table* lists the functions that the hooks replace.
    """
    minion = os.getppid()
    host = Host(opts)
    drop_inherited(host.settings.run_dir)
    complaints = Complaints()
    lock = alone(host, complaints)
    main = processes.identity(minion)
    masters = Masters(opts, host.store, main, hooked=hooked)
    delivery = Delivery(opts, functions, masters, Returners(opts, returners))
    ticker = Ticker(
        settings=host.settings,
        store=host.store,
        ledger=host.ledger,
        delivery=delivery,
        launch=functools.partial(factory.launch, host),
        owner=main,
        stand_down=bool(opts.get("resume_jobs_on_restart")),
        complain=complaints.tell,
        recording=hooked,
        plain=not hooked and not late,
    )
    _register(host, main, complaints)
    upgrade = Upgrade(before=own_code.loaded_extension())
    files = code.Code(code.remembered(), minion)
    waited = WaitedRestart(host.settings.run_dir, host.store, delivery.tell_of_wait)
    sweep = own_code.Sweep(host)
    announced = told = swept = False
    rest = Rest(
        host,
        main,
        lambda: (
            (swept and waited.is_current())
            and (ticker.is_quiet() and files.is_as_noted() and upgrade.is_as_noted())
        ),
        lambda: (
            (ticker.is_done() and waited.is_current())
            and (files.is_unchanged() and upgrade.is_as_noted())
        ),
        possible=hooked and own_code.has_ours() and code.are_inherited(),
    )
    if rest.goes_on(lock):
        return
    ask_at = 0.0
    # An engine that outlives its minion must not act next to the engine of the next one.
    while os.getppid() == minion:
        try:
            if lock is None:
                lock = alone(host, complaints)
            if not announced:
                host.ledger.anchor()
                replaced.note(host.store, table)
                # A late one will restart, and knows its Salt.
                ticker.started(
                    _report(host, minion, delivery, None if late else hooked), rested=rest.is_over
                )
                announced = True
            unrecorded.bring_in(opts, host.ledger)
            problems = Problems()
            problems.of(functools.partial(kept_returns.bring_in, opts, host.ledger))
            problems.of(ticker.tick)
            problems.of(functools.partial(changed.look, files, host, main, opts))
            problems.of(waited.look)
            if hooked:
                upgraded.restart_if_due(upgrade, host.settings, opts)
            elif late and announced and time.monotonic() >= ask_at:
                ask_at = time.monotonic() + _ASK_AGAIN
                late = not upgraded.restart_for_hooks(host.store, host.settings, opts)
            told = told or masters.tell_of_gone(host.ledger.open)
            swept = swept or _swept(opts)
            sweep()
            problems.tell()
            if rest.begins(lock):
                return
        except SafeUpdateError as err:
            complaints.tell(err)
        except OSError as err:
            # A queue or an event socket of Salt cannot be used now.
            complaints.tell(
                SafeUpdateError(f"The engine could not do its work: {err}. It tries again.")
            )
        time.sleep(host.settings.tick_interval)


def _register(host: Host, main: str, complaints: Complaints) -> None:
    try:
        register(host.settings.registry_dir, host.noted(main))
        absence.note(host.store, host.services, host.settings.service, main)
    except SafeUpdateError as err:
        complaints.tell(err)


def _swept(opts: Mapping[str, Any]) -> bool:
    """Remove what a reboot has left of transactions; tell whether that is done."""
    if not shutil.which("transactional-update"):
        return True
    from ..core.transactional import call
    from ..core.transactional.tool import Tool

    return Tool(host=call.host(opts)).sweep()


def alone(host: Host, complaints: Complaints, patience: float = _PATIENCE) -> Lock | None:
    """
    Wait for the lock of the engine: with several masters there are several engines, and one acts.

    With one master, log an error if another engine is still there after *patience* seconds.

    Without locks each of them acts: the ledger gives a job to only one of them, and a master that
    gets a return twice stores it once.
    """
    try:
        lock = Lock(host.settings.run_dir, "engine")
    except LockUnavailableError as err:
        complaints.tell(err)
        return None
    try:
        several = bool(host.opts.get("multimaster"))
        if several or not lock.wait_exclusive(patience):
            if not several:
                complaints.tell(
                    SafeUpdateError(
                        "Another engine 'safeupdate' of this minion runs: this one waits for its "
                        "end, and does nothing. List the engine only once in 'engines', and "
                        "restart the minion."
                    )
                )
            lock.exclusive()
    except LockUnavailableError as err:
        lock.close()
        complaints.tell(err)
        return None
    return lock


def _report(host: Host, minion: int, delivery: Delivery, hooked: bool | None) -> Report:
    """Return the report about the minion with that process."""
    # At its first start, it has made its key since; that tells it from its copies.
    host.claim()
    opts = host.opts
    delay = opts.get("random_startup_delay")
    return Report(
        at=time.time(),
        boot=processes.boot(),
        version=delivery.salt_version,
        extension=ourselves.running_version(),
        master=has_master(opts, hooked=bool(hooked)),
        masters=tuple(addresses(opts)),
        port=int(opts.get("master_port") or 0),
        hooked=hooked,
        took=processes.age(minion),
        startup_delay=float(delay) if isinstance(delay, int | float) else 0.0,
        hands_over=bool(hooked) and handing_over.is_set_up(opts, host.settings),
        own_tree=own_tree.is_read(),
    )


def has_master(opts: Mapping[str, Any], *, hooked: bool) -> bool:
    """Tell whether the return of a job proves that a master hears from this minion."""
    return hooked and opts.get("master_type") != "disable"
