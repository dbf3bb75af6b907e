"""What an update would do, and what speaks against it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..packages.choice import matches
from ..packages.manager import PackageManager
from ..record.store import Quarantined, Store

if TYPE_CHECKING:
    from .revisions import Revisions

_PARTS = re.compile(r"\d+|[^\d.:~+-]+")


def request(
    version: str | float | None = None,
    *,
    when: str = "idle",
    allow_downgrade: bool = False,
    back: bool = False,
) -> dict[str, Any]:
    """Return a request in the form that a record carries. Raises InputError."""
    if when not in ("idle", "now"):
        raise InputError("'when' must be 'idle' or 'now'. Nothing was changed.")
    # On a command line and in YAML, 3008.3 is a number. So is 3008.10, but that of 3008.1.
    number = isinstance(version, int | float) and not isinstance(version, bool)
    if number:
        version = str(version)
    if version is not None and not (isinstance(version, str) and version.strip()):
        raise InputError("'version' must be a text, such as '3008.3'. Nothing was changed.")
    return {
        "version": version,
        "number": number,
        "when": when,
        "allow_downgrade": allow_downgrade,
        "back": back,
    }


def targets(
    packages: PackageManager,
    own: Sequence[str],
    wanted: Mapping[str, Any],
    store: Store,
    revisions: Revisions,
    staged: Mapping[str, str],
) -> dict[str, str]:
    """Return the version that each own package is to get. Raises InputError."""
    found = choose(packages, own, wanted, revisions, staged)
    installed = packages.installed(own)
    refuse_quarantined(found, installed, store.quarantined())
    refuse_downgrade(found, installed, wanted)
    return found


def choose(
    packages: PackageManager,
    own: Sequence[str],
    wanted: Mapping[str, Any],
    revisions: Revisions,
    staged: Mapping[str, str],
) -> dict[str, str]:
    """Return the versions that a request means, whatever speaks against them."""
    if not packages.installed(own):
        raise InputError(
            "No package holds the minion, so there is nothing to update. Nothing was changed; name "
            "the packages in 'safeupdate:packages' if it was installed from packages."
        )
    if wanted["number"]:
        _refuse_ambiguous(packages, own, wanted["version"])
    if means(wanted, staged):
        # Also where no repository answers any more.
        return dict(staged)
    found = kept(wanted, revisions)
    return packages.targets(own, wanted["version"]) if found is None else found


def means(wanted: Mapping[str, Any], versions: Mapping[str, str]) -> bool:
    """Tell whether the request names these versions."""
    version = wanted["version"]
    return bool(version and versions) and all(matches(each, version) for each in versions.values())


def kept(wanted: Mapping[str, Any], revisions: Revisions) -> dict[str, str] | None:
    """Return the versions of the kept packages where the request means them, else None."""
    if not wanted["back"]:
        return None
    previous = revisions.previous()
    version = wanted["version"]
    if previous is not None:
        versions: dict[str, str] = previous["versions"]
        if version is None or means(wanted, versions):
            return versions
    if version is None:
        raise InputError(
            "The packages of an earlier version are not kept on this minion. Nothing was changed; "
            "name the version to go back to, or ask for it with 'safeupdate.update'."
        )
    return None


def reached(installed: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(installed.get(name) == version for name, version in wanted.items())


def refuse_quarantined(
    wanted: Mapping[str, str], installed: Mapping[str, str], rows: Iterable[Quarantined]
) -> None:
    """Raise InputError where a version that would be installed was rolled back before."""
    for row in rows:
        if wanted.get(row.package) == row.version != installed.get(row.package):
            raise InputError(
                f"{row.package} {row.version} was rolled back on this minion (update {row.id}: "
                f"{row.reason}). It is not installed again. Nothing was changed; when the cause is "
                f"fixed, allow it with 'safeupdate.unquarantine {row.version}'."
            )


def _refuse_ambiguous(packages: PackageManager, own: Sequence[str], version: str) -> None:
    """Raise InputError where a number may have lost the zero that makes it another version."""
    if any(
        matches(each, f"{version}0") for row in packages.candidates(own).values() for each in row
    ):
        raise InputError(
            f"{version} was given as a number, and may mean {version}0 as well. Nothing was "
            f"changed; put the version in quotes twice: \"'{version}0'\"."
        )


def refuse_downgrade(
    versions: Mapping[str, str], installed: Mapping[str, str], wanted: Mapping[str, Any]
) -> None:
    """Raise InputError where a version is older, and that is not meant."""
    if wanted["allow_downgrade"] or wanted["back"]:
        return
    for name, version in sorted(versions.items()):
        if name in installed and key(version) < key(installed[name]):
            raise InputError(
                f"{name} {version} is older than the installed {installed[name]}. Nothing was "
                "changed; say 'allow_downgrade=True' if that is meant."
            )


def key(version: str) -> tuple[int, list[tuple[bool, int, str]]]:
    """Return something that sorts versions of one package: the epoch, then numbers by value."""
    epoch, _, rest = version.rpartition(":")
    parts = [
        (part.isdigit(), int(part) if part.isdigit() else 0, part) for part in _PARTS.findall(rest)
    ]
    return (int(epoch) if epoch.isdigit() else 0, parts)
