"""
The only table of our knowledge about functions of Salt.

The executor, the intake, the ledger, recovery and redelivery use it. A function that is not in the
table is an ordinary job. It is recorded, and held while an update keeps new jobs from starting.
Its master publishes it again if the minion missed it, and gets a report if a restart interrupted
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping


class Kind:
    """
    The properties of a function. It may have several: they add up.

    They are plain numbers: each salt-call creates this class, and an enumeration takes longer.
    """

    ORDINARY = 0
    # It changes nothing and costs little. It is only recorded around a restart: if that loses it,
    # the master publishes it again. salt-call runs it while jobs are held, because nothing can hold
    # a job of salt-call.
    LOOKS = 1
    # It shows or steers an update or jobs, so it is needed just while other jobs are held. If it
    # ends a job that hangs, the update would otherwise wait for that job without end. It starts at
    # once, without a share of the jobs lock: no update waits for it.
    AT_ONCE = 2
    # It waits for the end of an update. Until then it is held in the ledger, without a process.
    WAITS = 4
    # Nobody waits for its answer any more when the minion is back, or it concerns that moment only:
    # it is never redelivered.
    MOMENTARY = 8
    # It may begin again if a restart interrupted it: a state run returns the recorded results of
    # the states that it had finished.
    RESUMABLE = 16
    # If it is called inside a transaction of transactional-update, the running minion gets the
    # request when the transaction is closed. Every other function of safeupdate is refused there:
    # the database, the locks and the service of the minion are hidden.
    AFTER_TRANSACTION = 32


# The minion's main process answers these two itself while jobs are held, and starts nothing.
FIND_JOB = "saltutil.find_job"
PING = "test.ping"
# Requests the deferred restart.
RESTART = "safeupdate.restart"
# The query of a master: which of these jobs has the minion accepted?
QUERY = "safeupdate.accepted"
# They end the job in their arguments. A minion that has missed such a job, or one of those that
# _ENDING_ALL ends, does not get it any more.
_ENDING = ("saltutil.kill_job", "saltutil.term_job")
# They end all jobs.
_ENDING_ALL = ("saltutil.kill_all_jobs", "saltutil.term_all_jobs")
_SIGNAL = "saltutil.signal_job"
# The signals that end no job of Salt's, by their default or because Python ignores or handles them.
_HARMLESS = frozenset(map(str, (0, 10, 13, 17, 18, 19, 20, 21, 22, 23, 25, 28)))
# They keep a job from running that the minion does not have yet.
_GIVING_UP = ("state.soft_kill", "safeupdate.forget")
# Requests of a rollout. Each answer is complete, and the rollout asks again if it gets none. So
# none of them is recorded, held or redelivered, not even the ones that begin an update.
_ROLLOUT = Kind.LOOKS | Kind.AT_ONCE | Kind.MOMENTARY

# The ones of these that change something on a minion.
CHANGING = ("safeupdate.prefetch", "safeupdate.request", "safeupdate.withdraw")

# State runs that may wait in Salt's queue for another one.
QUEUEING = frozenset(
    f"state.{name}"
    for name in (
        *("apply", "high", "highstate", "low", "single", "sls", "sls_id", "template"),
        *("template_str", "top"),
    )
)

# By name, or by "module.*" for all functions of a module.
TABLE: dict[str, int] = {
    **dict.fromkeys(
        # Administrators continue without a host that is away, and may have requested the opposite
        # since. Late, these would end the work of then.
        (
            *(f"system.{name}" for name in ("halt", "init", "poweroff", "reboot", "shutdown")),
            *("minion.kill", "minion.restart", "rebootmgr.reboot", "rebootmgr.soft_reboot"),
            *("transactional_update.reboot", "transactional_update.soft_reboot"),
            *(f"service.{name}" for name in ("start", "stop", "restart", "reload", "force_reload")),
            # Another time, and other processes with those numbers or names.
            *(f"system.set_system_{name}" for name in ("time", "date", "date_time")),
            *("ps.kill_pid", "ps.pkill"),
        ),
        Kind.MOMENTARY,
    ),
    "grains.equals": Kind.LOOKS,
    "grains.filter_by": Kind.LOOKS,
    "grains.get": Kind.LOOKS,
    "grains.has_value": Kind.LOOKS,
    "grains.item": Kind.LOOKS,
    "grains.items": Kind.LOOKS,
    "grains.ls": Kind.LOOKS,
    QUERY: Kind.LOOKS | Kind.AT_ONCE | Kind.MOMENTARY,
    # It asks the package manager, which is busy while an update installs.
    "safeupdate.avail": Kind.ORDINARY,
    "safeupdate.cancel": Kind.AT_ONCE | Kind.MOMENTARY,
    "safeupdate.check": Kind.LOOKS | Kind.AT_ONCE,
    # Later, it would undo requests that came meanwhile.
    "safeupdate.drain": Kind.AT_ONCE | Kind.MOMENTARY,
    "safeupdate.forget": Kind.AT_ONCE,
    "safeupdate.forget_slot": Kind.ORDINARY,
    "safeupdate.history": Kind.LOOKS | Kind.AT_ONCE,
    "safeupdate.jobs": Kind.LOOKS | Kind.AT_ONCE,
    # It asks the package manager as well.
    "safeupdate.plan": Kind.ORDINARY,
    "safeupdate.prefetch": _ROLLOUT,
    "safeupdate.report": _ROLLOUT,
    "safeupdate.request": _ROLLOUT,
    "safeupdate.restart": Kind.AFTER_TRANSACTION,
    "safeupdate.resume": Kind.ORDINARY,
    "safeupdate.revisions": Kind.LOOKS | Kind.AT_ONCE,
    "safeupdate.rollback": Kind.ORDINARY,
    "safeupdate.stage": Kind.ORDINARY,
    "safeupdate.status": Kind.LOOKS | Kind.AT_ONCE,
    "safeupdate.undrain": Kind.AT_ONCE | Kind.MOMENTARY,
    "safeupdate.unquarantine": Kind.ORDINARY,
    "safeupdate.update": Kind.AFTER_TRANSACTION,
    "safeupdate.wait": Kind.WAITS | Kind.RESUMABLE,
    "safeupdate.withdraw": _ROLLOUT,
    "saltutil.find_cached_job": Kind.LOOKS,
    FIND_JOB: Kind.LOOKS | Kind.MOMENTARY,
    "saltutil.is_running": Kind.LOOKS | Kind.AT_ONCE | Kind.MOMENTARY,
    # Later, other jobs would be running.
    "saltutil.kill_all_jobs": Kind.AT_ONCE | Kind.MOMENTARY,
    "saltutil.kill_job": Kind.AT_ONCE,
    "saltutil.running": Kind.LOOKS | Kind.AT_ONCE,
    "saltutil.signal_job": Kind.AT_ONCE,
    "saltutil.term_all_jobs": Kind.AT_ONCE | Kind.MOMENTARY,
    "saltutil.term_job": Kind.AT_ONCE,
    "state.apply": Kind.RESUMABLE,
    "state.high": Kind.RESUMABLE,
    "state.highstate": Kind.RESUMABLE,
    "state.low": Kind.RESUMABLE,
    "state.pause": Kind.AT_ONCE,
    "state.pkg": Kind.RESUMABLE,
    "state.resume": Kind.AT_ONCE,
    "state.single": Kind.RESUMABLE,
    "state.sls": Kind.RESUMABLE,
    "state.sls_id": Kind.RESUMABLE,
    "state.soft_kill": Kind.AT_ONCE,
    "state.template": Kind.RESUMABLE,
    "state.template_str": Kind.RESUMABLE,
    "state.top": Kind.RESUMABLE,
    "sys.*": Kind.LOOKS,
    PING: Kind.LOOKS,
    "test.version": Kind.LOOKS,
    "test.versions": Kind.LOOKS,
}


def kind(fun: object) -> int:
    """Return the properties of a function. Several functions in one job are an ordinary job."""
    if not isinstance(fun, str):
        return Kind.ORDINARY
    found = TABLE.get(fun)
    if found is None:
        module, _, name = fun.partition(".")
        found = TABLE.get(f"{module}.*") if name.isidentifier() else None
    return Kind.ORDINARY if found is None else found


def is_recorded(fun: object) -> bool:
    """Tell whether the ledger records the job."""
    return not Kind.LOOKS & kind(fun)


def starts_at_once(fun: object) -> bool:
    """Tell whether a job from a master starts although jobs are held."""
    return bool(Kind.AT_ONCE & kind(fun))


def needs_lock(fun: object) -> bool:
    """Tell whether salt-call needs a share of the jobs lock for it, and refuses it without one."""
    return not kind(fun) & (Kind.LOOKS | Kind.AT_ONCE | Kind.WAITS)


def needs_hooks(fun: object) -> bool:
    """Tell whether its process needs our hooks: one that only reads does not, unless it is ours."""
    return not Kind.LOOKS & kind(fun) or str(fun).startswith("safeupdate.")


def waits_for_update(fun: object) -> bool:
    """Tell whether the job only waits for the end of an update."""
    return bool(Kind.WAITS & kind(fun))


def is_redelivered(fun: object) -> bool:
    """Tell whether a master publishes it again for a minion that missed it."""
    return not Kind.MOMENTARY & kind(fun)


def ends(fun: object, arg: object) -> str | None:
    """Return the JID of the job that a call ends; empty if it ends all jobs, None otherwise."""
    if fun in _ENDING_ALL:
        return ""
    if fun not in (*_ENDING, _SIGNAL):
        return None
    jid, signal = _named(arg, "jid", "sig")
    harmless = fun == _SIGNAL and (not signal or signal in _HARMLESS)
    return None if harmless else jid or None


def ended(fun: object, arg: object) -> set[str]:
    """Return the jobs that a job of one or several functions ends; an empty JID if it ends all."""
    return _together(ends, fun, arg)


def gives_up(fun: object, arg: object) -> set[str]:
    """Return the jobs that a publication gives up; with an empty JID if it gives up all."""
    return _together(_given_up, fun, arg)


def _given_up(fun: object, arg: object) -> str | None:
    return _named(arg, "jid")[0] or None if fun in _GIVING_UP else ends(fun, arg)


def _together(one: Callable[[object, object], str | None], fun: object, arg: object) -> set[str]:
    calls: Iterable[tuple[object, object]] = [(fun, arg)]
    if isinstance(fun, list | tuple) and isinstance(arg, list | tuple):
        calls = zip(fun, arg, strict=False)
    return {jid for each in calls if (jid := one(*each)) is not None}


def _named(arg: object, *names: str) -> list[str]:
    """Return the arguments of these names, which come in this order; empty if they are missing."""
    found: dict[str, object] = {}
    for place, each in enumerate(arg if isinstance(arg, list | tuple) else ()):
        name, _, value = each.partition("=") if isinstance(each, str) else ("", "", "")
        if isinstance(each, Mapping):
            found |= each
        elif name in names:
            # Salt takes such a text for a keyword, and removes quotes from its value.
            found[name] = value.strip("'\"")
        elif place < len(names):
            found[names[place]] = each
    told = [found.get(name) for name in names]
    return [str(each) if isinstance(each, str | int) else "" for each in told]


def is_resumable(fun: object) -> bool:
    """Tell whether it may begin again, whatever 'safeupdate:rerun' says."""
    return bool(Kind.RESUMABLE & kind(fun))


def is_asked_after_transaction(fun: object) -> bool:
    """Tell whether the running minion does it when the transaction with the request is closed."""
    return bool(Kind.AFTER_TRANSACTION & kind(fun))


def named(wanted: int) -> list[str]:
    """Return the names and patterns with this property."""
    return sorted(name for name, found in TABLE.items() if wanted & found)
