import functools

import pytest
import salt.utils.entrypoints

from tests.support.minion import Minion, hooked


@pytest.fixture(scope="session", autouse=True)
def _what_is_installed_stays_so():
    """Have Salt's loaders read once what is installed; they would for every loader."""
    with pytest.MonkeyPatch.context() as patch:
        read = functools.cache(salt.utils.entrypoints.iter_entry_points)
        patch.setattr(salt.utils.entrypoints, "iter_entry_points", read)
        yield


@pytest.fixture
def minion(tmp_path):
    """A minion in this process, with our hooks."""
    with hooked(Minion(tmp_path)) as found:
        yield found
