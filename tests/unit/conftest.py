import subprocess
from pathlib import Path

import pytest

from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.record import kept
from tests.support.own_errors import _no_error_of_ours  # noqa: F401 (a fixture)

# Seconds. These tests start no programs: one that takes so long hangs, and says so before the time
# of a whole run is over.
_HANGS = 600


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and not item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.timeout(_HANGS))


@pytest.fixture(autouse=True)
def _no_process(monkeypatch, request):
    """A unit test that starts a program nobody planned fails."""
    if "real_process" in request.fixturenames:
        return

    def unplanned(*args, **kwargs):
        pytest.fail(f"unplanned command: {args}")

    monkeypatch.setattr(subprocess, "Popen", unplanned)


@pytest.fixture
def real_process():
    """Name this fixture in a test that means to start programs."""


@pytest.fixture(autouse=True)
def _no_job_is_left():
    """What a unit test began as a job would be the job of all that follow."""
    yield
    current.end()
    kept.end()
