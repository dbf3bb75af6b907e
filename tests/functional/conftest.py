import pytest

from tests.support.minion import Minion, hooked


@pytest.fixture
def minion(tmp_path):
    """A minion in this process, with our hooks."""
    with hooked(Minion(tmp_path)) as found:
        yield found
