"""
What was installed beside Salt comes along into the interpreter of the updated minion.

A new package may bring another prefix or another Python minor version, and with it an empty
place for what ``salt-pip`` or ``pip`` had put beside Salt. So everything that no package
owns is staged ahead, while the network is there: copied where its files work there as well,
else fetched in a build for that Python. After the installation it is put into its new place,
this extension first, and imported there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from ..errors import CommandError, SafeUpdateError, VerificationError
from ..host.command import Run
from ..host.files import sync_directory, write_atomic

_ASK_TIMEOUT = 120.0
_FETCH_TIMEOUT = 600.0
_LISTING_TIMEOUT = 120.0
_LIST = "extensions.json"
_OURS = __name__.partition(".")[0].replace("_", "-")
# Run by the interpreter that is asked. It has only the standard library.
_INVENTORY = r"""
import importlib.metadata as metadata, json, os, sys, sysconfig
here, seen = [], set()
for place in sys.path:
    for name in sorted(os.listdir(place)) if os.path.isdir(place) else ():
        if not name.endswith((".dist-info", ".egg-info")):
            continue
        path = os.path.join(place, name)
        found = metadata.Distribution.at(path)
        called = found.metadata["Name"]
        if not called or called.lower().replace("_", "-") in seen:
            continue
        seen.add(called.lower().replace("_", "-"))
        files = [str(file) for file in found.files or ()]
        if not files:
            tops = (found.read_text("top_level.txt") or "").split()
            for top in tops:
                for directory, _, names in os.walk(os.path.join(place, top)):
                    files += [os.path.relpath(os.path.join(directory, n), place) for n in names]
            tops = [f"{top}.py" for top in tops] + [name]
            files += [top for top in tops if os.path.isfile(os.path.join(place, top))]
            for directory, _, names in os.walk(path):
                files += [os.path.relpath(os.path.join(directory, n), place) for n in names]
        points = [point.value.partition(":")[0] for point in found.entry_points
                  if point.group == "salt.loader"]
        here.append({"name": called, "version": found.version, "place": place, "info": name,
                     "files": files, "points": points,
                     "requires": found.metadata["Requires-Python"] or ""})
print(json.dumps({"python": list(sys.version_info[:2]), "paths": sys.path,
                  "purelib": sysconfig.get_paths()["purelib"], "distributions": here}))
"""
# The same, without looking into the distributions: the restart waits for this one.
_PLACES = r"""
import json, os, sys, sysconfig
names = [name.rpartition(".")[0].partition("-")[0]
         for place in sys.path if os.path.isdir(place) for name in os.listdir(place)
         if name.endswith((".dist-info", ".egg-info")) and any(
             os.path.isfile(os.path.join(place, name, told)) for told in ("METADATA", "PKG-INFO"))]
print(json.dumps({"python": list(sys.version_info[:2]), "paths": sys.path,
                  "purelib": sysconfig.get_paths()["purelib"], "names": names}))
"""
_IMPORT = r"""
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException as error:
        print(f"bad {name} {type(error).__name__}: {error}".replace("\n", " "), flush=True)
    else:
        print(f"good {name}", flush=True)
