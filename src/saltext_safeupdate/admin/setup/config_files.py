"""The configuration files of a daemon, put together as Salt does it."""

from __future__ import annotations

import copy
import fnmatch
import glob
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import salt.config
import salt.utils.dictupdate
import salt.utils.yaml

from ...core.errors import SafeUpdateError
from ...core.host import rights


@dataclass(frozen=True, kw_only=True)
class Merged:
    """
    Salt's view of the main file, of the files in ``default_include``, and of ``include``.

    Each replaces whole keys of the one before. The files that one option names are merged, with
    their lists and mappings, in the order of their paths.
    """

    main: dict[str, Any]
    included: dict[str, Any]
    last: dict[str, Any]

    @property
    def all(self) -> dict[str, Any]:
        return {**self.main, **self.included, **self.last}


@dataclass(frozen=True, kw_only=True)
class ConfigFiles:
    """
    The files of one daemon. Every method reads them again and may raise SafeUpdateError.

    *default_include* applies if the main file does not name another. It need not exist.
    """

    main_file: str
    default_include: str

    def place(self, name: str) -> str:
        """Return the path of the file *name* if ``default_include`` names it, or an empty text."""
        for pattern in self._default(read(self.main_file)):
            directory, last = os.path.split(pattern)
            if not glob.has_magic(directory) and fnmatch.fnmatchcase(name, last):
                return os.path.join(directory, name)
        return ""

    def paths(self) -> list[str]:
        """Return the files that ``default_include`` names."""
        patterns = self._default(read(self.main_file))
        return sorted(path for pattern in patterns for path in glob.glob(pattern))

    def includes(self, path: str) -> bool:
        """Tell whether ``default_include`` names a file of that path, if it is there."""
        return any(_names(each, path) for each in self._default(read(self.main_file)))

    def merged(self, path: str = "", content: Mapping[str, Any] | None = None) -> Merged:
        """
        Merge them, with *content* as what the file *path* says.

        Without *content*, it is as if that file did not exist.
        """
        main = read(self.main_file)
        last = self._patterns(main.get("include"))
        return Merged(
            main=main,
            included=_merge(self._default(main), path, content),
            last=_merge(last, path, content),
        )

    def _default(self, main: Mapping[str, Any]) -> list[str]:
        return self._patterns(main.get("default_include", self.default_include))

    def _patterns(self, option: object) -> list[str]:
        listed = [option] if isinstance(option, str) else option
        base = os.path.dirname(self.main_file)
        return [
            os.path.join(base, os.path.expanduser(str(pattern)))
            for pattern in (listed if isinstance(listed, list) else ())
            if pattern
        ]


def read(path: str) -> dict[str, Any]:
    """Return what the file says; nothing if it does not exist."""
    try:
        with open(path, encoding="utf-8") as file:
            found = salt.utils.yaml.safe_load(file) or {}
    except FileNotFoundError:
        return {}
    except PermissionError as err:
        raise SafeUpdateError(rights.unreadable(path)) from err
    except (OSError, UnicodeDecodeError, salt.utils.yaml.YAMLError) as err:
        raise _unreadable(path, str(err)) from err
    if not isinstance(found, dict):
        raise _unreadable(path, "it is no mapping")
    return found


def _unreadable(path: str, reason: str) -> SafeUpdateError:
    return SafeUpdateError(
        f"The configuration file {path} cannot be read: {reason}. Nothing was written; correct it, "
        "and check the service: Salt may not start with it."
    )


def _merge(patterns: list[str], path: str, content: Mapping[str, Any] | None) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for pattern in patterns:
        found = {each for each in glob.glob(pattern) if not _same(each, path)}
        if content is not None and _names(pattern, path):
            found.add(path)
        for each in sorted(found):
            # The first argument is changed.
            said = copy.deepcopy(dict(content or {})) if each == path else _with_its_includes(each)
            salt.utils.dictupdate.update(merged, said, True, True)
    return merged


def _with_its_includes(path: str) -> dict[str, Any]:
    found = read(path)
    if found.get("include"):
        found.update(salt.config.include_config(found["include"], path, verbose=False))
    return found


def _names(pattern: str, path: str) -> bool:
    directory, last = os.path.split(pattern)
    return fnmatch.fnmatchcase(os.path.basename(path), last) and any(
        _same(each, os.path.dirname(path)) for each in (directory, *glob.glob(directory))
    )


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)
