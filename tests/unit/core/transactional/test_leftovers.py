from saltext_safeupdate.core.transactional import leftovers
from saltext_safeupdate.core.transactional.roots import Subvolume

INSIDE = "1 0 0:25 /@/.snapshots/7/snapshot / rw - btrfs /dev/vda rw,subvolid=299\n"


def test_the_snapshot_is_the_root_of_what_runs_inside(tmp_path):
    assert leftovers.of_processes([1, 2], proc=tmp_path) is None  # they have ended
    (tmp_path / "2").mkdir()
    (tmp_path / "2/mountinfo").write_text(INSIDE)
    assert leftovers.of_processes([1, 2], proc=tmp_path) == Subvolume(7, 299)


def test_a_note(tmp_path):
    assert leftovers.noted(tmp_path) is None
    leftovers.note(tmp_path, Subvolume(7, 299))
    assert leftovers.noted(tmp_path) == Subvolume(7, 299)
    assert (tmp_path / "snapshot").stat().st_mode & 0o777 == 0o600
    for damaged in ("", "7", "7 x", "7 299 1"):
        (tmp_path / "snapshot").write_text(damaged)
        assert leftovers.noted(tmp_path) is None
