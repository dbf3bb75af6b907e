"""Errors of ours that the hooks contain, and that a test has to see all the same."""

import pytest

from saltext_safeupdate import patches


@pytest.fixture(autouse=True)
def _no_error_of_ours():
    """Fail a test in which a hook has told of an error, unless it has put the place aside."""
    told = patches._troubles
    yield
    found = dict(told)
    told.clear()
    assert found == {}
