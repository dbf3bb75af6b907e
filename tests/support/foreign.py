"""Another extension, which wraps the same functions of Salt as this one."""

import inspect
import pathlib

from saltext_safeupdate import hooks
from saltext_safeupdate.this_host import Host


def wrap_everything(opts, when):
    """Wrap each function of our table. Each one that is called leaves a file, named by *when*."""
    for row in hooks._table(Host(opts)):
        found = vars(row.owner)[row.name]
        theirs = _wrapped(getattr(found, "__func__", found), opts["foreign"], f"{when}.{row.name}")
        kind = type(found) if isinstance(found, classmethod | staticmethod) else lambda plain: plain
        setattr(row.owner, row.name, kind(theirs))


def _wrapped(original, directory, name):
    called = pathlib.Path(directory) / name

    def wrapper(*args, **kwargs):
        called.touch()
        return original(*args, **kwargs)

    async def waiting(*args, **kwargs):
        called.touch()
        return await original(*args, **kwargs)

    return waiting if inspect.iscoroutinefunction(original) else wrapper
