import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_log_at_exit():
    """Salt keeps messages for a log that is never set up, and prints them after the tests."""
    import salt._logging

    salt._logging.shutdown_temp_handler()
