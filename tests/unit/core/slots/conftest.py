import pytest

from saltext_safeupdate.core.slots.store import Slots
from tests.support import builds
from tests.support.simulated import Clock


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def slots(tmp_path, clock):
    return Slots(str(tmp_path / "slots"), clock=clock)


@pytest.fixture
def build(tmp_path):
    """Make a build of a version: its manifest, and its files by name."""
    (tmp_path / "source").mkdir()

    def make(version="3008.3", entries=None, **said):
        name = f"salt-{version}.tar.xz"
        path = builds.tarball(tmp_path / "source" / name, entries or builds.onedir(version))
        found = builds.parsed(path, **{"version": version, "name": f"salt-{version}", **said})
        return found, {name: path}

    return make


@pytest.fixture
def staged(slots, build, clock):
    """Stage a build of a version; return its slot."""

    def stage(version="3008.3"):
        clock.work(60)
        return slots.stage(*build(version))

    return stage
