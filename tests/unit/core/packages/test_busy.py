import fcntl
import os

import pytest

from saltext_safeupdate.core.packages import apt, busy
from saltext_safeupdate.core.packages.dnf import Dnf
from tests.support.fakes import FakeRunner
from tests.support.forked import forked


@pytest.fixture
def lock_file(tmp_path):
    path = tmp_path / "lock-frontend"
    path.write_text("")
    return str(path)


def _locks(path):
    def work(hear, say):
        fd = os.open(path, os.O_RDWR)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        say("locked")
        hear()

    return work


def test_a_package_manager_at_work_is_seen_without_disturbing_it(lock_file):
    manager = apt.Apt(FakeRunner(), locks=(lock_file,))
    assert not manager.busy()
    with forked(_locks(lock_file)) as other:
        assert other.hear() == "locked"
        assert manager.busy()
        assert manager.busy()
        other.kill()
    assert not manager.busy()


def test_a_lock_on_another_file_is_none(lock_file, tmp_path):
    other = tmp_path / "other"
    other.write_text("")
    with forked(_locks(str(other))) as process:
        process.hear()
        assert not busy.lock_taken([lock_file, str(tmp_path / "absent")])


def test_only_who_has_the_lock_counts(lock_file, tmp_path):
    inode = os.stat(lock_file).st_ino
    table = tmp_path / "locks"
    for line in (
        f"1: -> POSIX  ADVISORY  WRITE 7 fe:00:{inode} 0 EOF\n",
        f"1: FLOCK  ADVISORY  WRITE 7 fe:00:{inode} 0 EOF\n",
        f"1: POSIX  ADVISORY  READ 7 fe:00:{inode} 0 EOF\n",
        f"1: POSIX  ADVISORY  WRITE 7 fe:00:{inode}9 0 EOF\n",
        "nonsense\n",
    ):
        table.write_text(line)
        assert not busy.lock_taken([lock_file], str(table)), line
    table.write_text(f"12: POSIX  ADVISORY  WRITE 7 fe:00:{inode} 0 EOF\n")
    assert busy.lock_taken([lock_file], str(table))


def test_without_the_table_nobody_is_seen(lock_file, tmp_path):
    assert not busy.lock_taken([lock_file], str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("content", "alive"), [("42\n", True), ("43\n", False), ("", False), ("x/..", False)]
)
def test_a_pid_file_of_a_process_that_lives(tmp_path, content, alive):
    (tmp_path / "proc" / "42").mkdir(parents=True)
    path = tmp_path / "zypp.pid"
    path.write_text(content)
    absent = str(tmp_path / "absent")
    assert busy.process_runs([absent, str(path)], str(tmp_path / "proc")) is alive


@pytest.mark.parametrize("seen", [(True, False), (False, True), (False, False)])
def test_rpm_looks_at_both(monkeypatch, seen):
    monkeypatch.setattr(busy, "lock_taken", lambda paths: seen[0])
    monkeypatch.setattr(busy, "process_runs", lambda paths: seen[1])
    assert Dnf(FakeRunner()).busy() is any(seen)