"""
_EXTRAS = "extras-"
# Every interpreter with a pip has its own of these.
_TOOLS = ("pip", "setuptools", "wheel")
_PYTHON_PATH = re.compile(
    r"/python3\.(\d+)/(?:site|dist)-packages/salt/__init__\.py$", re.MULTILINE
)
_SPECIFIER = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?$")


@dataclass(frozen=True, kw_only=True)
class Extension:
    """
    A distribution in the minion's interpreter that belongs to no package.

    *place* is the directory that *files* are relative to, *info* the one of its metadata,
    *modules* what of it can be imported now, *python* the minor version that this is so in.
    """

    name: str
    version: str
    place: str
    info: str
    files: tuple[str, ...]
    modules: tuple[str, ...]
    python: int
    requires: str = ""

    @property
    def fits_any(self) -> bool:
        """Whether its files work in every newer minor version."""
        return all(
            not name.endswith(".so") or name.endswith(".abi3.so")
            for name in map(os.path.basename, self.files)
        )

    @property
    def ours(self) -> bool:
        return _normal(self.name) == _OURS


class Problem(NamedTuple):
    """Why an extension would not be there after the update, and what to do about it."""

    extension: str
    reason: str
    fix: str


# -- before the update -----------------------------------------------------------------


def inventory(
    python: str, run: Run, unowned: Callable[[Iterable[str]], set[str]]
) -> list[Extension]:
    """
    Return what lives beside Salt in the interpreter and belongs to no package, ours first.

    *unowned* returns those of the given files that no package owns. Where Salt itself is one
    of them, nothing is beside it: no package manager replaces it.
    """
    told = _ask(python, run)
    metadata = {_metadata_file(each): each for each in told["distributions"]}
    free = unowned(metadata)
    if any(_normal(metadata[path]["name"]) == "salt" for path in free):
        return []
    found = []
    for path, each in metadata.items():
        if path not in free or _normal(each["name"]) in _TOOLS:
            continue
        files = tuple(name for name in each["files"] if _inside(name))
        good, _ = _imported(python, run, _modules(files) + each["points"])
        found.append(
            Extension(
                name=each["name"],
                version=each["version"],
                place=each["place"],
                info=each["info"],
                files=files,
                modules=tuple(good),
                python=told["python"][1],
                requires=each["requires"],
            )
        )
    return sorted(found, key=lambda each: (not each.ours, each.name))


def python_of(files: Iterable[str], run: Run) -> int | None:
    """Return the Python minor version that Salt has in these package files, None if untold."""
    for path in files:
        lister = ("dpkg-deb", "--contents") if path.endswith(".deb") else ("rpm", "-qpl")
        listed = run((*lister, path), timeout=_LISTING_TIMEOUT, keep=_PYTHON_PATH.search).stdout
        found = _PYTHON_PATH.search(listed)
        if found:
            return int(found[1])
    return None


def unfit(extensions: Iterable[Extension], python: int | None) -> list[Problem]:
    """Return which extensions say themselves that they do not go with Python 3.*python*."""
    if python is None:
        return []
    return [
        Problem(
            each.name,
            f"{each.name} {each.version} does not go with Python 3.{python}: it wants "
            f"{each.requires}.",
            f"Install a version of {each.name} that does, or remove it.",
        )
        for each in extensions
        if not allows(each.requires, python)
    ]


def stage(
    extensions: Sequence[Extension],
    directory: str,
    *,
    program: str,
    python: int | None,
    run: Run,
) -> list[Problem]:
    """
    Get the extensions ready in *directory* for Python 3.*python*; return what cannot be had.

    *program* is the running interpreter, whose pip fetches a build for another minor version.
    None for *python*: it stays what it is. What is there now is copied as well, for the way
    back. Idempotent; the list is written last.
    """
    problems = []
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        for each in extensions:
            _copy_files(each.place, _staged(directory, each, each.python), each.files)
            if not each.fits_any and python not in (None, each.python):
                problems += _fetch(each, python, _staged(directory, each, python), program, run)
        os.sync()
        listed = [asdict(each) for each in extensions]
        write_atomic(os.path.join(directory, _LIST), json.dumps(listed, indent=1))
    except OSError as err:
        raise SafeUpdateError(
            f"What is installed beside Salt could not be staged in {directory}: {err}. Nothing "
            "was changed; look at the space there."
        ) from err
    return problems


def allows(requires: str, python: int) -> bool:
    """Tell whether a ``Requires-Python`` lets Python 3.*python* in; what is unreadable does."""
    newest = (3, python, 999)  # its patch release is not known: the newest counts
    for part in filter(None, (part.strip() for part in requires.split(","))):
        match = _SPECIFIER.match(part)
        if match is None:
            continue
        operator, text, star = match.groups()
        wanted = tuple(int(number) for number in text.split("."))
        same = newest[: len(wanted)] == wanted
        if not {
            "==": same,
            "!=": not (star and same),
            "~=": newest >= wanted and newest[: len(wanted) - 1] == wanted[:-1],
            ">=": newest >= wanted,
            ">": newest > wanted,
            "<": (3, python) < wanted,
            "<=": newest <= wanted,
        }[operator]:
            return False
    return True


# -- after the installation ------------------------------------------------------------


def load(directory: str) -> list[Extension]:
    """Return what is staged in *directory*; nothing where nothing was."""
    try:
        with open(os.path.join(directory, _LIST), encoding="utf-8") as file:
            listed = json.load(file)
    except FileNotFoundError:
        return []
    return [
        Extension(**{**each, "files": tuple(each["files"]), "modules": tuple(each["modules"])})
        for each in listed
    ]


def carry(python: str, run: Run, directory: str) -> list[str]:
    """
    Have what is staged in *directory* importable with *python*; return the names put there.

    What is there and can be imported is left alone. Needs no network. Idempotent. Raises
    VerificationError, after all have been tried, with those that cannot be imported.
    """
    put, failed = [], []
    listed = load(directory)
    where = _ask(python, run, _PLACES) if listed else {"names": []}
    there = {_normal(name) for name in where["names"]}
    for each in listed:
        # Its metadata comes last: without it, what can be imported may be half of it.
        if _normal(each.name) in there and not _imported(python, run, each.modules)[1]:
            continue
        source = _staged(directory, each, each.python if each.fits_any else where["python"][1])
        if not os.path.isdir(source):
            failed.append(f"{each.name} {each.version} (no build for this Python was staged)")
            continue
        _put(source, _place(each, where))
        put.append(each.name)
        bad = _imported(python, run, each.modules)[1]
        if bad:
            failed.append(f"{each.name} {each.version} ({'; '.join(bad)})")
    if failed:
        raise VerificationError(
            f"{python} cannot import what was installed beside Salt: {', '.join(failed)}. "
            f"Install a version that fits with '{python} -m pip install'."
        )
    return put


# -- how -------------------------------------------------------------------------------


def _ask(python: str, run: Run, what: str = _INVENTORY) -> dict[str, Any]:
    answer = run((python, "-I", "-c", what), timeout=_ASK_TIMEOUT)
    return dict(json.loads(answer.stdout))


def _imported(python: str, run: Run, modules: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return which modules can be imported, and what is said of the others."""
    names = list(dict.fromkeys(modules))
    if not names:
        return [], []
    # What it compiles, the minion that starts next does not have to.
    answer = run((python, "-I", "-c", _IMPORT, *names), timeout=_ASK_TIMEOUT, ok=None)
    lines = [line.partition(" ") for line in answer.stdout.splitlines()]
    good = [name for word, _, name in lines if word == "good" and name in names]
    told = {said.partition(" ")[0]: said for word, _, said in lines if word == "bad"}
    lost = [name for name in names if name not in good]
    return good, [told.get(name, f"{name} ends the interpreter") for name in lost]


