"""
The one file of ours among the configuration files of a minion or a master.

Salt has no way to add to a list of the main file: a key of an included file replaces the whole key
of the main file. So our file repeats what it would hide, and is compared with the main file again
whenever the state runs. Nothing is written before the result has been put together as Salt does it,
and found complete.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import salt.utils.yaml

from ...core.errors import InputError, SafeUpdateError
from ...core.host import rights
from ...core.host.files import write_atomic
from . import config_files, executors, stand_ins
from .config_files import ConfigFiles

# Who writes it: a state of ours, or the runner.
HEAD = ("# Managed by the state safeupdate.", "# Managed by salt-run safeupdate.")
# Which keys of 'safeupdate' the state has written: others may have been added by hand.
SETTINGS = "# Its settings: "
# And which it repeats, because the file would hide them.
REPEATED = "# Settings of the main file: "
# Settings that may have a secret in them.
_SECRET = ("health_check",)
# A run that owns the directory leaves out names with "_": Salt's own files there begin with it.
NAMES = ("_safeupdate.conf", "safeupdate.conf")
_UNCHANGED = "Nothing was written."
_ENGINE_NAME = re.compile(r"^[\w.-]+$")

# Called with the files as they are without ours, and what ours says so far.
Wish = Callable[[config_files.Merged, dict[str, Any]], None]


class ConfigFile:
    """
    The one file of ours among the configuration files of a daemon.

    *path* is where it is to be; None: where it is, or else in the directory that the daemon
    includes. *wishes* add to what it says. *by* says what writes it. *settings* are what
    it is to have below ``safeupdate``; None: those that the state has written before. Raises
    SafeUpdateError if there is no way to write it that takes nothing away.
    """

    def __init__(
        self,
        files: ConfigFiles,
        path: str | None,
        by: str,
        wishes: Collection[Wish],
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if path is not None and not (isinstance(path, str) and "\0" not in path):
            raise InputError(
                f"'config_file' must be the path of a file, not {path!r}. Nothing was written."
            )
        self._files = files
        self._head = f"# Managed by {by}.\n"
        self.path = path or place_of(files)
        self.old = text_of(self.path)
        self._managed = self.old.startswith(HEAD)
        self._present = config_files.read(self.path) if self._managed else {}
        others = files.merged(self.path if self._managed else "")
        keys = {key: value for key, value in self._present.items() if key not in _KEYS}
        for wish in wishes:
            wish(others, keys)
        self._wanted = keys
        self._head += self._have_settings(others, settings)
        # The configuration that is in effect with it.
        merged = files.merged(self.path, keys) if "safeupdate" in keys else others
        self.settings: Any = merged.all.get("safeupdate")
        self.warnings = self._lost(others)
        # Another file may hide since then what ours says, and all would seem to be well.
        if self.differs or self._managed:
            self._refuse_harm(others)

    def _have_settings(
        self, others: config_files.Merged, settings: Mapping[str, Any] | None
    ) -> str:
        """Put the settings into what is wanted; return the lines that tell ours from others'."""
        now, present = others.all.get("safeupdate") or {}, self._present.get("safeupdate") or {}
        for said in (now, present):
            if not isinstance(said, dict):
                raise _malformed("safeupdate", said)
        ours, repeated = declared(self.old, SETTINGS), declared(self.old, REPEATED)
        if settings is None:
            settings = {name: present[name] for name in ours if name in present}
        else:
            settings = {name: each for name, each in settings.items() if now.get(name) != each}
        by_hand = {name: each for name, each in present.items() if name not in (*ours, *repeated)}
        if not settings and not by_hand:
            return ""
        hidden = now if _hides(others, "safeupdate") else {}
        self._wanted["safeupdate"] = {**hidden, **by_hand, **settings}
        lines = {SETTINGS: settings, REPEATED: set(hidden) - {*settings, *by_hand}}
        return "".join(f"{line}{', '.join(sorted(each))}\n" for line, each in lines.items() if each)

    @property
    def differs(self) -> bool:
        """Whether it has to be written."""
        if not self._managed:
            return bool(self._wanted)
        return self._present != self._wanted

    def takes_effect_by_restart(self, opts: Mapping[str, Any]) -> bool:
        """
        Tell whether a daemon that runs with *opts* has to read it again.

        It does not if somebody has only removed the file since the daemon read it.
        """
        return self.differs and not (not self.old and all(self._have(opts)))

    def _have(self, opts: Mapping[str, Any]) -> Iterator[bool]:
        for key, wanted in self._wanted.items():
            if key == "safeupdate":
                yield opts.get(key) == self.settings
            else:
                now = entries(opts.get(key))
                yield all(entry in now for entry in entries(wanted))

    def changes(self) -> dict[str, Any]:
        """Return what differs, by path, as a state reports it: names, for values may be secret."""
        if not self.differs:
            return {}
        return {self.path: {"old": names_of(self._present), "new": names_of(self._wanted)}}

    @property
    def new(self) -> str:
        """The text to write."""
        if not self._wanted:
            return self._head
        text: str = salt.utils.yaml.safe_dump(self._wanted, default_flow_style=False)
        return self._head + text

    def write(self) -> None:
        """Write it. Raises SafeUpdateError."""
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o755, exist_ok=True)
            # It may repeat what the main file keeps secret.
            like = owner_of(self._files.main_file)
            write_atomic(self.path, self.new, mode=like.mode)
            if os.geteuid() == 0:
                os.chown(self.path, like.uid, like.gid)
        except OSError as err:
            raise SafeUpdateError(
                f"{self.path} cannot be written: {err.strerror or err}. The configuration is as "
                "it was; check its directory."
            ) from err

    def _refuse_harm(self, others: config_files.Merged) -> None:
        if self.old and not self._managed:
            raise SafeUpdateError(
                f"{self.path} was not written by this state. {_UNCHANGED} Give 'config_file' the "
                "path of another file in that directory, or add "
                f"{', '.join(sorted(self._wanted))} there by hand."
            )
        if not self._files.includes(self.path):
            raise SafeUpdateError(
                f"A daemon that reads {self._files.main_file} does not read {self.path}. "
                f"{_UNCHANGED} Leave 'config_file' out, or let 'default_include' name it."
            )
        said = salt.utils.yaml.safe_load(self.new) or {}
        result = self._files.merged(self.path, said).all
        for key in sorted(_KEYS & self._wanted.keys()):
            problem = _PROBLEMS[key](others.all.get(key), result.get(key), self._wanted[key])
            if problem:
                names = names_of(self._wanted)[key]
                raise SafeUpdateError(
                    f"With {self.path}, '{key}' would not be what it should: {problem} "
                    f"{_UNCHANGED} Add {names} to '{key}' by hand, where it is set now."
                )

    def _lost(self, others: config_files.Merged) -> list[str]:
        """Return a sentence on what only our file lists, and will not list any more."""
        if not self.differs:
            return []
        result = {**others.all, **self._wanted}
        gone = [
            f"{key}: {_shown(entry)}"
            for key in ("engines", "module_executors")
            for entry in entries(self._present.get(key))
            if not any(entry == other for other in entries(result.get(key)))
            and not any(entry == other for other in entries(others.all.get(key)))
        ]
        return [f"No other file lists this any more, so it is dropped: {'; '.join(gone)}."] * bool(
            gone
        )


