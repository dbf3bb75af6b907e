import os

import pytest

from saltext_safeupdate import hooks
from tests.support import factory


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return a factory of a minion that is set up well, in the process of one of its jobs."""
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getppid()})
    return factory.simulated(factory.opts(tmp_path))
