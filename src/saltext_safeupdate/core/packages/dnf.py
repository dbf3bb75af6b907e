"""dnf 4, and yum on systems that call it so."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch

from ..errors import CommandError, SafeUpdateError
from ..host.command import Run
from ..host.files import write_atomic
from . import repositories
from .request import Action, Change, Request
from .rpm import Rpm, operands

_LOCAL_TIMEOUT = 60.0
_SOLVE_TIMEOUT = 300.0
DOWNLOAD_TIMEOUT = 1800.0
_WORDS = {
    Action.INSTALL: "install",
    Action.REMOVE: "remove",
    Action.PURGE: "remove",
    Action.UPGRADE: "upgrade",
    Action.AUTOREMOVE: "autoremove",
}
# A line of dnf's table: name, architecture, version, repository, size.
_TABLE = re.compile(r"^ (?P<name>\S+)\s+(?:noarch|\w+)\s+(?:\d+:)?(?P<version>\S+-\S+)\s+\S+\s+\S")
_SECTION = re.compile(r"^[A-Z][A-Za-z ]+:?$")
# The same table lists packages that it would change, packages that it would skip, and packages for
# which it would only note why they are installed.
_NO_CHANGE = ("Skipping", "Changing reason")
# Its answer "no" has exit status 1, like an error. Only "no" has this line.
_NO = re.compile(r"^Operation aborted", re.MULTILINE)
_LOCK = re.compile(r"^(?P<name>[^!#\s]\S*)-(?:\d+:)?[^-\s]+-[^-\s]+$")
_PARTS = re.compile(r"[0-9]+|[A-Za-z]+|[~^]")


class Dnf(Rpm):
    """Fedora, Red Hat and their relatives."""

    caches: Sequence[str] = ("/var/cache/dnf",)

    def __init__(
        self,
        run: Run,
        name: str = "dnf",
        settings: str = "/etc/dnf/dnf.conf",
        repositories: str = "/etc/yum.repos.d",
        locks: str = "/etc/dnf/plugins/versionlock.list",
    ) -> None:
        super().__init__(run)
        self.name = name
        self._settings = settings
        self._repositories = repositories
        self._locks = locks

    def plan(self, request: Request, *, locked: bool = True) -> dict[str, Change]:
        names = [f"{n}-{v}" if v else n for n, v in request.targets]
        argv = (self.name, "--assumeno", *(() if locked else self._unlocked(request.names)))
        if request.release:
            argv = (*argv, "--disablerepo=*", f"--enablerepo={request.release}")
        argv = (*argv, *request.options, _WORDS[request.action], *operands(self.name, names))
        result = self._run(argv, timeout=_SOLVE_TIMEOUT, ok=(0, 1))
        if result.returncode == 1 and not _NO.search(result.stderr):
            raise CommandError(
                argv, "exit status 1", stdout=result.stdout, stderr=result.stderr, returncode=1
            )
        new = parse_dnf(result.stdout)
        old = self.installed(new)
        return {name: Change(old.get(name, ""), version) for name, version in new.items()}

    def candidates(self, packages: Iterable[str]) -> dict[str, list[str]]:
        names = sorted(set(packages))
        form = "%{name}\t%{epoch}\t%{version}-%{release}\\n"
        found = parse_repoquery(self._repoquery(form, names, self._unlocked(names)))
        return {name: found.get(name, []) for name in names}

    def _unlocked(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the options with which dnf also sees versions that a lock excludes."""
        return ("--disableplugin=versionlock",) if self.version_locked(names) else ()

    def _repoquery(self, form: str, names: Sequence[str], options: Sequence[str]) -> str:
        """Ask about packages on offer; version 5 knows only the ``\\n`` of *form*, no ``\\t``."""
        argv = (self.name, "--quiet", *options, "repoquery", "--qf", form)
        argv = (*argv, *operands(self.name, names))
        return self._run(argv, timeout=_SOLVE_TIMEOUT).stdout

    def refresh(self) -> None:
        argv = (self.name, "--quiet", "--assumeyes", "--refresh", "makecache")
        self._run(argv, timeout=DOWNLOAD_TIMEOUT)

    def fetch(self, versions: Mapping[str, str], directory: str, *, again: bool = False) -> None:
        names = [f"{name}-{version}" for name, version in versions.items()]
        argv = (self.name, "--assumeyes", *self._unlocked(versions))
        how = "reinstall" if again else "install"
        argv = (*argv, how, "--downloadonly", f"--downloaddir={directory}")
        self._run((*argv, *operands(self.name, names)), timeout=DOWNLOAD_TIMEOUT)

    def version_locked(self, packages: Iterable[str]) -> set[str]:
        patterns = [pattern for pattern, _ in parse_versionlock(repositories.text(self._locks))]
        return {name for name in packages if any(fnmatch(name, each) for each in patterns)}

    def lock_versions(self, packages: Iterable[str], locked: bool) -> None:
        """Write the list of the plugin: dnf itself would first fetch from the repositories."""
        now = self.version_locked(packages)
        names = sorted(set(packages) - now if locked else now)
        if not names:
            return
        if not os.path.exists(self._locks):
            raise SafeUpdateError(
                f"{self.name} has no list of locked versions in {self._locks}, so "
                f"{', '.join(names)} cannot be locked. Install its plugin versionlock, or do "
                "not lock versions"
            )
        text = repositories.text(self._locks)
        if locked:
            new = text + "".join(f"{line}\n" for line in self._lock_lines(names))
        else:
            gone = {line for pattern, line in parse_versionlock(text) if pattern in names}
            new = "".join(line for line in text.splitlines(True) if line.strip() not in gone)
        write_atomic(self._locks, new, mode=0o644)

    def _lock_lines(self, names: Sequence[str]) -> list[str]:
        argv = ("rpm", "-q", "--qf", r"%{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}.*\n", "--", *names)
        return self._run(argv, timeout=_LOCAL_TIMEOUT).stdout.splitlines()

    def follow_locks(self, packages: Sequence[str]) -> None:
        locked = self.version_locked(packages)
        self.lock_versions(locked, False)
        self.lock_versions(locked, True)

    def signature_policy(self) -> str | None:
        return repositories.unchecked(self._settings, self._repositories, default=False)

    def size(self, targets: Mapping[str, str]) -> int:
        request = Request(action=Action.INSTALL, targets=tuple(targets.items()))
        plan = self.plan(request, locked=False)
        names = [f"{name}-{change.new}" for name, change in plan.items() if change.new]
        if not names:
            return 0
        form = "%{downloadsize}\t%{installsize}\\n"
        sizes = self._repoquery(form, names, self._unlocked(targets))
        return sum(map(int, sizes.split()))


