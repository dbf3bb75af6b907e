"""
This extension as a package: what an update of it is fetched, secured, installed and put back with.

The pip of the minion's Python fetches the wheels, without their dependencies. They are unpacked
here: this extension is pure Python and has no scripts, and a rollback must need neither pip nor
network. Its metadata go first and come last: until all is there, nothing is installed, and what was
begun is done again from its file.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
import zipfile
from collections.abc import Iterable, Mapping, Sequence

from ..errors import CommandError, InputError, SafeUpdateError, VerificationError
from ..extensions import ourselves
from ..host.command import Run
from ..host.files import sync_directory
from ..packages.files import store_file, verify_files, writing_packages
from ..packages.request import File

NAME = "saltext-safeupdate"
_PACKAGE = "saltext_safeupdate"
_TIMEOUT = 600.0
_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps")
_INSIDE = re.compile(rf"{_PACKAGE}(-[\w.+]+\.dist-info)?/")
_VERSION = re.compile(rb'^__version__ = "([^"]+)"\s*$', re.M)
# The date of all files in the copies of what was installed.
_DATE = (1980, 1, 1, 0, 0, 0)


class OwnExtension:
    """
    The installer of this extension in the directory *place*.

    *python* is the minion's interpreter. *source* is a directory with wheels, the URL of an
    index, or empty for what pip is configured with.
    """

    name = "pip"

    def __init__(self, place: str, python: str, run: Run, source: str = "") -> None:
        self._place = place
        self._python = python
        self._run = run
        self._source = source

    def problem(self, unowned: Iterable[str]) -> str:
        """Return why it cannot be updated in its place; *unowned* are its files of no package."""
        if not self.installed([NAME]):
            return f"The extension in {self._place} was not installed by pip."
        if self._file("__init__.py") not in set(unowned):
            return "The extension is part of a package: the package manager updates it."
        if not os.access(self._place, os.W_OK):
            return f"{self._place} cannot be written."
        return ""

    @property
    def file(self) -> str:
        """A file of it, by which its owner is found."""
        return self._file("__init__.py")

    def installed(self, packages: Iterable[str]) -> dict[str, str]:
        version = ourselves.version_in(os.path.join(self._place, _PACKAGE))
        # pip leaves the metadata of earlier versions if it installs into a target.
        there = NAME in packages and version and self._infos()
        return {NAME: version} if there else {}

    def targets(self, packages: Iterable[str], version: str | None) -> dict[str, str]:
        if not version:
            raise InputError("The version of the extension has to be named. Nothing was changed.")
        return dict.fromkeys(packages, version)

    def download(self, targets: Mapping[str, str], directory: str) -> list[File]:
        version = targets[NAME]
        env = {}
        # An address may have a password in it: arguments are for all users to see.
        if self._source.startswith("/"):
            env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": self._source}
        elif self._source:
            env = {"PIP_INDEX_URL": self._source}
        where = ("--only-binary=:all:", f"--dest={directory}", f"{NAME}=={version}")
        argv = (self._python, "-m", "pip", "download", *_OPTIONS, *where)
        try:
            self._run(argv, timeout=_TIMEOUT, env=env)
        except CommandError as err:
            said = [line for line in err.stderr.splitlines() if line.startswith("ERROR")]
            raise SafeUpdateError(
                f"Version {version} of the extension could not be fetched: "
                f"{said[-1] if said else err.reason}. Nothing was changed; look at "
                "'safeupdate:extension_source'."
            ) from err
        found = glob.glob(os.path.join(glob.escape(directory), f"{_PACKAGE}-*.whl"))
        if len(found) != 1:
            raise VerificationError("pip has not fetched exactly one wheel. Nothing was changed.")
        with writing_packages(directory):
            return [store_file(found[0], directory, NAME, version)]

    def verify(self, files: Sequence[File]) -> None:
        verify_files(files, _shown)

    def install(self, files: Sequence[File]) -> None:
        part = os.path.join(self._place, f".{_PACKAGE}.part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            with zipfile.ZipFile(files[0].path) as wheel:
                _shown(files[0].path)
                wheel.extractall(part)
            for name in os.listdir(part):
                _readable(os.path.join(part, name))
            for path in (*self._infos(), os.path.join(self._place, _PACKAGE)):
                shutil.rmtree(path, ignore_errors=True)
            # The files by which Salt's loader finds it come last.
            for name in sorted(os.listdir(part), key=lambda name: name != _PACKAGE):
                os.rename(os.path.join(part, name), os.path.join(self._place, name))
            os.rmdir(part)
            sync_directory(self._place)
        except (OSError, zipfile.BadZipFile) as err:
            raise CommandError((NAME,), f"it cannot be put into {self._place}: {err}") from err

    def secure(self, packages: Sequence[str], directory: str) -> list[File]:
        version = self.installed(packages).get(NAME, "")
        path = os.path.join(directory, f"{_PACKAGE}-{version}-py3-none-any.whl")
        with writing_packages(directory), zipfile.ZipFile(f"{path}.part", "w") as wheel:
            for top in (os.path.join(self._place, _PACKAGE), *self._infos()):
                for name in _files(top):
                    with open(name, "rb") as file:
                        inside = os.path.relpath(name, self._place)
                        wheel.writestr(zipfile.ZipInfo(inside, _DATE), file.read())
        os.rename(f"{path}.part", path)
        return [store_file(path, directory, NAME, version)]

    def needs_to_secure(self, packages: Sequence[str]) -> int:
        tops = (os.path.join(self._place, _PACKAGE), *self._infos())
        return sum(os.path.getsize(name) for top in tops for name in _files(top))

    def needs(self, what: Mapping[str, str] | Sequence[File]) -> int:
        # pip does not tell; a version is about as large as the one before.
        return self.needs_to_secure((NAME,))

    def _infos(self) -> list[str]:
        return ourselves.metadata(self._place)

    def _file(self, name: str) -> str:
        return os.path.join(self._place, _PACKAGE, name)


def _files(top: str) -> list[str]:
    """Return the files below a directory, in their order, without byte code."""
    found = []
    for directory, names, files in os.walk(top):
        names[:] = sorted(name for name in names if name != "__pycache__")
        found += [os.path.join(directory, name) for name in sorted(files)]
    return found


def _shown(path: str) -> tuple[str, str]:
    """Return the name and the version of a wheel. Raise CommandError if it is not ours."""
    try:
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            text = wheel.read(f"{_PACKAGE}/__init__.py")
    except (KeyError, OSError, zipfile.BadZipFile) as err:
        raise CommandError((NAME,), f"it is no wheel of this extension: {err}") from err
    version = _VERSION.search(text)
    odd = [name for name in names if not _INSIDE.match(name) or ".." in name.split("/")]
    if odd or version is None:
        raise CommandError((NAME,), f"it is no wheel of this extension: it has {odd[:1]}")
    return NAME, version[1].decode(errors="replace")


def _readable(top: str) -> None:
    """Let everybody read it, as pip does, whatever the umask is."""
    for directory, _, files in os.walk(top):
        os.chmod(directory, 0o755)  # noqa: S103 (the minion's users import it)
        for name in files:
            path = os.path.join(directory, name)
            os.chmod(path, stat.S_IMODE(os.stat(path).st_mode) | 0o644)
