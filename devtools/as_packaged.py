"""Masters of tests run as Salt's packages set them up: not as root, in directories of theirs."""

from __future__ import annotations

import pwd
import shutil
from collections.abc import Sequence
from pathlib import Path

# Every host has this user; the packages make one of their own.
USER = "nobody"
# Nobody may read the code of a checkout but its owner: this process may read anything, and write
# what its user may write.
_AS_USER = (
    *("setpriv", "--reuid", USER, "--regid", str(pwd.getpwnam(USER).pw_gid), "--clear-groups"),
    *("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"),
    # Also while it asks, by access(), what it may.
    *("--securebits=+no_setuid_fixup", "--"),
)


def as_user(argv: Sequence[str]) -> list[str]:
    """Return how root has a program run as the user of the master."""
    return [*_AS_USER, *argv]


def give(*directories: Path) -> None:
    """Have directories with all that is in them, made if need be, belong to that user."""
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        for each in (directory, *directory.rglob("*")):
            shutil.chown(each, USER, pwd.getpwnam(USER).pw_gid)
