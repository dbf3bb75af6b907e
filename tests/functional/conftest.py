import functools
import os
import sys

import pytest
import salt.loader.lazy
import salt.utils.entrypoints

from tests.support.minion import Minion, hooked


@pytest.fixture(scope="session", autouse=True)
def _what_is_installed_stays_so():
    """Have Salt's loaders read once what is installed; they would for every loader."""
    with pytest.MonkeyPatch.context() as patch:
        read = functools.cache(salt.utils.entrypoints.iter_entry_points)
        patch.setattr(salt.utils.entrypoints, "iter_entry_points", read)
        yield


@pytest.fixture(scope="session", autouse=True)
def _what_lies_where_is_read_once():
    """
    Have Salt's loaders look once at directories with the same files, not for every loader.

    Salt lists all modules that it has when it makes a loader; a run of states makes fifty.
    """
    refresh = salt.loader.lazy.LazyLoader._refresh_file_mapping
    known = {}

    def files(directory):
        if directory.startswith(sys.prefix):
            return ()
        try:
            return tuple(sorted(os.listdir(directory)))
        except OSError:
            return None

    def remembered(loader):
        found = tuple((directory, files(directory)) for directory in loader.module_dirs)
        key = (found, frozenset(loader.disabled))
        if key not in known:
            refresh(loader)
            known[key] = (loader.file_mapping, dict(loader.suffix_map), list(loader.suffix_order))
        mapping, suffixes, order = known[key]
        loader.file_mapping = dict(mapping)
        loader.suffix_map.update(suffixes)
        loader.suffix_order[:] = order

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(salt.loader.lazy.LazyLoader, "_refresh_file_mapping", remembered)
        yield


@pytest.fixture
def minion(tmp_path):
    """A minion in this process, with our hooks."""
    with hooked(Minion(tmp_path)) as found:
        yield found
