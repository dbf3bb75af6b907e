import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.transactional import roots
from saltext_safeupdate.core.transactional.roots import Roots, Subvolume
from tests.support.fakes import FakeRunner

from . import captured


def test_running_root():
    assert roots.running_root(captured.MOUNTINFO) == Subvolume(9, 271)


def test_usr_from_an_applied_snapshot_counts():
    assert roots.running_root(captured.MOUNTINFO + captured.APPLIED) == Subvolume(12, 280)


def test_what_is_mounted_from_a_snapshot_is_part_of_it():
    mounts = roots.parse_mountinfo(captured.MOUNTINFO + captured.APPLIED)
    assert {mount.point for mount in mounts if mount.of_snapshot} == {"/", "/etc", "/usr"}


@pytest.mark.parametrize(
    "text", [captured.CONTAINER, "", captured.MOUNTINFO.replace("btrfs", "xfs")]
)
def test_no_running_root(text):
    assert roots.running_root(text) is None


def test_the_last_mount_of_a_place_counts():
    assert roots.running_root(captured.MOUNTINFO + captured.CONTAINER) is None


@pytest.mark.parametrize("text", ["1 0 0:25 / /", "nonsense\n", "1 2 3 4 5 6 - \n"])
def test_a_damaged_mount_table_is_an_error(text):
    with pytest.raises(SafeUpdateError, match="cannot be read"):
        roots.parse_mountinfo(text)


def test_escapes_in_mount_points():
    points = [mount.point for mount in roots.parse_mountinfo(captured.MOUNTINFO)]
    assert "/srv/with space" in points


def test_default():
    assert roots.parse_default(captured.DEFAULT) == Subvolume(9, 271)
    assert roots.parse_default(captured.DEFAULT_NONE) is None
    assert roots.parse_default("") is None


def test_read_roots(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(captured.MOUNTINFO)
    run = FakeRunner({roots.GET_DEFAULT: (0, captured.DEFAULT, "")})
    assert roots.read_roots(run, table).pending is False
    run.answers[roots.GET_DEFAULT] = (0, captured.DEFAULT.replace("271", "272"), "")
    assert roots.read_roots(run, table).pending is True  # the same number, another snapshot
    run.answers[roots.GET_DEFAULT] = (0, captured.DEFAULT_NONE, "")
    with pytest.raises(SafeUpdateError, match="no transactional system"):
        roots.read_roots(run, table)


def test_pending():
    one, two = Subvolume(1, 260), Subvolume(2, 270)
    assert not Roots(running=one, default=one).pending
    assert Roots(running=one, default=two).pending
    assert Roots(running=None, default=two).pending


def test_list():
    first, second = roots.parse_list(captured.SNAPPER)
    assert (first.number, first.active, first.default, first.in_progress) == (1, True, False, False)
    assert (second.number, second.default, second.in_progress) == (2, True, True)
    assert second.as_dict()["in_progress"] is True
    assert first.key == (1, "2026-01-02 03:04:05")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"root": 1}', '{"root": [{}]}', '{"root": [1]}'])
def test_a_list_that_cannot_be_read(text):
    with pytest.raises(SafeUpdateError, match="snapper"):
        roots.parse_list(text)
