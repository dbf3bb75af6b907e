"""
Read the old code from its copy, from now on, in this process.

Once the package manager starts, the tree on disk is no longer the one this process was
started from. Whatever is imported or loaded later in the life of the process, such as
the outputter of salt-call, comes from the copy, so that old and new code never mix.
"""

from __future__ import annotations

import gc
import importlib
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import salt.loader
import salt.loader.lazy
import salt.syspaths


def redirect(copies: Mapping[str, str]) -> None:
    """Point everything that names a path under a root of *copies* to its copy."""
    if not copies:
        return

    def moved(path: Any) -> Any:
        if isinstance(path, str):
            for root, copy in copies.items():
                if path == root or path.startswith(root + os.sep):
                    return copy + path[len(root) :]
        return path

    sys.path[:] = [moved(entry) for entry in sys.path]
    for module in list(sys.modules.values()):
        paths = getattr(module, "__path__", None)
        if isinstance(paths, list):
            paths[:] = [moved(entry) for entry in paths]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    salt.syspaths.INSTALL_DIR = moved(salt.syspaths.INSTALL_DIR)
    base = salt.loader.SALT_BASE_PATH
    salt.loader.SALT_BASE_PATH = (
        type(base)(moved(str(base))) if isinstance(base, pathlib.Path) else moved(base)
    )
    # Salt checks that its own loaders look below these.
    internal = getattr(salt.loader, "SALT_INTERNAL_LOADERS_PATHS", ())
    salt.loader.SALT_INTERNAL_LOADERS_PATHS = tuple(moved(str(path)) for path in internal)
    for loader in gc.get_objects():
        # type() and not isinstance(): the latter wakes up proxies.
        if issubclass(type(loader), salt.loader.lazy.LazyLoader):
            _redirect_loader(loader, moved)


def _redirect_loader(loader: Any, moved: Any) -> None:
    loader.module_dirs = [moved(str(entry)) for entry in loader.module_dirs]
    mapping = getattr(loader, "file_mapping", None)
    if mapping:
        for name, entry in list(mapping.items()):
            if isinstance(entry, tuple) and entry:
                mapping[name] = (moved(entry[0]), *entry[1:])
