"""dpkg and apt."""

from __future__ import annotations

import glob
import logging
import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence

from ..errors import CommandError, InputError, VerificationError
from ..host.command import Run
from . import apt_pins, busy
from .apt_output import (
    parse_bonds,
    parse_download,
    parse_madison,
    parse_owned,
    parse_owners,
    parse_policy,
    parse_simulation,
    parse_sizes,
    refuse_removals,
    spellings,
)
from .apt_sources import trusting
from .choice import choose, is_series, of_series, on_offer
from .files import store_file, take_files, verify_files, writing_packages
from .manager import Snapshots
from .request import Action, Change, File, Request
from .secured import from_cache, secure_installed
from .siblings import closure

log = logging.getLogger(__name__)

_QUERY_TIMEOUT = 60.0
_SIMULATE_TIMEOUT = 300.0
_DOWNLOAD_TIMEOUT = 1800.0
_INSTALL_TIMEOUT = 1800.0
_REPAIR_TIMEOUT = 1800.0
_STATUS_FILE = "/var/lib/dpkg/status"
_PREFERENCES = "/etc/apt/preferences"
_SOURCES = ("/etc/apt/sources.list", "/etc/apt/sources.list.d")
_ARCHIVES = "/var/cache/apt/archives"
_LOCK_FILES = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
_ON = re.compile(r'^(?P<name>\S+) "(?:1|yes|true|with|on|enable)";$', re.M | re.I)
_CONFOLD = "Dpkg::Options::=--force-confold"
_SIMULATE = ("apt-get", "--simulate", "--quiet", "-o", "Debug::NoLocking=true")
_INSTALL = ("--allow-downgrades", "--allow-change-held-packages", "install", "--")
_TRY_OUT = (*_SIMULATE, *_INSTALL)
_NO_QUESTIONS = {"DEBIAN_FRONTEND": "noninteractive"}
_INSTALLED_FORMAT = r"${Package}\t${Version}\t${db:Status-Abbrev}\n"
_STATUS_FORMAT = r"${Package}\t${db:Status-Abbrev}\n"
# States of a package that dpkg has not finished: second letter of db:Status-Abbrev.
_UNFINISHED = frozenset("UFHWt")


