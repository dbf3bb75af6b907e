"""
The index that pip is configured for, as a source of builds: wheels, and nothing else.

pip runs nothing that it downloads: it builds nothing (``--only-binary``) and installs nothing. A
wheel may name an address for a requirement, and pip would build what it finds there. So pip may
start no program here. The slot is made of the wheels as of any other build. The files of an index
are not signed: each is what the index says it is, as far as pip checks that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from shutil import rmtree
from tempfile import mkdtemp

from ..errors import CommandError, SafeUpdateError, one_line
from ..host.command import Result, Run
from ..host.files import write_atomic
from . import describe, manifest
from .manifest import Manifest, Part

# The name of the index in a request, instead of a directory.
NAME = "index"
PREFIX = "index-"
_LISTING_TIMEOUT, _FETCH_TIMEOUT = 120.0, 1800.0
_OPTIONS = ("--disable-pip-version-check", "--no-input", "--only-binary=:all:")
_VERSIONS = re.compile(r"^Available versions: (.+)$", re.MULTILINE)
# How pip answers who asks for a version that nobody has; without wheels, it says "none".
_NOBODY_HAS = "salt==0"
_WHEELS = re.compile(r"\(from versions: ([^)]*)\)")
_VERSION = re.compile(r"\d{4}(?:\.\d{1,9}){1,3}", re.ASCII)
# Others would have pip fetch for another Python, or less, or say nothing.
_REFUSED = ("PIP_PYTHON", "PIP_PYTHON_VERSION", "PIP_PLATFORM", "PIP_ABI", "PIP_IMPLEMENTATION")
_FORCED = {"PIP_QUIET": "0", "PIP_NO_DEPS": "0"}
# It may ask who it is on this host (packaging.python.org, "musllinux"), and for a password.
_GUARDED = """\
import os, runpy, sys
may_run = ("keyring", "ld-musl")
starts = ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system")
def refuse(event, args):
    if event in starts and not os.path.basename(os.fsdecode(args[0])).startswith(may_run):
        raise PermissionError(f"pip would run {os.fsdecode(args[0])} to build what is no wheel")
sys.addaudithook(refuse)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
_HAS_PIP = "import sys, pip; sys.exit(sys.version_info[:2] != ({0}, {1}))"


