"""Which Salt series a system test runs on: one in every run, all of them in the soak."""

from __future__ import annotations

from typing import Any

import pytest

from devtools import venvs


def series(short: str) -> list[Any]:
    """Return every series as test parameters; all but *short* belong to ``./dev soak``."""
    return [
        version if version == short else pytest.param(version, marks=pytest.mark.soak)
        for version in venvs.SERIES
    ]
