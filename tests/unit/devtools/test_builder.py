"""Trees of Salt for the lab: what their files are like must not depend on when they were built."""

import os

import pytest

from devtools.lab import builder

VERSIONS = ("3006.28", "3007.15", "3007.9", "3008.3")


@pytest.fixture
def times(tmp_path):
    """Return a way to make a tree of a version, and to read the times of its files."""

    def times(version, where):
        tree = tmp_path / where / version
        (tree / "salt").mkdir(parents=True)
        (tree / "salt" / "version.py").write_text("same size\n")
        (tree / "link").symlink_to("salt/version.py")
        builder._set_times(tree, version)
        return [os.lstat(tree / name).st_mtime_ns for name in ("salt/version.py", "link")]

    return times


def test_a_file_has_another_time_in_each_version_and_always_the_same(times):
    """Byte code of one version, and whoever compares times, took a file for that of another."""
    first = {version: times(version, "first") for version in VERSIONS}
    assert len({found for listed in first.values() for found in listed}) == len(VERSIONS)
    # Packages keep whole seconds.
    assert all(found % 1_000_000_000 == 0 for listed in first.values() for found in listed)
    assert {version: times(version, "again") for version in VERSIONS} == first