class Index:
    """
    The wheels of Salt that pip can download for Python *minor*, such as ``3.11``.

    *pythons* are interpreters that may have pip; the first one with pip for that Python is used.
    pip reads its own configuration, and the variables in *environment* that begin with ``PIP_``.
    """

    def __init__(
        self,
        pythons: Sequence[str],
        minor: str,
        run: Run,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._pythons = pythons
        self._minor = minor
        self._run = run
        given = {key: value for key, value in environment.items() if key.startswith("PIP_")}
        self._env = {key: given[key] for key in given if key not in _REFUSED} | _FORCED

    def versions(self) -> list[str]:
        """Return the versions of Salt that the index has wheels of, newest first."""
        argv = (self._pip(), "-I", "-c", _GUARDED, "index", "versions", *_OPTIONS, "salt")
        result = self._asked(argv)
        found = _VERSIONS.search(result.stdout)
        if result.returncode or found is None:
            raise SafeUpdateError(
                f"The index that pip is configured for offers no Salt: {_last(result.stderr)}. "
                "Nothing was changed; put wheels there ('pip wheel salt' makes them), or use a "
                "directory of builds."
            )
        given = [each.strip() for each in found[1].split(",")]
        listed = [each for each in given if _VERSION.fullmatch(each)]
        # That list has sources, too, and this one what was taken back.
        # Nothing comes of it, wherever it would go.
        words = ("download", *_OPTIONS, "--no-deps", "--dest", "/", _NOBODY_HAS)
        told = _WHEELS.search(self._asked((argv[0], "-I", "-c", _GUARDED, *words)).stderr)
        wheels = {each.strip() for each in told[1].split(",")} if told else set(listed)
        offered = [each for each in listed if each in wheels]
        if listed and not offered:
            raise SafeUpdateError(
                f"The index that pip is configured for has no wheel of Salt, only the source of "
                f"{listed[0]} and others. Nothing was changed; put wheels there ('pip wheel salt' "
                "makes them), or take a directory of builds."
            )
        return offered

    def _asked(self, argv: Sequence[str]) -> Result:
        try:
            return self._run(argv, timeout=_LISTING_TIMEOUT, ok=None, env=self._env)
        except CommandError as err:
            raise SafeUpdateError(
                f"The index that pip is configured for does not answer: {err.reason}. Nothing was "
                "changed; ask again when it does, or take a directory of builds."
            ) from err

    @contextmanager
    def fetched(self, version: str, where: str) -> Iterator[tuple[Manifest, dict[str, str]]]:
        """
        Provide the wheels of a version, and their manifest, in the directory *where*, for a moment.

        Files that an earlier process has left there are removed. Raise SafeUpdateError if they
        cannot be downloaded, or VerificationError if a minion would refuse them.
        """
        with _directory(where) as directory:
            yield self._fetch(version, directory)

    @contextmanager
    def files_of(self, build: Manifest, where: str) -> Iterator[dict[str, str]]:
        """
        Provide exactly the wheels that a manifest names in *where*, for a moment.

        Raise SafeUpdateError if the index does not have them with these checksums.
        """
        with _directory(where) as directory:
            wanted = os.path.join(directory, "wanted.txt")
            write_atomic(wanted, "".join(map(_requirement, build.files, build.files.values())))
            self._download(directory, build.version, "--no-deps", "--require-hashes", "-r", wanted)
            paths = {name: os.path.join(directory, name) for name in build.files}
            missing = sorted(name for name, path in paths.items() if not os.path.isfile(path))
            if missing:
                raise SafeUpdateError(
                    f"The index has another wheel instead of {missing[0]}. Nothing was changed; "
                    "copy the wheels to the directory of the manifest."
                )
            yield paths

    def _fetch(self, version: str, directory: str) -> tuple[Manifest, dict[str, str]]:
        self._download(directory, version, f"salt=={version}")
        names = sorted(name for name in os.listdir(directory) if name.endswith(".whl"))
        paths = {name: os.path.join(directory, name) for name in names}
        try:
            told = describe.describe(list(paths.values()), version=version, python=self._minor)
            with open(told, "rb") as file:
                return manifest.parse(file.read()), paths
        except OSError as err:
            raise SafeUpdateError(
                f"The wheels of Salt {version} cannot be unpacked: {err}. Nothing was changed; "
                f"check the disk of {directory}."
            ) from err

    def _download(self, directory: str, version: str, *what: str) -> None:
        argv = (
            self._pip(),
            "-I",
            "-c",
            _GUARDED,
            "download",
            *_OPTIONS,
            "--dest",
            directory,
            *what,
        )
        try:
            self._run(argv, timeout=_FETCH_TIMEOUT, env=self._env)
        except CommandError as err:
            raise SafeUpdateError(
                f"pip cannot download the wheels of Salt {version} and of everything that it "
                f"needs: {_last(err.stderr) if err.stderr else err.reason}. Nothing was changed; "
                "put what is missing there, or use a directory of builds."
            ) from err

    def _pip(self) -> str:
        """Return an interpreter for that Python with pip."""
        asked = _HAS_PIP.format(*self._minor.split("."))
        for python in self._pythons:
            try:
                self._run((python, "-I", "-c", asked), timeout=_LISTING_TIMEOUT)
            except CommandError:
                continue
            return python
        raise SafeUpdateError(
            f"Salt on this host has no pip for Python {self._minor}, so no index can be asked. "
            "Nothing was changed; install pip there, or use a directory of builds."
        )


@contextmanager
def _directory(where: str) -> Iterator[str]:
    """Provide a directory in *where* for a moment; remove leftovers of killed processes."""
    os.makedirs(where, mode=0o700, exist_ok=True)
    for name in os.listdir(where):
        if name.startswith(PREFIX):
            rmtree(os.path.join(where, name), ignore_errors=True)
    directory = mkdtemp(dir=where, prefix=PREFIX)
    try:
        yield directory
    finally:
        rmtree(directory, ignore_errors=True)


def _requirement(name: str, part: Part) -> str:
    """Return the line by which pip accepts only a wheel of that name and checksum."""
    distribution, version = (*name.split("-"), "")[:2]
    return f"{distribution}=={version} --hash=sha256:{part.sha256}\n"


def _last(printed: str) -> str:
    lines = [line for line in printed.splitlines() if line.strip()]
    # Below such a line pip shows where in itself that was.
    errors = [line for line in lines if line.startswith("ERROR:") and line != "ERROR: Exception:"]
    return one_line((errors or lines or ["it says nothing"])[-1].removeprefix("ERROR:"))[:300]
