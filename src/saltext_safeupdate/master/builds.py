"""The builds of Salt that this master offers to its minions, or that lie in a directory of it."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import salt.fileserver
import salt.utils.url

from ..core.errors import InputError, SafeUpdateError, one_line
from ..core.host import command
from ..core.prepare import versions
from ..core.prepare.removed_modules import series
from ..core.slots.offers import Directory, Source, offers

_SALT = "salt://"


class FileRoots:
    """A directory that the file server of this master has."""

    def __init__(self, place: str, opts: Mapping[str, Any]) -> None:
        self.place = place
        top, saltenv = salt.utils.url.parse(place.rstrip("/"))
        self._top, self._saltenv = top.strip("/"), saltenv or "base"
        self._server = salt.fileserver.Fileserver(dict(opts))

    def names(self) -> Sequence[str]:
        prefix = f"{self._top}/" if self._top else ""
        try:
            found = self._server.file_list({"saltenv": self._saltenv, "prefix": prefix})
        except OSError as err:
            raise SafeUpdateError(
                f"The builds in {self.place} cannot be listed: {err}. Nothing was done; look at "
                "the directory 'cachedir' of this master."
            ) from err
        below = [str(path).removeprefix(prefix) for path in found if str(path).startswith(prefix)]
        return [path for path in below if path and "/" not in path]

    def path(self, name: str) -> str:
        found = self._server.find_file(posixpath.join(self._top, name), self._saltenv)
        if not found.get("path"):
            raise SafeUpdateError(f"The file server does not have {name} in {self.place}.")
        return str(found["path"])


def avail(opts: Mapping[str, Any], source: object, keyring: object = "") -> dict[str, Any]:
    """Return the builds of a source, by series, newest first; and what is refused of it."""
    place = _source(opts, source)
    if not isinstance(keyring, str) or (keyring and not os.path.isabs(keyring)):
        raise InputError("'keyring' must be the absolute path of a file. Nothing was done.")
    found: dict[str, list[dict[str, Any]]] = {}
    problems = []
    offered = offers(place, keyring=keyring, run=command.run)
    for each in offered:
        build = each.manifest
        if build is None:
            problems.append(one_line(f"{each.file}: {each.problem}"))
            continue
        entry = {
            "version": build.version,
            "source": place.place,
            "build": build.name,
            "kind": build.kind,
            "machine": build.machine,
            "python": build.python,
            "size": build.size,
            "signed_by": each.signed_by,
        }
        found.setdefault(series(build.version) or "other", []).append(entry)
    for entries in found.values():
        entries.sort(key=lambda entry: versions.key(entry["version"]), reverse=True)
    newest_first = sorted(found, key=versions.key, reverse=True)
    return {"versions": {name: found[name] for name in newest_first}, "problems": problems}


def _source(opts: Mapping[str, Any], source: object) -> Source:
    if isinstance(source, str) and source.startswith(_SALT):
        return FileRoots(source, opts)
    if isinstance(source, str) and os.path.isabs(source):
        return Directory(source)
    raise InputError(
        "'source' must be the absolute path of a directory of this master, or a salt:// path. "
        "Nothing was done."
    )
