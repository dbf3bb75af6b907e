"""
The slots of a host. A slot is either complete or does not exist, even after a crash or a full disk.

``<directory>/slots/<ident>`` is a slot: its ``tree``, the ``inventory`` of the tree, and the mark
of a complete slot, which is written last. Its name ends with ``.part`` while it is made, and with
``.gone`` while it is removed. ``<directory>/minions/<name>`` has the links of a minion:
:mod:`.links`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping

from ..errors import InputError, SafeUpdateError, VerificationError
from ..extensions import interpreter
from ..frozen import frozen
from ..host import linked_copy, room
from ..host.files import open_private, sync_directory, write_atomic
from . import archive, inventory, locking, private, wheels
from .copies import copied
from .layout import PROGRAM, is_below, link_programs
from .links import Links
from .manifest import ANY_MACHINE, Manifest, shown
from .tree import MOST_ENTRIES, Tree

_MARK, _INVENTORY, _TREE, _FILES = "complete.json", "inventory.json", "tree", "files"
_PART, _GONE = ".part", ".gone"
_LOCK, _LINKS_LOCK = "lock", "links.lock"
# Seconds for which others may hold the links while they remove slots.
_LINKS_TIMEOUT = 120.0
# File systems store blocks: many small files take about a quarter more than their content.
_BLOCKS = 4
_KEYS = {"ident": str, "version": str, "kind": str, "staged": float, "size": int, "inventory": str}


@frozen
class Slot:
    """
    One complete version of Salt: *tree* is its directory.

    *staged* is when it was made, in epoch seconds, *size* its size on the disk, in bytes, and
    *inventory* the SHA-256 of the list of its files.
    """

    ident: str
    version: str
    kind: str
    staged: float
    size: int
    inventory: str
    tree: str

    @property
    def build_version(self) -> str:
        """The version in a record: the part after the hyphen distinguishes builds."""
        return shown(self.version, self.ident)


class Slots:
    """
    The slots below the absolute path *directory*, which only root can write to.

    Each method raises SafeUpdateError if others can write to it, or a file system fails. Then all
    complete slots, and the links of all minions, are as before. Methods that make or remove a slot
    raise LockHeldError while another process does.
    """

    def __init__(
        self,
        directory: str,
        *,
        clock: Callable[[], float] = time.time,
        statvfs: room.Statvfs = os.statvfs,
        machine: str = "",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = directory
        self._slots = os.path.join(directory, "slots")
        self._clock = clock
        self._statvfs = statvfs
        self._machine = machine or os.uname().machine
        self._sleep = sleep
        self._links = Links(directory)

    def stage(
        self,
        manifest: Manifest,
        files: Mapping[str, str],
        *,
        python: str = "",
        furnish: Callable[[str], None] = lambda tree: None,
    ) -> Slot:
        """
        Make the slot of a build, of copies of its *files* (name to path). Idempotent.

        A slot that was altered since then is made again, unless it is needed. *python* is the path
        of the interpreter for wheels. *furnish* is called with the tree before it is complete, and
        may add to it. Raise InputError if the build does not fit this host, and VerificationError
        if it differs from its manifest; nothing is left then.
        """
        if manifest.machine not in (ANY_MACHINE, self._machine):
            raise InputError(
                f"{manifest.name} is for {manifest.machine}, and this host is {self._machine}. "
                "Nothing was changed; use a build for this machine."
            )
        if manifest.kind == "wheels" and not python:
            raise InputError(
                f"{manifest.name} needs Python {manifest.python}, which this host does not have. "
                "Nothing was changed; install that, or use a build of kind 'onedir'."
            )
        with self._alone():
            found = self._kept(manifest.ident)
            if found is not None:
                # The process that made it may have died before this.
                sync_directory(self._slots)
                return found
            self._refuse_without_room(manifest)
            part = os.path.join(self._slots, f"{manifest.ident}{_PART}")
            try:
                self._fill(part, manifest, files, python, furnish)
            except OSError as err:
                raise SafeUpdateError(
                    f"{manifest.name} could not be unpacked: {err}. Nothing was changed, and the "
                    f"minion runs as before; check the disk of {self._directory}."
                ) from err
            finally:
                # After a kill, the next process does this.
                shutil.rmtree(part, ignore_errors=True)
            return self.get(manifest.ident)

    def slots(self) -> list[Slot]:
        """Return the complete slots, the newest first. Unreadable ones do not count."""
        found = [self._read(name) for name in _listed(self._slots)]
        return sorted((slot for slot in found if slot), key=lambda slot: slot.staged, reverse=True)

    def get(self, ident: str) -> Slot:
        """Return a complete slot, or raise InputError."""
        found = self._read(ident)
        if found is None:
            raise InputError(
                f"There is no slot {ident} that is complete. Nothing was changed; stage it again."
            )
        return found

    def verify(self, ident: str) -> None:
        """Read all of a slot; raise VerificationError if it has changed since it was made."""
        slot = self.get(ident)
        try:
            with open(os.path.join(os.path.dirname(slot.tree), _INVENTORY), "rb") as file:
                content = file.read()
            if hashlib.sha256(content).hexdigest() != slot.inventory:
                raise VerificationError(_altered(slot, "the list of its files was changed"))
            found = list(inventory.differences(slot.tree, inventory.from_bytes(content)))
        except OSError as err:
            raise VerificationError(_altered(slot, f"it cannot be read: {err}")) from err
        if found:
            more = f", and {len(found) - 3} more" if len(found) > 3 else ""
            raise VerificationError(_altered(slot, f"{', '.join(found[:3])}{more}"))

    def hold(self, ident: str) -> int:
        """
        Keep a slot as long as this process, or a child that it forks, lives.

        Return a file descriptor; closing it releases the slot earlier. Raise SafeUpdateError if the
        slot is just being removed.
        """
        slot = self.get(ident)
        try:
            return linked_copy.hold(os.path.dirname(slot.tree))
        except OSError as err:
            raise SafeUpdateError(f"The slot {ident} cannot be kept: {err}.") from err

    def activate(self, minion: str, ident: str) -> None:
        """
        Make the minion run from that slot from its next start on. Idempotent.

        The slot before becomes ``previous``. If the minion goes back to the previous slot, the one
        that was previous before that becomes it again. The duration does not depend on the size of
        the slot: the caller has called :meth:`verify` before.
        """
        with self._linking():
            if ident not in (self._links.previous(minion), self._links.left(minion)):
                # The way back stays open, even if others can write there by now.
                private.check(self._directory)
            self.get(ident)
            self._links.activate(minion, ident)

    def settle(self, minion: str, *before: str | None) -> None:
        """
        Delete what was stored for the minion until its update has ended. Idempotent.

        *before*, if given, is the slot that the update has left, and becomes ``previous``; None: it
        has left no slot.
        """
        with self._linking():
            self._links.settle(minion, *before)

    def active(self, minion: str) -> str | None:
        """Return the slot that the minion runs from at its next start, or None."""
        return self._links.active(minion)

    def has(self, minion: str) -> bool:
        """Tell whether the minion has an active slot. A name that no slot can have has none."""
        return self._links.can_have(minion) and self._links.active(minion) is not None

    def previous(self, minion: str) -> str | None:
        """Return the slot that the minion goes back to, or None."""
        return self._links.previous(minion)

    def left(self, minion: str) -> str | None:
        """Return the slot that an update left for no slot, until the update has ended, or None."""
        return self._links.left(minion)

    def step_out(self, minion: str) -> None:
        """Make the minion run from no slot, and keep its way back. Idempotent."""
        with self._linking():
            self._links.step_out(minion)

    def leave(self, minion: str) -> None:
        """Make the minion run from no slot any more. Idempotent."""
        with self._linking():
            self._links.leave(minion)

    def prune(self, keep: int) -> list[str]:
        """
        Remove the slots that nobody needs, except the *keep* newest; return their names.

        A slot stays if a link of a minion leads to it, or a process holds it.
        """
        with self._alone(), self._linking():
            needed = self._links.needed()
            spare = [slot.ident for slot in self.slots() if slot.ident not in needed]
            return [ident for ident in spare[keep:] if self._remove(ident)]

    def forget(self, ident: str) -> None:
        """Remove a slot. Raise InputError if it is needed."""
        with self._alone(), self._linking():
            self.get(ident)
            if ident in self._links.needed() or not self._remove(ident):
                raise InputError(
                    f"The slot {ident} is active or previous, or a minion still runs from it. "
                    "Nothing was changed."
                )

    def _kept(self, ident: str) -> Slot | None:
        """Return the slot if it exists and has not changed; remove it if it has changed."""
        found = self._read(ident)
        if found is None:
            return None
        try:
            self.verify(ident)
        except VerificationError:
            with self._linking():
                if ident in self._links.needed() or not self._remove(ident):
                    raise
            return None
        return found

    def _fill(
        self,
        part: str,
        manifest: Manifest,
        files: Mapping[str, str],
        python: str,
        furnish: Callable[[str], None],
    ) -> None:
        copies, tree = os.path.join(part, _FILES), os.path.join(part, _TREE)
        private.make(part)
        os.mkdir(copies, 0o700)
        private.make(tree)
        # Others could change the source after it was checked.
        paths = [copied(manifest, name, files[name], copies) for name in sorted(manifest.files)]
        filled = Tree(tree, size=manifest.unpacked)
        if manifest.kind == "wheels":
            wheels.unpack(paths, filled, python=python)
        else:
            archive.unpack(paths[0], filled, size=manifest.unpacked, entries=MOST_ENTRIES)
            link_programs(tree)
        if not os.access(os.path.join(tree, PROGRAM), os.X_OK):
            raise VerificationError(
                f"{manifest.name} is refused: it has no program {PROGRAM}. Nothing was changed; "
                "use a build that was made as the documentation says."
            )
        starts = interpreter.named_by(os.path.join(tree, PROGRAM))
        if manifest.kind == "onedir" and (starts is None or not is_below(tree, starts)):
            raise VerificationError(
                f"{manifest.name} is refused: its program {PROGRAM} starts "
                f"{starts or 'nothing that is known'}, which is not part of it. Nothing was "
                "changed; use a build that can be moved."
            )
        # A user without rights runs its interpreter to look at it.
        private.let_all_read(tree)
        furnish(tree)
        private.let_all_read(tree)
        shutil.rmtree(copies)
        content = inventory.as_bytes(inventory.settle(tree))
        write_atomic(os.path.join(part, _INVENTORY), content)
        mark = {
            "ident": manifest.ident,
            "version": manifest.version,
            "kind": manifest.kind,
            "staged": float(self._clock()),
            "size": room.size(part),
            "inventory": hashlib.sha256(content).hexdigest(),
        }
        write_atomic(os.path.join(part, _MARK), json.dumps(mark))
        place = part.removesuffix(_PART)
        if os.path.lexists(place):
            # Leftovers of a slot are not a slot.
            os.rename(place, f"{place}{_GONE}")
        os.rename(part, place)
        sync_directory(self._slots)

    def _read(self, ident: str) -> Slot | None:
        """Return a slot if it is complete."""
        if ident.endswith((_PART, _GONE)) or os.path.basename(ident) != ident:
            return None
        directory = os.path.join(self._slots, ident)
        try:
            with open(os.path.join(directory, _MARK), "rb") as file:
                given = json.load(file)
        except (OSError, ValueError):
            return None
        if not isinstance(given, dict) or given.keys() != _KEYS.keys():
            return None
        if not all(isinstance(given[key], kind) for key, kind in _KEYS.items()):
            return None
        if given["ident"] != ident or not os.path.isdir(os.path.join(directory, _TREE)):
            return None
        return Slot(**given, tree=os.path.join(directory, _TREE))

    def _remove(self, ident: str) -> bool:
        """Remove a slot unless a process holds it; tell whether it is gone."""
        path = os.path.join(self._slots, ident)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(path, f"{path}{_GONE}")
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        sync_directory(self._slots)
        shutil.rmtree(f"{path}{_GONE}", ignore_errors=True)
        return True

    def _refuse_without_room(self, manifest: Manifest) -> None:
        wanted = manifest.size + manifest.unpacked + manifest.unpacked // _BLOCKS
        short = room.shortage(self._directory, wanted, statvfs=self._statvfs)
        if short:
            raise SafeUpdateError(
                f"There is no room for {manifest.name}: {short}, and try again. Nothing was "
                "changed."
            )

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the slots for this process only, private, and without leftovers."""
        try:
            private.make_top(self._directory)
            private.check(self._directory)
            private.make(self._slots)
            # Then it exists even when the disk is full.
            os.close(open_private(os.path.join(self._directory, _LINKS_LOCK)))
            lock = locking.alone(os.path.join(self._directory, _LOCK))
        except OSError as err:
            raise _unusable(self._directory, err) from err
        try:
            with lock:
                for name in os.listdir(self._slots):
                    if name.endswith((_PART, _GONE)):
                        shutil.rmtree(os.path.join(self._slots, name), ignore_errors=True)
                yield
        except OSError as err:
            raise _unusable(self._directory, err) from err

    @contextlib.contextmanager
    def _linking(self) -> Iterator[None]:
        """
        Hold the links for this process only; no slot is removed meanwhile.

        No process holds them for long: making a slot may take a minute, and a minion that goes back
        must not wait for that.
        """
        try:
            private.make_top(self._directory)
            path = os.path.join(self._directory, _LINKS_LOCK)
            with locking.alone(path, timeout=_LINKS_TIMEOUT, sleep=self._sleep):
                yield
        except OSError as err:
            raise _unusable(self._directory, err) from err


def _listed(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _altered(slot: Slot, how: str) -> str:
    return (
        f"The slot {slot.ident} has changed since it was made: {how}. Nothing was changed, and it "
        "is not used; forget it, and stage it again. A minion that runs from it leaves it with "
        "'safeupdate.rollback'."
    )


def _unusable(directory: str, err: OSError) -> SafeUpdateError:
    return SafeUpdateError(
        f"The slots in {directory} cannot be used: {err.strerror or err}. Nothing was changed, and "
        "the minion runs as before; check the disk and the permissions there."
    )
