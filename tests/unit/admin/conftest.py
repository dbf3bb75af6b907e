import os

import pytest

from saltext_safeupdate import hooks
from tests.support import this_host


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return the host of a minion that is set up well, in the process of one of its jobs."""
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getppid()})
    return this_host.simulated(this_host.opts(tmp_path))
