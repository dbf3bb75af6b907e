"""Cached virtual environments, and the extension made visible to them."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import zipfile
from pathlib import Path

from devtools import host
from devtools.cache import Builder, Cache, recipe
from devtools.command import REPO, ToolError, run

SERIES = ("3006.28", "3007.15", "3008.3")
NEWEST = SERIES[-1]
TEST_PACKAGES = (
    "pytest",
    "pytest-salt-factories==1.0.5",
    "pytest-timeout",
    "hypothesis",
    "setuptools",
    "wheel",
)
TOOL_PACKAGES = (
    "ruff",
    "mypy",
    "towncrier",
    "sphinx",
    "myst-parser",
    "furo",
    "pytest",
    "pytest-timeout",
    "hypothesis",
    "types-PyYAML",
)
PIP_TIMEOUT = 1500
ABI = f"{sys.implementation.cache_tag}-{platform.machine()}"
# Packages that build and check a release.
RELEASE_PACKAGES = ("build", "setuptools>=77", "twine", "wheel")
# The sources of a wheel of the extension.
SOURCES = ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE", "src")


def pip_env() -> dict[str, str]:
    """Return an environment for pip: the machine's own configuration, nothing interactive."""
    drop = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
    env = {key: value for key, value in os.environ.items() if key not in drop}
    return env | {"PIP_NO_INPUT": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def sdist(cache: Cache, version: str) -> Path:
    """Return a directory that holds Salt's source archive."""
    return cache.get("sdist", version, [recipe(_download_sdist)], _download_sdist(version))


def _download_sdist(version: str) -> Builder:
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", "salt"]

    def build(out: Path, log: Path) -> None:
        host.ensure_venv_module()
        run(
            [*argv, "-d", str(out), f"salt=={version}"], timeout=PIP_TIMEOUT, log=log, env=pip_env()
        )

    return build


def wheels(cache: Cache, version: str) -> Path:
    """Return a directory with the wheels of Salt and everything it needs, for this Python."""
    source = sdist(cache, version)
    key = [ABI, source.name, recipe(_build_wheels)]
    return cache.get("wheels", version, key, _build_wheels(source))


def _build_wheels(source: Path) -> Builder:
    def build(out: Path, log: Path) -> None:
        archive = next(source.glob("salt-*.tar.gz"))
        argv = [sys.executable, "-m", "pip", "wheel", "-w", str(out), str(archive)]
        run(argv, timeout=PIP_TIMEOUT, log=log, env=pip_env())

    return build


def series(cache: Cache, version: str) -> Path:
    """Return the venv for tests against Salt *version*."""
    salt_wheels = wheels(cache, version)
    key = [ABI, sys.base_prefix, salt_wheels.name, recipe(_make_series, _make_venv, TEST_PACKAGES)]
    return cache.get("venv", version, key, _make_series(version, salt_wheels))


def _make_series(version: str, salt_wheels: Path) -> Builder:
    def build(out: Path, log: Path) -> None:
        packages = ["--find-links", str(salt_wheels), f"salt=={version}", *TEST_PACKAGES]
        _make_venv(out, packages, log)

    return build


def tools(cache: Cache) -> Path:
    """Return the venv with the linters and the documentation builder."""

    def build(out: Path, log: Path) -> None:
        _make_venv(out, list(TOOL_PACKAGES), log)

    key = [ABI, sys.base_prefix, recipe(_make_venv, TOOL_PACKAGES)]
    return cache.get("venv", "tools", key, build)


def release(cache: Cache) -> Path:
    """Return the venv that builds a release; ``wheels`` in it has the needs of our build."""

    def build(out: Path, log: Path) -> None:
        _make_venv(out, ["--upgrade", *RELEASE_PACKAGES], log)
        argv = [python(out), "-m", "pip", "download", "--no-deps", "-d", str(out / "wheels")]
        run([*argv, "setuptools>=77"], timeout=PIP_TIMEOUT, log=log, env=pip_env())

    key = [ABI, sys.base_prefix, recipe(_make_venv, RELEASE_PACKAGES)]
    return cache.get("venv", "release", key, build)


def _make_venv(out: Path, packages: list[str], log: Path) -> None:
    """Fill *out*; nothing in it may be run through a script, since the directory is renamed."""
    host.ensure_venv_module()
    env = pip_env()
    python = str(out / "bin" / "python3")
    run([sys.executable, "-m", "venv", str(out)], timeout=300, log=log, env=env)
    pip = [python, "-m", "pip", "install", "--no-compile", *packages]
    run(pip, timeout=PIP_TIMEOUT, log=log, env=env)
    site = next(out.glob("lib/python3*/site-packages"))
    argv = [python, "-m", "compileall", "-q", "-j", "2", str(site)]
    run(argv, timeout=900, check=False, log=log, env=env)
    _relocate(out, out, Path(str(out).replace(f"/.new-{out.name[5:]}", f"/{out.name[5:]}")))


def _relocate(venv: Path, old: Path, new: Path) -> None:
    """Make the scripts of *venv*, written for the path *old*, work at the path *new*."""
    for script in (venv / "bin").iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        data = script.read_bytes()
        if str(old).encode() in data:
            script.write_bytes(data.replace(str(old).encode(), str(new).encode()))


def python(venv: Path) -> str:
    return str(venv / "bin" / "python3")


def extension(cache: Cache, run_dir: Path) -> Path:
    """Build the extension from this clone and return the directory to put on ``PYTHONPATH``.

    It is built each time in *run_dir*, from a copy, so that nothing is left in the clone.
    """
    if not (REPO / "pyproject.toml").exists() and not (REPO / "setup.py").exists():
        raise ToolError(f"{REPO} has no pyproject.toml: the extension cannot be built")
    copy, out, site = run_dir / "source", run_dir / "wheel", run_dir / "site"
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.pyc")
    for name in SOURCES:
        item = REPO / name
        if item.is_dir():
            shutil.copytree(item, copy / name, ignore=skip)
        elif item.exists():
            copy.mkdir(parents=True, exist_ok=True)
            shutil.copy2(item, copy / name)
    argv = [python(series(cache, NEWEST)), "-m", "pip", "wheel", "--no-deps"]
    argv += ["--no-build-isolation", "--no-index", "-q", "-w", str(out), str(copy)]
    run(argv, timeout=300, env=pip_env())
    with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    # As pip does it. Otherwise each process of each container would compile it.
    run([python(series(cache, NEWEST)), "-m", "compileall", "-q", str(site)], timeout=300)
    shutil.rmtree(copy)
    return site


def with_extension(venv: Path, site: Path, where: Path) -> Path:
    """Copy *venv* to *where*, add the extension, and return the copy.

    A real copy, because programs started without our environment must find the extension, tests
    may hide other directories from them, and nothing may write into the cached venv.
    """
    copied(venv, where)
    packages = next(where.glob("lib/python3*/site-packages"))
    shutil.copytree(site, packages, dirs_exist_ok=True)
    return where


def copied(venv: Path, where: Path) -> Path:
    """Copy *venv* to *where*, and return the copy."""
    run(["cp", "-a", "--reflink=auto", str(venv), str(where)], timeout=300)
    _relocate(where, venv, where)
    return where
