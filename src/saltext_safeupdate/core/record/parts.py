"""
The data of a record outside its columns: named parts, each with its fields.

On disk they are one JSON object, the column ``extra``: an object for each part, without the fields
that have their defaults. Parts and fields that this version does not know are kept as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any

from ..frozen import frozen
from ..host.servers import Server
from . import typed

# The package, its version, the path of the file, and its SHA-256.
FileRow = tuple[str, str, str, str]


def _check_snapshot(value: dict[str, int] | None) -> None:
    if value is not None and not {"number", "ident"} <= value.keys():
        raise TypeError(f"{value!r} is no snapshot")


@frozen
class Request:
    """
    The request.

    ``version`` is None for the newest.
    With ``extension``, that is the version of this extension and not of Salt. With a ``source``, it
    is a build from there, and the minion is to run from a slot; empty: from packages.
    ``when`` is ``idle`` or ``now``, ``back`` a rollback by request. ``serial`` grows from
    request to request of a master; 0 if it has none.
    """

    version: str | None = None
    when: str = "idle"
    allow_downgrade: bool = False
    back: bool = False
    extension: bool = False
    source: str = ""
    serial: int = field(default=0, compare=False)


@frozen
class Code:
    """
    The code that changes.

    ``own`` are the own packages, ``roots`` the directories of code that an update replaces, and
    ``extension`` is where this extension was imported from. ``servers`` are the daemons of a master
    that run from it, and that stop and start with the minion.
    """

    own: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()
    extension: str = ""
    servers: tuple[Server, ...] = ()


@frozen
class Staged:
    """
    The files that are ready to be installed.

    ``files`` are the package files, ``snapshot`` the one to go to instead. ``extensions`` is
    the directory of the extensions to install, ``version_locked`` are the own packages
    whose version the administrator has locked.
    """

    files: tuple[FileRow, ...] = ()
    snapshot: dict[str, int] | None = None
    extensions: str = ""
    version_locked: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_snapshot(self.snapshot)


@frozen
class WayBack:
    """
    What a rollback needs: the secured package files, or the snapshot that has them.

    ``paths`` are backed up in addition to the configuration of the minion. Below those in ``kept``,
    versions of others stay. ``backup`` is the directory of the copies. ``missing``
    says why there is no way back.
    """

    files: tuple[FileRow, ...] = ()
    snapshot: dict[str, int] | None = None
    paths: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    backup: str = ""
    missing: str = ""

    def __post_init__(self) -> None:
        _check_snapshot(self.snapshot)


@frozen
class Progress:
    """
    How far it has come.

    ``supervisors`` counts those that took it over since the last turn; None: none has.
    ``unfinished`` are the packages left half done, ``steps`` the upgrade steps that have run.
    ``master`` tells whether its master heard from the old minion; None: nobody looked.
    ``restarted`` and ``returned`` are when the restart began and the old version was back, in
    epoch seconds. ``others`` maps the configuration files of the other minions that run from the
    same packages to systemd's names for the starts that have to go; empty if one did not run.
    ``servers`` maps the units of the daemons of a master to the same.
    ``dependents`` are the units that ran and have ended with those, as systemd has it.
    ``delay`` is how many seconds a deferred restart waits at first, so that not all minions of a
    master restart at once. ``silent`` tells that it is undone because the new minion was not heard.
    ``beside`` are the main processes whose jobs run while its packages change, as each of them
    reads its own tree; empty: no job runs then. ``proven`` is when the next minion had shown that
    it works, in epoch seconds: from then on they leave all jobs to it. ``again`` are the packages
    that the job removes and installs again: in the end they have to be there. ``completed`` tells
    that it has failed, and the package manager has finished since what was half done.
    """

    supervisors: int | None = None
    unfinished: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    master: bool | None = None
    restarted: float | None = None
    returned: float | None = None
    others: dict[str, str] = field(default_factory=dict)
    servers: dict[str, str] = field(default_factory=dict)
    dependents: tuple[str, ...] = ()
    delay: float = 0.0
    silent: bool = False
    beside: tuple[str, ...] = ()
    proven: float | None = None
    completed: bool = False
    again: tuple[str, ...] = ()


@frozen
class Former:
    """
    The minion that has to go: its PID for systemd, systemd's name for that start, and when its
    engine reported that it runs, in epoch seconds; None: it never did. ``process`` is the identity
    of the main process that reported; empty: none did. ``took`` is how many seconds it took from
    its start to its report, ``hooked`` whether it had our hooks; None: not known. ``noted`` is the
    moment when this was noted: a process that began before is not the next one; empty: not known.
    """

    pid: int | None = None
    invocation: str = ""
    report: float | None = None
    process: str = ""
    took: float | None = None
    hooked: bool | None = None
    noted: str = ""


# What is said of a reboot while it is asked for: it may come before there is an answer.
ASKING = "being requested"


@frozen
class Boot:
    """
    Data about the boot that activates the update, or takes it back.

    ``awaits`` names the boot during which it began to wait, and its phase then.
    ``booted`` is when the new snapshot was seen to run, in epoch seconds, ``reboot`` what
    became of the reboot that was asked for, ``left`` tells that the way back leads through
    another boot.
    """

    awaits: tuple[str, ...] = ()
    booted: float | None = None
    reboot: str = ""
    left: bool | None = None


@frozen
class Watched:
    """
    When the watch ends, by a clock that nobody sets: seconds of the monotonic clock of a boot.

    It only counts in that boot. None: no watch has begun.
    """

    boot: str = ""
    until: float | None = None


@frozen
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
# A record may be without these: that they are there says something.
OPTIONAL: dict[str, type] = {"request": Request, "owed": Owed}
_PROCESSES = "processes"


def decode(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts that the JSON object has. Raise TypeError if it is not valid."""
    unknown = dict(extra)
    found = {_PROCESSES: typed.read(dict[str, str], unknown.pop(_PROCESSES, {}))}
    for name, part in (PARTS | OPTIONAL).items():
        if name in OPTIONAL and name not in unknown:
            continue
        found[name], left = typed.split(part, unknown.pop(name, {}))
        if left:
            unknown[name] = left
    return {**found, "unknown": unknown}


def encode(update: Any) -> dict[str, Any]:
    """Return the JSON object of a record, what this version does not know included."""
    extra: dict[str, Any] = dict(update.unknown)
    for name in PARTS | OPTIONAL:
        part = getattr(update, name)
        if part is None:
            extra.pop(name, None)
            continue
        known = _changed(part)
        if known or name in OPTIONAL:
            extra[name] = {**extra.get(name, {}), **known}
    if update.processes:
        extra[_PROCESSES] = update.processes
    return extra


def _changed(part: Any) -> dict[str, Any]:
    """Return the fields of the part that do not have their defaults."""
    values = {each.name: getattr(part, each.name) for each in fields(part)}
    known = {name: each for name, each in values.items() if each != getattr(type(part)(), name)}
    return {name: typed.plain(each) for name, each in known.items()}
