"""The place of programs in the tree of a slot, for any kind of build."""

from __future__ import annotations

import os

from . import wheels

PROGRAM = os.path.join(wheels.PROGRAMS, "salt-minion")


def link_programs(tree: str) -> None:
    """Link the programs of a onedir in one place: Salt's own onedir has them at its top."""
    os.makedirs(os.path.join(tree, wheels.PROGRAMS), exist_ok=True)
    for name in os.listdir(tree):
        link = os.path.join(tree, wheels.PROGRAMS, name)
        is_ours = name == "salt" or name.startswith("salt-")
        if is_ours and os.path.isfile(os.path.join(tree, name)) and not os.path.lexists(link):
            os.symlink(os.path.join("..", name), link)


def is_below(tree: str, program: str) -> bool:
    """Tell whether a program is in the tree, wherever it may lead as a link."""
    place = os.path.realpath(os.path.dirname(program))
    return place.startswith(os.path.join(os.path.realpath(tree), ""))
