"""The request of a call of ``pkg.install`` or a similar function to the package manager."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import salt.utils.data
from salt.utils.args import split_input

from ..core.packages.request import Action, Request
from .chunks import without_packages

ACTIONS = {
    "pkg.install": Action.INSTALL,
    "pkg.remove": Action.REMOVE,
    "pkg.purge": Action.PURGE,
    "pkg.upgrade": Action.UPGRADE,
    "pkg.update": Action.UPGRADE,
    "pkg.autoremove": Action.AUTOREMOVE,
}
# Arguments that leave the running system alone, in a function that has a parameter of that name:
# switches, and the directory of another system. Every other function ignores them.
_SWITCHES = ("downloadonly", "download_only", "dryrun", "list_only")
_ROOTS = ("installroot", "root")
# Functions that take switches from their keyword arguments, by the file of their module.
_TAKEN = {("aptpkg", "upgrade"): ("downloadonly", "download_only")}
# Those that make options of yum or dnf of them: of True a switch, of a text an option.
_OPTIONS = (("yumpkg", "update"), ("yumpkg", "upgrade"))
# Such options that say which packages, or which versions, there are to choose from.
_CHOOSING = frozenset(
    (
        *("advisories", "advisory", "advisory-severities", "allowerasing", "best", "bugfix"),
        *("bz", "bzs", "cve", "cves", "enhancement", "exclude", "excludepkgs", "newpackage"),
        *("no-best", "nobest", "releasever", "sec-severity", "secseverity", "security"),
    )
)
# Arguments that choose repositories; if the module honours them, they reach the front end.
REPOSITORIES = ("fromrepo", "repo", "enablerepo", "disablerepo", "disableexcludes")
# Arguments of a call that also apply to its refresh of the metadata.
_OF_REFRESH = ("cache_valid_time", *REPOSITORIES)


class Call(NamedTuple):
    """A call of an execution function, whose arguments fit it."""

    fun: str
    original: Callable[..., Any]
    args: Any
    kwargs: Mapping[str, Any]

    def make(self) -> Any:
        return self.original(*self.args, **self.kwargs)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments by name, however they were given."""
        bound = inspect.signature(self.original).bind_partial(*self.args, **self.kwargs).arguments
        return {**bound, **bound.get("kwargs", {})}

    def with_arguments(self, **changed: Any) -> Call:
        """Return the call with some arguments changed."""
        bound = inspect.signature(self.original).bind_partial(*self.args, **self.kwargs)
        for name in changed.keys() & bound.signature.parameters.keys():
            bound.arguments[name] = changed.pop(name)
        return self._replace(args=bound.args, kwargs={**bound.kwargs, **changed})


def requested(
    fun: str, original: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]
) -> Request | None:
    """Return what the call asks of the package manager; None if it changes nothing here."""
    if fun not in ACTIONS:
        return None
    try:
        bound = inspect.signature(original).bind_partial(*args, **kwargs).arguments
    except TypeError:
        # The call will fail with the same complaint.
        return None
    given = {**bound, **bound.get("kwargs", {})}
    if _leaves_the_system_alone(original, given):
        return None
    action = ACTIONS[fun]
    if _patches(given):
        # At most what an upgrade of everything changes.
        return _upgrade(original, given)
    files, sourced = _sources(original, given)
    return Request(
        action=action,
        targets=(*targets(given), *sourced),
        files=files,
        release=_release(original, given),
        options=(*_options(original, given), *_best(original)),
        full=bool(given.get("dist_upgrade")),
        again=bool(given.get("reinstall")),
    )


def forget_installed(original: Callable[..., Any]) -> None:
    """Make Salt's module ask for the installed packages again, instead of remembering them."""
    context = inspect.unwrap(original).__globals__.get("__context__")
    # zypper's module remembers them by its arguments.
    for key in [key for key in context or () if str(key).startswith("pkg.list_pkgs")]:
        context.pop(key)


def patches(call: Call) -> dict[str, Request | None]:
    """Return the patches that the call names, with what each comes to; None: nobody can say."""
    return {patch: together(call, [patch]) for patch in _patches(call.given)}


