"""rpm, whatever is in front of it."""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import stat
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ..errors import CommandError, InputError, SafeUpdateError, VerificationError
from ..host.command import Run
from . import busy
from .choice import choose, on_offer
from .files import check, digest, keep, writing
from .manager import Snapshots
from .request import Action, Change, File, Request
from .siblings import closure

log = logging.getLogger(__name__)

_QUERY_TIMEOUT = 60.0
_INSTALL_TIMEOUT = 1800.0
_REPAIR_TIMEOUT = 600.0
UPGRADE = ("rpm", "--upgrade", "--oldpackage", "--replacepkgs")
_DATABASES = ("/usr/lib/sysimage/rpm", "/var/lib/rpm")
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
# What rpm writes a file to until all of its package is there.
_STRAY = re.compile(r";[0-9a-f]{8}$")
# What it knows of each file of a package: lines for :func:`altered`.
_FILES = r"[%{FILESTATES}\t%{FILEFLAGS}\t%{=FILEDIGESTALGO}\t%{FILEDIGESTS}\t%{FILENAMES}\n]"
_TABS = 4
_NORMAL = "0"
# Configuration, and what a package owns but does not bring.
_MAY_DIFFER = 1 | 64
# RPM's numbers; the oldest is what it means where it names none.
_DIGESTS = {"(none)": "md5", "1": "md5", "2": "sha1", "8": "sha256", "9": "sha384", "10": "sha512"}


