import os

from saltext_safeupdate.core.host import processes


def test_the_start_time_tells_a_process_from_a_later_one():
    with open("/proc/self/stat", encoding="utf-8") as stat:
        assert processes.start_time(os.getpid()) == stat.read().rpartition(")")[2].split()[19]


def test_a_process_that_is_dead_has_none():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    # Not reaped yet: it is a zombie.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert processes.start_time(pid) == ""
    assert processes.identity(pid) == ""
    os.waitpid(pid, 0)
    assert processes.start_time(pid) == ""


def test_an_identity_names_a_process_for_ever():
    me = processes.me()
    boot, pid, start = me.split(":")
    assert int(pid) == os.getpid()
    assert processes.alive(me)
    assert not processes.alive(f"{boot}:{pid}:{int(start) + 1}")
    assert not processes.alive(f"another-boot:{pid}:{start}")
    assert not processes.alive("")


def test_ancestors_are_ours():
    assert next(processes.ancestors(), 1) == os.getppid()
    assert 1 not in processes.ancestors()
