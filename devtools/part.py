"""A pytest plugin that runs one part of the tests: ``-p devtools.part --part 2/3``."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part", default="1/1", metavar="N/M", help="run every Mth test, from the Nth"
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Last, so that what other options leave out is not dealt with.
    number, parts = map(int, config.getoption("--part").split("/"))
    mine = items[number - 1 :: parts]
    config.hook.pytest_deselected(items=[item for item in items if item not in mine])
    items[:] = mine
