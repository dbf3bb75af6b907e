"""Fixtures of the system tests: containers with a real systemd, a real master."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools import host, venvs
from devtools.lab.container import Container, Lab
from devtools.master import Master
from tests.lab.scene import Scene

LAB_DIR = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if LAB_DIR in item.path.parents:
            item.add_marker(pytest.mark.lab)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The lab's artefacts and run directory."""
    if not host.is_root():
        pytest.skip("boots containers, needs root")
    with Lab() as made:
        yield made


@pytest.fixture(scope="session")
def site(lab: Lab) -> Path:
    """The built extension, as a directory for ``PYTHONPATH`` or a minion's site-packages."""
    if given := os.environ.get("SAFEUPDATE_SITE"):
        return Path(given)
    return venvs.extension(lab.cache.cache, lab.run_dir.path / "build")


@pytest.fixture
def make_container(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Callable[..., Container]]:
    """Make containers (see ``Lab.container``) that are gone after the test."""
    made: list[Container] = []

    def make(*args: Any, **kwargs: Any) -> Container:
        made.append(lab.container(*args, **kwargs))
        return made[-1]

    yield make
    failed = getattr(request.node, "failed_call", False)
    for container in reversed(made):
        if failed:
            print(container.logs())
        container.down()


@pytest.fixture
def container(make_container: Callable[..., Container]) -> Container:
    """A booted container with Salt 3007.15 and no running minion configuration of ours."""
    return make_container("3007.15").up()


@pytest.fixture
def make_master(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Callable[..., Master]]:
    """Start masters in a container's network (see ``Master``) that end with the test."""
    made: list[Master] = []

    def make(container: Container, *args: Any, **kwargs: Any) -> Master:
        made.append(Master(container.network, *args, **kwargs))
        return made[-1].start()

    yield make
    for master in reversed(made):
        if getattr(request.node, "failed_call", False):
            print(master.log())
        master.stop()


@pytest.fixture
def begin(request: pytest.FixtureRequest) -> Iterator[Callable[[Any], Any]]:
    """Look after scenes (see ``Scene``) that end with the test, and tell of them if it fails."""
    made: list[Scene] = []

    def keep(scene: Scene) -> Scene:
        made.append(scene)
        return scene

    yield keep
    for scene in made:
        scene.tell_of(request.node)
        scene.down()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()
    if report.when == "call":
        item.failed_call = report.failed


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    """The rows of a table of faults; they are printed when all of a module have run."""
    rows: list[str] = []
    yield rows
    print("\n" + "\n".join(sorted(rows)))
