"""
Which upgrade steps lie between two versions: the steps of this host, and the steps of its master.

The minion keeps the version whose steps it has been through. So a host that was moved by hand
catches up with its next update.

A step is up to three programs: ``NAME.before`` runs before anything is resolved, ``NAME`` when the
packages are in place, and ``NAME.revert`` takes both back.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ..errors import VerificationError
from ..host.files import sync_directory, write_atomic
from ..host.room import Statvfs
from ..packages.files import digest
from ..record.facts import STEPS_BEGUN, STEPS_SINCE, STEPS_TAKEN
from ..record.store import Store
from ..record.typed import Fact
from . import versions
from .beside import Told

# The setting for the host's own steps, and the one for those that were fetched.
_SETTINGS = ("'safeupdate:steps_dir'", "'safeupdate:state_dir'")
BEFORE, REVERT = ".before", ".revert"
# A version and, if there is one, a name. Files that editors and package managers leave do not
# count.
_NAME = re.compile(rf"(\d+(?:\.\d+)*)(?:-[\w-]+)?({re.escape(BEFORE)}|{re.escape(REVERT)})?")
# The digests of the steps that were fetched, by their names.
_FETCHED: Fact[dict[str, str]] = Fact("steps", dict[str, str])


class Step(NamedTuple):
    """A step: its name, by which it is known and sorted, and the program."""

    name: str
    path: str


class Steps:
    """The steps in *directory*, and those that were fetched; the host's own hide fetched ones."""

    def __init__(self, directory: str, store: Store) -> None:
        self._directory = directory
        self._store = store
        self._fetched = os.path.join(os.path.dirname(store.path), "steps")

    def due(self, old: Mapping[str, str], new: Mapping[str, str]) -> list[Step]:
        """
        Return what runs between two sets of packages when they are in place, in its order.

        On the way down these are the programs that take steps back, the newest step first.
        """
        taken = self.taken()
        installed, target = of_salt(old, new)
        down = [
            step for step in self._between(target, installed, REVERT) if base(step.name) in taken
        ]
        return [*reversed(down), *self._between(*self.versions(old, new), "")]

    def before(self, old: Mapping[str, str], new: Mapping[str, str]) -> list[Step]:
        """Return what runs before the packages are resolved, in its order."""
        return self._between(*self.versions(old, new), BEFORE)

    def taking_back(self, programs: Iterable[str]) -> list[Step]:
        """Return what takes the work of these programs back, in its order."""
        begun = list(dict.fromkeys(programs))
        places = self._places()
        up = dict.fromkeys(base(name) for name in reversed(begun) if not name.endswith(REVERT))
        down = dict.fromkeys(base(name) for name in reversed(begun) if name.endswith(REVERT))
        names = [name + REVERT for name in up]
        names += [name + BEFORE for name in down] + list(down)
        return [Step(name, os.path.join(places[name], name)) for name in names if name in places]

    def taken(self) -> tuple[str, ...]:
        """Return the steps of earlier updates whose work is on this host."""
        return self._store.fact(STEPS_TAKEN) or ()

    def ended(self, programs: Iterable[str]) -> None:
        """Note that the update that has run these is not taken back."""
        taken = dict.fromkeys(self.taken())
        for name in programs:
            if name.endswith(REVERT):
                taken.pop(base(name), None)
            else:
                taken[base(name)] = None
        self._store.set_fact(STEPS_TAKEN, tuple(taken))

    def names(self) -> list[str]:
        """Return all that may run when packages are in place, whatever lies behind this minion."""
        taken = self.taken()
        matches = filter(None, map(_NAME.fullmatch, self._places()))
        return sorted(
            match[0]
            for match in matches
            if not match[2] or (match[2] == REVERT and base(match[0]) in taken)
        )

    def _places(self) -> dict[str, str]:
        """Return the directories that the programs are in, by their names."""
        local = dict.fromkeys(_names(self._directory), self._directory)
        return {**dict.fromkeys(self._known(), self._fetched), **local}

    def _between(self, before: str, after: str, kind: str) -> list[Step]:
        """Return the programs of a kind between two versions, in the order of these and names."""
        found = []
        for name, place in self._places().items():
            match = _NAME.fullmatch(name)
            if match is None or (match[2] or "") != kind:
                continue
            if _sorted_by(before) < _sorted_by(match[1]) <= _sorted_by(after):
                found.append((_sorted_by(match[1]), Step(name, os.path.join(place, name))))
        return [step for _, step in sorted(found)]

    def versions(self, old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str]:
        """Return the version whose steps this minion has been through, and the one to come."""
        before, after = of_salt(old, new)
        since = self._store.fact(STEPS_SINCE)
        if since and _sorted_by(since) < _sorted_by(before):
            before = since
        return before, after

    def been_through(self, version: str) -> None:
        """Note that nothing is left to be done for this version."""
        if version:
            self._store.set_fact(STEPS_SINCE, version)

    def keep(self, paths: Iterable[str]) -> None:
        """
        Copy the steps among these files, instead of all that were fetched before.

        Programs that take back the steps of an update that has begun stay, unless one of these
        replaces them.
        """
        given = {os.path.basename(path): path for path in paths}
        wanted = self._awaited() | {n: path for n, path in given.items() if _NAME.fullmatch(n)}
        if {name: digest(path) for name, path in wanted.items()} == self._known() and self._same():
            return
        programs: dict[str, bytes] = {}
        for name, path in wanted.items():
            with open(path, "rb") as file:
                programs[name] = file.read()
        self._store.set_fact(_FETCHED, {})
        shutil.rmtree(self._fetched, ignore_errors=True)
        os.makedirs(self._fetched, mode=0o700)
        for name, program in programs.items():
            write_atomic(os.path.join(self._fetched, name), program, mode=0o700)
        sync_directory(self._fetched)
        found = {name: digest(os.path.join(self._fetched, name)) for name in wanted}
        self._store.set_fact(_FETCHED, found)

    def cannot_run(self, names: Iterable[str], statvfs: Statvfs = os.statvfs) -> list[Told]:
        """Return where programs are that the kernel does not run, and what to do."""
        places = self._places()
        mounted = {
            place
            for place in {places[name] for name in names if name in places}
            if statvfs(place).f_flag & os.ST_NOEXEC
        }
        return [
            (
                f"The upgrade steps of this update are in {place}, whose file system is mounted "
                "noexec: they cannot run.",
                "Mount it with exec, or set "
                f"{_SETTINGS[place == self._fetched]} to a directory on another file system.",
            )
            for place in sorted(mounted)
        ]

    def verify(self) -> None:
        """Raise VerificationError if a fetched step is not what it was."""
        for name, wanted in self._known().items():
            path = os.path.join(self._fetched, name)
            try:
                same = digest(path) == wanted
            except OSError as err:
                raise VerificationError(f"{path} cannot be read: {err.strerror}.") from err
            if not same:
                raise VerificationError(
                    f"{path} has changed since it was fetched. It is fetched again with the next "
                    "'safeupdate.plan'."
                )

    def _awaited(self) -> dict[str, str]:
        """Return the fetched programs that take back what an update has begun, by name."""
        begun = self._store.fact(STEPS_BEGUN)
        found = self.taking_back(begun.programs) if begun else []
        # A file that has changed since is fetched again, or is gone.
        known = self._known() if self._same() else {}
        return {name: os.path.join(self._fetched, name) for name, _ in found if name in known}

    def _same(self) -> bool:
        try:
            self.verify()
        except VerificationError:
            return False
        return True

    def _known(self) -> dict[str, str]:
        """Return the digests of the steps that were fetched, by their names."""
        found = self._store.fact(_FETCHED) or {}
        return {name: value for name, value in found.items() if _NAME.fullmatch(name)}


def base(name: str) -> str:
    """Return the name of the step that a program belongs to."""
    return name.removesuffix(BEFORE).removesuffix(REVERT)


def of_salt(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[str, str]:
    """Return the versions of Salt before and after; empty if no own package is named so."""
    known = [name for name in sorted(new) if name in old and not name.startswith("saltext")]
    names = [name for name in known if "salt" in name]
    return (old[names[0]], new[names[0]]) if names else ("", "")


def _names(directory: str) -> list[str]:
    """Return the programs there; whatever else is in a host's own directory is no step."""
    try:
        paths = {name: os.path.join(directory, name) for name in os.listdir(directory)}
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name, path in paths.items() if _is_program(path)]


def _is_program(path: str) -> bool:
    # A directory is executable, too.
    # On a file system that is mounted noexec, nobody may execute it; it is a step nevertheless.
    return os.path.isfile(path) and bool(os.stat(path).st_mode & 0o111)


def _sorted_by(version: str) -> list[tuple[bool, int, str]]:
    """Leave the epoch out: the name of a step has none."""
    return versions.key(version)[1]
