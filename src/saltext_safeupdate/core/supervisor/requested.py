"""
The first half of an update that was asked for: everything until the restart.

Nothing of the minion changes before ``installing``; until then the request may be cancelled
or superseded at any moment, so the record is only written with the ``update`` lock, and read
again before each write.
"""

from __future__ import annotations

import logging
from typing import Any

from ..errors import CommandError, RecordError, SafeUpdateError
from ..host import linked_copy as freezer
from ..packages.manager import PackageManager
from ..packages.request import File
from ..prepare import resolution, revisions
from ..prepare.staging import Staging
from ..record.update import Phase, Update
from . import bring, drain, watch, watchdog
from .context import Means

log = logging.getLogger("salt-safeupdate")

# Tries of a download, and seconds between them.
_DOWNLOAD_ATTEMPTS = 3
_DOWNLOAD_INTERVAL = 5.0
# Seconds in which the master of the old minion has to be heard of, so that the new one's
# has to be too.
_HEARD_TIMEOUT = 15.0


class Managed:
    """Carries a request from phase to phase. Every step may be done again."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def prepare(self, update: Update) -> Update:
        """Bring a request to the moment of its installation, all locks held, or to its end."""
        try:
            return self._prepare(update)
        except RecordError:
            raise
        except (SafeUpdateError, OSError) as err:
            return self._to(update, Phase.FAILED, reason=unchanged(str(err)))

    def install(self, update: Update) -> Update:
        """Install what was staged. Raises CommandError or VerificationError."""
        means, packages = self._means, self._packages()
        means.services.inhibit(means.settings.service)
        own, targets = list(update.extra["own"]), update.versions_to
        means.let_end()
        if not resolution.reached(packages.installed(own), targets) or packages.unfinished(own):
            self._put_in_place(packages, update)
        now, left = means.repair(own)
        if not resolution.reached(now, targets) or left:
            raise CommandError(
                (packages.name,),
                f"the packages are not in place (installed: {now}; half done: "
                f"{', '.join(left) or 'none'})",
            )
        return means.store.save(update.advance(Phase.RESTARTING, versions_to=now))

    def _put_in_place(self, packages: PackageManager, update: Update) -> None:
        new = revisions.files(update.extra["new_files"])
        packages.verify(new)
        snapshots, settings = packages.snapshots, self._means.settings
        if snapshots is None:
            packages.install(new)
        elif "to_snapshot" in update.extra:
            snapshots.go_back(update.extra["to_snapshot"])
        else:
            snapshots.install(
                [file.path for file in new],
                extensions=update.extra.get("extensions", ""),
                program=self._means.services.program(settings.service) or "",
                strict=settings.extensions == "stop",
            )

    # -- steps -----------------------------------------------------------------

    def _prepare(self, update: Update) -> Update:
        if update.phase is Phase.REQUESTED:
            update = self._to(update, Phase.CHECKING)
        if update.phase is Phase.CHECKING:
            update = self._check(update)
        if update.phase is Phase.STAGING:
            extra = self._stage(update)
            update = self._to(update, Phase.WAITING, extra={**update.extra, **extra})
        if update.phase is Phase.WAITING:
            update = self._wait(update)
        return update

    def _check(self, update: Update) -> Update:
        means, packages = self._means, self._packages()
        if packages.snapshots is not None and packages.snapshots.pending:
            number = packages.snapshots.default()["number"]
            raise SafeUpdateError(
                f"Snapshot {number} waits for a reboot, and an update would not start from it. "
                "Reboot first, or make the running snapshot the default again"
            )
        own = list(update.extra["own"])
        staged = self._staging(packages).staged()
        targets = resolution.targets(
            packages, own, update.extra["request"], means.store, means.revisions, staged
        )
        if resolution.reached(packages.installed(own), targets):
            return self._to(update, Phase.COMMITTED, reason="It is installed; nothing changed.")
        return self._to(update, Phase.STAGING, versions_to=targets)

    def _stage(self, update: Update) -> dict[str, Any]:
        """Have the new packages, and the old ones, on disk; return where."""
        means, packages = self._means, self._packages()
        to: dict[str, Any] = {}
        if resolution.kept(update.extra["request"], means.revisions):
            previous = means.revisions.previous() or {"files": []}
            new = revisions.files(previous["files"])
            packages.verify(new)
            to = self._former(packages, previous)
        else:
            new = self._download(packages, update.versions_to)
        secured = means.revisions.secure(
            update.id, sorted(update.versions_from), update.extra.get("backup_paths", ())
        )
        if "no_way_back" in secured and means.settings.rollback == "required":
            raise SafeUpdateError(
                f"There would be no way back: {secured['no_way_back']}. Fix that, or set "
                "'safeupdate:rollback' to 'optional'."
            )
        beside = bring.stage(
            means.settings,
            means.services,
            packages,
            means.command,
            means.revisions.directory(update.id),
            new,
        )
        if beside.get("unstaged") and means.settings.extensions == "stop":
            raise SafeUpdateError(
                f"{' '.join(beside['unstaged'])} Or set 'safeupdate:extensions' to 'report'."
            )
        return {
            **secured,
            **beside,
            **to,
            "new_files": [list(file) for file in new],
            "held": sorted(packages.held(list(update.extra["own"]))),
            "master": watch.heard(means, _HEARD_TIMEOUT),
        }

    @staticmethod
    def _former(packages: PackageManager, previous: dict[str, Any]) -> dict[str, Any]:
        """Return the snapshot to go back to, where nothing else would be undone with it."""
        if packages.snapshots is None or "snapshot" not in previous:
            return {}
        running, number = packages.snapshots.running(), previous["snapshot"]["number"]
        if running != previous["active"]:
            raise SafeUpdateError(
                f"Snapshot {running['number']} was made after the update: going back to snapshot "
                f"{number} would undo more than the update. If that is meant, run "
                f"'transactional_update.rollback {number}' and reboot; or ask for the version "
                "with 'safeupdate.update'"
            )
        return {"to_snapshot": previous["snapshot"]}

    def _download(self, packages: PackageManager, targets: dict[str, str]) -> list[File]:
        staging = self._staging(packages)
        for _ in range(_DOWNLOAD_ATTEMPTS - 1):
            try:
                return staging.stage(targets)
            except CommandError as err:
                log.warning("%s; trying again", err)
                self._means.sleep(_DOWNLOAD_INTERVAL)
        return staging.stage(targets)

    def _wait(self, update: Update) -> Update:
        means = self._means
        if update.extra["request"]["when"] == "idle":
            found: Update | None = drain.wait(means, update)
        else:
            means.drain.exclusive()
            found = drain.within(means, update)
        if found is None:
            means.drain.release()
            return self._to(
                update,
                Phase.POSTPONED,
                reason=f"Other jobs did not end within {means.settings.jobs_timeout:g} s. Nothing "
                "was changed. Ask again, or ask for when=idle.",
            )
        return found if found.phase.final else self._begin(found)

    def _begin(self, update: Update) -> Update:
        """Pass the point of no return. All locks are held."""
        means, roots = self._means, update.extra["roots"]
        try:
            self._packages().verify(revisions.files(update.extra["new_files"]))
            copies = {root: freezer.copy_path(root, update.id) for root in roots}
            # Known before they are made: whoever cleans up after us finds them in the record.
            update = means.note(update, copies=copies)
            freezer.thaw(freezer.leftovers(roots))
            freezer.freeze(roots, update.id)
            watchdog.arm(means.settings, means.services, means.command, copies)
        except (SafeUpdateError, OSError):
            means.baton.release()
            raise
        return means.store.save(update.advance(Phase.INSTALLING))

    # -- means -----------------------------------------------------------------

    def _to(self, update: Update, phase: Phase, **changes: Any) -> Update:
        """Write the next phase, unless the record has ended meanwhile."""
        means = self._means
        means.baton.exclusive()
        try:
            now = means.now(update)
            return now if now.phase.final else means.store.save(now.advance(phase, **changes))
        finally:
            means.baton.release()

    def _staging(self, packages: PackageManager) -> Staging:
        return Staging(self._means.settings.state_dir, self._means.store, packages)

    def _packages(self) -> PackageManager:
        if self._means.packages is None:
            raise SafeUpdateError("No package manager that is known is there.")
        return self._means.packages


def unchanged(problem: str) -> str:
    """Return the problem as a sentence, with word that nothing was changed."""
    sentence = problem.rstrip().removesuffix(".") + "."
    return sentence if "othing was changed" in sentence else f"{sentence} Nothing was changed."
