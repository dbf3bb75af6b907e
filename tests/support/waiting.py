"""Conditions instead of sleeps."""

import time

import pytest

_INTERVAL = 0.05
# Seconds. Only what never ends takes that long, however busy the machine is.
LONGEST = 600


def wait_for(condition, what, timeout=LONGEST):
    """Wait until *condition* holds and return what it gave; fail with *what* if it never does."""
    deadline = time.monotonic() + timeout
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            pytest.fail(f"never happened: {what}")
        time.sleep(_INTERVAL)
