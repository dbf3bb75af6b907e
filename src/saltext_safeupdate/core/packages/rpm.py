"""The common part of all front ends of rpm."""

from __future__ import annotations

import glob
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import CommandError, InputError, SafeUpdateError, VerificationError
from ..host.command import Run
from . import busy
from .choice import choose, on_offer
from .files import store_file, take_files, verify_files, writing_packages
from .manager import Snapshots
from .request import Action, Change, File, Request
from .rpm_files import is_altered, remove_strays
from .rpm_output import parse_bonds, parse_instances
from .secured import from_cache, secure_installed
from .siblings import closure

_QUERY_TIMEOUT = 60.0
_INSTALL_TIMEOUT = 1800.0
_REPAIR_TIMEOUT = 600.0
UPGRADE = ("rpm", "--upgrade", "--oldpackage", "--replacepkgs")
_DATABASES = ("/usr/lib/sysimage/rpm", "/var/lib/rpm")
# Files of the scriptlets of Salt's own packages, while they are installed.
_MARKS = tuple(
    f"/tmp/.salt-minion-{name}"  # noqa: S108 (the scriptlets chose the directory)
    for name in (
        "self-upgrade",
        "upgrade-ownership",
        "upgrade-ownership.done",
        "upgrade-was-active",
    )
)
_LOCK_FILES = (
    "/var/lib/rpm/.rpm.lock",
    "/usr/lib/sysimage/rpm/.rpm.lock",
    "/run/dnf/rpmtransaction.lock",
)
_PID_FILES = (
    "/run/zypp.pid",
    "/run/yum.pid",
    "/var/cache/dnf/download_lock.pid",
    "/var/lib/dnf/rpmdb_lock.pid",
)


def operands(program: str, names: Sequence[str]) -> tuple[str, ...]:
    """
    Return the words that a front end takes for names of packages, whatever they are.

    Raise CommandError for a name that dnf 4 takes for an option even behind ``--``.
    """
    for name in names:
        if name.startswith("-"):
            raise CommandError((program,), f"{name} is not the name of a package")
    return ("--", *names) if names else ()


