"""
Have this process read Salt's old code from a copy of its tree.

As soon as a package manager starts, the tree on disk is no longer the one that this process was
started from. All later imports of the process, such as the outputter of salt-call, come from the
copy. So old and new code never mix.
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

# Paths in the code of Salt that are set when it is imported.
_PATHS = (
    ("salt.syspaths", "INSTALL_DIR"),
    ("salt.loader", "SALT_BASE_PATH"),
    # By this one the loader tells Salt's own modules from others.
    ("salt.loader.lazy", "SALT_BASE_PATH"),
    ("salt.utils.templates", "TEMPLATE_DIRNAME"),
)


def redirect(copies: Mapping[str, str], *, beside: bool = False) -> None:
    """
    Point everything that names a path below a root of *copies* to the copy of that root.

    With *beside*, packages that are not in the copies, because they are installed later, are
    imported from the roots. If a part of a package is in a copy, the whole package comes from it.
    """
    if not copies:
        return
    copies = _by_other_names(copies)

    def redirected(path: Any) -> Any:
        if isinstance(path, str):
            for root, copy in copies.items():
                if path == root or path.startswith(root + os.sep):
                    return copy + path[len(root) :]
        return path

    roots = [entry for entry in sys.path if redirected(entry) != entry] if beside else []
    sys.path[:] = [*map(redirected, sys.path), *roots]
    for module in list(sys.modules.values()):
        paths = getattr(module, "__path__", None)
        if isinstance(paths, list):
            paths[:] = [redirected(entry) for entry in paths]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    for place, name in _PATHS:
        found = vars(sys.modules[place]).get(name) if place in sys.modules else None
        if isinstance(found, str | pathlib.Path):
            setattr(sys.modules[place], name, type(found)(redirected(str(found))))
    # Salt checks that its own loaders look below these.
    internal = getattr(salt.loader, "SALT_INTERNAL_LOADERS_PATHS", ())
    salt.loader.SALT_INTERNAL_LOADERS_PATHS = tuple(redirected(str(path)) for path in internal)
    kinds = tuple(_with_subclasses(salt.loader.lazy.LazyLoader))
    # An object refers to its class. A list of all objects would count a reference to each, and so
    # copy the memory that this process shares with its parent.
    for loader in gc.get_referrers(*kinds):
        # type() and not isinstance(), which calls into proxy objects.
        if type(loader) in kinds:
            _redirect_loader(loader, redirected)


def _with_subclasses(kind: type) -> set[type]:
    """Return a class and all classes that are derived from it."""
    return {kind}.union(*map(_with_subclasses, kind.__subclasses__()))


def _by_other_names(copies: Mapping[str, str]) -> dict[str, str]:
    """Add the roots as they are named here: their own paths may lead over symbolic links."""
    named = (sys.prefix, os.path.dirname(str(salt.__file__)))
    others = {path: copies.get(os.path.realpath(path)) for path in named}
    return {**copies, **{path: copy for path, copy in others.items() if copy is not None}}


def _redirect_loader(loader: Any, redirected: Callable[[Any], Any]) -> None:
    loader.module_dirs = [redirected(str(entry)) for entry in loader.module_dirs]
    # The loader puts these on sys.path while it loads a module.
    extra = getattr(loader, "extra_module_dirs", None)
    if extra:
        loader.extra_module_dirs = [redirected(str(entry)) for entry in extra]
    mapping = getattr(loader, "file_mapping", None)
    if mapping:
        for name, entry in list(mapping.items()):
            if isinstance(entry, tuple) and entry:
                mapping[name] = (redirected(entry[0]), *entry[1:])
