"""zypper."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from xml.etree import ElementTree

from ..errors import CommandError
from ..host.command import Run
from ..host.files import write_atomic
from . import repositories
from .request import Action, Change, Request
from .rpm import Rpm, operands

_LOCAL_TIMEOUT = 60.0
_SOLVE_TIMEOUT = 300.0
_DOWNLOAD_TIMEOUT = 1800.0
# Exit statuses of zypper that are information, such as "nothing to do", and no errors.
_ZYPPER_OK = (0, 100, 101, 102, 103, 106)
_NOTHING_FOUND = 104
_MAIN = re.compile(r"^\[main\][ \t]*$", re.MULTILINE)
# What the settings file says about the file of locks: where it is, and whether it counts.
_LOCKS = re.compile(
    r"^[ \t]*locksfile\.(?P<name>\w+)[ \t]*=[ \t]*(?P<value>.*?)[ \t]*$\n?", re.MULTILINE
)
_LOCK = "\ntype: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: {name}\n"


class Zypper(Rpm):
    """SUSE and its relatives."""

    name = "zypper"
    caches = ("/var/cache/zypp/packages",)
    download_only: Sequence[str] = ("--download-only",)

    def __init__(
        self,
        run: Run,
        settings: str = "/etc/zypp/zypp.conf",
        repositories: str = "/etc/zypp/repos.d",
        locks: str = "/etc/zypp/locks",
    ) -> None:
        super().__init__(run)
        self._settings = settings
        self._repositories = repositories
        self._locks_file = locks

    def plan(self, request: Request, *, locked: bool = True) -> dict[str, Change]:
        if request.action is Action.AUTOREMOVE:
            # zypper has no such command.
            return {}
        return parse_zypper(self._solve(request, locked=locked))

    def _solve(self, request: Request, *, locked: bool) -> str:
        words = {
            Action.INSTALL: ("install", "--dry-run", "--oldpackage"),
            Action.REMOVE: ("remove", "--dry-run"),
            Action.PURGE: ("remove", "--dry-run"),
            Action.UPGRADE: ("dist-upgrade" if request.full else "update", "--dry-run"),
        }
        names = [f"{n}={v}" if v else n for n, v in request.targets]
        options = self._from(request)
        with self._unlocked(() if locked else request.names) as env:
            return self._zypper(
                *words[request.action], *options, *operands(self.name, names), env=env
            )

    def _from(self, request: Request) -> tuple[str, ...]:
        """Return the options that take packages from one repository, as Salt's module has them."""
        if not request.release:
            return ()
        if request.action is Action.INSTALL:
            return ("--force", "--force-resolution", "--from", request.release)
        if request.action is Action.UPGRADE:
            return ("--from" if request.full else "--repo", request.release)
        return ()

    def _zypper(
        self,
        *words: str,
        timeout: float = _SOLVE_TIMEOUT,
        ok: Iterable[int] = _ZYPPER_OK,
        env: Mapping[str, str] | None = None,
    ) -> str:
        argv = ("zypper", "--non-interactive", "--xmlout", *words)
        return self._run(argv, timeout=timeout, ok=tuple(ok), env=env).stdout

    @contextlib.contextmanager
    def _unlocked(self, names: Iterable[str]) -> Iterator[Mapping[str, str] | None]:
        """Yield the environment in which version locks of these packages do not count."""
        if not self.version_locked(names):
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="safeupdate-") as directory:
            # zypper reads it instead of the administrator's file, so the rest is the same.
            config = os.path.join(directory, "zypp.conf")
            write_atomic(config, without_locks(repositories.text(self._settings)))
            yield {"ZYPP_CONF": config}

    def candidates(self, packages: Iterable[str]) -> dict[str, list[str]]:
        names = sorted(set(packages))
        search = ("search", "--details", "--match-exact", "--type", "package")
        words = (*search, *operands(self.name, names))
        found = parse_search(self._zypper(*words, ok=(*_ZYPPER_OK, _NOTHING_FOUND)))
        return {name: found.get(name, []) for name in names}

    def refresh(self) -> None:
        self._zypper("refresh", timeout=_DOWNLOAD_TIMEOUT)

    def fetch(self, versions: Mapping[str, str], directory: str, *, again: bool = False) -> None:
        names = [f"{name}={version}" for name, version in versions.items()]
        words = ["--pkg-cache-dir", directory, "install", *self.download_only, "--oldpackage"]
        if again:
            words.append("--force")
        with self._unlocked(versions) as env:
            self._zypper(*words, *operands(self.name, names), timeout=_DOWNLOAD_TIMEOUT, env=env)

    def version_locked(self, packages: Iterable[str]) -> set[str]:
        names = set(packages)
        patterns = self._locks() if names else ()
        return {name for name in names if any(fnmatchcase(name, each) for each in patterns)}

    def lock_versions(self, packages: Iterable[str], locked: bool) -> None:
        names = set(packages)
        # A lock with a pattern may be about others as well: it stays.
        names = names - self.version_locked(names) if locked else names & self._locks()
        if names:
            words = ("addlock" if locked else "removelock", *operands(self.name, sorted(names)))
            self._zypper(*words, timeout=_LOCAL_TIMEOUT)

    def _locks(self) -> set[str]:
        return parse_locked(self._zypper("locks"))

    def without(self, packages: Sequence[str], directory: str) -> Mapping[str, str] | None:
        """Lock the packages in a file that only processes with this environment read."""
        settings = repositories.text(self._settings)
        theirs = {match["name"]: match["value"] for match in _LOCKS.finditer(settings)}
        locks = ""
        if theirs.get("apply", "yes").lower() not in ("no", "false", "off", "0"):
            locks = repositories.text(theirs.get("path") or self._locks_file)
        file = os.path.join(directory, "locks")
        write_atomic(file, locks + "".join(_LOCK.format(name=name) for name in packages))
        ours = f"[main]\nlocksfile.apply = yes\nlocksfile.path = {file}\n"
        config = os.path.join(directory, "zypp.conf")
        write_atomic(config, _in_main(_LOCKS.sub("", settings), ours))
        return {"ZYPP_CONF": config}

    def signature_policy(self) -> str | None:
        return repositories.unchecked(self._settings, self._repositories, default=True)

    def size(self, targets: Mapping[str, str]) -> int:
        """Return the size of what is installed, and the difference that zypper tells."""
        argv = ("rpm", "-q", "--qf", r"%{NAME}\t%{LONGSIZE}\n", "--", *sorted(targets))
        now = self._run(argv, timeout=_LOCAL_TIMEOUT, ok=None).stdout.splitlines()
        sizes = [int(line.split("\t")[1]) for line in now if "\t" in line]
        request = Request(action=Action.INSTALL, targets=tuple(targets.items()))
        return sum(sizes) + parse_size(self._solve(request, locked=False))


