"""What is released, built as ``./dev release`` builds it, of the version that the source says."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from devtools import release, venvs
from devtools.command import REPO
from devtools.lab.container import Lab
from saltext_safeupdate import __version__

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


def _contents() -> str:
    """Return what the packages are made from, in short."""
    digest = hashlib.sha256()
    for path in release.files(REPO):
        name = str(path.relative_to(REPO))
        if "/" not in name or name.startswith(("src/", "packaging/")):
            digest.update(f"{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
