"""The record of one update, or of one deferred restart."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any

from ..errors import TransitionError
from ..frozen import frozen
from ..host import processes as host_processes
from .parts import Boot, Code, Former, Owed, Progress, Request, Staged, Watched, WayBack
from .phase import ALLOWED, BEFORE_INSTALLING, CHANGING, PROVING, Phase


@frozen
class Update:
    """
    One update of the minion, or one deferred restart of it.

    ``kind`` is ``update`` or ``restart``. ``versions_from`` and ``versions_to`` map own packages
    to versions. ``unit`` holds what the service was before. ``created`` and ``changed`` are epoch
    seconds. ``processes`` are the jobs that had begun before this extension was there, as PIDs
    and identities. ``unknown`` is what newer versions have added.
    """

    id: str
    kind: str
    phase: Phase = Phase.REQUESTED
    reason: str = ""
    jid: str = ""
    pid: int = 0
    created: float = 0.0
    changed: float = 0.0
    versions_from: dict[str, str] = field(default_factory=dict)
    versions_to: dict[str, str] = field(default_factory=dict)
    unit: dict[str, str] = field(default_factory=dict)
    request: Request | None = None
    processes: dict[str, str] = field(default_factory=dict)
    code: Code = field(default_factory=Code)
    staged: Staged = field(default_factory=Staged)
    way_back: WayBack = field(default_factory=WayBack)
    progress: Progress = field(default_factory=Progress)
    former: Former = field(default_factory=Former)
    boot: Boot = field(default_factory=Boot)
    watched: Watched = field(default_factory=Watched)
    owed: Owed | None = None
    unknown: dict[str, Any] = field(default_factory=dict)

    @property
    def has_way_back(self) -> bool:
        """Whether the packages of before are secured, or are in a snapshot."""
        return bool(self.way_back.files or self.way_back.snapshot)

    @property
    def of_extension(self) -> bool:
        """Whether it is an update of this extension, and Salt stays as it is."""
        return self.request is not None and self.request.extension

    @property
    def of_build(self) -> bool:
        """Whether it is an update to a slot that was made of a build, and packages stay."""
        return self.request is not None and bool(self.request.source)

    @property
    def by_boot(self) -> bool:
        """Whether a boot activates it, and takes it back."""
        return self.way_back.snapshot is not None

    @property
    def awaits_boot(self) -> bool:
        """Whether it waits for a boot that has not been yet."""
        return not self.phase.final and self.boot.awaits == self.this_boot

    @property
    def missed_boot(self) -> bool:
        """Whether it waited for a boot, and one has been since."""
        return bool(self.boot.awaits) and self.boot.awaits[0] != host_processes.boot()

    @property
    def this_boot(self) -> tuple[str, str]:
        """The data of a record that waits from now on for the next boot."""
        return (host_processes.boot(), self.phase.value)

    @property
    def beside_jobs(self) -> bool:
        """Whether jobs run while its packages change."""
        return bool(self.progress.beside)

    @property
    def on_trial(self) -> bool:
        """Whether the minion before serves until the new one has shown that it works."""
        return self.beside_jobs and self.progress.proven is None and self.phase in PROVING

    @property
    def is_changing(self) -> bool:
        """Whether its packages change at this moment, or what belongs to them."""
        back = self.phase is Phase.ROLLING_BACK and self.progress.returned is not None
        return self.phase in CHANGING and not back

    @property
    def may_be_half_done(self) -> bool:
        """Whether it has failed, and nobody has looked yet what it left half done."""
        elsewhere = self.of_extension or self.of_build or self.by_boot
        failed = self.kind == "update" and self.phase is Phase.FAILED and not elsewhere
        return failed and not self.progress.completed

    @property
    def may_be_cancelled(self) -> bool:
        """Whether nothing has begun that has to be brought to its end."""
        if self.kind == "restart":
            return self.phase is Phase.WAITING
        return self.request is not None and self.phase in BEFORE_INSTALLING

    @property
    def ran_before(self) -> bool:
        """Whether the service ran before, so that it has to run in the end."""
        return self.unit.get("active") not in ("inactive", "failed")

    @property
    def brought(self) -> dict[str, str]:
        """The versions that it brings and that were not there before."""
        return {
            name: version
            for name, version in self.versions_to.items()
            if version != self.versions_from.get(name)
        }

    def advance(self, phase: Phase, **changes: Any) -> Update:
        """Return the record in its next *phase*; raise TransitionError if there is no way."""
        if phase not in ALLOWED.get(self.phase, ()):
            raise TransitionError(
                f"Update {self.id} is {self.phase.value}: it cannot become {phase.value}."
            )
        return replace(self, phase=phase, **changes)
