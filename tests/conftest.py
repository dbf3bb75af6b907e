import contextlib
import gc
import importlib.util
import json
import logging
import os
import sys
import tempfile
from pathlib import Path

import pytest

from saltext_safeupdate.core.settings import Settings

# Where the minions of a host are noted that do not name another place.
REGISTRY = Path(Settings.registry_dir)


def pytest_collection_finish():
    """Look for garbage less often: Python looks among thousands of tests, which are none."""
    gc.set_threshold(20_000, 20, 20)


class _Finders(dict):
    """What Python keeps for each entry of sys.path; to delete what another thread has is fine."""

    def __delitem__(self, entry):
        self.pop(entry, None)


@pytest.fixture(scope="session", autouse=True)
def _threads_may_load():
    """
    Have threads of a test load modules of Salt at once.

    Salt has Python forget its finders after each one, and importlib.invalidate_caches() deletes
    those of entries that do not exist from a copy of the list: of two threads one may get a
    KeyError.
    """
    kept = sys.path_importer_cache
    sys.path_importer_cache = _Finders(kept)
    yield
    sys.path_importer_cache = kept


@pytest.fixture(scope="session", autouse=True)
def _salt_says_less():
    """
    Have Salt make no messages below INFO, and none for a log that is never set up.

    It asks for messages of every level when it is imported; its loaders' own take longer than
    most tests. What is kept for a log to come would be printed after the tests.
    """
    if importlib.util.find_spec("salt") is None:
        return
    import salt._logging

    logging.getLogger().setLevel(logging.INFO)
    salt._logging.shutdown_temp_handler()


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_left_on_this_host():
    """See that no minion of these tests is noted among those of the host."""
    before = set(REGISTRY.glob("*.json"))
    yield
    ours, found = os.path.join(tempfile.gettempdir(), ""), []
    for path in set(REGISTRY.glob("*.json")) - before:
        # A minion of somebody else removes what has become old.
        with contextlib.suppress(FileNotFoundError):
            found.append(json.loads(path.read_text())["config"])
    assert [config for config in found if config.startswith(ours)] == []