def together(call: Call, ids: Iterable[str]) -> Request | None:
    """Return what patches that the call names come to in one go; None: nobody can say."""
    place = _place(call.original)[0]
    if place == "zypperpkg":
        return Request(
            action=Action.INSTALL, targets=tuple((f"patch:{each}", None) for each in ids)
        )
    if place == "yumpkg":
        return _upgrade(call.original, call.given, *(f"--advisory={each}" for each in ids))
    return None


def _upgrade(original: Callable[..., Any], given: Mapping[str, Any], *options: str) -> Request:
    """Return the upgrade of everything in the repositories that the arguments name."""
    return Request(
        action=Action.UPGRADE,
        release=_release(original, given),
        options=(*_options(original, given), *options),
    )


def _patches(given: Mapping[str, Any]) -> list[str]:
    """Return the IDs of patches, as Salt takes them: of the one, the argument may be empty."""
    if "advisory_ids" not in given or given.get("sources") or given.get("pkgs"):
        return []
    listed = _as_list(given["advisory_ids"]) or _as_list(given.get("name"))
    return [str(patch) for patch in listed]


def _release(original: Callable[..., Any], given: Mapping[str, Any]) -> str | None:
    """Return the release or repository to install from; None if there may be several."""
    named = given.get("fromrepo")
    if not named and _place(original)[0] != "zypperpkg":
        # An older name, which zypper's module does not know.
        named = given.get("repo")
    if isinstance(named, list | tuple):
        named = named[0] if len(named) == 1 else None
    return str(named) if named else None