def parse_dnf(text: str) -> dict[str, str]:
    """Read dnf's table of a transaction: new versions, empty for what it removes."""
    changes = {}
    section = ""
    for line in text.splitlines():
        if _SECTION.match(line):
            section = line
        match = _TABLE.match(line)
        if match and not section.startswith(_NO_CHANGE):
            changes[match["name"]] = "" if section.startswith("Removing") else match["version"]
    return changes


def parse_repoquery(text: str) -> dict[str, list[str]]:
    """Return the versions on offer, newest first, from lines of name, epoch and version."""
    found: dict[str, set[tuple[int, str]]] = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3:
            epoch = int(fields[1]) if fields[1].isdigit() else 0
            found.setdefault(fields[0], set()).add((epoch, fields[2]))
    return {
        name: [version for _, version in sorted(versions, key=_age, reverse=True)]
        for name, versions in found.items()
    }


def _age(
    each: tuple[int, str],
) -> tuple[int, list[tuple[int, int, str]], list[tuple[int, int, str]]]:
    epoch, full = each
    version, _, release = full.rpartition("-")
    return epoch, order(version), order(release)


def order(version: str) -> list[tuple[int, int, str]]:
    """Return what sorts as rpm sorts: ``1~rc < 1 < 1^git < 1.a < 1.1``."""
    parts = []
    for part in _PARTS.findall(version):
        if part in "~^":
            parts.append((0 if part == "~" else 2, 0, ""))
        else:
            parts.append((4, int(part), "") if part.isdigit() else (3, 0, part))
    return [*parts, (1, 0, "")]


def parse_versionlock(text: str) -> list[tuple[str, str]]:
    """Return the locked names, which may be patterns, each with its line; ``!`` locks out."""
    matches = (_LOCK.match(line.strip()) for line in text.splitlines())
    return [(match["name"], match[0]) for match in matches if match]
