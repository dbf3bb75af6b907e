"""Which snapshot runs, which one is the default, and which transactions are open."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SafeUpdateError
from ..host.command import Run

# Seconds that btrfs and snapper get; both answer within milliseconds.
QUERY_TIMEOUT = 60.0
GET_DEFAULT = ("btrfs", "subvolume", "get-default", "/")
GET_READ_ONLY = ("btrfs", "property", "get", "-ts", "/", "ro")
LIST = (
    "snapper",
    "--no-dbus",
    "--jsonout",
    "list",
    "--columns",
    "number,date,cleanup,description,default,active,userdata",
)
MOUNTINFO = Path("/proc/self/mountinfo")
PLACE = Path("/.snapshots")

_SNAPSHOT = re.compile(r"(?:^|/)\.snapshots/(\d+)/snapshot$")
# ``transactional-update apply`` mounts /usr and /etc of another snapshot over the live ones.
_APPLIED = re.compile(r"(?:^|/)\.snapshots/(\d+)/snapshot(?:/usr)?$")
_WITHIN = re.compile(r"(?:^|/)\.snapshots/\d+/snapshot(?:/|$)")
_DEFAULT = re.compile(r"^ID (\d+) gen \d+ top level \d+ path (\S+)$", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")
_IN_PROGRESS = "transactional-update-in-progress"


@dataclass(frozen=True)
class Subvolume:
    """
    A snapshot, by its number and by btrfs's own id.

    snapper uses a number again after the snapshot is gone; btrfs ids only go up.
    """

    number: int
    ident: int


@dataclass(frozen=True, kw_only=True)
class Roots:
    """The running snapshot (``None`` if the root is not one) and the default one."""

    running: Subvolume | None
    default: Subvolume

    @property
    def pending(self) -> bool:
        """Tell whether the next boot starts another snapshot than the running one."""
        return self.running != self.default


@dataclass(frozen=True, kw_only=True)
class Mount:
    """One line of a mount table: what is mounted where."""

    root: str
    point: str
    fstype: str
    options: str

    @property
    def of_snapshot(self) -> bool:
        """Tell whether it shows part of a snapshot of the root file system."""
        return bool(_WITHIN.search(self.root))


def parse_mountinfo(text: str) -> list[Mount]:
    """Return the mounts of a ``mountinfo`` text in the order in which they were made."""
    mounts = []
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, tail = left.split(), right.split()
        if len(fields) < 6 or len(tail) < 3:
            raise SafeUpdateError(
                f"the mount table has a line that cannot be read: {line[:200]!r}; "
                "nothing was changed"
            )
        root, point = (_OCTAL.sub(lambda m: chr(int(m[1], 8)), fields[n]) for n in (3, 4))
        mounts.append(Mount(root=root, point=point, fstype=tail[0], options=tail[2]))
    return mounts


def running_root(text: str) -> Subvolume | None:
    """
    Return the snapshot that the system runs from, or ``None`` if it runs from none.

    ``/usr`` counts if it is a mount of its own: ``transactional-update apply``
    mounts it from the new snapshot.
    """
    top: dict[str, Mount] = {mount.point: mount for mount in parse_mountinfo(text)}
    for point in ("/usr", "/"):
        mount = top.get(point)
        if mount is None or mount.fstype != "btrfs":
            continue
        number = _APPLIED.search(mount.root)
        ident = re.search(r"(?:^|,)subvolid=(\d+)", mount.options)
        if number and ident:
            return Subvolume(int(number[1]), int(ident[1]))
    return None


def parse_default(text: str) -> Subvolume | None:
    """Return the snapshot that ``btrfs subvolume get-default`` names; else ``None``."""
    found = _DEFAULT.search(text.strip())
    number = _SNAPSHOT.search(found[2]) if found else None
    return Subvolume(int(number[1]), int(found[1])) if found and number else None


def read_roots(run: Run, mountinfo: Path = MOUNTINFO) -> Roots:
    """Ask the kernel and btrfs; raise SafeUpdateError if the root is no snapshot."""
    answer = run(GET_DEFAULT, timeout=QUERY_TIMEOUT)
    default = parse_default(answer.stdout)
    if default is None:
        raise SafeUpdateError(
            "the default subvolume of / is no snapshot "
            f"({answer.stdout.strip()[:200] or 'btrfs printed nothing'}), so this is no "
            "transactional system; nothing was changed"
        )
    return Roots(running=running_root(mountinfo.read_text(encoding="utf-8")), default=default)


def exists(run: Run, snapshot: Subvolume, place: Path = PLACE) -> bool:
    """Tell whether the snapshot still exists: its number may belong to a later one."""
    path = place / str(snapshot.number) / "snapshot"
    if not path.is_dir():
        return False
    told = run(("btrfs", "inspect-internal", "rootid", str(path)), timeout=QUERY_TIMEOUT)
    return told.stdout.strip() == str(snapshot.ident)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot as snapper lists it."""

    number: int
    date: str
    description: str
    cleanup: str
    default: bool
    active: bool
    userdata: Mapping[str, str]

    @property
    def in_progress(self) -> bool:
        """Tell whether a transaction in it is open, or was never closed."""
        return self.userdata.get(_IN_PROGRESS) == "yes"

    @property
    def key(self) -> tuple[int, str]:
        """The value that distinguishes it from a later snapshot of the same number."""
        return self.number, self.date

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "number": self.number,
            "date": self.date,
            "description": self.description,
            "cleanup": self.cleanup,
            "default": self.default,
            "active": self.active,
            "userdata": dict(self.userdata),
            "in_progress": self.in_progress,
        }


def parse_list(text: str) -> list[Snapshot]:
    """Return the snapshots of the root configuration from snapper's JSON."""
    try:
        configs = json.loads(text)
        rows = configs["root"]
        return [_snapshot(row) for row in rows if row["number"]]
    except (ValueError, TypeError, KeyError, AttributeError) as err:
        raise SafeUpdateError(
            f"snapper's list of snapshots cannot be read ({err}); nothing was changed. "
            "See what `snapper --jsonout list` prints; snapper >= 0.8.6 is needed"
        ) from err


def _snapshot(row: Mapping[str, Any]) -> Snapshot:
    userdata = row.get("userdata") or {}
    return Snapshot(
        number=int(row["number"]),
        date=str(row.get("date", "")),
        description=str(row.get("description") or ""),
        cleanup=str(row.get("cleanup") or ""),
        default=row.get("default") is True,
        active=row.get("active") is True,
        userdata={str(key): str(value) for key, value in userdata.items()},
    )


def list_snapshots(run: Run) -> list[Snapshot]:
    """Ask snapper for the snapshots of the root file system."""
    return parse_list(run(LIST, timeout=QUERY_TIMEOUT).stdout)
