"""What the machine has to bring: root, Debian packages, a Python that can make venvs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import time
from pathlib import Path

from devtools.command import CommandFailed, ToolError, run
from devtools.progress import step

APT_TIMEOUT = 900
LISTS_MAX_AGE = 24 * 3600
APT_LOCK_TIMEOUT = 300
# program that must be there -> Debian package that brings it
LAB_PROGRAMS = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "dpkg-deb": "dpkg",
    "git": "git",
    "gpg-agent": "gnupg",
    "ip": "iproute2",
    "ps": "procps",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "mount": "mount",
    "mkfs.btrfs": "btrfs-progs",
    "gpg": "gnupg",
}
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


def is_root() -> bool:
    return os.geteuid() == 0


def extend_path() -> None:
    """Make the system programs reachable where root's PATH lacks them."""
    parts = os.environ.get("PATH", "/usr/bin:/bin").split(":")
    os.environ["PATH"] = ":".join(parts + [p for p in SBIN.split(":") if p not in parts])


def require_root(what: str) -> None:
    if not is_root():
        raise ToolError(f"{what} boots containers and needs root: run it as root or with sudo")


def ensure_lab_programs() -> None:
    """Install the Debian packages of the lab that are missing (root only)."""
    extend_path()
    missing = {pkg for program, pkg in LAB_PROGRAMS.items() if not shutil.which(program)}
    if missing:
        install(sorted(missing), "the system-test lab")


def ensure_venv_module() -> None:
    """Make sure that ``python3 -m venv`` works with pip inside."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return
    install(["python3-venv"], "making virtual environments")
    importlib.invalidate_caches()
    if not importlib.util.find_spec("ensurepip"):
        raise ToolError(
            f"{sys.executable} still cannot make venvs (no ensurepip); "
            "use the distribution's python3 or install ensurepip for this one"
        )


def install(packages: list[str], purpose: str) -> None:
    """Install Debian *packages* with apt-get, or say which command would do it."""
    command = f"apt-get install {' '.join(packages)}"
    if not shutil.which("apt-get"):
        raise ToolError(
            f"{purpose} needs {', '.join(packages)}, and there is no apt-get here: "
            "install the equivalents of these Debian packages"
        )
    if not is_root():
        raise ToolError(f"{purpose} needs packages that are not installed; as root: {command}")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C.UTF-8")
    lock = f"DPkg::Lock::Timeout={APT_LOCK_TIMEOUT}"
    argv = ["apt-get", "-o", lock, "install", "-y", "--no-install-recommends", *packages]
    with step(f"installing {' '.join(packages)} for {purpose}"):
        if not _lists_are_fresh():
            run(["apt-get", "-o", lock, "update"], timeout=APT_TIMEOUT, env=env)
        try:
            run(argv, timeout=APT_TIMEOUT, env=env)
        except CommandFailed:
            run(["apt-get", "-o", lock, "update"], timeout=APT_TIMEOUT, env=env)
            run(argv, timeout=APT_TIMEOUT, env=env)


def download(packages: list[str], into: Path, purpose: str) -> None:
    """Download Debian *packages* without installing them."""
    if not shutil.which("apt-get"):
        raise ToolError(f"{purpose} need {', '.join(packages)}, and there is no apt-get here")
    argv = ["apt-get", "download", *packages]
    with step(f"downloading {' '.join(packages)} for {purpose}"):
        try:
            run(argv, timeout=APT_TIMEOUT, cwd=into)
        except CommandFailed:
            run(["apt-get", "update"], timeout=APT_TIMEOUT)
            run(argv, timeout=APT_TIMEOUT, cwd=into)


def _lists_are_fresh() -> bool:
    lists = Path("/var/lib/apt/lists")
    newest = max((p.stat().st_mtime for p in lists.glob("*Packages*")), default=0.0)
    return time.time() - newest < LISTS_MAX_AGE
