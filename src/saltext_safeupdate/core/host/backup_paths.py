"""The paths that a backup contains, apart from those in ``safeupdate:backup``."""

from __future__ import annotations

import os
from collections.abc import Sequence

# How many of the paths of a minion are its configuration: the first ones.
_CONFIGURATION = 4


def of_minion(
    *, config_file: str, pki_dir: str, cache_dir: str, include: str = "minion.d"
) -> list[str]:
    """
    Return the paths of a minion to back up: configuration with the saved schedule and beacons,
    ID, static grains, keys, cached grains. Files of a master on the same host are left alone.
    The configuration comes first: see :func:`configuration`.
    """
    config_dir = os.path.dirname(config_file)
    return [
        config_file,
        os.path.join(config_dir, include),
        os.path.join(config_dir, "minion_id"),
        os.path.join(config_dir, "grains"),
        pki_dir,
        os.path.join(cache_dir, "grains.cache.p"),
    ]


def of_master(*, config_file: str, pki_dir: str, include: str = "master.d") -> list[str]:
    """
    Return the paths of a master to back up: its configuration and its keys.

    Caches are left out: later data of jobs and people must not be lost.
    """
    return [config_file, os.path.join(os.path.dirname(config_file), include), pki_dir]


def configuration(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the backed up *paths* of a minion that people and jobs edit."""
    return followed(paths[:_CONFIGURATION])


def followed(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the paths, and the targets of links among them."""
    return (*paths, *(os.path.realpath(path) for path in paths if os.path.islink(path)))
