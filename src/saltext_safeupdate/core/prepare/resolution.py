"""
What a request comes to on this host: resolved once, passed on, and kept in the record.

The same object is what ``safeupdate.plan`` shows and what ``safeupdate.update`` has installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import InputError, SafeUpdateError, argument, version_text
from ..packages.choice import matches
from ..packages.manager import Installer
from ..record.parts import FileRow, Request
from ..record.store import Quarantined, Store
from . import versions
from .revisions import Revisions
from .upgrade_steps import Steps

if TYPE_CHECKING:
    from .findings import Finding


def request(
    version: object = None,
    *,
    when: str = "idle",
    allow_downgrade: bool = False,
    back: bool = False,
) -> Request:
    """Return a request as a record carries it. Raise InputError if it means nothing."""
    if when not in ("idle", "now"):
        raise InputError("'when' must be 'idle' or 'now'. Nothing was changed.")
    wanted = None if version is None else version_text("version", version)
    return Request(version=wanted, when=when, allow_downgrade=allow_downgrade, back=back)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """
    A request and its meaning: the installed versions, the targets, and the necessary changes.

    ``findings`` are the reasons against it that are known so far. ``files`` are the files to
    install, if they are known already: the slots of builds.
    """

    request: Request
    installed: Mapping[str, str]
    targets: Mapping[str, str]
    steps: Sequence[str] = ()
    staged: bool = False
    files: tuple[FileRow, ...] = ()
    findings: Sequence[Finding] = ()

    @property
    def in_place(self) -> bool:
        """Whether there are targets, and they are what is installed."""
        return bool(self.targets) and reached(self.installed, self.targets)

    @property
    def changes(self) -> dict[str, dict[str, str]]:
        """The own packages that change, with their versions before and after."""
        return {
            name: {"old": self.installed.get(name, ""), "new": version}
            for name, version in self.targets.items()
            if self.installed.get(name) != version
        }

    def with_serial(self, serial: int) -> Resolved:
        """Return it as the request with this number."""
        return replace(self, request=replace(self.request, serial=serial))


@dataclass(frozen=True, kw_only=True)
class Resolver:
    """
    The objects that resolve a request on this host.

    *staged* are the versions that are downloaded already, *steps_dir* is the directory of the
    upgrade steps.
    """

    installer: Installer
    own: Sequence[str]
    store: Store
    revisions: Revisions
    staged: Mapping[str, str]
    steps_dir: str

    def resolve(self, wanted: Request) -> Resolved:
        """Return the meaning of the request, with reasons against it or not. Raise InputError."""
        installed = self.installer.installed(self.own)
        if not installed:
            raise InputError(
                "No package holds the minion, so there is nothing to update. Nothing was changed; "
                "name the packages in 'safeupdate:packages' if it was installed from packages."
            )
        targets = self._targets(wanted)
        return Resolved(
            request=wanted,
            installed=installed,
            targets=targets,
            steps=self.steps(installed, targets),
            staged=bool(targets) and dict(self.staged) == targets,
        )

    def hoped(self, wanted: Request) -> dict[str, str]:
        """
        Return the targets, also of a version that nobody offers yet; empty if none is named either.
        """
        try:
            return dict(self._targets(wanted))
        except SafeUpdateError:
            return named(wanted, self.installer.installed(self.own))

    def steps(self, installed: Mapping[str, str], targets: Mapping[str, str]) -> tuple[str, ...]:
        """Return the programs of upgrade steps that run on the way to the targets."""
        steps = Steps(self.steps_dir, self.store)
        found = [*steps.before(installed, targets), *steps.due(installed, targets)]
        return tuple(step.name for step in found)

    def is_kept(self, wanted: Request) -> bool:
        """Tell whether the request goes back to packages that are kept on this minion."""
        previous = self.revisions.previous() if wanted.back else None
        if previous is None:
            return False
        return wanted.version is None or names(wanted, previous.versions)

    def refuse(self, resolved: Resolved) -> None:
        """Raise InputError for versions that were rolled back, or are older by mistake."""
        refuse_of(resolved, self.store)

    def _targets(self, wanted: Request) -> dict[str, str]:
        if names(wanted, self.staged):
            # Also if no repository answers any more.
            return dict(self.staged)
        found = self._previous(wanted)
        return self.installer.targets(self.own, wanted.version) if found is None else found

    def _previous(self, wanted: Request) -> dict[str, str] | None:
        """Return the versions of the previous revision if the request means them, else None."""
        if not wanted.back:
            return None
        previous = self.revisions.previous()
        if previous is not None and self.is_kept(wanted):
            return previous.versions
        if wanted.version is None:
            raise InputError(
                "The packages of an earlier version are not kept on this minion. Nothing was "
                "changed; name the version to go back to, or ask for it with 'safeupdate.update'."
            )
        return None


def named(wanted: Request, installed: Mapping[str, str]) -> dict[str, str]:
    """Return the targets of a version that nobody offers; empty if none is named."""
    return dict.fromkeys(installed, wanted.version) if wanted.version else {}


def names(wanted: Request, found: Mapping[str, str]) -> bool:
    """Tell whether the request names these versions."""
    version = wanted.version
    if not version or not found:
        return False
    return all(matches(each, version) for each in found.values())


def reached(installed: Mapping[str, str], targets: Mapping[str, str]) -> bool:
    """Tell whether every target is installed."""
    return all(installed.get(name) == version for name, version in targets.items())


def refuse_of(resolved: Resolved, store: Store) -> None:
    """Raise InputError for versions that *store* calls rolled back, or older by mistake."""
    rows = store.quarantined() if store.exists() else ()
    refuse_quarantined(resolved.targets, resolved.installed, rows)
    refuse_downgrade(resolved)


def refuse_quarantined(
    targets: Mapping[str, str], installed: Mapping[str, str], rows: Iterable[Quarantined]
) -> None:
    """Raise InputError if a version that would be installed was rolled back before."""
    for row in rows:
        if targets.get(row.package) == row.version != installed.get(row.package):
            raise InputError(
                f"{row.package} {row.version} was rolled back on this minion, and is not installed "
                "again. Nothing was changed; when the cause is fixed, allow it with "
                f"safeupdate.unquarantine {argument(row.version)}. The cause, of update {row.id}: "
                f"{row.why}."
            )


def refuse_downgrade(resolved: Resolved) -> None:
    """Raise InputError if a version is older than the installed one, and that is not meant."""
    if resolved.request.allow_downgrade or resolved.request.back:
        return
    installed = resolved.installed
    # Two builds of one version are as old.
    shown = _of_build if resolved.request.source else str
    for name, version in sorted(resolved.targets.items()):
        old = installed.get(name)
        if old is not None and versions.key(shown(version)) < versions.key(shown(old)):
            raise InputError(
                f"{name} {version} is older than the installed {installed[name]}. Nothing was "
                "changed; say 'allow_downgrade=True' if that is meant."
            )


def _of_build(version: str) -> str:
    """Return a version without what tells one build of it from others."""
    return version.rpartition("-")[0] or version
