"""Problems in the files of this minion: its set-up, and its code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...core.errors import SafeUpdateError
from ...core.generations.table import Generations
from ...core.host import processes
from ...ordering import set_up_gone
from ...this_host import Host, enabled
from ..setup import executors, set_up


class Problem(NamedTuple):
    """Something that is wrong, and what to do about it."""

    code: str
    problem: str
    fix: str


_RESTART_PENDING = Problem(
    "restart-pending",
    "The minion is set up, and its restart is pending: it has not read its set-up yet.",
    "Wait for its restart, which 'safeupdate.status' shows. If it shows no restart, request one "
    "with 'safeupdate.restart'.",
)


def restart_pending(host: Host) -> Iterator[Problem]:
    """Yield a problem if the files set the minion up, and it has not read them yet."""
    opts = host.opts
    if _lists_ours(opts) and enabled({**opts, "module_executors": []}):
        return
    said = set_up.minion_files(host).merged().all
    engines: dict[str, Any] = {"engines": said.get("engines"), "module_executors": []}
    if _lists_ours(said) and enabled({**opts, **engines}):
        yield _RESTART_PENDING


def set_up_file(host: Host) -> Iterator[Problem]:
    """Yield a problem if our file is not as the state would write it now."""
    try:
        file = set_up.managed_file(host)
    except SafeUpdateError as err:
        yield Problem(
            "set-up",
            str(err),
            "Correct the configuration that the message names, then run "
            "'state.single safeupdate.enabled name=safeupdate' on the minion.",
        )
        return
    if file is not None and file.differs:
        yield Problem(
            "set-up-outdated",
            f"{file.path} differs from what the state would write now. Other configuration files "
            "have changed since, and it hides the change; or an earlier version has written it.",
            "Run 'state.single safeupdate.enabled name=safeupdate' on the minion.",
        )


def set_up_removed(host: Host) -> Iterator[Problem]:
    """Yield a problem if the minion runs with a set-up that no file has any more."""
    try:
        gone = set_up_gone.is_gone(host)
    except SafeUpdateError:
        # Another check reports that.
        return
    if gone:
        yield Problem("set-up-removed", set_up_gone.PROBLEM, set_up_gone.FIX)


def stand_ins(host: Host) -> Iterator[Problem]:
    """Yield a problem if nothing stands in for this package while it cannot be loaded."""
    if _lists_ours(host.opts):
        missing = set_up.stand_ins_missing(host)
        if missing == set_up.PENDING:
            yield _RESTART_PENDING
        elif missing:
            yield Problem(
                "stand-in",
                missing,
                "Run 'state.single safeupdate.enabled name=safeupdate' on the minion.",
            )


def _lists_ours(opts: Mapping[str, Any]) -> bool:
    """Tell whether our executor is among those that are configured."""
    return executors.OURS in (executors.listed(opts.get("module_executors")) or ())


def code(host: Host) -> Iterator[Problem]:
    """Look whether others have replaced what the minion that runs has loaded."""
    try:
        running = Generations(host.store).serving()
        what = running.changed if running is not None and processes.alive(running.process) else None
    except SafeUpdateError:
        # Another check reports that.
        return
    if what:
        yield Problem(
            "code-replaced",
            f"The code that the minion runs from was replaced on the disk: {what}. Modules that it "
            "has not loaded yet are of another version.",
            "Restart the minion with 'safeupdate.restart', or set 'safeupdate:on_change: restart' "
            "to have it done automatically.",
        )