def _options(original: Callable[..., Any], given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options that Salt's module for apt, yum or dnf makes of what the call asks for."""
    place = _place(original)
    if place == ("aptpkg", "install"):
        return _options_of_apt(given)
    if place[0] != "yumpkg":
        return ()
    # A single repository is named in ``release``.
    single = bool(given.get("fromrepo") or given.get("repo"))
    named = [*(() if single else ("disablerepo", "enablerepo")), "disableexcludes", "branch"]
    options = [f"--{key}={value}" for key in named for value in _as_list(given.get(key))]
    options += [f"--setopt={each}" for each in _setopt(original, given)]
    for key in sorted(_CHOOSING & set(given)) if place in _OPTIONS else ():
        if isinstance(given[key], str):
            options.append(f"--{key}={given[key]}")
        elif given[key] is True:
            options.append(f"--{key}")
    return tuple(options)


def _best(original: Callable[..., Any]) -> tuple[str, ...]:
    """Return the options without which dnf may keep an older version; Salt's module has them."""
    front_end = inspect.unwrap(original).__globals__.get("_yum", str)
    is_dnf = _place(original) == ("yumpkg", "install") and front_end() == "dnf"
    return ("--best", "--allowerasing") if is_dnf else ()


def _options_of_apt(given: Mapping[str, Any]) -> tuple[str, ...]:
    options = ["--only-upgrade"] if given.get("only_upgrade") else []
    if "install_recommends" in given:
        options.append(f"--{'' if given['install_recommends'] else 'no-'}install-recommends")
    return tuple(options)


def _setopt(original: Callable[..., Any], given: Mapping[str, Any]) -> list[str]:
    """Return the settings of one call, among them whether it replaces what is obsolete."""
    settings = [str(each) for each in split_input(given.get("setopt") or [])]
    parameter = inspect.signature(original).parameters.get("obsoletes")
    if parameter is None or given.get("obsoletes", parameter.default):
        return settings
    return [*(each for each in settings if not each.startswith("obsoletes=")), "obsoletes=False"]


def _as_list(value: object) -> list[object]:
    if not value:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _sources(
    original: Callable[..., Any], given: Mapping[str, Any]
) -> tuple[tuple[str, ...], tuple[tuple[str, str | None], ...]]:
    """Return the package files, and what is only known by its name because there is no file."""
    files: list[str] = []
    named: list[tuple[str, str | None]] = []
    for source in given.get("sources") or ():
        for name, path in source.items() if isinstance(source, dict) else ((None, source),):
            file = _file(original, str(path), given)
            if file:
                files.append(file)
            elif name is not None:
                named.append((str(name), None))
    return tuple(files), tuple(named)


def _file(original: Callable[..., Any], path: str, given: Mapping[str, Any]) -> str:
    """Return where the file is, or where Salt puts its copy; empty if it cannot be had."""
    if os.path.isabs(path):
        return path
    functions = inspect.unwrap(original).__globals__.get("__salt__") or {}
    if "://" not in path or "cp.cache_file" not in functions:
        return ""
    # The call itself fetches it as well, and then finds that it is the same.
    return str(functions["cp.cache_file"](path, given.get("saltenv") or "base") or "")


def _leaves_the_system_alone(original: Callable[..., Any], given: Mapping[str, Any]) -> bool:
    """Tell whether the function only looks, downloads, or changes another system."""
    place = _place(original)
    honoured = {*inspect.signature(original).parameters, *_TAKEN.get(place, ())}
    if any(given.get(key) for key in _SWITCHES if key in honoured):
        return True
    if place in _OPTIONS:
        root = given.get("installroot")
        return given.get("downloadonly") is True or (isinstance(root, str) and _elsewhere(root))
    return any(_elsewhere(given.get(key)) for key in _ROOTS if key in honoured)


def _place(original: Callable[..., Any]) -> tuple[str, str]:
    """Return the file of the function's module, and the name of the function."""
    plain = inspect.unwrap(original)
    return str(plain.__globals__.get("__name__", "")).rpartition(".")[2], plain.__name__


def _elsewhere(root: object) -> bool:
    return bool(root) and os.path.realpath(str(root)) != "/"


def targets(given: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """Yield the packages that the arguments name, each with the version that they ask for."""
    if given.get("sources"):
        return
    pkgs = given.get("pkgs")
    if pkgs:
        for entry in pkgs if isinstance(pkgs, list | tuple) else [pkgs]:
            if isinstance(entry, dict):
                for name, version in entry.items():
                    yield str(name), _version(version)
            else:
                yield str(entry), None
    elif given.get("name"):
        names = str(given["name"]).split(",")
        version = _version(given.get("version")) if len(names) == 1 else None
        for name in names:
            yield name.strip(), version


def _version(given: Any) -> str | None:
    """Return the version as it was asked for: also a pattern, or a comparison."""
    text = str(given or "").strip()
    return text if text not in ("", "latest") else None


def refresh_first(call: Call) -> Call:
    """
    Refresh the metadata now if the call would; return the call without that.

    So the simulation and the call see the same versions. How old the metadata may be, and of
    which repositories it is, is what the call says.
    """
    signature = inspect.signature(call.original)
    parameter = signature.parameters.get("refresh")
    default = parameter.default if parameter is not None else False
    given = call.given
    refresh_db = inspect.unwrap(call.original).__globals__.get("refresh_db")
    if refresh_db is None or not salt.utils.data.is_true(given.get("refresh", default)):
        return call
    refresh_db(**_taken(refresh_db, {k: given[k] for k in _OF_REFRESH if given.get(k)}))
    return call.with_arguments(refresh=False)


def _taken(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that the function takes."""
    parameters = inspect.signature(function).parameters
    if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        return dict(arguments)
    return {key: value for key, value in arguments.items() if key in parameters}


def without(call: Call, names: frozenset[str]) -> Call | None:
    """Return the call without the packages *names*; None if it names no other package."""
    given = call.given
    for key in ("pkgs", "sources"):
        if given.get(key):
            rest = without_packages({key: _as_list(given[key])}, names)
            return None if rest is None else call.with_arguments(**rest)
    others = [name for name in str(given.get("name") or "").split(",") if name.strip() not in names]
    return call.with_arguments(name=",".join(others)) if any(others) else None


def only(call: Call, names: list[str]) -> Call | None:
    """Return the upgrade for the packages *names*; None if the function takes no names."""
    if "pkgs" not in inspect.signature(call.original).parameters:
        return None
    return call.with_arguments(pkgs=names)
