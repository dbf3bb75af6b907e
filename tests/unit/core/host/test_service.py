import pytest

from saltext_safeupdate.core.host.service import ServiceState


@pytest.mark.parametrize(
    ("active", "running"),
    [
        ("active", True),
        ("activating", True),
        ("deactivating", True),
        ("reloading", True),
        ("inactive", False),
        ("failed", False),
        ("unknown", True),
        ("", False),
    ],
)
def test_what_counts_as_running(active, running):
    assert ServiceState(active, "enabled", 1).running is running