def place_of(files: ConfigFiles, names: Sequence[str] = NAMES) -> str:
    """Return where our file is, or else where it is to be. Raises SafeUpdateError."""
    found = managed(files)
    if found:
        return found
    places = [place for place in map(files.place, names) if place]
    if not places:
        raise SafeUpdateError(
            f"No file could be added to those that {files.main_file} includes "
            f"('default_include'). {_UNCHANGED} Give 'config_file' a path that it includes."
        )
    return next((place for place in places if not text_of(place)), places[0])


def managed(files: ConfigFiles) -> str:
    """Return the path of the file that a state of ours has written, or an empty text."""
    return next((path for path in files.paths() if text_of(path).startswith(HEAD)), "")


def engine(name: str, options: Mapping[str, Any]) -> Wish:
    """Have the engine *name* started, with every other engine."""

    def wish(others: config_files.Merged, keys: dict[str, Any]) -> None:
        now = others.all.get("engines")
        if now is not None and not isinstance(now, list | dict):
            raise _malformed("engines", now)
        malformed = [entry for entry in entries(now) if engine_name(entry) is None]
        if malformed:
            raise _malformed("engines", list(map(_shown, malformed)))
        if name in map(engine_name, entries(now)):
            return
        hidden = now if _hides(others, "engines") else type(now or [])()
        if isinstance(hidden, dict):
            keys["engines"] = {**hidden, name: dict(options)}
        else:
            keys["engines"] = [*(hidden or ()), {name: dict(options)}]

    return wish


def first_executor(missing: Callable[[list[str]], list[str]]) -> Wish:
    """Have our executor asked first. *missing* returns those executors that do not exist."""

    def wish(others: config_files.Merged, keys: dict[str, Any]) -> None:
        key = "module_executors"
        now = executors.listed(others.all.get(key))
        unknown = None if now is None else missing(now)
        if now is None or unknown:
            raise _malformed(key, unknown or others.all[key])
        if executors.OURS in now and not executors.before_ours(now) and now[-1] != executors.OURS:
            return
        rest = [name for name in now if name != executors.OURS]
        merged = key in {**others.included, **others.last}
        keys[key] = [executors.OURS, *(() if merged else rest)]

    return wish


def directory(option: str, path: str) -> Wish:
    """Have Salt look into a directory, with every other one that *option* names."""

    def wish(others: config_files.Merged, keys: dict[str, Any]) -> None:
        now = others.all.get(option)
        if now is not None and not isinstance(now, list):
            raise _malformed(option, now)
        if path not in (now or ()):
            hidden = now if _hides(others, option) else None
            keys[option] = [*(hidden or ()), path]

    return wish


