"""
Have this process read Salt's old code from a copy of its tree.

As soon as the package manager starts, the tree on disk is no longer the one that this process
was started from. Whatever the process imports or loads after that, such as the outputter of
salt-call, comes from the copy. So old and new code never mix.
"""

from __future__ import annotations

import gc
import importlib
import os
import pathlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

import salt.loader
import salt.loader.lazy
import salt.syspaths


def redirect(copies: Mapping[str, str]) -> None:
    """Point everything that names a path below a root of *copies* to the copy of that root."""
    if not copies:
        return

    def redirected(path: Any) -> Any:
        if isinstance(path, str):
            for root, copy in copies.items():
                if path == root or path.startswith(root + os.sep):
                    return copy + path[len(root) :]
        return path

    sys.path[:] = [redirected(entry) for entry in sys.path]
    for module in list(sys.modules.values()):
        paths = getattr(module, "__path__", None)
        if isinstance(paths, list):
            paths[:] = [redirected(entry) for entry in paths]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    salt.syspaths.INSTALL_DIR = redirected(salt.syspaths.INSTALL_DIR)
    base = salt.loader.SALT_BASE_PATH
    salt.loader.SALT_BASE_PATH = (
        type(base)(redirected(str(base))) if isinstance(base, pathlib.Path) else redirected(base)
    )
    # Salt checks that its own loaders look below these.
    internal = getattr(salt.loader, "SALT_INTERNAL_LOADERS_PATHS", ())
    salt.loader.SALT_INTERNAL_LOADERS_PATHS = tuple(redirected(str(path)) for path in internal)
    for loader in gc.get_objects():
        # type() and not isinstance(), which calls into proxy objects.
        if issubclass(type(loader), salt.loader.lazy.LazyLoader):
            _redirect_loader(loader, redirected)


def _redirect_loader(loader: Any, redirected: Callable[[Any], Any]) -> None:
    loader.module_dirs = [redirected(str(entry)) for entry in loader.module_dirs]
    mapping = getattr(loader, "file_mapping", None)
    if mapping:
        for name, entry in list(mapping.items()):
            if isinstance(entry, tuple) and entry:
                mapping[name] = (redirected(entry[0]), *entry[1:])
