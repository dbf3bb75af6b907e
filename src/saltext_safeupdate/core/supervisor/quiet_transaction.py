"""
The quiet transaction: everything around a change of the minion's own packages.

The protocol, in the process of the job that makes the change:

1. It takes the ``update`` lock, or fails with an error that names the holder.
2. It writes a record and starts the supervisor, which takes the ``drain`` lock: no new job starts.
3. It takes the ``jobs`` lock exclusively: every other job has ended and sent its return.
4. The old packages are secured, the watchdog is armed, a restart of the service by a scriptlet
   leaves its processes alone, and the old code stays readable.
5. The caller makes the change.
6. The record becomes ``delivering`` and the ``update`` lock goes to the supervisor. This process
   keeps the ``jobs`` lock until it has ended. Then the supervisor restarts the minion.

If every running minion reads its own tree, jobs run meanwhile: then the ``packages`` lock replaces
``drain`` and ``jobs`` (:mod:`.beside_jobs`).

If a process dies on the way, the kernel releases its locks. The supervisor, which waits for the
``update`` lock, cleans up after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ..errors import LockHeldError, SafeUpdateError
from ..generations import own_tree
from ..host import backup, backup_paths, copy_names, processes
from ..host.locks import Lock
from ..host.service import Inhibitor
from ..host.wait import Wait
from ..record.parts import Progress
from ..record.phase import BEFORE_INSTALLING, Phase
from ..record.update import Update
from . import asking, beside_jobs, neighbours, no_return
from .context import mixed
from .initiator import Initiator

T = TypeVar("T")

_NO_COPY = (
    "A minion that reads its code where the packages are has been started meanwhile. Nothing was "
    "changed. Start the update again when 'safeupdate.check' finds nothing."
)
_NO_WAY_BACK = (
    "{again} would be removed and installed again, and there is no way back if the installation "
    "fails: {why}. Nothing was changed. Have a repository offer the installed version, or leave "
    "out the removal."
)


class PostponedError(SafeUpdateError):
    """Other jobs did not end in time; nothing was changed."""


@dataclass(kw_only=True)
class QuietTransaction:
    """
    Changes the own packages under the protocol above.

    *redirect* tells this process where to read code from now on: it gets the linked copies by
    the directories that they replace.
    """

    by: Initiator
    redirect: Callable[[Mapping[str, str]], None] = lambda copies: None
    _record: Update = field(init=False)
    _others: list[Lock] = field(default_factory=list, init=False)
    # The lock that this process has exclusively until its end, if jobs run during the change.
    packages: Lock | None = field(default=None, init=False)

    def change(
        self,
        work: Callable[[], T],
        jobs: Lock,
        packages: Lock | None = None,
        *,
        jid: str = "",
        reason: str = "",
        failure: Callable[[T], str] = lambda result: "",
        again: Sequence[str] = (),
        anew: bool = False,
    ) -> T:
        """
        Run *work* while nothing else runs, and leave the restart to the supervisor.

        *jobs* and *packages* are this job's shares of the locks of these names. *failure* returns
        from the result why *work* did not do its job, or an empty text. *again* are the packages
        that *work* removes and installs again, which takes a way back. *anew*: it installs
        packages also in the version that is there. If *work* changed nothing, nothing restarts.
        Raise LockHeldError, PostponedError, RecordError or CommandError, each before anything has
        changed. An error of *work* passes through.
        """
        by = self.by
        self._let_other_end(packages)
        beside = beside_jobs.whose(by, by.installation.roots, by.others, {}, {})
        self._record, lock = asking.begin(
            by, "update", jid, reason, progress=Progress(beside=beside, again=tuple(again))
        )
        try:
            if beside:
                self.packages = packages or Lock(by.settings.run_dir, "packages")
                self._wait_for_readers(self.packages)
            else:
                self._wait_for_jobs(jobs)
            return self._install(work, failure, anew)
        finally:
            if self._record.phase not in (Phase.INSTALLING, Phase.DELIVERING):
                # The drain keeps all others from the exclusive lock, so we get our share back.
                self._give_back(jobs, packages)
            lock.close()

    def _let_other_end(self, packages: Lock | None) -> None:
        """
        Wait, within a limit, for an update or a restart that ends while this job runs.

        It may bring what is wanted here. Any other update waits for this job, and refuses it.
        """
        by, other = self.by, self.by.latest()
        if other is None or other.phase.final or other.awaits_boot:
            return
        waits = other.phase in BEFORE_INSTALLING or not by.is_supervised()
        if waits and not other.beside_jobs:
            return
        if packages is not None:
            # That update waits for it. This job takes it again, or is refused.
            packages.release()
        if not by.wait_end(other):
            if packages is not None:
                packages.try_shared()
            raise LockHeldError(by.busy())

    def _give_back(self, jobs: Lock, packages: Lock | None) -> None:
        """Give up the exclusive locks of this job."""
        if not self._record.beside_jobs:
            jobs.try_shared()
            for other in self._others:
                other.close()
        elif packages is not None:
            packages.try_shared()
        elif self.packages is not None:
            self.packages.close()
            self.packages = None

    @property
    def warning(self) -> str:
        """A warning for the caller if there is no way back."""
        reason = self._record.way_back.missing
        return f"There is no way back to the previous version: {reason}." if reason else ""

    # -- steps -----------------------------------------------------------------

    def _wait_for_jobs(self, jobs: Lock) -> None:
        by = self.by
        wait = Wait(by.settings.jobs_timeout, by.monotonic)
        if by.wait_until(jobs.try_exclusive, wait):
            ours = {str(pid) for pid in processes.ancestors()}
            others = {pid: who for pid, who in self._record.processes.items() if pid not in ours}
            if by.wait_until(lambda: not any(map(processes.alive, others.values())), wait):
                self._others, busy = neighbours.take_jobs(
                    by.others, lambda condition: by.wait_until(condition, wait)
                )
                if not busy:
                    return
                raise self._postponed(f"jobs of the minion {busy}")
        raise self._postponed(", ".join(by.jobs.names()) or "not known")

    def _wait_for_readers(self, packages: Lock) -> None:
        """Wait until no process reads what is to change; jobs that do not may run."""
        by = self.by
        timeout = by.settings.jobs_timeout
        if not packages.wait_exclusive(timeout, clock=by.monotonic, sleep=by.sleep):
            raise self._postponed("salt-call, or the package manager for another job")
        now: tuple[str, ...] = ()

        def known() -> bool:
            nonlocal now
            now = beside_jobs.whose(by, by.installation.roots, by.others, {}, {})
            return bool(now)

        # An earlier one may have ended since, and a next one may serve, or is just being started.
        if not by.wait_until(known):
            raise self._end_postponed(_NO_COPY)
        if now != self._record.progress.beside:
            progress = replace(self._record.progress, beside=now)
            self._record = by.store.save(replace(self._record, progress=progress))

    def _postponed(self, running: str) -> PostponedError:
        timeout = self.by.settings.jobs_timeout
        reason = (
            f"Other jobs did not end within {timeout:g} s (running: {running}). "
            "Nothing was changed. Start the update again when they are done, or set "
            "'safeupdate:jobs_timeout' higher."
        )
        return self._end_postponed(reason)

    def _end_postponed(self, reason: str) -> PostponedError:
        self._advance(Phase.POSTPONED, reason=reason)
        return PostponedError(reason)

    def _install(self, work: Callable[[], T], failure: Callable[[T], str], anew: bool) -> T:
        by = self.by
        try:
            if self._record.progress.again and not self._record.has_way_back:
                raise SafeUpdateError(
                    _NO_WAY_BACK.format(
                        again=", ".join(self._record.progress.again),
                        why=self._record.way_back.missing or "not known",
                    )
                )
            self._record = no_return.passed(
                by.store, by.revisions, self._record, by.arm, by.manager
            )
        except (SafeUpdateError, OSError) as err:
            self._advance(Phase.FAILED, reason=str(err))
            raise
        try:
            if not by.activation.by_boot:
                self._inhibitor.inhibit(by.settings.service)
            self._read_from(self._copies())
            result = work()
            if self._record.progress.again:
                self._keep_configuration()
        except (SystemExit, KeyboardInterrupt):
            # This process is being ended. The package manager may not be: the supervisor waits
            # for it.
            raise
        except BaseException as err:
            self._settle(failure=f"{type(err).__name__}: {err}", anew=anew)
            raise
        self._settle(failure=failure(result), anew=anew)
        return result

    def _keep_configuration(self) -> None:
        """Put back what the removal of a package has taken of the minion's configuration."""
        way_back = self._record.way_back
        if way_back.backup:
            before = backup.load(way_back.backup)
            backup.restore(before, grows=backup_paths.followed(way_back.paths))

    def _settle(self, *, failure: str, anew: bool) -> None:
        """
        Record the result of the change. Without another version on disk, nothing restarts: a
        package manager that fails earlier has put back the files that it had replaced.
        """
        by, own = self.by, self.by.installation.own
        after = by.versions()
        unfinished = by.manager.unfinished(own) if by.manager and own else []
        again = self._record.progress.again
        unfinished += [name for name in again if name not in after]
        # Packages that were installed again have other files, also in the same version.
        changed = after != self._record.versions_from or bool((again or anew) and not failure)
        if failure and by.manager and not changed and not unfinished:
            # It was killed before its database knew: the minion would run from a mixture of both.
            unfinished = mixed(by.manager, self._record)
            changed = bool(unfinished) and self._record.has_way_back
        reason = failure or self._record.reason
        if unfinished:
            reason = f"half done: {', '.join(unfinished)}" + (f" ({failure})" if failure else "")
        progress = replace(self._record.progress, unfinished=tuple(unfinished))
        if changed:
            # The supervisor repairs half done packages before it restarts.
            self._advance(Phase.DELIVERING, reason=reason, versions_to=after, progress=progress)
            return
        # The copies are removed: the code that this process reads is in its old place again.
        self._read_from({copy: root for root, copy in self._copies().items()})
        self._inhibitor.release(by.settings.service)
        failed = bool(failure or unfinished)
        self._advance(
            Phase.FAILED if failed else Phase.COMMITTED,
            reason=reason if failed else "There was nothing to change; no restart.",
            versions_to=after,
            progress=progress,
        )

    @property
    def _inhibitor(self) -> Inhibitor:
        """The inhibitor of the minion, and of a master that runs from its packages."""
        units = [each.unit for each in self._record.code.servers]
        return neighbours.with_units(self.by.inhibitor, units)

    def _read_from(self, places: Mapping[str, str]) -> None:
        if not own_tree.is_read():
            self.redirect(places)

    def _copies(self) -> dict[str, str]:
        return copy_names.of(self._record.code.roots, self._record.id)

    def _advance(self, phase: Phase, **changes: Any) -> None:
        self._record = self.by.store.save(self._record.advance(phase, **changes))
