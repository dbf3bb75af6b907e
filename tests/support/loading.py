"""
Have Salt's loaders of a process look once at what is installed, and at what lies where.

Salt lists all modules that it has when it makes a loader; a run of states makes fifty. What is
found can be kept in a file for later processes.
"""

import functools
import marshal
import os
import sys

import salt.loader.lazy
import salt.utils.entrypoints

_known = {}


def read_once(put=setattr):
    """Replace what reads; *put* sets an attribute, as ``setattr`` does."""
    entry_points = functools.cache(salt.utils.entrypoints.iter_entry_points)
    put(salt.utils.entrypoints, "iter_entry_points", entry_points)
    refresh = salt.loader.lazy.LazyLoader._refresh_file_mapping

    def remembered(self):
        found = tuple((directory, _files(directory)) for directory in self.module_dirs)
        key = (found, frozenset(self.disabled))
        if key not in _known:
            refresh(self)
            _known[key] = (self.file_mapping, dict(self.suffix_map), list(self.suffix_order))
        mapping, suffixes, order = _known[key]
        self.file_mapping = dict(mapping)
        self.suffix_map.update(suffixes)
        self.suffix_order[:] = order

    put(salt.loader.lazy.LazyLoader, "_refresh_file_mapping", remembered)


def _files(directory):
    """Return the files of a directory, None without it; what is installed stays as it is."""
    if directory.startswith(sys.prefix):
        return ()
    try:
        return tuple(sorted(os.listdir(directory)))
    except OSError:
        return None


class Kept:
    """``with Kept(path):`` begin with what earlier processes found, and add what is new."""

    def __init__(self, path):
        self._path = path
        self._had = 0

    def __enter__(self):
        try:
            with open(self._path, "rb") as file:
                _known.update(marshal.load(file))
        except FileNotFoundError:
            pass
        self._had = len(_known)

    def __exit__(self, *ended):
        if len(_known) > self._had:
            new = f"{self._path}.{os.getpid()}"
            with open(new, "wb") as file:
                marshal.dump(_known, file)
            os.replace(new, self._path)
