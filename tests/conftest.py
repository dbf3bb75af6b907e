import importlib.util
import logging

import pytest


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
