"""What is released, built as ``./dev release`` builds it, of the version that the source says."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from devtools import release, venvs
from devtools.command import REPO, Result
from devtools.lab import rpm_recipes
from devtools.lab.container import Container, Lab
from saltext_safeupdate import __version__
from tests.support import documents

# A version that sorts before this one, for pip and all package managers.
EARLIER = f"{__version__}.dev1"
OWN = "/srv/own"
_RPMS = rpm_recipes.REPO.replace(rpm_recipes.REPOSITORY, OWN).replace("lab", "own")


class FrontEnd(NamedTuple):
    """Where a front end reads of a repository, what it reads there, and what makes one."""

    file: str
    text: str
    index: str
    # Says yes to all that it asks, and brings a newer version.
    yes: str
    upgrade: str


_FRONT_ENDS = {
    "apt-get": FrontEnd(
        "/etc/apt/sources.list.d/own.list",
        f"deb [trusted=yes] file:{OWN} ./\n",
        "apt-ftparchive packages . > Packages && apt-ftparchive release . > Release"
        " && apt-get update",
        "--yes",
        "install",
    ),
    "dnf": FrontEnd(
        "/etc/yum.repos.d/own.repo",
        _RPMS,
        "createrepo_c --quiet . && dnf --refresh makecache",
        "--assumeyes",
        "upgrade",
    ),
    "zypper": FrontEnd(
        "/etc/zypp/repos.d/own.repo",
        _RPMS,
        "createrepo_c --quiet . && zypper refresh --force",
        "--non-interactive",
        "update",
    ),
}
ORIGIN = release.Origin(__version__, 1_790_000_000, "lab", "lab@example.invalid")


def archives(lab: Lab, top: Path, version: str = __version__) -> Path:
    """Build source archive and wheel below *top*; return the source archive."""
    origin, venv = replace(ORIGIN, version=version), venvs.release(lab.cache.cache)
    return release.archives(REPO, top / "source", top / "dist", origin, venv)


def wheel(sdist: Path) -> Path:
    """Return the wheel that was built with a source archive."""
    (found,) = sdist.parent.glob("*.whl")
    return found


def package(lab: Lab, kind: str, sdist: Path) -> Path:
    """Return the ``deb`` or ``rpm`` of a source archive; an earlier run may have built it."""
    return lab.cache.own(kind, sdist, ORIGIN.environment(), _contents())


class Repository:
    """An administrator's repository with our packages, on a host with that front end."""

    def __init__(self, container: Container, front_end: str) -> None:
        self.container = container
        self.front_end = front_end
        self._how = _FRONT_ENDS[front_end]
        container.run(["mkdir", "-p", OWN])
        container.write(self._how.file, self._how.text)

    def install(self, package: Path) -> None:
        """Put a package there, and install it."""
        self._put(package)
        self._type("install")

    def upgrade(self, package: Path) -> None:
        """Put a newer package there, and upgrade to it."""
        self._put(package)
        self._type(self._how.upgrade)

    def remove(self, *, check: bool = True) -> Result:
        """Remove our package, or try to."""
        return self._type("remove", check=check)

    def _put(self, package: Path) -> None:
        shutil.copy(package, self.container.path(OWN))
        self.container.run(["env", "-C", OWN, "sh", "-c", self._how.index])

    def _type(self, verb: str, *, check: bool = True) -> Result:
        """Type what the page on the installation shows, if it does, and say yes."""
        start = f"{self.front_end} {verb} "
        page = documents.blocks(REPO / "docs/topics/howto/install.md")
        shown = {line for block in page for line in block.commands if line.startswith(start)}
        (found,) = shown or {f"{start}saltext-safeupdate"}
        words = found.split()
        return self.container.run([words[0], self._how.yes, *words[1:]], check=check)


def _contents() -> str:
    """Return what the packages are made from, in short."""
    digest = hashlib.sha256()
    for path in release.files(REPO):
        name = str(path.relative_to(REPO))
        if "/" not in name or name.startswith(("src/", "packaging/")):
            digest.update(f"{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
