import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError, VerificationError
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


def test_dropped_twice(staging):
    staging.stage(TARGETS)
    staging.drop()
    staging.drop()
    assert staging.staged() == {}