def without_locks(settings: str) -> str:
    """Return the settings file with locks switched off."""
    return _in_main(settings, "[main]\nlocksfile.apply = no\n")


def _in_main(settings: str, section: str) -> str:
    """Return the settings file with the lines of *section* first in its main section."""
    if _MAIN.search(settings):
        return _MAIN.sub(lambda _: section, settings, count=1)
    return section + settings


def parse_zypper(text: str) -> dict[str, Change]:
    """Read ``zypper --xmlout``: what the install summary lists."""
    changes = {}
    for section in _parsed(text).iter("install-summary"):
        for group in section:
            for item in group.iter("solvable"):
                if item.get("type") == "package":
                    new = _without_epoch(item.get("edition", ""))
                    old = _without_epoch(item.get("edition-old", ""))
                    changes[item.get("name", "")] = (
                        Change(new, "") if group.tag == "to-remove" else Change(old, new)
                    )
    return changes


def _without_epoch(edition: str) -> str:
    return edition.rpartition(":")[2]


def parse_search(text: str) -> dict[str, list[str]]:
    """Read ``zypper search --details``: the versions on offer, newest first, as it lists them."""
    found: dict[str, list[str]] = {}
    for item in _parsed(text).iter("solvable"):
        version = _without_epoch(item.get("edition", ""))
        versions = found.setdefault(item.get("name", ""), [])
        # Versions that only the system has are listed as well.
        if not item.get("repository", "").startswith("(") and version not in versions:
            versions.append(version)
    return found


def parse_locked(text: str) -> set[str]:
    """
    Read ``zypper locks``: the names, or patterns of names, of packages whose version is fixed.

    A lock of a range of versions only keeps these away, and one of a pattern or a patch is about
    no package.
    """
    return {
        lock.findtext("name", "")
        for lock in _parsed(text).iter("lock")
        if lock.findtext("type", "package") == "package" and _fixes(lock.find("range"))
    }


def _fixes(versions: ElementTree.Element | None) -> bool:
    return versions is None or versions.get("flag") == "="


def parse_size(text: str) -> int:
    """Return what ``zypper install --dry-run`` would download and add to the disk, in bytes."""
    return sum(
        int(summary.get("download-size", "0")) + max(0, int(summary.get("space-usage-diff", "0")))
        for summary in _parsed(text).iter("install-summary")
    )


def _parsed(text: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(text)  # noqa: S314
    except ElementTree.ParseError as err:
        raise CommandError(("zypper",), f"printed no XML that can be read ({err})") from err
