"""Conditions instead of sleeps."""

import time

import pytest

# Seconds between two looks at a condition; more if a look takes long, so that looking takes only a
# small part of a processor from what is waited for.
_INTERVAL, _REST, _LONGEST_INTERVAL = 0.05, 4.0, 1.0
# Seconds. Only what never ends takes that long, however busy the machine is.
LONGEST = 600


def wait_for(condition, what, timeout=LONGEST):
    """Wait until *condition* holds and return what it gave; fail with *what* if it never does."""
    deadline = time.monotonic() + timeout
    while True:
        began = time.monotonic()
        found = condition()
        if found:
            return found
        now = time.monotonic()
        if now > deadline:
            pytest.fail(f"never happened: {what}")
        time.sleep(min(max(_INTERVAL, _REST * (now - began)), _LONGEST_INTERVAL))