class Rpm(ABC):
    """
    A package manager that installs with rpm.

    Its front end chooses versions, checks signatures and fetches; rpm alone installs.
    """

    name: str
    caches: Sequence[str]
    snapshots: Snapshots | None = None
    write_ahead = False
    marks: Sequence[str] = _MARKS

    def __init__(self, run: Run) -> None:
        self._run = run

    @abstractmethod
    def plan(self, request: Request, *, locked: bool = True) -> dict[str, Change]:
        """Return what the request would change; unless *locked*, version locks do not count."""

    @abstractmethod
    def fetch(self, versions: Mapping[str, str], directory: str, *, again: bool = False) -> None:
        """Put package files somewhere below *directory*; *again*: of what is installed."""

    @abstractmethod
    def candidates(self, packages: Iterable[str]) -> dict[str, list[str]]: ...

    @abstractmethod
    def version_locked(self, packages: Iterable[str]) -> set[str]: ...

    @abstractmethod
    def lock_versions(self, packages: Iterable[str], locked: bool) -> None: ...

    def follow_locks(self, packages: Sequence[str]) -> None:  # noqa: B027 (names need nothing)
        """Make version locks name the version that is installed now."""

    @abstractmethod
    def size(self, targets: Mapping[str, str]) -> int:
        """Return the bytes to download and to install."""

    def owners(self, paths: Iterable[str]) -> set[str]:
        found = set()
        for path in paths:
            result = self._run(
                ("rpm", "-q", "--qf", r"%{NAME}\n", "-f", "--", path),
                timeout=_QUERY_TIMEOUT,
                ok=None,
            )
            if result.returncode == 0:
                found.update(result.stdout.split())
        return found

    def unowned(self, paths: Iterable[str]) -> set[str]:
        return {path for path in paths if not self.owners([path])}

    def siblings(self, packages: Iterable[str]) -> set[str]:
        result = self._run(
            (
                "rpm",
                "-qa",
                "--qf",
                r"[%{=NAME}\t%{=VERSION}-%{=RELEASE}\t%{REQUIRENAME}\t"
                r"%{REQUIREFLAGS:depflags}\t%{REQUIREVERSION}\n]",
            ),
            timeout=_QUERY_TIMEOUT,
        )
        return closure(parse_bonds(result.stdout), packages)

    def installed(self, packages: Iterable[str]) -> dict[str, str]:
        return self._versions(packages)

    def running(self, packages: Iterable[str]) -> dict[str, str]:
        return self._versions(packages)

    def _versions(self, packages: Iterable[str], root: str | None = None) -> dict[str, str]:
        """Return the versions in this system, or in the one below *root*."""
        names = sorted(set(packages))
        if not names:
            return {}
        where = ("--root", root) if root else ()
        result = self._run(
            ("rpm", *where, "-q", "--qf", r"%{NAME}\t%{VERSION}-%{RELEASE}\n", "--", *names),
            timeout=_QUERY_TIMEOUT,
            ok=None,
        )
        rows = (line.split("\t") for line in result.stdout.splitlines() if "\t" in line)
        return dict(row for row in rows if len(row) == 2)

    def simulate(self, request: Request) -> dict[str, Change]:
        return self._simulate_files(request) if request.files else self.plan(request)

    def _simulate_files(self, request: Request) -> dict[str, Change]:
        new = dict(self._show(path) for path in request.files)
        old = self.installed(new)
        return {name: Change(old.get(name, ""), version) for name, version in new.items()}

    def _show(self, path: str) -> tuple[str, str]:
        result = self._run(
            ("rpm", "-qp", "--nosignature", "--qf", r"%{NAME}\t%{VERSION}-%{RELEASE}", "--", path),
            timeout=_QUERY_TIMEOUT,
        )
        name, _, version = result.stdout.partition("\t")
        return name, version

    def targets(self, packages: Iterable[str], version: str | None) -> dict[str, str]:
        offers = self.candidates(packages)
        installed = self.installed(offers)
        if version is not None:
            return choose(version, offers, installed)
        missing = sorted(name for name in offers if not offers[name] and name not in installed)
        if missing:
            raise InputError(
                f"{', '.join(missing)} is not on offer; {on_offer(offers)}. Nothing was changed: "
                "add a repository that has it"
            )
        return {name: [*offered, installed.get(name, "")][0] for name, offered in offers.items()}

    def download(self, targets: Mapping[str, str], directory: str) -> list[File]:
        installed = self.installed(targets)
        changed = {n: version for n, version in targets.items() if installed.get(n) != version}
        if not changed:
            return []
        request = Request(action=Action.INSTALL, targets=tuple(changed.items()))
        plan = self.plan(request, locked=False)
        removed = sorted(name for name, change in plan.items() if not change.new)
        if removed:
            raise SafeUpdateError(
                f"the update would remove {', '.join(removed)}. Nothing was changed: choose "
                "another version, or remove it first"
            )
        with writing_packages(directory):
            return self._fetched(changed, directory)

    def _fetched(
        self, versions: Mapping[str, str], directory: str, *, again: bool = False
    ) -> list[File]:
        """Have the front end check and fetch package files; move complete ones to *directory*."""
        with tempfile.TemporaryDirectory(prefix=".download-", dir=directory) as scratch:
            self.fetch(versions, scratch, again=again)
            paths = sorted(str(path) for path in Path(scratch).rglob("*.rpm"))
            found = {self._show(path): path for path in paths}
            missing = sorted(set(versions.items()) - set(found))
            if missing:
                raise VerificationError(
                    f"{self.name} has not downloaded {missing[0][0]} {missing[0][1]}. Nothing was "
                    "changed: refresh its index and try again"
                )
            return [store_file(path, directory, *item) for item, path in found.items()]

    def take(self, paths: Iterable[str], directory: str) -> list[File]:
        files = take_files(paths, directory, self._show)
        if files:
            # A front end would fetch what they need beyond that.
            test = (*UPGRADE, "--test", "--", *(file.path for file in files))
            self._run(test, timeout=_QUERY_TIMEOUT)
        return files

    def verify(self, files: Sequence[File]) -> None:
        verify_files(files, self._show)

    def install(self, files: Sequence[File]) -> None:
        """
        Install with rpm alone: it needs no network, no index, and no front end.

        A package looks installed also if rpm was killed while it unpacked it. Only the files
        tell whether it is.
        """
        self.verify(files)
        names = [file.package for file in files]
        if not self.busy():
            remove_strays(files, self._run)
        self._install(files, names)
        self.follow_locks(names)

    def _install(self, files: Sequence[File], names: Sequence[str]) -> None:
        finished = self.installed(names)
        for name in self.unfinished(names):
            finished.pop(name, None)
        todo = [
            file
            for file in files
            if finished.get(file.package) != file.version or is_altered(file.package, self._run)
        ]
        if not todo:
            return
        argv = (*UPGRADE, *(file.path for file in todo))
        result = self._run(argv, timeout=_INSTALL_TIMEOUT, ok=None)
        now = self.installed(names)
        if result.returncode or any(now.get(file.package) != file.version for file in todo):
            raise CommandError(
                argv,
                f"exit status {result.returncode}",
                stdout=result.stdout,
                stderr=result.stderr,
                returncode=result.returncode,
            )

    def secure(self, packages: Sequence[str], directory: str) -> list[File]:
        return secure_installed(packages, self.installed(packages), directory, self._copy)

    def secure_ahead(self, packages: Sequence[str], directory: str) -> None:
        self.secure(packages, directory)
        self.caches = (*self.caches, directory)

    def needs_to_secure(self, packages: Sequence[str]) -> int:
        names = sorted(self.installed(packages))
        if not names or self.snapshots is not None:
            return 0
        # The size of its package file, or of its files if rpm does not know that any more.
        argv = ("rpm", "-q", "--qf", r"%{LONGSIGSIZE} %{LONGSIZE}\n", "--", *names)
        rows = map(str.split, self._run(argv, timeout=_QUERY_TIMEOUT).stdout.splitlines())
        return sum(int(packed if packed.isdigit() else files) for packed, files in rows)

    def _copy(self, name: str, version: str, directory: str) -> File:
        cached = self._from_cache(name, version, directory)
        if cached is not None:
            return cached
        try:
            return self._fetched({name: version}, directory, again=True)[0]
        except (CommandError, VerificationError) as err:
            raise SafeUpdateError(
                f"no copy of {name} {version} can be had: no cache and no repository has it, and "
                "rpm packages cannot be built from what is installed. Nothing was changed: "
                f"have a repository offer this version ({err})"
            ) from err

    def _from_cache(self, name: str, version: str, directory: str) -> File | None:
        pattern = f"{glob.escape(f'{name}-{version}')}.*.rpm"
        paths = (str(path) for cache in self.caches for path in sorted(Path(cache).rglob(pattern)))
        return from_cache(paths, name, version, directory, self._intact)

    def _intact(self, path: str, name: str, version: str) -> bool:
        """Tell whether a file is this package, and complete."""
        try:
            self._run(
                ("rpmkeys", "--checksig", "--nosignature", "--", path), timeout=_QUERY_TIMEOUT
            )
            return self._show(path) == (name, version)
        except CommandError:
            return False

    def needs(self, what: Mapping[str, str] | Sequence[File]) -> int:
        if isinstance(what, Mapping):
            return self.size(what) if what else 0
        paths = [file.path for file in what]
        argv = ("rpm", "-qp", "--nosignature", "--qf", r"%{LONGSIZE}\n", "--", *paths)
        sizes = self._run(argv, timeout=_QUERY_TIMEOUT).stdout.split() if paths else []
        return sum(map(int, sizes)) + sum(map(os.path.getsize, paths))

    def unfinished(self, packages: Iterable[str]) -> list[str]:
        """Return the packages that an interrupted transaction left in two versions."""
        return sorted({package.rpartition(".")[0] for package in self._instances(packages)})

    def busy(self) -> bool:
        return busy.lock_taken(_LOCK_FILES) or busy.process_runs(_PID_FILES)

    def repair(self, packages: Iterable[str]) -> None:
        """Remove the older version, as the transaction would have done next."""
        for package, versions in self._instances(packages).items():
            name, _, architecture = package.rpartition(".")
            for version in versions[:-1]:
                self._run(
                    ("rpm", "-e", "--nodeps", "--", f"{name}-{version}.{architecture}"),
                    timeout=_REPAIR_TIMEOUT,
                )

    def _instances(self, packages: Iterable[str]) -> dict[str, list[str]]:
        """Return what is installed more than once: name.architecture, and its versions by age."""
        names = sorted(set(packages))
        if not names:
            return {}
        result = self._run(
            (
                "rpm",
                "-q",
                "--qf",
                r"%{NAME}.%{ARCH}\t%{VERSION}-%{RELEASE}\t%{INSTALLTIME}\n",
                "--",
                *names,
            ),
            timeout=_QUERY_TIMEOUT,
            ok=None,
        )
        return parse_instances(result.stdout)

    def stamp(self) -> tuple[int, ...]:
        parts = []
        for directory in _DATABASES:
            if os.path.isdir(directory):
                for entry in sorted(os.listdir(directory)):
                    stat = os.stat(os.path.join(directory, entry))
                    parts += [stat.st_mtime_ns, stat.st_size]
        return tuple(parts)

    def without(self, packages: Sequence[str], directory: str) -> Mapping[str, str] | None:
        return None
