"""Slots as what an update is installed with: the same phases, and one link in place of packages."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from ..errors import CommandError, InputError, SafeUpdateError, VerificationError
from ..packages.request import File
from .commands import Commands
from .layout import PROGRAM
from .store import Slot, Slots
from .unit import Unit

log = logging.getLogger(__name__)

# What all of a slot is called in a record, where packages have their names.
NAME = "salt"
_EXTENSION = "saltext_safeupdate/__init__.py"


def _not_staged(version: str) -> Slot:
    raise SafeUpdateError(
        f"The build of Salt {version} is not staged on this host any more. Nothing was changed; "
        "ask for the update again."
    )


class SlotInstaller:
    """
    The installer of the slots of one minion.

    *unit* has the init system follow its link, and *commands* those of administrators, if they are
    of this minion. *before* is the version of Salt that runs if no slot is active: that of a
    package, or of whatever the unit names itself; empty if it is not known. *stage* makes the slot
    of a version, from a build; whoever cannot do that finds it made. *keep* is how many slots stay
    that nobody needs.

    A file of it is a slot: the path of its directory, with the digest of the list of its files. One
    whose path is the program of the unit stands for no slot. The version of a slot has the begin of
    the digest of its build: two builds of one version are told apart.
    """

    name = "slots"

    def __init__(
        self,
        slots: Slots,
        minion: str,
        unit: Unit,
        *,
        before: str,
        stage: Callable[[str], Slot] = _not_staged,
        commands: Commands | None = None,
        keep: int = 1,
    ) -> None:
        self._slots = slots
        self._minion = minion
        self._unit = unit
        self._before = before
        self._stage = stage
        self._commands = commands
        self._keep = keep

    @property
    def active(self) -> Slot | None:
        """The slot that the minion is started from; None: from none."""
        ident = self._slots.active(self._minion) if self._unit.follows else None
        return self._slots.get(ident) if ident else None

    def installed(self, packages: Iterable[str]) -> dict[str, str]:
        if NAME not in packages:
            return {}
        with _failing():
            active = self.active
        version = active.build_version if active else self._before
        return {NAME: version} if version else {}

    def targets(self, packages: Iterable[str], version: str | None) -> dict[str, str]:
        if not version:
            raise InputError("The version of the build has to be named. Nothing was changed.")
        return dict.fromkeys(packages, version)

    def download(self, targets: Mapping[str, str], directory: str) -> list[File]:
        return [file_of(self._stage(targets[NAME]))]

    def needs(self, what: Mapping[str, str] | Sequence[File]) -> int:
        # Whoever makes a slot looks at the room that it takes.
        return 0

    def verify(self, files: Sequence[File]) -> None:
        for file in files:
            ident = self._ident(file)
            if ident is None:
                if not os.access(file.path, os.X_OK):
                    raise VerificationError(
                        f"{file.path}, which the minion runs from without a slot, is not there any "
                        "more. Nothing was changed; install it again."
                    )
                with _failing():
                    named = self._unit.named
                if named and named != file.path:
                    raise VerificationError(
                        f"Without a slot the minion would run from {named}, and not from "
                        f"{file.path}. Nothing was changed; ask for it again."
                    )
                continue
            self._slots.verify(ident)
            slot = self._slots.get(ident)
            if slot.inventory != file.sha256:
                raise VerificationError(
                    f"The slot {ident} is another one than was recorded. Nothing was changed; ask "
                    "for the update again."
                )
            if not _has_extension(slot):
                raise VerificationError(
                    f"The slot {ident} does not have this extension, so its minion would run "
                    "without it. Nothing was changed; stage it again."
                )

    def install(self, files: Sequence[File]) -> None:
        with _failing():
            for file in files:
                ident = self._ident(file)
                if ident is None:
                    # In this order: at each moment what systemd starts is there.
                    self._have_commands(Commands.leave)
                    self._unit.leave()
                    self._slots.step_out(self._minion)
                    continue
                before = self._slots.active(self._minion) if self._unit.follows else None
                if before is None and ident != self._slots.left(self._minion):
                    # They are left over: what runs is no slot.
                    self._slots.leave(self._minion)
                self._slots.activate(self._minion, ident)
                self._follow(before)
                self._have_commands(Commands.follow)

    def secure(self, packages: Sequence[str], directory: str) -> list[File]:
        active = self.active
        if active is not None:
            found = file_of(active)
        else:
            try:
                found = File(NAME, self._before, self._unit.program, "")
            except CommandError as err:
                raise SafeUpdateError(f"what {self._minion} runs from is not known: {err}") from err
        self.verify([found])
        return [found]

    def needs_to_secure(self, packages: Sequence[str]) -> int:
        return 0

    def tidy(self, left: Sequence[File] = ()) -> None:
        """
        Remove what is neither needed nor to be kept. Idempotent. Raises SafeUpdateError.

        *left* is what the update that has ended leads back to, if it leads anywhere.
        """
        if self._unit.follows:
            self._slots.settle(self._minion, *map(self._ident, left))
        elif not os.path.lexists(self._unit.drop_in):
            # Whoever has died may have left links that nothing follows.
            self._slots.leave(self._minion)
        self._slots.prune(self._keep)

    def _follow(self, before: str | None) -> None:
        """
        Have the unit start the slot. If it cannot (/etc may be read-only), all is as it was.

        *before* is the slot that it followed, if any.
        """
        try:
            self._unit.follow()
        except (SafeUpdateError, OSError):
            with suppress(SafeUpdateError, OSError):
                self._undo(before)
            raise

    def _undo(self, before: str | None) -> None:
        if before is not None:
            self._slots.activate(self._minion, before)
            return
        self._unit.leave()
        if self._slots.left(self._minion) is None:
            self._slots.leave(self._minion)
        else:
            # There may be no other way back.
            self._slots.step_out(self._minion)

    def _have_commands(self, change: Callable[[Commands], None]) -> None:
        """Change what is typed. Where that cannot be, such as below a read-only /usr, it stays."""
        try:
            if self._commands is not None:
                change(self._commands)
        except OSError as err:
            log.warning("'salt-call' in a shell is not that of the minion: %s", err)

    def _ident(self, file: File) -> str | None:
        """Return the name of the slot; None if it stands for none."""
        return os.path.basename(file.path) if file.sha256 else None


def file_of(slot: Slot) -> File:
    """Return a slot in the form of a record."""
    return File(NAME, slot.build_version, os.path.dirname(slot.tree), slot.inventory)


def _has_extension(slot: Slot) -> bool:
    pattern = os.path.join(glob.escape(slot.tree), "**", _EXTENSION)
    return bool(glob.glob(pattern, recursive=True))


@contextmanager
def _failing() -> Iterator[None]:
    """Have whatever fails fail as a package manager does: it is tried again, or undone."""
    try:
        yield
    except (CommandError, VerificationError):
        raise
    except (SafeUpdateError, OSError) as err:
        raise CommandError(("slots",), str(err)) from err


def program(directory: str, minion: str) -> str:
    """Return the path by which the unit of a minion starts its active slot."""
    return os.path.join(directory, "minions", minion, "active", PROGRAM)
