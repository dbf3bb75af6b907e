"""How long processes waited, from what the kernel counts."""

import os

import pytest

from saltext_safeupdate.core.host.host_wait import HostWait, describe


class Proc:
    """A /proc in which the processes of the minion and of others are what a test says."""

    def __init__(self, path):
        self.path = path
        self.now = 0.0
        self.processor(0, 0)

    def processor(self, steal, total):
        user = total - steal
        (self.path / "stat").write_text(f"cpu  {user} 0 0 0 0 0 0 {steal} 0 0\ncpu0 1 1\n")

    def process(self, pid, parent, waited, *, state="S", ticks=0, name="salt minion) x"):
        directory = self.path / str(pid)
        directory.mkdir(exist_ok=True)
        fields = [state, str(parent), *["0"] * 9, str(ticks), "0", *["0"] * 20]
        (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        if waited is not None:
            (directory / "schedstat").write_text(f"1000 {int(waited * 1e9)} 7\n")


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


@pytest.fixture
def waited(proc):
    ask = HostWait(str(proc.path), monotonic=lambda: proc.now)
    ask(10)

    def after(seconds):
        proc.now += seconds
        return ask(10)

    return after


def test_the_one_that_waited_most_counts_and_others_do_not(proc, waited):
    proc.process(10, 1, 0.0)
    proc.process(11, 10, 1.0)
    proc.process(12, 11, 2.0)
    proc.process(20, 1, 500.0)
    assert waited(5) == 2.0
    proc.process(11, 10, 2.5)
    proc.process(12, 11, 2.5)
    assert waited(5) == 1.5


def test_it_is_never_more_than_the_time_that_has_passed(proc, waited):
    proc.process(10, 1, 100.0)
    assert waited(3) == 3.0


def test_who_waits_for_a_disk_waits_for_the_host(proc, waited):
    proc.process(10, 1, 0.0)
    proc.process(11, 10, 0.0, state="D")
    assert waited(2) == 2.0
    proc.process(11, 10, 0.0)
    assert waited(2) == 0.0


def test_what_a_hypervisor_takes_away_counts(proc, waited):
    proc.process(10, 1, 0.0)
    proc.processor(10, 100)
    assert waited(2) == 0.0, "since when is not known"
    proc.processor(35, 200)
    assert waited(2) == 0.5


def test_one_that_hangs_waits_for_nothing(proc, waited):
    proc.process(10, 1, 7.0)
    waited(1)
    assert waited(60) == 0.0


def test_a_kernel_that_does_not_count_it_says_nothing(proc, waited):
    proc.process(10, 1, None)
    (proc.path / "stat").unlink()
    assert waited(5) == 0.0


def test_without_a_process_there_is_no_wait(proc):
    proc.process(10, 1, 5.0)
    ask = HostWait(str(proc.path), monotonic=lambda: proc.now)
    ask(0)
    proc.now += 5
    assert ask(0) == 0.0
    assert ask(99) == 0.0


def test_a_real_process_is_described():
    assert f"process {os.getpid()} has run for" in describe(os.getpid())
    assert describe(2**22 + 1) == ""
