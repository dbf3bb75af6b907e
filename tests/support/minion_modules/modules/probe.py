"""Functions that say that they were called."""

import time
from pathlib import Path

from tests.support.packages import Database


def note(word):
    Database(__opts__["fake_packages"]).note("note", word)
    return word


def wait_for(name):
    """Return when a file of that name lies beside the database."""
    path = Path(__opts__["fake_packages"]).with_name(name)
    note("waiting")
    while not path.exists():
        time.sleep(0.05)
    return True


def update(name):
    """A function of somebody's own that changes a package."""
    note("before")
    return __salt__["pkg.install"](name, refresh=False)


def in_a_run():
    from saltext_safeupdate.ordering import runs

    return runs.current() is not None
