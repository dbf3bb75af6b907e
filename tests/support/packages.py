"""A package database in one file, for a fake execution module and a fake package manager."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from saltext_safeupdate.core.errors import (
    CommandError,
    InputError,
    SafeUpdateError,
    VerificationError,
)
from saltext_safeupdate.core.packages.choice import choose, on_offer
from saltext_safeupdate.core.packages.request import Action, Change, File

KEEP = "FAKE_PACKAGES_KEEP"


class Unavailable(Exception):
    """No such package, or not in that version."""


class Database:
    """
    What is installed, and what can be: ``{name: {version: {dependency: version or None}}}``.

    The last version of a package is its newest. ``journal`` lists what happened, in order.
    """

    def __init__(self, path):
        self.path = Path(path)

    def create(self, installed, available):
        self._save(
            {
                "installed": dict(installed),
                "available": available,
                "downloaded": {},
                "locked": [],
                "broken": {},
                "half": [],
                # Files that go with the removal of any package.
                "takes": [],
            }
        )
        return self

    @property
    def journal_path(self):
        return self.path.with_suffix(".journal")

    def note(self, *words):
        with open(self.journal_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(words) + "\n")

    def journal(self):
        if not self.journal_path.exists():
            return []
        return [tuple(json.loads(line)) for line in self.journal_path.read_text().splitlines()]

    def load(self):
        return json.loads(self.path.read_text())

    def _save(self, data):
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(data))
        part.replace(self.path)

    def update(self, **changes):
        self._save({**self.load(), **changes})

    @property
    def installed(self):
        return self.load()["installed"]

    def newest(self, name):
        versions = list(self.load()["available"].get(name, {}))
        return versions[-1] if versions else ""

    def plan(self, action, targets=(), keep=()):
        """Return {name: (old, new)} for what the request comes to."""
        data = self.load()
        installed, available = data["installed"], data["available"]
        changes = {}

        def install(name, version):
            known = available.get(name, {})
            version = version or (list(known)[-1] if known else None)
            if version is None and name in installed:
                return
            if version not in known:
                raise Unavailable(f"Unable to locate package {name} {version or ''}".strip())
            if changes.get(name, (None, installed.get(name)))[1] == version:
                return
            if name in keep:
                raise Unavailable(f"{name} is kept back")
            changes[name] = (installed.get(name, ""), version)
            for dependency, wanted in known[version].items():
                has = changes.get(dependency, (None, installed.get(dependency)))[1]
                if has is None or (wanted is not None and has != wanted):
                    install(dependency, wanted)

        def remove(name):
            if name not in installed or name in changes:
                return
            changes[name] = (installed[name], "")
            for other, version in installed.items():
                if name in available.get(other, {}).get(version, {}):
                    remove(other)

        if action is Action.INSTALL:
            for name, version in targets:
                install(name, version)
        elif action in (Action.REMOVE, Action.PURGE):
            for name, _ in targets:
                remove(name)
        elif action is Action.UPGRADE:
            chosen = {name for name, _ in targets} or set(installed)
            for name in sorted(chosen & set(installed)):
                before = dict(changes)
                try:
                    install(name, None)
                except Unavailable:
                    changes.clear()
                    changes.update(before)
        return changes

    def apply(self, what, changes):
        """Carry a plan out, and write it down; a broken package stops it before anything."""
        data = self.load()
        for name in changes:
            if name in data["broken"]:
                self.note(what, "failed", name)
                if name in data["half"]:
                    data["installed"][name] = changes[name][1]
                    self._save(data)
                raise Unavailable(data["broken"][name])
        for name, (_, new) in changes.items():
            if new:
                data["installed"][name] = new
            else:
                data["installed"].pop(name)
                for path in data["takes"]:
                    Path(path).unlink(missing_ok=True)
        self._save(data)
        if changes:
            self.note(what, *sorted(changes))


class FakeManager:
    """
    The package manager as the core sees it, on a Database.

    Its package files contain their name and version. ``online`` is whether its repository
    answers, ``policy`` what :meth:`signature_policy` says.
    """

    name = "fake"
    snapshots = None
    write_ahead = True
    marks = ()

    def __init__(self, database, *, can_keep=True, online=True, policy=None):
        self.database = database
        self.can_keep = can_keep
        self.online = online
        self.policy = policy
        self.simulated = []

    def owners(self, paths):
        return set()

    def unowned(self, paths):
        return set(paths)

    def siblings(self, packages):
        return set(packages)

    def installed(self, packages):
        installed = self.database.installed
        return {name: installed[name] for name in packages if name in installed}

    def running(self, packages):
        return self.installed(packages)

    def simulate(self, request):
        self.simulated.append(request)
        targets = list(request.targets)
        for path in request.files:
            name, _, version = os.path.basename(path).removesuffix(".deb").partition("_")
            targets.append((name, version))
        try:
            plan = self.database.plan(request.action, targets)
        except Unavailable as err:
            raise CommandError(("fake-simulate",), "exit status 100", stderr=str(err)) from err
        return {name: Change(old, new) for name, (old, new) in plan.items()}

    def candidates(self, packages):
        available = self.database.load()["available"]
        return {name: list(reversed(available.get(name, {}))) for name in sorted(packages)}

    def targets(self, packages, version):
        offers = self.candidates(packages)
        installed = self.installed(packages)
        if version is not None:
            return choose(version, offers, installed)
        chosen = {name: [*offered, installed.get(name, "")][0] for name, offered in offers.items()}
        if not all(chosen.values()):
            raise InputError(f"not every package is on offer; {on_offer(offers)}")
        return chosen

    def refresh(self):
        self._connect()
        self.database.note("refresh")

    def download(self, targets, directory):
        self._connect()
        try:
            plan = self.database.plan(Action.INSTALL, targets.items())
        except Unavailable as err:
            raise CommandError(("fake-download",), "exit status 100", stderr=str(err)) from err
        return [self._file(name, new, directory) for name, (_, new) in plan.items()]

    def take(self, paths, directory):
        named = [os.path.basename(path).removesuffix(".deb").partition("_") for path in paths]
        plan = self.database.plan(Action.INSTALL, [(each[0], each[2]) for each in named])
        return [self._file(name, new, directory) for name, (_, new) in plan.items()]

    def verify(self, files):
        for file in files:
            if not os.path.exists(file.path) or _digest(file.path) != file.sha256:
                raise VerificationError(f"{file.path} is not the file that was recorded")

    def install(self, files):
        self.verify(files)
        installed = self.database.installed
        changes = {
            file.package: (installed.get(file.package, ""), file.version)
            for file in files
            if installed.get(file.package) != file.version
        }
        try:
            self.database.apply("install", changes)
        except Unavailable as err:
            raise CommandError(("fake-install",), "exit status 1", stderr=str(err)) from err

    def secure(self, packages, directory):
        self._connect()
        installed = self.installed(packages)
        missing = sorted(set(packages) - set(installed))
        if missing:
            raise SafeUpdateError(f"{', '.join(missing)} is not installed")
        return [self._file(name, version, directory) for name, version in installed.items()]

    def secure_ahead(self, packages, directory):
        return None

    def needs_to_secure(self, packages):
        return 1_000_000 * len(self.installed(packages))

    def version_locked(self, packages):
        return set(packages) & set(self.database.load()["locked"])

    def lock_versions(self, packages, locked):
        now = set(self.database.load()["locked"])
        self.database.update(locked=sorted(now | set(packages) if locked else now - set(packages)))

    def signature_policy(self):
        return self.policy

    def needs(self, what):
        return 1_000_000 * len(what)

    def unfinished(self, packages):
        return []

    def busy(self):
        return False

    def repair(self, packages):
        return None

    def stamp(self):
        return (self.database.path.stat().st_mtime_ns,)

    def without(self, packages, directory):
        return {KEEP: ",".join(packages)} if self.can_keep else None

    def _connect(self):
        if not self.online:
            raise CommandError(("fake-fetch",), "exit status 100", stderr="no route to host")

    def _file(self, name, version, directory):
        path = os.path.join(directory, f"{name}_{version}.deb")
        Path(path).write_text(f"{name} {version}")
        return File(name, version, path, _digest(path))


def _digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
