import pytest

from tests.support import loading
from tests.support.minion import Minion, hooked
from tests.support.own_errors import _no_error_of_ours  # noqa: F401 (a fixture)


@pytest.fixture(scope="session", autouse=True)
def _loaders_read_once():
    with pytest.MonkeyPatch.context() as patch:
        loading.read_once(patch.setattr)
        yield


@pytest.fixture
def minion(tmp_path):
    """A minion in this process, with our hooks."""
    with hooked(Minion(tmp_path)) as found:
        yield found