class Rpm(ABC):
    """
    What Fedora, SUSE and their relatives have in common.

    The front end chooses, checks signatures and fetches; rpm alone installs.
    """

    name: str
    caches: Sequence[str]
    snapshots: Snapshots | None = None
    write_ahead = False

    def __init__(self, run: Run) -> None:
        self._run = run

    @abstractmethod
    def plan(self, request: Request, *, locked: bool = True) -> dict[str, Change]:
        """Return what the request would change; unless *locked*, held packages too."""

    @abstractmethod
    def fetch(self, versions: Mapping[str, str], directory: str, *, again: bool = False) -> None:
        """Put package files somewhere below *directory*; *again*: of what is installed."""

    @abstractmethod
    def candidates(self, packages: Iterable[str]) -> dict[str, list[str]]: ...

    @abstractmethod
    def held(self, packages: Iterable[str]) -> set[str]: ...

    @abstractmethod
    def hold(self, packages: Iterable[str], held: bool) -> None: ...

    def follow_locks(self, packages: Sequence[str]) -> None:  # noqa: B027 (names need nothing)
        """Have locks of a version be of the one that is installed now."""

    @abstractmethod
    def size(self, targets: Mapping[str, str]) -> int:
        """Return the bytes to download and to install."""

    def owners(self, paths: Iterable[str]) -> set[str]:
        found = set()
        for path in paths:
            result = self._run(
                ("rpm", "-q", "--qf", r"%{NAME}\n", "-f", path), timeout=_QUERY_TIMEOUT, ok=None
            )
            if result.returncode == 0:
                found.update(result.stdout.split())
        return found

    def unowned(self, paths: Iterable[str]) -> set[str]:
        return {path for path in paths if not self.owners([path])}

    def locked_siblings(self, packages: Iterable[str]) -> set[str]:
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
        return closure(parse_locks(result.stdout), packages)

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
            ("rpm", *where, "-q", "--qf", r"%{NAME}\t%{VERSION}-%{RELEASE}\n", *names),
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
            ("rpm", "-qp", "--nosignature", "--qf", r"%{NAME}\t%{VERSION}-%{RELEASE}", path),
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
        with writing(directory):
            return self._kept(changed, directory)

    def _kept(
        self, versions: Mapping[str, str], directory: str, *, again: bool = False
    ) -> list[File]:
        """Have the front end check and fetch package files; in *directory* they are whole."""
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
            return [keep(path, directory, *item) for item, path in found.items()]

    def verify(self, files: Sequence[File]) -> None:
        check(files, self._show)

    def install(self, files: Sequence[File]) -> None:
        """
        Let rpm do it: it needs no network, no index, and no front end.

        What it was killed in the middle of looks installed; whether it is, the files tell.
        """
        self.verify(files)
        names = [file.package for file in files]
        if not self.busy():
            self._sweep(files)
        self._install(files, names)
        self.follow_locks(names)

    def _install(self, files: Sequence[File], names: Sequence[str]) -> None:
        finished = self.installed(names)
        for name in self.unfinished(names):
            finished.pop(name, None)
        todo = [
            file
            for file in files
            if finished.get(file.package) != file.version or self._altered(file.package)
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

    def _sweep(self, files: Sequence[File]) -> None:
        """
        Remove the files that rpm had not given their names yet when it was killed.

        In the same second, the next rpm would give its own the same names, and fail.
        """
        installed = self._list(*(file.package for file in files))
        offered = self._list("--nosignature", "--package", *(file.path for file in files))
        strays = sorted(_strays(installed | offered))
        for path in strays:
            os.unlink(path)
        if strays:
            log.info("removed %d files that rpm has left behind", len(strays))

    def _list(self, *words: str) -> set[str]:
        """
        Return the paths of packages, but no file below a directory that is among them.

        Packages that are not installed have none.
        """
        folders = set()

        def keep(line: str) -> bool:
            path = line.rstrip("\n")
            if _folder(path):
                folders.add(path)
                return True
            return path.startswith("/") and os.path.dirname(path) not in folders

        argv = ("rpm", "-q", "--list", *words)
        return set(self._run(argv, timeout=_QUERY_TIMEOUT, ok=None, keep=keep).stdout.splitlines())

    def _altered(self, name: str) -> bool:
        """
        Tell whether files of a package are not as packaged; its configuration may differ.

        rpm itself would look up each file that is not in all of its database: for the many of
        another version of Salt that takes minutes.
        """
        argv = ("rpm", "-q", "--qf", _FILES, name)
        return bool(self._run(argv, timeout=_QUERY_TIMEOUT, keep=altered).stdout)

    def secure(self, packages: Sequence[str], directory: str) -> list[File]:
        versions = self.installed(packages)
        missing = sorted(set(packages) - set(versions))
        if missing:
            raise SafeUpdateError(
                f"{', '.join(missing)} is not installed, so there is nothing to keep a copy of"
            )
        with writing(directory):
            return [self._copy(name, version, directory) for name, version in versions.items()]

    def _copy(self, name: str, version: str, directory: str) -> File:
        cached = self._from_cache(name, version, directory)
        if cached is not None:
            return cached
        try:
            return self._kept({name: version}, directory, again=True)[0]
        except (CommandError, VerificationError) as err:
            raise SafeUpdateError(
                f"no copy of {name} {version} can be had: no cache and no repository has it, and "
                "rpm packages cannot be made again from what is installed. Nothing was changed: "
                f"have a repository offer this version ({err})"
            ) from err

    def _from_cache(self, name: str, version: str, directory: str) -> File | None:
        for cache in self.caches:
            for path in sorted(Path(cache).rglob(f"{glob.escape(f'{name}-{version}')}.*.rpm")):
                with tempfile.TemporaryDirectory(prefix=".copy-", dir=directory) as scratch:
                    copy = shutil.copy(path, scratch)
                    if self._whole(copy, name, version):
                        return keep(copy, directory, name, version)
        return None

    def _whole(self, path: str, name: str, version: str) -> bool:
        """Tell whether a file is the package that is installed, and intact."""
        try:
            self._run(("rpmkeys", "--checksig", "--nosignature", path), timeout=_QUERY_TIMEOUT)
            return self._show(path) == (name, version)
        except CommandError:
            return False

    def needs(self, what: Mapping[str, str] | Sequence[File]) -> int:
        if isinstance(what, Mapping):
            return self.size(what) if what else 0
        paths = [file.path for file in what]
        argv = ("rpm", "-qp", "--nosignature", "--qf", r"%{LONGSIZE}\n", *paths)
        sizes = self._run(argv, timeout=_QUERY_TIMEOUT).stdout.split() if paths else []
        return sum(map(int, sizes)) + sum(map(os.path.getsize, paths))

    def unfinished(self, packages: Iterable[str]) -> list[str]:
        """An interrupted rpm transaction leaves a package in two versions."""
        return sorted({package.rpartition(".")[0] for package in self._instances(packages)})

    def busy(self) -> bool:
        return busy.locked(_LOCK_FILES) or busy.running(_PID_FILES)

    def repair(self, packages: Iterable[str]) -> None:
        """Remove the older instance, as the transaction would have done next."""
        for package, versions in self._instances(packages).items():
            name, _, architecture = package.rpartition(".")
            for version in versions[:-1]:
                self._run(
                    ("rpm", "-e", "--nodeps", f"{name}-{version}.{architecture}"),
                    timeout=_REPAIR_TIMEOUT,
                )

    def _instances(self, packages: Iterable[str]) -> dict[str, list[str]]:
        """Return what is installed more than once, as name.architecture: versions by age."""
        names = sorted(set(packages))
        if not names:
            return {}
        result = self._run(
            (
                "rpm",
                "-q",
                "--qf",
                r"%{NAME}.%{ARCH}\t%{VERSION}-%{RELEASE}\t%{INSTALLTIME}\n",
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


def _strays(paths: set[str]) -> Iterator[str]:
    """Find the files that rpm would have given names of packages whose *paths* these are."""
    folders = set(filter(_folder, paths))
    for folder in folders:
        if os.path.dirname(folder) not in folders:
            # Also in a directory that only the version has which did not come to be.
            for path, below, names in os.walk(folder):
                links = (name for name in below if os.path.islink(os.path.join(path, name)))
                found = (name for name in (*links, *names) if _STRAY.search(name))
                yield from (os.path.join(path, name) for name in found)
    for folder in {os.path.dirname(path) for path in paths} - folders:
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            path = os.path.join(folder, name)
            if _STRAY.search(name) and _STRAY.sub("", path) in paths:
                yield path


def _folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def altered(line: str) -> bool:
    """
    Tell whether the file of this line is not there, or has other contents.

    Byte code is left out: scriptlets of Salt's packages compile it anew. So is what was never
    installed, and where somebody has put a link in the place of a file.
    """
    if line.count("\t") < _TABS:
        return False
    state, flags, algorithm, wanted, path = line.rstrip("\n").split("\t", _TABS)
    if state != _NORMAL or int(flags) & _MAY_DIFFER or path.endswith(".pyc"):
        return False
    return _differs(path, _DIGESTS.get(algorithm, ""), wanted)


def _differs(path: str, algorithm: str, wanted: str) -> bool:
    try:
        regular = stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return True
    return bool(wanted and algorithm and regular) and digest(path, algorithm) != wanted


def parse_locks(text: str) -> list[tuple[str, str]]:
    """Return the pairs (a, b) of installed packages where a needs b in exactly its version."""
    versions = {}
    needs = []
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) != 5:
            continue
        name, version, other, flags, wanted = fields
        versions[name] = version
        if "=" in flags and not set("<>") & set(flags):
            needs.append((name, other.partition("(")[0], wanted.rpartition(":")[2]))
    return [
        (name, other)
        for name, other, wanted in needs
        if other in versions and wanted in (versions[other], versions[other].rpartition("-")[0])
    ]


def parse_instances(text: str) -> dict[str, list[str]]:
    """Return the packages that are installed more than once, with their versions by age."""
    found: dict[str, list[tuple[int, str]]] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3:
            found.setdefault(fields[0], []).append((int(fields[2]), fields[1]))
    return {
        package: [version for _, version in sorted(instances, key=lambda each: each[0])]
        for package, instances in found.items()
        if len(instances) > 1
    }
