"""
Which files the user of this process may not write or read, in words that name the user.

``salt-run`` becomes the user of the master. So root, who has typed it, cannot know who lacks what.
"""

from __future__ import annotations

import os
import pwd
import shlex
from collections.abc import Iterable


def user() -> str:
    """Return the name of the user that this process acts as, or its UID if it has no name."""
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def unwritable(paths: Iterable[str]) -> str:
    """
    Tell where this user may not write these files; empty if nothing is in the way.

    Files are replaced, and directories are made for them, so only directories count.
    """
    places = ", ".join(sorted(set(_closed(paths).values())))
    return places and f"This runs as the user {user()}, who may not write to {places}."


def remedy(paths: Iterable[str]) -> str:
    """Tell what lets this user write these files; it gives away their directories, and no other."""
    if os.geteuid() == 0:
        return "See whether the file system is read-only"
    told = sorted(_closed(paths).items())
    return f"As root, run: {'; '.join(_command(directory, place) for directory, place in told)}"


def unreadable(path: str) -> str:
    """Tell that this user may not read a file, and what lets them."""
    return (
        f"This runs as the user {user()}, who may not read {path}. Nothing was written. As root, "
        f"run: setfacl -m u:{user()}:r {shlex.quote(path)}"
    )


def _closed(paths: Iterable[str]) -> dict[str, str]:
    """Return the directories that this user may not make or write to, and what is there of each."""
    places = {directory: _existing(directory) for directory in map(os.path.dirname, paths)}
    return {directory: place for directory, place in places.items() if not _may(place)}


def _existing(directory: str) -> str:
    """Return it, or the lowest directory above it that this user can see."""
    while not os.path.isdir(directory) and directory != os.path.dirname(directory):
        directory = os.path.dirname(directory)
    return directory


def _may(directory: str) -> bool:
    return os.access(directory, os.W_OK | os.X_OK, effective_ids=True)


def _command(directory: str, place: str) -> str:
    how = "chown" if place == directory else "install -d -o"
    return f"{how} {user()} {shlex.quote(directory)}"
