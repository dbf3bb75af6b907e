"""
What a record carries beside its columns: named parts, each with its fields.

On disk they are one JSON object, the column ``extra``, with a key for each field. This version
leaves keys that it does not know as they are, and writes those that earlier versions look for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

# The package, its version, the path of the file, and its SHA-256.
FileRow = tuple[str, str, str, str]
Read = Callable[[Any], Any]
T = TypeVar("T")


def _text(value: Any) -> str:
    return _of(value, str)


def _number(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is no number")
    return _of(value, int)


def _seconds(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError(f"{value!r} is no time")
    return float(value) if isinstance(value, int) else _of(value, float)


def _flag(value: Any) -> bool:
    return _of(value, bool)


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_text(item) for item in _of(value, list))


def _words(value: Any) -> dict[str, str]:
    return {_text(key): _text(item) for key, item in _of(value, dict).items()}


def _rows(value: Any) -> tuple[FileRow, ...]:
    rows = tuple(_texts(row) for row in _of(value, list))
    if any(len(row) != 4 for row in rows):
        raise TypeError("a file is not described by four texts")
    return tuple((name, version, path, digest) for name, version, path, digest in rows)


def _snapshot(value: Any) -> dict[str, int]:
    found = _of(value, dict)
    return {name: _number(found[name]) for name in ("number", "ident")}


def _of(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not what it has to be")
    return value


def _maybe(read: Read) -> Read:
    return lambda value: None if value is None else read(value)


def _stored(read: Read, default: Any, *, key: str = "", always: bool = False) -> Any:
    """Describe a field: how it is read, its key on disk, and whether it is always written."""
    metadata = {"read": read, "key": key, "always": always}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Request:
    """
    What somebody has asked for.

    ``version`` is None for the newest.
    With ``extension``, that is the version of this extension and not of Salt.
    ``when`` is ``idle`` or ``now``, ``back`` a rollback by request. ``serial`` grows from
    request to request of a master; 0 if it has none.
    """

    version: str | None = None
    when: str = "idle"
    allow_downgrade: bool = False
    back: bool = False
    extension: bool = False
    serial: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True)
class Code:
    """
    The code that changes.

    ``own`` are the own packages, ``roots`` the directories of code that an update replaces,
    ``copies`` maps those to the linked copies of the old code, and ``extension`` is where this
    extension was imported from.
    """

    own: tuple[str, ...] = _stored(_texts, (), always=True)
    roots: tuple[str, ...] = _stored(_texts, (), always=True)
    copies: dict[str, str] = _stored(_words, {})
    extension: str = _stored(_text, "")


@dataclass(frozen=True, kw_only=True)
class Staged:
    """
    What is ready to be installed.

    ``files`` are the package files, ``snapshot`` the one to go to instead. ``extensions`` is
    the directory of what is to be put beside Salt, ``version_locked`` are the own packages
    whose version the administrator has locked.
    """

    files: tuple[FileRow, ...] = _stored(_rows, (), key="new_files")
    snapshot: dict[str, int] | None = _stored(_maybe(_snapshot), None, key="to_snapshot")
    extensions: str = _stored(_text, "")
    version_locked: tuple[str, ...] = _stored(_texts, (), key="held")


@dataclass(frozen=True, kw_only=True)
class WayBack:
    """
    What a rollback needs: the secured package files, or the snapshot that has them.

    ``paths`` is what is backed up, ``backup`` the directory of the copies. ``missing`` says
    why there is no way back.
    """

    files: tuple[FileRow, ...] = _stored(_rows, (), key="old_files")
    snapshot: dict[str, int] | None = _stored(_maybe(_snapshot), None)
    paths: tuple[str, ...] = _stored(_texts, (), key="backup_paths")
    backup: str = _stored(_text, "")
    missing: str = _stored(_text, "", key="no_way_back")


@dataclass(frozen=True, kw_only=True)
class Progress:
    """
    How far it has come.

    ``supervisors`` counts those that took it over since the last turn; None: none has.
    ``unfinished`` are the packages left half done, ``steps`` the upgrade steps that have run.
    ``master`` tells whether its master heard from the old minion; None: nobody looked.
    ``restarted`` and ``returned`` are when the restart began and the old version was back, in
    epoch seconds. ``others`` maps the configuration files of the other minions that run from the
    same packages to systemd's names for the starts that have to go; empty if one did not run.
    ``delay`` is how many seconds a deferred restart waits at first, so that not all minions of a
    master restart at once. ``silent`` tells that it is undone because the new minion was not heard.
    """

    supervisors: int | None = _stored(_maybe(_number), None)
    unfinished: tuple[str, ...] = _stored(_texts, ())
    steps: tuple[str, ...] = _stored(_texts, ())
    master: bool | None = _stored(_maybe(_flag), None)
    restarted: float | None = _stored(_maybe(_seconds), None)
    returned: float | None = _stored(_maybe(_seconds), None)
    others: dict[str, str] = _stored(_words, {})
    delay: float = _stored(_seconds, 0.0)
    silent: bool = _stored(_flag, False)


@dataclass(frozen=True, kw_only=True)
class Former:
    """
    The minion that has to go: its PID for systemd, systemd's name for that start, and when its
    engine reported that it runs, in epoch seconds; None: it never did. ``process`` is the identity
    of the main process that reported; empty: none did. ``took`` is how many seconds it
    took from its start to its report, ``hooked`` whether it had our hooks; None: not known.
    """

    pid: int | None = _stored(_maybe(_number), None, key="old_pid")
    invocation: str = _stored(_text, "", key="old_invocation")
    report: float | None = _stored(_maybe(_seconds), None, key="old_report")
    process: str = _stored(_text, "", key="old_process")
    took: float | None = _stored(_maybe(_seconds), None, key="old_took")
    hooked: bool | None = _stored(_maybe(_flag), None, key="old_hooked")


@dataclass(frozen=True, kw_only=True)
class Boot:
    """
    What is known of the boot that activates it, or takes it back.

    ``awaits`` names the boot during which it began to wait, and the column of its phase then.
    ``booted`` is when the new snapshot was seen to run, in epoch seconds, ``reboot`` what
    became of the reboot that was asked for, ``left`` tells that the way back leads through
    another boot.
    """

    awaits: tuple[str, ...] = _stored(_texts, ())
    booted: float | None = _stored(_maybe(_seconds), None)
    reboot: str = _stored(_text, "")
    left: bool | None = _stored(_maybe(_flag), None)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """
    When the watch ends, by a clock that nobody sets: seconds of the monotonic clock of a boot.

    It only counts in that boot. None: an earlier version began the watch.
    """

    boot: str = _stored(_text, "", key="watch_boot")
    until: float | None = _stored(_maybe(_seconds), None, key="watch_until")


@dataclass(frozen=True, kw_only=True)
class Owed:
    """A restart that gave way to this update. It follows if the update needs none itself."""

    jid: str = ""
    reason: str = ""
    processes: dict[str, str] = field(default_factory=dict)


PARTS: dict[str, type] = {
    "code": Code,
    "staged": Staged,
    "way_back": WayBack,
    "progress": Progress,
    "former": Former,
    "boot": Boot,
    "watched": Watched,
}


def decode(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts that the JSON object has. Raise TypeError or KeyError if it is not valid."""
    left = dict(extra)
    found: dict[str, Any] = {}
    for name, part in PARTS.items():
        values = {}
        for each in fields(part):
            key = each.metadata["key"] or each.name
            if key in left:
                values[each.name] = each.metadata["read"](left.pop(key))
        found[name] = part(**values)
    serial = _number(left.pop("number", 0))
    request = left.pop("request", None)
    found["request"] = None if request is None else _request(request, serial)
    owed = left.pop("owed", None)
    found["owed"] = None if owed is None else _owed(owed)
    found["processes"] = _words(left.pop("processes", {}))
    found["unknown"] = left
    return found


