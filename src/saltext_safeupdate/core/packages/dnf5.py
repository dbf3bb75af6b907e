"""dnf 5, which has other options than dnf 4, and its version locks in another file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatch

from ..host.command import Run
from ..host.files import write_atomic
from . import repositories
from .dnf import DOWNLOAD_TIMEOUT, Dnf
from .rpm import operands

_LOCAL_TIMEOUT = 60.0
_LOCKED_NAME = re.compile(r"^Package name: (?P<name>\S+)$")
_LOCKED_VERSION = re.compile(r"^evr = \S+$")
# An entry of its file of locks, as it writes them itself.
_ENTRY = re.compile(r"^\[\[packages\]\]$.*?(?=^\[\[packages\]\]$|\Z)", re.MULTILINE | re.DOTALL)
_VALUE = r'^{key} = "([^"\n]*)"$'
_REPOSITORY = re.compile(r'^=+ "(?P<name>.*)" repository configuration: =+$')


class Dnf5(Dnf):
    """Fedora from version 41 on, and its relatives."""

    caches = ("/var/cache/libdnf5",)

    def __init__(
        self, run: Run, name: str = "dnf5", locks: str = "/etc/dnf/versionlock.toml"
    ) -> None:
        super().__init__(run, name, locks=locks)

    def _unlocked(self, names: Iterable[str]) -> tuple[str, ...]:
        # There is no way to leave out the version locks alone.
        return ("--setopt=disable_excludes=*",) if self.version_locked(names) else ()

    def fetch(self, versions: Mapping[str, str], directory: str, *, again: bool = False) -> None:
        names = [f"{name}-{version}" for name, version in versions.items()]
        options = ("--assumeyes", f"--setopt=destdir={directory}", *self._unlocked(versions))
        how = ("reinstall" if again else "install", "--downloadonly")
        argv = (self.name, *options, *how, *operands(self.name, names))
        self._run(argv, timeout=DOWNLOAD_TIMEOUT)

    def version_locked(self, packages: Iterable[str]) -> set[str]:
        names = set(packages)
        patterns = parse_locks(self._versionlock("list")) if names else ()
        return {name for name in names if any(fnmatch(name, each) for each in patterns)}

    def lock_versions(self, packages: Iterable[str], locked: bool) -> None:
        names = set(packages)
        if not locked:
            # Its own command would also take away the locks that only keep a version out.
            text = repositories.text(self._locks)
            left = without_locks(text, names)
            if left != text:
                write_atomic(self._locks, left, mode=0o644)
        elif new := sorted(names - self.version_locked(names)):
            self._versionlock("add", *operands(self.name, new))

    def _versionlock(self, *words: str) -> str:
        # Installed packages are known without a repository.
        argv = (self.name, "--quiet", "--disable-repo=*", "versionlock", *words)
        return self._run(argv, timeout=_LOCAL_TIMEOUT).stdout

    def signature_policy(self) -> str | None:
        argv = (self.name, "--dump-repo-config=*")
        names = parse_unchecked(self._run(argv, timeout=_LOCAL_TIMEOUT).stdout)
        return f"signatures of packages are not checked: repository {names[0]}" if names else None


def parse_locks(text: str) -> set[str]:
    """Read ``dnf5 versionlock list``: the names, or patterns, whose version is fixed."""
    found = set()
    name = ""
    for line in text.splitlines():
        if match := _LOCKED_NAME.match(line):
            name = match["name"]
        elif _LOCKED_VERSION.match(line):
            found.add(name)
    return found


def without_locks(text: str, names: Iterable[str]) -> str:
    """Return dnf's file of locks without those that fix the version of one of the packages."""
    gone = set(names)

    def kept(entry: re.Match[str]) -> str:
        fixed = _values(entry[0], "key") == ["evr"] and _values(entry[0], "comparator") == ["="]
        return "" if fixed and set(_values(entry[0], "name")) & gone else entry[0]

    return _ENTRY.sub(kept, text)


def _values(entry: str, key: str) -> Sequence[str]:
    return re.findall(_VALUE.format(key=key), entry, re.MULTILINE)


def parse_unchecked(text: str) -> list[str]:
    """Read ``dnf5 --dump-repo-config=*``: the repositories in use without signed packages."""
    found: dict[str, dict[str, str]] = {}
    options: dict[str, str] = {}
    for line in text.splitlines():
        if match := _REPOSITORY.match(line):
            options = found.setdefault(match["name"], {})
        else:
            key, _, value = line.partition(" = ")
            options[key] = value
    return [
        name
        for name, each in found.items()
        if each.get("enabled") == "1" and each.get("pkg_gpgcheck") != "1"
    ]