def _metadata_file(each: dict[str, Any]) -> str:
    """Return the file that stands for a distribution when it is asked who owns it."""
    info = os.path.join(each["place"], each["info"])
    inside = [os.path.join(info, name) for name in ("METADATA", "PKG-INFO")]
    return next((path for path in inside if os.path.isfile(path)), info)


def _modules(files: Iterable[str]) -> list[str]:
    """Return what to import of a distribution: its topmost packages, and its modules."""
    packages = {os.path.dirname(name) for name in files if name.endswith("/__init__.py")}
    top = {path for path in packages if not any(path.startswith(other + "/") for other in packages)}
    top |= {
        name.partition(".")[0]
        for name in files
        if "/" not in name and name.endswith((".py", ".so"))
    }
    # What cannot be a name is data that looks like code.
    parts = (path.split("/") for path in sorted(top))
    return [".".join(names) for names in parts if all(map(str.isidentifier, names))]


def _inside(name: str) -> bool:
    """Leave out scripts and the like beside the place, and what Python compiles by itself."""
    return not name.startswith(("..", "/")) and "__pycache__" not in name


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _copy_files(source: str, target: str, files: Iterable[str]) -> None:
    for name in files:
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(os.path.join(source, name), path)


def _staged(directory: str, each: Extension, python: int) -> str:
    return os.path.join(directory, f"3.{python}", _normal(each.name))


def _fetch(each: Extension, python: int, target: str, program: str, run: Run) -> list[Problem]:
    """Have pip unpack a build for Python 3.*python* at *target*; return what is wrong."""
    if os.path.isdir(target):
        return []
    part = f"{target}.part"
    shutil.rmtree(part, ignore_errors=True)
    options = ("--quiet", "--disable-pip-version-check", "--no-input", "--no-deps", "--no-compile")
    where = ("--only-binary=:all:", f"--python-version=3.{python}", f"--target={part}")
    argv = (program, "-m", "pip", "install", *options, *where, f"{each.name}=={each.version}")
    try:
        run(argv, timeout=_FETCH_TIMEOUT)
    except CommandError as err:
        said = [line for line in err.stderr.splitlines() if line.startswith("ERROR")]
        return [
            Problem(
                each.name,
                f"{each.name} {each.version} is compiled for Python 3.{each.python}, and no build "
                f"of it for Python 3.{python} could be had: {said[-1] if said else err.reason}.",
                f"Install a version of {each.name} that exists for both, or remove it.",
            )
        ]
    os.rename(part, target)
    return []


def _place(each: Extension, where: dict[str, Any]) -> str:
    """Return where *each* belongs: the place of salt-pip, where it has one and it was there."""
    if os.path.basename(each.place).startswith(_EXTRAS):
        for path in where["paths"]:
            if os.path.basename(path).startswith(_EXTRAS):
                return str(path)
    return str(where["purelib"])


def _put(source: str, place: str) -> None:
    """Copy the staged files; the metadata comes last, so that a cut one is not taken for it."""
    names = [
        os.path.relpath(os.path.join(directory, name), source)
        for directory, _, files in os.walk(source)
        for name in files
    ]
    for name in sorted(names, key=lambda name: ("-info" + os.sep in name, name)):
        path = os.path.join(place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.part"
        shutil.copy2(os.path.join(source, name), part)
        os.replace(part, path)
    sync_directory(place)