class Apt:
    """Debian and its relatives."""

    name = "apt"
    snapshots: Snapshots | None = None
    write_ahead = True
    marks: Sequence[str] = ()

    def __init__(
        self,
        run: Run,
        status_file: str = _STATUS_FILE,
        locks: Sequence[str] = _LOCK_FILES,
        preferences: str = _PREFERENCES,
        sources: Sequence[str] = _SOURCES,
        archives: str = _ARCHIVES,
    ) -> None:
        self._run = run
        self._status_file = status_file
        self._locks = locks
        self._preferences = preferences
        self._sources = sources
        self._archives = archives

    def owners(self, paths: Iterable[str]) -> set[str]:
        asked = spellings(paths)
        if not asked:
            return set()
        result = self._run(("dpkg-query", "-S", "--", *asked), timeout=_QUERY_TIMEOUT, ok=(0, 1))
        return parse_owners(result.stdout)

    def unowned(self, paths: Iterable[str]) -> set[str]:
        wanted = set(paths)
        if not wanted:
            return set()
        argv = ("dpkg-query", "-S", "--", *spellings(wanted))
        found = parse_owned(self._run(argv, timeout=_QUERY_TIMEOUT, ok=(0, 1)).stdout)
        return {path for path in wanted if found.isdisjoint(spellings([path]))}

    def siblings(self, packages: Iterable[str]) -> set[str]:
        result = self._run(
            (
                "dpkg-query",
                "-W",
                "-f",
                r"${Package}\t${Version}\t${db:Status-Abbrev}\t${Pre-Depends}, ${Depends}\n",
            ),
            timeout=_QUERY_TIMEOUT,
        )
        return closure(parse_bonds(result.stdout), packages)

    def installed(self, packages: Iterable[str]) -> dict[str, str]:
        names = sorted(set(packages))
        if not names:
            return {}
        result = self._run(
            ("dpkg-query", "-W", "-f", _INSTALLED_FORMAT, "--", *names),
            timeout=_QUERY_TIMEOUT,
            ok=(0, 1),
        )
        found = {}
        for line in result.stdout.splitlines():
            name, version, status = line.split("\t")
            if version and status[1:2] not in ("n", "c"):
                found[name] = version
        return found

    def running(self, packages: Iterable[str]) -> dict[str, str]:
        return self.installed(packages)

    def simulate(self, request: Request) -> dict[str, Change]:
        if request.files:
            return self._simulate_files(request)
        argv = list(_SIMULATE)
        if request.release:
            argv.append(f"--target-release={request.release}")
        argv += request.options
        if request.action is Action.INSTALL:
            argv += _INSTALL
            argv += [f"{name}={version}" if version else name for name, version in request.targets]
        elif request.action is Action.UPGRADE:
            argv.append("dist-upgrade" if request.full else "upgrade")
        elif request.action is Action.AUTOREMOVE:
            argv.append("autoremove")
        else:
            argv += [request.action.value, "--", *(name for name, _ in request.targets)]
        return parse_simulation(self._run(argv, timeout=_SIMULATE_TIMEOUT).stdout)

    def _simulate_files(self, request: Request) -> dict[str, Change]:
        fields = dict(self._show(path) for path in request.files)
        old = self.installed(fields)
        return {name: Change(old.get(name, ""), new) for name, new in fields.items()}

    def _show(self, path: str) -> tuple[str, str]:
        result = self._run(
            ("dpkg-deb", "--show", "--showformat", r"${Package}\t${Version}", "--", path),
            timeout=_QUERY_TIMEOUT,
        )
        name, _, version = result.stdout.partition("\t")
        return name, version

    def candidates(self, packages: Iterable[str]) -> dict[str, list[str]]:
        names = sorted(set(packages))
        result = self._run(("apt-cache", "madison", "--", *names), timeout=_QUERY_TIMEOUT)
        return {name: parse_madison(result.stdout).get(name, []) for name in names}

    def targets(self, packages: Iterable[str], version: str | None) -> dict[str, str]:
        offers = self.candidates(packages)
        if version is not None and not is_series(version):
            return choose(version, offers, self.installed(offers))
        # The newest that the administrator's pins allow.
        result = self._run(("apt-cache", "policy", "--", *offers), timeout=_QUERY_TIMEOUT)
        newest = parse_policy(result.stdout)
        if version is not None and not all(of_series(newest.get(n, ""), version) for n in offers):
            return choose(version, offers, self.installed(offers))
        missing = sorted(set(offers) - set(newest))
        if missing:
            raise InputError(
                f"{', '.join(missing)}: apt would install no version of it; {on_offer(offers)}. "
                "Nothing was changed: add a repository that has it, or look at its pins"
            )
        return {name: newest[name] for name in offers}

    def refresh(self) -> None:
        self._run(("apt-get", "--quiet", "update"), timeout=_DOWNLOAD_TIMEOUT)

    def download(self, targets: Mapping[str, str], directory: str) -> list[File]:
        changes = self.simulate(Request(action=Action.INSTALL, targets=tuple(targets.items())))
        refuse_removals(changes)
        with writing_packages(directory):
            return self._fetch({name: change.new for name, change in changes.items()}, directory)

    def _fetch(self, versions: Mapping[str, str], directory: str) -> list[File]:
        """Have apt check and copy package files; move complete ones to *directory*."""
        if not versions:
            return []
        wanted = [f"{name}={version}" for name, version in versions.items()]
        with tempfile.TemporaryDirectory(prefix=".download-", dir=directory) as scratch:
            # This is the only command of apt that also copies from a repository on a disk.
            argv = ("env", f"--chdir={scratch}", "apt-get", "--yes", "--quiet", "download")
            # apt's own user cannot write here; apt would only warn of that.
            options = ("-o", "APT::Sandbox::User=root")
            self._run((*argv, *options, "--", *wanted), timeout=_DOWNLOAD_TIMEOUT)
            found = {self._show(path): path for path in glob.glob(f"{scratch}/*.deb")}
            missing = sorted(set(versions.items()) - set(found))
            if missing:
                raise VerificationError(
                    f"apt-get has downloaded something else than {missing[0][0]} {missing[0][1]}. "
                    "Nothing was changed: run apt-get update and try again"
                )
            return [store_file(found[item], directory, *item) for item in versions.items()]

    def take(self, paths: Iterable[str], directory: str) -> list[File]:
        files = take_files(paths, directory, self._show)
        if not files:
            return []
        result = self._run((*_TRY_OUT, *(each.path for each in files)), timeout=_SIMULATE_TIMEOUT)
        changes = parse_simulation(result.stdout)
        refuse_removals(changes)
        there = {each.package for each in files}
        rest = {name: change.new for name, change in changes.items() if name not in there}
        with writing_packages(directory):
            return [*files, *self._fetch(rest, directory)]

    def verify(self, files: Sequence[File]) -> None:
        verify_files(files, self._show)

    def install(self, files: Sequence[File]) -> None:
        """
        Install with dpkg alone: it needs no network, no index, and no other packages.

        dpkg continues also after it was killed. apt's own hooks, which restart services or ask
        questions, do not run.
        """
        self.verify(files)
        names = [file.package for file in files]
        finished = self.installed(names)
        left = self.unfinished(names)
        for name in left:
            finished.pop(name, None)
        todo = [file for file in files if finished.get(file.package) != file.version]
        if not todo:
            return
        locked = self.version_locked(names)
        try:
            self._run(
                (
                    "dpkg",
                    "--force-confold",
                    "--auto-deconfigure",
                    "--install",
                    "--",
                    *(file.path for file in todo),
                ),
                timeout=_INSTALL_TIMEOUT,
                env=_NO_QUESTIONS,
            )
            if left:
                # The dpkg that was killed has triggered packages that this one has not.
                pending = ("dpkg", "--force-confold", "--triggers-only", "--pending")
                self._run(pending, timeout=_REPAIR_TIMEOUT, env=_NO_QUESTIONS, ok=None)
        finally:
            # dpkg forgets the version locks of the packages that it installs.
            self.lock_versions(locked, True)

    def secure(self, packages: Sequence[str], directory: str) -> list[File]:
        return secure_installed(packages, self.installed(packages), directory, self._copy)

    def secure_ahead(self, packages: Sequence[str], directory: str) -> None:
        """Do nothing: what is installed can be packed again at any time."""

    def needs_to_secure(self, packages: Sequence[str]) -> int:
        return sum(self._size_of_copy(*each) for each in sorted(self.installed(packages).items()))

    def _size_of_copy(self, name: str, version: str) -> int:
        cached = glob.glob(self._in_cache(name, version))
        if cached:
            return max(map(os.path.getsize, cached))
        argv = ("apt-cache", "show", "--no-all-versions", "--", f"{name}={version}")
        shown = self._run(argv, timeout=_QUERY_TIMEOUT, ok=None).stdout
        # If no repository has a package, only its files count: it is packed again, little smaller.
        return parse_download(shown) or self._size_of_files(name)

    def _size_of_files(self, name: str) -> int:
        argv = ("dpkg-query", "-W", "-f", r"${Installed-Size}\n", "--", name)
        return 1024 * sum(map(int, self._run(argv, timeout=_QUERY_TIMEOUT).stdout.split()))

    def _copy(self, name: str, version: str, directory: str) -> File:
        return (
            self._from_cache(name, version, directory)
            or self._from_repository(name, version, directory)
            or self._repacked(name, version, directory)
        )

    def _from_cache(self, name: str, version: str, directory: str) -> File | None:
        paths = glob.glob(self._in_cache(name, version))
        return from_cache(paths, name, version, directory, self._intact)

    def _in_cache(self, name: str, version: str) -> str:
        pattern = f"{glob.escape(name)}_{glob.escape(version.replace(':', '%3a'))}_*.deb"
        return os.path.join(self._archives, pattern)

    def _intact(self, path: str, name: str, version: str) -> bool:
        """Tell whether a file is this package, and complete: dpkg-deb reads all of it."""
        try:
            self._run(("dpkg-deb", "--contents", "--", path), timeout=_QUERY_TIMEOUT, keep=_drop)
            return self._show(path) == (name, version)
        except CommandError:
            return False

    def _from_repository(self, name: str, version: str, directory: str) -> File | None:
        try:
            return self._fetch({name: version}, directory)[0]
        except CommandError as err:
            log.info("%s %s cannot be downloaded, it is packed again: %s", name, version, err)
            return None

    def _repacked(self, name: str, version: str, directory: str) -> File:
        with tempfile.TemporaryDirectory(prefix=".repack-", dir=directory) as scratch:
            path = os.path.join(scratch, f"{name}_{version.replace(':', '%3a')}.repacked.deb")
            # Imported here because few updates need what it imports to write an archive.
            from .repack import repack

            repack(self._run, name, path)
            return store_file(path, directory, name, version)

    def version_locked(self, packages: Iterable[str]) -> set[str]:
        return {name for name, status in self._statuses(packages) if status[:1] == "h"}

    def lock_versions(self, packages: Iterable[str], locked: bool) -> None:
        now = self.version_locked(packages)
        changed = sorted(set(packages) - now if locked else now)
        if changed:
            # apt-mark overlooks what a killed dpkg has left in its journal.
            word = "hold" if locked else "install"
            self._run(
                ("dpkg", "--set-selections"),
                timeout=_QUERY_TIMEOUT,
                stdin="".join(f"{name} {word}\n" for name in changed),
            )

    def signature_policy(self) -> str | None:
        names = ("APT::Get::AllowUnauthenticated", "Acquire::AllowInsecureRepositories")
        dump = self._run(("apt-config", "dump", *names), timeout=_QUERY_TIMEOUT).stdout
        allowed = [match["name"] for match in _ON.finditer(dump)]
        if allowed:
            return f"apt installs packages without a signature: {allowed[0]} is set"
        path = trusting(*self._sources)
        if path is not None:
            return f"apt trusts a repository without a signature: trusted=yes in {path}"
        return None

    def needs(self, what: Mapping[str, str] | Sequence[File]) -> int:
        if isinstance(what, Mapping):
            request = Request(action=Action.INSTALL, targets=tuple(what.items()))
            new = {n: change.new for n, change in self.simulate(request).items() if change.new}
            if not new:
                return 0
            words = [f"{name}={version}" for name, version in new.items()]
            argv = ("apt-cache", "show", "--no-all-versions", "--", *words)
            return parse_sizes(self._run(argv, timeout=_QUERY_TIMEOUT).stdout)
        total = 0
        for file in what:
            argv = ("dpkg-deb", "--field", "--", file.path, "Installed-Size")
            size = self._run(argv, timeout=_QUERY_TIMEOUT).stdout.strip()
            total += os.path.getsize(file.path) + 1024 * int(size or 0)
        return total

    def unfinished(self, packages: Iterable[str]) -> list[str]:
        return [
            name
            for name, status in self._statuses(packages)
            if set(status[1:3]) & (_UNFINISHED | {"R"})
        ]

    def _statuses(self, packages: Iterable[str]) -> list[tuple[str, str]]:
        """Return the wish, state and error of each package, in the three letters of dpkg."""
        names = sorted(set(packages))
        if not names:
            return []
        result = self._run(
            ("dpkg-query", "-W", "-f", _STATUS_FORMAT, "--", *names),
            timeout=_QUERY_TIMEOUT,
            ok=(0, 1),
        )
        rows = (line.partition("\t") for line in result.stdout.splitlines())
        return [(name, status) for name, _, status in rows]

    def busy(self) -> bool:
        return busy.lock_taken(self._locks)

    def repair(self, packages: Iterable[str]) -> None:
        self._run(
            ("dpkg", "--force-confold", "--configure", "--pending"),
            timeout=_REPAIR_TIMEOUT,
            env=_NO_QUESTIONS,
        )
        broken = self.unfinished(packages)
        if broken:
            # A package whose unpacking was cut off has to be unpacked again.
            locked = self.version_locked(broken)
            argv = ("apt-get", "--yes", "--allow-change-held-packages", "-o", _CONFOLD)
            try:
                self._run(
                    (*argv, "--reinstall", "install", "--", *broken),
                    timeout=_REPAIR_TIMEOUT,
                    env=_NO_QUESTIONS,
                )
            finally:
                self.lock_versions(locked, True)

    def stamp(self) -> tuple[int, ...]:
        stat = os.stat(self._status_file)
        return (stat.st_mtime_ns, stat.st_size, stat.st_ino)

    def without(self, packages: Sequence[str], directory: str) -> Mapping[str, str] | None:
        """Pin the packages in a preferences file that only processes with this environment read."""
        return apt_pins.without(packages, directory, self._preferences, self._run)


def _drop(line: str) -> bool:
    return False
