#!/usr/bin/python3
"""
Install the extension into a directory tree, as the deb and the rpm have it.

Usage: ``install.py ROOT SITE``, at the top of the source. ROOT is the tree, SITE the directory that
the system's own Python imports from.

The code is in one place. A ``.pth`` file leads each interpreter there that Salt may run from, that
of a Python which a later Salt brings as well: that Salt finds the extension when it first starts.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from pathlib import Path

HOME = "/usr/share/saltext-safeupdate"
# Salt's packages and the bundle bring their own Python.
TREES = ("/opt/saltstack/salt", "/usr/lib/venv-salt-minion")
PYTHONS = range(10, 20)


def places(site: str) -> list[str]:
    """Return the directories with the ``.pth`` file."""
    trees = [f"{tree}/lib/python3.{minor}/site-packages" for tree in TREES for minor in PYTHONS]
    return [site, *trees]


def main(root: Path, site: str) -> None:
    from setuptools import build_meta  # type: ignore[import-untyped, unused-ignore]

    home = root / HOME.lstrip("/")
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_meta.build_wheel(scratch)
        with zipfile.ZipFile(Path(scratch, wheel)) as archive:
            archive.extractall(home)
    (info,) = home.glob("*.dist-info")
    # With it, pip would take itself for the owner.
    (info / "RECORD").unlink()
    (info / "INSTALLER").write_text("package manager\n")
    for place in places(site):
        pth = root / place.lstrip("/") / "saltext-safeupdate.pth"
        pth.parent.mkdir(parents=True, exist_ok=True)
        pth.write_text(f"{HOME}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