def peer_runner(who: str, function: str) -> Wish:
    """Let the minions that match *who* call the runner function."""

    def wish(others: config_files.Merged, keys: dict[str, Any]) -> None:
        now = others.all.get("peer_run") or {}
        if not isinstance(now, dict):
            raise _malformed("peer_run", now)
        allowed = now.get(who) or []
        if not isinstance(allowed, list):
            raise _malformed("peer_run", now)
        if function in allowed:
            return
        hidden = now if _hides(others, "peer_run") else {}
        keys["peer_run"] = {**hidden, who: [*(hidden.get(who) or ()), function]}

    return wish


def _hides(others: config_files.Merged, key: str) -> bool:
    """Tell whether the main file's *key* counts as long as our file does not have it."""
    return key in others.main and key not in others.included and key not in others.last


def _malformed(key: str, value: object) -> SafeUpdateError:
    return SafeUpdateError(
        f"'{key}' of the present configuration has a value that Salt cannot use: {value!r}. "
        f"{_UNCHANGED} Correct that first."
    )


def entries(option: object) -> list[Any]:
    if isinstance(option, dict):
        return [{name: value} for name, value in option.items()]
    return list(option) if isinstance(option, list) else [option] if option else []


def _shown(entry: object) -> str:
    """Return what a message says of an entry: its names, for its values may be secret."""
    return ", ".join(map(str, entry)) if isinstance(entry, dict) else str(entry)


def names_of(content: Mapping[str, Any]) -> dict[str, list[str]]:
    return {
        key: _settings_shown(value) if key == "safeupdate" else list(map(_shown, entries(value)))
        for key, value in content.items()
    }


def _settings_shown(value: object) -> list[str]:
    said = value if isinstance(value, dict) else {}
    return [name if name in _SECRET else f"{name}: {each}" for name, each in said.items()]


def engine_name(entry: object) -> str | None:
    if isinstance(entry, dict):
        names = list(entry)
        entry = names[0] if len(names) == 1 else None
    return entry if isinstance(entry, str) and _ENGINE_NAME.match(entry) else None


def _engines_problem(before: object, after: object, wanted: object) -> str:
    expected = [*entries(before), *(entries(wanted) if wanted else ())]
    missing = [entry for entry in expected if entry not in entries(after)]
    return f"{list(map(_shown, missing))} would be hidden by another file." if missing else ""


def _executors_problem(before: object, after: object, wanted: object) -> str:
    names = executors.listed(after) or []
    missing = {*(executors.listed(before) or ()), executors.OURS} - set(names)
    if missing:
        return f"{sorted(missing)} would be hidden by another file."
    first = executors.before_ours(names)
    if first or names[-1] == executors.OURS:
        return f"Salt would make {names} of it, and {first or names} would run jobs before ours."
    return ""


def _peers_problem(before: object, after: object, wanted: object) -> str:
    found = after if isinstance(after, dict) else {}
    for said in (before, wanted):
        for who, functions in (said or {}).items() if isinstance(said, dict) else ():
            missing = [each for each in functions or () if each not in (found.get(who) or ())]
            if missing:
                return f"{missing} for '{who}' would be hidden by another file."
    return ""


def _settings_problem(before: object, after: object, wanted: object) -> str:
    found = after if isinstance(after, dict) else {}
    expected = dict(wanted) if isinstance(wanted, dict) else {}
    lost = {*(before if isinstance(before, dict) else ())} - found.keys()
    names = sorted(lost | {name for name, each in expected.items() if found.get(name) != each})
    return f"{names} would be what another file says." if names else ""


def _directories_problem(before: object, after: object, wanted: object) -> str:
    missing = [each for each in (*entries(before), *entries(wanted)) if each not in entries(after)]
    return f"{missing} would be hidden by another file." if missing else ""


_PROBLEMS: Mapping[str, Callable[[object, object, object], str]] = {
    "engines": _engines_problem,
    "module_executors": _executors_problem,
    "peer_run": _peers_problem,
    **dict.fromkeys(stand_ins.OPTIONS, _directories_problem),
    "safeupdate": _settings_problem,
}
_KEYS = set(_PROBLEMS)


class _Owner(NamedTuple):
    mode: int
    uid: int
    gid: int


def owner_of(path: str) -> _Owner:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return _Owner(0o644, -1, -1)
    return _Owner(found.st_mode & 0o666, found.st_uid, found.st_gid)


def declared(text: str, head: str) -> list[str]:
    """Return the settings that the state has written into the file, as its comment *head* says."""
    found = [line[len(head) :] for line in text.splitlines() if line.startswith(head)]
    return [name.strip() for name in ",".join(found).split(",") if name.strip()]


def text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""
    except PermissionError as err:
        raise SafeUpdateError(rights.unreadable(path)) from err
    except (OSError, UnicodeDecodeError) as err:
        raise SafeUpdateError(f"{path} cannot be read: {err}. {_UNCHANGED}") from err
