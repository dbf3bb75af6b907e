"""The master's side of redelivery: its job cache, and publishing under an old JID."""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import salt.client
import salt.exceptions
import salt.minion
import salt.utils.minions

from ..core.errors import InputError
from ..core.jobs import functions
from ..core.jobs.missed_jobs import missed

log = logging.getLogger(__name__)

# What of the original publication a minion looks at.
_PASSED = (
    "executor_opts",
    "metadata",
    "module_executors",
    "ret_config",
    "ret_kwargs",
    "start_event",
)
_STAMP = "%Y%m%d%H%M%S%f"


class Redelivery:
    """Works on the job cache of this master. Use it as a context manager."""

    def __init__(self, opts: Mapping[str, Any]) -> None:
        self._opts = opts
        self._client: Any = None
        self._minion = salt.minion.MasterMinion(dict(opts), states=False, rend=False, matcher=False)

    def __enter__(self) -> Redelivery:
        self._client = salt.client.get_local_client(mopts=dict(self._opts))
        return self

    def __exit__(self, *_: object) -> None:
        self._client.destroy()
        self._minion.destroy()

    def recent(self, window: float) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        """Yield JID, load and the minions without a return of every job of the last *window* s."""
        oldest = self._now() - datetime.timedelta(seconds=window)
        since = oldest.strftime(_STAMP)
        for jid, brief in sorted(self._cache("get_jids")().items()):
            if not jid[: len(since)].isdigit() or jid < since:
                continue
            if not functions.is_redelivered(brief.get("Function")):
                continue
            load = self._load(jid)
            minions = load.pop("Minions", None) or []
            waiting = set(minions) - set(self._cache("get_jid")(jid))
            if waiting:
                yield jid, load, sorted(waiting)

    def age(self, jid: str) -> float:
        """Return how many seconds ago a job was published."""
        at = datetime.datetime.strptime(jid[:20], _STAMP)
        return (self._now() - at).total_seconds()

    def targeted(self, target: object, tgt_type: str) -> set[str]:
        """Return the accepted minions that are meant."""
        found = salt.utils.minions.CkMinions(dict(self._opts)).check_minions(target, tgt_type)
        return set(found.get("minions", ()))

    def ask(self, minions: Iterable[str], jids: Iterable[str]) -> str:
        """Ask minions which of these jobs they have; return the JID of the question."""
        published = self._client.pub(
            sorted(minions), functions.QUERY, [sorted(jids)], tgt_type="list"
        )
        return str((published or {}).get("jid") or "")

    def answers(
        self, minions: Iterable[str], jids: Iterable[str], timeout: float
    ) -> dict[str, object]:
        """Ask and wait up to *timeout* seconds; return the answers that came, by minion."""
        returns = self._client.cmd(
            sorted(minions),
            functions.QUERY,
            [sorted(jids)],
            tgt_type="list",
            timeout=timeout,
            full_return=True,
        )
        return {
            minion: answer.get("ret")
            for minion, answer in returns.items()
            if isinstance(answer, dict) and answer.get("out") != "no_return"
        }

    def publish(self, jid: str, minions: Iterable[str]) -> list[str]:
        """Publish a job again, under its JID, to these minions; return those that are there."""
        cached = self._load(jid)
        if not cached.get("fun"):
            log.warning("safeupdate: job %s is not in the job cache any more", jid)
            return []
        load = {key: value for key, value in cached.items() if key != "Minions"}
        given = load.get("kwargs") or {}
        passed = {key: given[key] for key in _PASSED if given.get(key)}
        try:
            published = self._client.pub(
                sorted(minions),
                load["fun"],
                load.get("arg", []),
                tgt_type="list",
                ret=load.get("ret", ""),
                jid=jid,
                **passed,
            )
        finally:
            # Publishing wrote down whom it is for now; the job is still what it was.
            self._cache("save_load")(jid, load, minions=cached.get("Minions") or [])
        reached = list((published or {}).get("minions") or [])
        log.info("safeupdate: job %s was published again to %s", jid, ", ".join(reached) or "none")
        return reached

    def _load(self, jid: str) -> dict[str, Any]:
        """Return what was published; empty if the job cache cannot tell."""
        try:
            return dict(self._cache("get_load")(jid) or {})
        except (salt.exceptions.SaltException, OSError) as err:
            # The return of a job that no master published, such as one that a minion gave
            # itself, leaves an entry without minions, which Salt's own job cache cannot read.
            log.debug("safeupdate: job %s is left alone: %s", jid, err)
            return {}

    def _cache(self, function: str) -> Any:
        return self._minion.returners[f"{self._opts['master_job_cache']}.{function}"]

    def _now(self) -> datetime.datetime:
        # As the master makes its JIDs: without a zone, and in local time unless configured.
        now = datetime.datetime.now(datetime.timezone.utc)
        if not self._opts.get("utc_jid"):
            now = now.astimezone()
        return now.replace(tzinfo=None)


def redeliver(work: Redelivery, targets: set[str], window: float, timeout: float) -> dict[str, Any]:
    """Ask the targets once for all they have not returned, and publish what they missed."""
    jobs = {
        jid: [minion for minion in waiting if minion in targets]
        for jid, _, waiting in work.recent(window)
    }
    asked: dict[str, list[str]] = {}
    for jid, minions in jobs.items():
        for minion in minions:
            asked.setdefault(minion, []).append(jid)
    report: dict[str, Any] = {"published": {}, "accepted": {}, "no_answer": [], "not_set_up": []}
    if not asked:
        return report
    wanted = {jid for jids in asked.values() for jid in jids}
    answers = work.answers(asked, wanted, timeout)
    again: dict[str, list[str]] = {}
    for minion, jids in sorted(asked.items()):
        answer = answers.get(minion)
        gone = missed(jids, answer)
        if minion not in answers:
            report["no_answer"].append(minion)
        elif gone is None or not isinstance(answer, Mapping):
            report["not_set_up"].append(minion)
        else:
            report["accepted"][minion] = {jid: answer[jid] for jid in jids if jid not in gone}
            for jid in gone:
                again.setdefault(jid, []).append(minion)
    for jid, minions in sorted(again.items()):
        report["published"][jid] = work.publish(jid, minions)
    return report


def checked(window: object, timeout: object) -> tuple[float, float]:
    """Return both as seconds, or raise InputError."""
    values = []
    for name, value in (("window", window), ("timeout", timeout)):
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise InputError(f"'{name}' must be a number of seconds above 0.")
        values.append(float(value))
    return values[0], values[1]
