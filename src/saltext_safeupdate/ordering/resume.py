"""
What a state run that a restart interrupted has done already.

The result of each finished state is recorded. When the job is started again, a state that
is still the same gives its recorded result, so that its requisites see the changes that
were made, and the rest runs. A state that failed, that was running, or that is another
one now runs again, unless it says ``safeupdate_rerun: False``.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import salt.payload
import salt.state

from ..core.errors import SafeUpdateError
from ..core.jobs import current
from ..core.jobs.ledger import Ledger
from ..core.settings import Settings
from . import runs

log = logging.getLogger(__name__)

KEYWORD = "safeupdate_rerun"
# Keys that Salt's engine puts into a chunk on its way, or that say nothing of what it does.
_VOLATILE = frozenset(
    ("__prereq__", "__prerequired__", "__reqs__", "__agg__", "order", "retry", "parallel")
)
# Milliseconds that a state without changes may take to be asked again.
NO_TIME = 10.0
_RESUMED = "Finished before the minion was restarted; this is the result of then (safeupdate)."
_CHANGED = "It ran before the minion was restarted too, but is another state now: it ran anew."
_LEFT = (
    "The minion was restarted while this state ran, and it says 'safeupdate_rerun: False': it was "
    "not run again. See what it has done, then run it again."
)


@dataclass
class _Progress:
    """What is known of the run of one attempt of a job, and where in it we are."""

    job: current.Job
    earlier: dict[str, tuple[str, bytes]]
    # The states that are being called, one in the other, but for one that is called plainly.
    path: list[dict[str, Any]] = field(default_factory=list)

    def tag(self, low: dict[str, Any]) -> str:
        run = runs.current()
        outer = [run.low] if run is not None and run.low is not None else []
        return "/".join(salt.state._gen_tag(each) for each in (*outer, *self.path, low))

    def known(self, low: dict[str, Any]) -> tuple[str, bytes]:
        """Return the digest and the result that an earlier attempt left of a state."""
        return self.earlier.get(self.tag(low), ("", b""))


class Resume:
    """Stands between the ordering and Salt's own ``State.call``."""

    def __init__(self, settings: Settings, call: Callable[..., Any]) -> None:
        self._ledger = Ledger(settings.database)
        self._call = call
        self._local = threading.local()
        self._broken = ""

    def of_run(self) -> tuple[bool, bool]:
        """Tell whether the run that begins is recorded, and whether an earlier attempt was."""
        job = _job()
        return job is not None, job is not None and job.attempt > 1

    def call(
        self, state: Any, low: dict[str, Any], chunks: Any, running: Any, retries: int = 1
    ) -> Any:
        """Return the recorded result of a state of a job, or run and record it."""
        job = _job()
        if job is None or retries > 1 or state.mocked:
            return self._call(state, low, chunks, running, retries)
        progress = self._of(job)
        known, earlier = progress.known(low) if progress.earlier else ("", b"")
        if known and known == _digest(low):
            found = self._recorded(state, low, earlier)
            if found is not None:
                return found
        if low.get("__prereq__"):
            return self._call(state, low, chunks, running, retries)
        once = low.get(KEYWORD) is False
        if once:
            self._record(progress, state, low, None)
        progress.path.append(low)
        try:
            ret = self._call(state, low, chunks, running, retries)
        finally:
            progress.path.pop()
        if isinstance(ret, dict) and not low.get("parallel"):
            if known and known != _digest(low):
                ret["comment"] = _joined(ret.get("comment"), _CHANGED)
            if once or (ret.get("result") is True and (known or _tells(ret))):
                self._record(progress, state, low, ret)
        return ret

    def record(self, state: Any, low: dict[str, Any], ret: Mapping[str, Any]) -> None:
        """Record a state that was called without :meth:`call`, where its result is worth it."""
        job = _job()
        if job is not None and ret.get("result") is True and _tells(ret) and not state.mocked:
            self._record(self._of(job), state, low, ret)

    def _of(self, job: current.Job) -> _Progress:
        progress: _Progress | None = getattr(self._local, "progress", None)
        if progress is None or progress.job is not job:
            earlier: dict[str, tuple[str, bytes]] = {}
            if job.attempt > 1:
                try:
                    earlier = self._ledger.chunks(job.key)
                except SafeUpdateError as err:
                    log.error("safeupdate: job %s begins anew: %s", job.jid, err)
            progress = self._local.progress = _Progress(job, earlier)
        return progress

    @staticmethod
    def _recorded(state: Any, low: dict[str, Any], payload: bytes) -> dict[str, Any] | None:
        """Return the result of an earlier attempt, as of now, or None where there is none."""
        ret = salt.payload.loads(payload) if payload else None
        if low.get("__prereq__"):
            if ret is None:
                return None
            # What it would change is what it has changed.
            low["__prereq__"] = False
            return {**ret, "result": None if ret.get("changes") else True}
        if ret is None:
            ret = {
                "name": low["name"],
                "result": False,
                "changes": {},
                "comment": _LEFT,
                "__sls__": low.get("__sls__"),
                "__id__": low["__id__"],
            }
        else:
            ret["comment"] = _joined(ret.get("comment"), _RESUMED)
            ret["__resumed__"] = True
        ret["__run_num__"] = state._State__run_num
        state._State__run_num += 1
        found: dict[str, Any] = ret
        return found

    def _record(
        self, progress: _Progress, state: Any, low: dict[str, Any], ret: Mapping[str, Any] | None
    ) -> None:
        # Asked only here: every state passes :meth:`call`, and opts take their time to answer.
        if state.opts.get("test"):
            return
        tag = progress.tag(low)
        try:
            payload = b"" if ret is None else salt.payload.dumps(dict(ret))
        except (TypeError, ValueError, OverflowError) as err:
            log.warning("safeupdate: the result of state %s cannot be recorded: %s", tag, err)
            return
        try:
            # Before a state that must not run twice, the word of it has to be on disk.
            self._ledger.add_chunk(
                progress.job.key, tag, _digest(low), payload, durable=ret is None
            )
        except SafeUpdateError as err:
            if str(err) != self._broken:
                log.error("safeupdate: the progress of job %s is not recorded: %s", tag, err)
            self._broken = str(err)


def _job() -> current.Job | None:
    """Return the job of this thread, where the ledger keeps it."""
    job = current.get()
    return job if job is not None and job.key else None


def _tells(ret: Mapping[str, Any]) -> bool:
    """
    Tell whether a result is worth keeping.

    What changed nothing, in no time, is asked again: that is cheaper than to write it down.
    """
    if ret.get("changes"):
        return True
    duration = ret.get("duration")
    return not isinstance(duration, float) or duration >= NO_TIME


def _digest(low: Mapping[str, Any]) -> str:
    """Return what is the same for the same state."""
    said = {key: value for key, value in low.items() if key not in _VOLATILE}
    text = json.dumps(said, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _joined(*comments: Any) -> str:
    return "\n".join(str(comment).rstrip() for comment in comments if comment)


def install(settings: Settings) -> Resume:
    """Return what the ordering calls states with."""
    salt.state.STATE_INTERNAL_KEYWORDS = frozenset((*salt.state.STATE_INTERNAL_KEYWORDS, KEYWORD))
    return Resume(settings, salt.state.State.call)