def encode(update: Any) -> dict[str, Any]:
    """Return the JSON object of a record, what this version does not know included."""
    extra: dict[str, Any] = dict(update.unknown)
    for name in PARTS:
        part = getattr(update, name)
        for each in fields(part):
            value = getattr(part, each.name)
            if each.metadata["always"] or value != _default(each):
                extra[each.metadata["key"] or each.name] = value
    if update.request is not None:
        request = {each.name: getattr(update.request, each.name) for each in fields(Request)}
        extra["number"] = request.pop("serial")
        if not request["extension"]:
            del request["extension"]
        extra["request"] = request
    if update.owed is not None:
        extra["owed"] = {each.name: getattr(update.owed, each.name) for each in fields(Owed)}
    extra["processes"] = update.processes
    return extra


def _default(each: Any) -> Any:
    return each.default if each.default is not MISSING else each.default_factory()


def _request(value: Any, serial: int) -> Request:
    given = _of(value, dict)
    version = given.get("version")
    return Request(
        version=None if version is None else _text(version),
        when=_text(given.get("when", "idle")),
        allow_downgrade=_flag(given.get("allow_downgrade", False)),
        back=_flag(given.get("back", False)),
        extension=_flag(given.get("extension", False)),
        serial=serial,
    )


def _owed(value: Any) -> Owed:
    given = _of(value, dict)
    return Owed(
        jid=_text(given.get("jid", "")),
        reason=_text(given.get("reason", "")),
        processes=_words(given.get("processes", {})),
    )
