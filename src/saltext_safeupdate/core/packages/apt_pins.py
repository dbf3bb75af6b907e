"""Pins that hold only for the commands of one process."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from ..host.command import Run
from ..host.files import write_atomic

_TIMEOUT = 60.0


def without(packages: Sequence[str], directory: str, preferences: str, run: Run) -> dict[str, str]:
    """
    Return the environment in which apt leaves the packages as they are.

    It names files in *directory*. The administrator's own APT_CONFIG stays in effect, except the
    name of the preferences file, *preferences* by default.
    """
    theirs = os.environ.get("APT_CONFIG", "")
    if theirs:
        argv = ("apt-config", "shell", "file", "Dir::Etc::preferences/f")
        words = shlex.split(run(argv, timeout=_TIMEOUT).stdout)
        preferences = words[0].removeprefix("file=") if words else ""
    config = os.path.join(directory, "apt.conf")
    ours = os.path.join(directory, "apt-preferences")
    pins = "".join(
        f"Package: {name}\nPin: release *\nPin-Priority: -1\n\n" for name in sorted(packages)
    )
    # The first pin of a package counts. The administrator's pins stay: this file replaces
    # theirs, so that one is appended, and apt reads the directory anyway.
    write_atomic(ours, pins + _content(preferences))
    # The last value of a setting counts.
    write_atomic(config, f'{_content(theirs)}Dir::Etc::Preferences "{ours}";\n')
    return {"APT_CONFIG": config}


def _content(path: str) -> str:
    """Return the text of the file, with an end of line; empty without a file."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return ""
    return text if not text or text.endswith("\n") else f"{text}\n"
