import importlib.util
import logging
import sys

import pytest


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
