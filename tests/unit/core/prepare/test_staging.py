import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError, SafeUpdateError, VerificationError
from saltext_safeupdate.core.prepare.staging import Staging
from saltext_safeupdate.core.record.store import Store
from tests.support.simulated import FakePackages

TARGETS = {"salt": "2", "salt-minion": "2"}


@pytest.fixture
def packages():
    return FakePackages(salt="1")


@pytest.fixture
def staging(tmp_path, packages):
    (tmp_path / "state").mkdir()
    store = Store(str(tmp_path / "state" / "safeupdate.db"))
    return Staging(str(tmp_path / "state"), store, packages)


def test_it_is_fetched_once(staging, packages):
    first = staging.stage(TARGETS)
    packages.download = lambda *args: pytest.fail("fetched")
    assert staging.stage(TARGETS) == first
    assert staging.staged() == TARGETS
    assert pathlib.Path(first[0].path).parent.stat().st_mode & 0o777 == 0o700


def test_what_was_downloaded_elsewhere_is_not_fetched_again(staging, packages, tmp_path):
    place = tmp_path / "state" / "elsewhere"
    place.mkdir()
    files = packages.download(TARGETS, str(place))
    staging.keep(TARGETS, files)
    packages.download = lambda *args: pytest.fail("fetched")
    assert [file.sha256 for file in staging.stage(TARGETS)] == [file.sha256 for file in files]
    assert list(place.iterdir()) == []


def test_another_version_takes_its_place(staging):
    old = staging.stage(TARGETS)
    new = staging.stage({"salt": "3"})
    assert not pathlib.Path(old[0].path).exists()
    assert pathlib.Path(new[0].path).exists()
    assert staging.staged() == {"salt": "3"}


def test_an_altered_file_is_refused(staging):
    pathlib.Path(staging.stage(TARGETS)[0].path).write_text("altered")
    with pytest.raises(VerificationError):
        staging.stage(TARGETS)


def test_a_download_that_fails_leaves_nothing_staged(staging, packages):
    staging.stage({"salt": "3"})

    def fails(targets, directory):
        raise CommandError(("apt-get",), "no route to host")

    packages.download = fails
    with pytest.raises(CommandError):
        staging.stage(TARGETS)
    assert staging.staged() == {}


@pytest.mark.parametrize(("free", "fits"), [(132 << 20, True), ((132 << 20) - 4096, False)])
def test_the_room_is_looked_at_before_anything_is_fetched(tmp_path, packages, free, fits):
    """The rest is for the jobs that run meanwhile: they have to be recorded."""
    system = list(os.statvfs(tmp_path))
    system[1], system[4] = 4096, free // 4096  # f_frsize, f_bavail
    store = Store(str(tmp_path / "safeupdate.db"))
    asked = []

    def statvfs(path):
        asked.append(path)
        return os.statvfs_result(system)

    staging = Staging(str(tmp_path), store, packages, statvfs=statvfs)
    packages.needs = lambda targets: 100 << 20 if targets == TARGETS else 0
    staging.stage({"salt": "3"})
    if fits:
        assert staging.stage(TARGETS)
        return
    packages.download = lambda *args: pytest.fail("fetched")
    kept = staging.staged_files()
    system[4] -= sum(-(-os.path.getsize(file.path) // 4096) for file in kept)
    with pytest.raises(SafeUpdateError, match=r"131 MiB free, and 132 MiB are needed\."):
        staging.stage(TARGETS)
    assert asked[-1] == str(tmp_path)
    assert staging.staged() == {"salt": "3"}, "what is there stays"
    assert os.path.exists(kept[0].path)


def test_what_is_installed_is_copied_next_so_its_room_counts(tmp_path, packages):
    """Without it, the copies for the way back would fill the disk after the download."""
    system = list(os.statvfs(tmp_path))
    system[1], system[4] = 4096, (200 << 20) // 4096  # f_frsize, f_bavail
    (tmp_path / "state").mkdir()
    store = Store(str(tmp_path / "state" / "safeupdate.db"))
    staging = Staging(
        str(tmp_path / "state"), store, packages, statvfs=lambda _: os.statvfs_result(system)
    )
    packages.needs = lambda targets: 100 << 20
    packages.takes_to_secure = 69 << 20
    packages.download = lambda *args: pytest.fail("fetched")
    with pytest.raises(SafeUpdateError, match=r"way back: .* 200 MiB free, and 201 MiB are needed"):
        staging.stage(TARGETS)
    assert not (tmp_path / "state" / "staged").exists()
    packages.takes_to_secure = 68 << 20
    del packages.download
    assert staging.stage(TARGETS)


def test_dropped_twice(staging):
    staging.stage(TARGETS)
    staging.drop()
    staging.drop()
    assert staging.staged() == {}
