"""Slots as the installer of an update: the same phases, and one link in place of packages."""

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

# The name of a slot in a record, in place of the names of packages.
NAME = "salt"
_EXTENSION = "saltext_safeupdate/__init__.py"


def _not_staged(version: str) -> Slot:
    raise SafeUpdateError(
        f"The build of Salt {version} is not staged on this host any more. Nothing was changed; "
        "request the update again."
    )


class SlotInstaller:
    """
    The installer of the slots of one minion.

    *unit* makes the init system follow the minion's link, and *commands* the commands of
    administrators, if they belong to this minion. *before* is the version of Salt that runs if no
    slot is active, from a package or any program that the unit names; empty if unknown. *stage*
    makes the slot of a version from a build; its default only finds slots that exist. *keep* is how
    many slots stay that nobody needs.

    A file here is a slot: the path of its directory, with the digest of its list of files. A file
    whose path is the program of the unit stands for no slot. The version of a slot contains the
    first digits of the digest of its build, which distinguish two builds of one version.
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
        """The slot from which the minion is started, or None."""
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
            raise InputError("The version of the build is missing. Nothing was changed; name it.")
        return dict.fromkeys(packages, version)

    def download(self, targets: Mapping[str, str], directory: str) -> list[File]:
        return [file_of(self._stage(targets[NAME]))]

    def needs(self, what: Mapping[str, str] | Sequence[File]) -> int:
        # The code that makes a slot checks the free space.
        return 0

    def verify(self, files: Sequence[File]) -> None:
        for file in files:
            ident = self._ident(file)
            if ident is None:
                if not os.access(file.path, os.X_OK):
                    raise VerificationError(
                        f"{file.path}, which the minion runs from without a slot, is gone. Nothing "
                        "was changed; install it again."
                    )
                with _failing():
                    named = self._unit.named
                if named and named != file.path:
                    raise VerificationError(
                        f"Without a slot the minion would run from {named}, and not from "
                        f"{file.path}. Nothing was changed; request it again."
                    )
                continue
            self._slots.verify(ident)
            slot = self._slots.get(ident)
            if slot.inventory != file.sha256:
                raise VerificationError(
                    f"The slot {ident} differs from its record. Nothing was changed; request the "
                    "update again."
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
                    # This order keeps the program that systemd starts in place at each moment.
                    self._have_commands(Commands.leave)
                    self._unit.leave()
                    self._slots.step_out(self._minion)
                    continue
                before = self._slots.active(self._minion) if self._unit.follows else None
                if before is None and ident != self._slots.left(self._minion):
                    # These are leftovers: the running minion uses no slot.
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
                raise SafeUpdateError(
                    f"it is not known what {self._minion} runs from: {err}"
                ) from err
        self.verify([found])
        return [found]

    def needs_to_secure(self, packages: Sequence[str]) -> int:
        return 0

    def tidy(self, left: Sequence[File] = ()) -> None:
        """
        Remove slots that are neither needed nor to be kept. Idempotent. Raise SafeUpdateError.

        *left* is the way back of the update that has ended, if it has one.
        """
        if self._unit.follows:
            self._slots.settle(self._minion, *map(self._ident, left))
        elif not os.path.lexists(self._unit.drop_in):
            # A process that died may have left links that nothing follows.
            self._slots.leave(self._minion)
        self._slots.prune(self._keep)

    def _follow(self, before: str | None) -> None:
        """
        Make the unit start the slot. If it cannot (/etc may be read-only), restore everything.

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
        """Change the commands. If that is impossible, as on a read-only /usr, they stay."""
        try:
            if self._commands is not None:
                change(self._commands)
        except OSError as err:
            log.warning("'salt-call' in a shell is not the minion's: %s", err)

    def _ident(self, file: File) -> str | None:
        """Return the name of the slot; None if the file stands for no slot."""
        return os.path.basename(file.path) if file.sha256 else None


def file_of(slot: Slot) -> File:
    """Return a slot in the form of a record."""
    return File(NAME, slot.build_version, os.path.dirname(slot.tree), slot.inventory)


def _has_extension(slot: Slot) -> bool:
    pattern = os.path.join(glob.escape(slot.tree), "**", _EXTENSION)
    return bool(glob.glob(pattern, recursive=True))


@contextmanager
def _failing() -> Iterator[None]:
    """Turn every failure into one of a package manager: it is retried, or rolled back."""
    try:
        yield
    except (CommandError, VerificationError):
        raise
    except (SafeUpdateError, OSError) as err:
        raise CommandError(("slots",), str(err)) from err


def program(directory: str, minion: str) -> str:
    """Return the path by which the unit of a minion starts its active slot."""
    return os.path.join(directory, "minions", minion, "active", PROGRAM)
