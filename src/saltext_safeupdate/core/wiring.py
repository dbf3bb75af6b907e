"""The objects that need more than one room of the core, built in one place."""

from __future__ import annotations

from .host.command import Run
from .host.command import run as run_command
from .packages.detect import detect
from .packages.manager import PackageManager


def package_manager(run: Run = run_command) -> PackageManager | None:
    """
    Return the package manager of this host, or None if it has none that we know.

    On a transactional system that is transactional-update, which installs through zypper.
    """
    found = detect(run)
    if found is not None and found.name == "zypper":
        from .transactional.detect import transactional

        if transactional(run):
            from .transactional.manager import TransactionalUpdate

            return TransactionalUpdate(run)
    return found
