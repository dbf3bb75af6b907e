"""Salt's own queues of jobs on disk: their content, and how to put a job there."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import salt.payload
import salt.utils.state

from ..core.host.files import write_atomic

# The keys that mark a job from a queue, and keep its JID if it is the queue of the jobs. State runs
# put themselves into the other queue. Both are written to disk.
QUEUED = "__safeupdate_queued__"
OF_JOBS = "__safeupdate_kept__"
# Salt's names of a job that waits, and of a job that was taken out and has not started yet.
_WAITING, _TAKEN = "queued_", "running_"
# A job that waits for nothing, and a directory apart from the others that Salt does not check.
_FIRST = f"{_WAITING}0_"
_APART = "safeupdate_queue"


def find(opts: Mapping[str, Any], jid: str) -> str | None:
    """Return the path of the queued job of any master, or None."""
    for directory in _places(opts):
        for name in _names(directory):
            if name.endswith(f"_{jid}.p"):
                return os.path.join(directory, name)
    return None


def is_in(opts: Mapping[str, Any], jid: str) -> bool:
    """Tell whether a job is in a queue, or was taken out and has not been started yet."""
    # Check in this order: a job only moves this way.
    return jid in jids(opts) or jid in jids(opts, _TAKEN)


def jids(opts: Mapping[str, Any], prefix: str = _WAITING) -> set[str]:
    """Return the JIDs of the queued jobs of all masters whose files begin with *prefix*."""
    return {_jid(name) for directory in _places(opts) for name in _names(directory, prefix)}


def listed(opts: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every job in Salt's queues of any master, as it was published."""
    found = []
    for directory in _everywhere(opts):
        for name in sorted(_names(directory)):
            data = read(os.path.join(directory, name))
            if data:
                found.append(data)
    return found


def read(path: str) -> dict[str, Any]:
    """Return the job; empty if the queue starts it just now."""
    try:
        with open(path, "rb") as file:
            return dict(salt.payload.load(file))
    except (OSError, ValueError, TypeError):
        return {}


def whole_jid(opts: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """
    Return the JID of a job that comes from a queue.

    Salt reads it from the name of the file, and only up to the first underscore: with
    'unique_jid' there is another one.
    """
    noted = data.get(OF_JOBS)
    if isinstance(noted, str):
        return noted
    jid = str(data.get("jid", ""))
    taken = data.get("_state_queue_file")
    if isinstance(taken, str):
        return _jid(os.path.basename(taken))
    directory = salt.utils.state.state_queue_dir(opts)
    # Salt 3008 removes the file afterwards.
    for name in sorted(_names(directory)):
        if _jid(name).partition("_")[0] == jid:
            return _jid(name)
    return jid


def put(
    opts: Mapping[str, Any], data: Mapping[str, Any], *, first: bool = False, apart: bool = False
) -> None:
    """
    Put a job into the queue that its master's part of the minion works on.

        A *first* job comes before all others; :func:`take_first` does not wait for Salt. Only that
        function finds a job that is *apart*.
    """
    jobs = salt.utils.state.job_queue_dir(opts)
    directory = _apart(jobs) if apart else jobs
    os.makedirs(directory, mode=0o700, exist_ok=True)
    since = 0 if first else int(time.time() * 1_000_000)
    name = f"{_WAITING}{since}_{data['jid']}.p"
    # Salt's notes about an earlier stay in a queue are not true any more.
    clean = {key: value for key, value in data.items() if not key.endswith("_queue_file")}
    clean[OF_JOBS] = str(data["jid"])
    write_atomic(os.path.join(directory, name), salt.payload.dumps(clean))


def take_first(opts: Mapping[str, Any]) -> dict[str, Any] | None:
    """Take the first job out of this master's queue and return it; None without one."""
    jobs = salt.utils.state.job_queue_dir(opts)
    for directory in (_apart(jobs), jobs):
        for name in _names(directory, _FIRST):
            path = os.path.join(directory, name)
            data = read(path)
            # The process that has removed the file owns the job.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
                if data:
                    data["jid"] = _jid(name)
                    return data
    return None


def restore(opts: Mapping[str, Any], begun: Callable[[str], bool]) -> None:
    """
    Put back jobs that an earlier minion had taken out of its queues when it died.

    Salt 3006 and 3007 leave such a file there forever if it is young, and every state run that
    queues itself waits for it. A job that has *begun* is left to the ledger. Call this before this
    minion takes any job out.
    """
    _restore(_directories(opts), opts, begun)


def _restore(
    directories: tuple[str, str], opts: Mapping[str, Any], begun: Callable[[str], bool]
) -> None:
    for directory in directories:
        for name in _names(directory, _TAKEN):
            jid = _jid(name)
            path = os.path.join(directory, name)
            with contextlib.suppress(FileNotFoundError):
                if begun(jid) or find(opts, jid) is not None:
                    os.unlink(path)
                else:
                    os.rename(path, os.path.join(directory, name.replace(_TAKEN, _WAITING, 1)))


def gather(opts: Mapping[str, Any], begun: Callable[[str], bool] | None) -> None:
    """
    Move the jobs in the queues of all other masters into the queues of this master.

    Only for a minion with one master at a time: nobody processes the other queues then. With
    *begun*, jobs that an earlier minion had taken out there are put back first, as in
    :func:`restore`.
    """
    ours = _directories(opts)
    for others in _queues(opts):
        if others == ours:
            continue
        if begun is not None:
            _restore(others, opts, begun)
        for source, target in zip(others, ours, strict=True):
            for name in _names(source):
                os.makedirs(target, exist_ok=True)
                # Another process may just take it out.
                with contextlib.suppress(FileNotFoundError):
                    os.rename(os.path.join(source, name), os.path.join(target, name))


def has_state_runs(opts: Mapping[str, Any]) -> bool:
    """Tell whether a state run waits in the queue of this master."""
    return bool(_names(_directories(opts)[1]))


def _directories(opts: Mapping[str, Any]) -> tuple[str, str]:
    """Return the two queues of the master that *opts* names."""
    return salt.utils.state.job_queue_dir(opts), salt.utils.state.state_queue_dir(opts)


def _queues(opts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the two queues of each master that ever had some."""
    ours = _directories(opts)
    base = os.path.dirname(os.path.dirname(ours[0]))
    names = [os.path.basename(each) for each in ours]
    found: list[tuple[str, str]] = []
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(os.listdir(base)):
            found.append((os.path.join(base, entry, names[0]), os.path.join(base, entry, names[1])))
    return found


def _everywhere(opts: Mapping[str, Any]) -> list[str]:
    """Return the queues of all masters: all queues of jobs, then all queues of state runs."""
    pairs = _queues(opts)
    return [pair[0] for pair in pairs] + [pair[1] for pair in pairs]


def _places(opts: Mapping[str, Any]) -> list[str]:
    """Return the directories of queued jobs: first the ones apart, then Salt's queues."""
    return [*(_apart(jobs) for jobs, _ in _queues(opts)), *_everywhere(opts)]


def _apart(jobs: str) -> str:
    """Return the directory apart, next to that queue of jobs."""
    return os.path.join(os.path.dirname(jobs), _APART)


def _jid(name: str) -> str:
    return name.removesuffix(".p").split("_", 2)[-1]


def _names(directory: str, prefix: str = _WAITING) -> list[str]:
    names: list[str] = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        names = [
            name
            for name in os.listdir(directory)
            if name.startswith(prefix) and name.endswith(".p")
        ]
    return names
