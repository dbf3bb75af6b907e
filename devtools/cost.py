"""
A pytest plugin that tells what tests cost: ``-p devtools.cost``.

It counts the processor time of pytest and of all programs that have ended, those in containers
too. With both processors busy that decides how long a run takes, and the clock says little.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Generator

import pytest

MOST = 10
_TOTAL = re.compile(r"^processor time: (\d+) s$", re.M)
_KEY = pytest.StashKey[dict[str, float]]()


def _spent() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def total(log: str) -> float:
    """Return the seconds that a log of pytest reports."""
    found = _TOTAL.findall(log)
    return float(found[-1]) if found else 0.0


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_KEY] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    before = _spent()
    try:
        return (yield)
    finally:
        item.config.stash[_KEY][item.nodeid] = _spent() - before


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    tests = sorted(config.stash[_KEY].items(), key=lambda each: -each[1])
    for name, seconds in tests[:MOST]:
        terminalreporter.write_line(f"{seconds:7.1f} s of a processor  {name}")
    terminalreporter.write_line(f"processor time: {_spent():.0f} s")
