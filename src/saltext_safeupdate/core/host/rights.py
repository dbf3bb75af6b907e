"""
The files that the user of this process may not write or read, and what lets them.

``salt-run`` becomes the user of the master. So root, who has typed it, cannot know who lacks what:
the words name the user.
"""

from __future__ import annotations

import grp
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
    Tell which directories this user may not write these files to; empty if nothing is in the way.

    Files are replaced, and missing directories are made, so only directories count.
    """
    places = ", ".join(sorted(set(_closed(paths).values())))
    return places and f"This runs as the user {user()}, who may not write to {places}."


def remedy(paths: Iterable[str]) -> str:
    """Tell what lets this user write these files. No directory gets another owner."""
    if os.geteuid() == 0:
        return "See whether the file system can be written"
    told = sorted(_closed(paths).items())
    return f"As root, run: {'; '.join(_command(directory, place) for directory, place in told)}"


def unreadable(path: str) -> str:
    """Tell that this user may not read a file, and what lets them."""
    return (
        f"This runs as the user {user()}, who may not read {path}. Nothing was written. As root, "
        f"run: {_open_to_group('r', path)}. Then call this again."
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
    if place == directory:
        return _open_to_group("rwx", directory)
    return f"install -d -o {user()} {shlex.quote(directory)}"


def _open_to_group(rights: str, path: str) -> str:
    gid = os.getegid()
    try:
        group = grp.getgrgid(gid).gr_name
    except KeyError:
        group = str(gid)
    return f"chgrp {group} {shlex.quote(path)} && chmod g+{rights} {shlex.quote(path)}"
