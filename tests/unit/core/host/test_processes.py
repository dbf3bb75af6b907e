import os

import pytest

from saltext_safeupdate.core.host import processes
from tests.support.forked import forked


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


def test_whether_a_process_has_begun_others_that_have_not_ended():
    def begin(hear, say):
        hear()
        with forked(lambda hear, say: hear()) as grandchild:
            say(str(grandchild.pid))
            hear()
        say("none any more")
        hear()

    with forked(begin) as child:
        assert not processes.has_children(child.pid)
        child.say()
        child.hear()
        assert processes.has_children(child.pid)
        child.say()
        child.hear()
        assert not processes.has_children(child.pid)
    assert not processes.has_children(child.pid), "it has ended"


def test_a_kernel_that_tells_no_children_may_have_some(monkeypatch):
    monkeypatch.setattr(os, "listdir", lambda path: ["no such thread"])
    assert processes.has_children(os.getpid())


def test_an_age_is_that_of_the_process():
    assert 0 <= processes.age(os.getpid()) <= processes.age(1) + 1
    assert processes.age(2**22 + 1) is None


def test_what_began_before_a_moment():
    at = processes.moment()
    boot, _, ticks = at.split(":")
    began = {
        f"{boot}:7:{int(ticks) - 1}": True,
        f"{boot}:7:{ticks}": False,
        f"another:7:{int(ticks) - 1}": False,
        "main:x": False,
        "": False,
    }
    assert {who: processes.began_before(who, at) for who in began} == began
    # Ticks of two boots cannot be compared, and nobody knows whether it is the same one.
    assert not processes.began_before(f"{processes.NO_BOOT}:7:1", f"{processes.NO_BOOT}:100")


@pytest.mark.parametrize("origin", [0.0, 1e9])
def test_the_clock_of_the_boot_may_count_from_elsewhere(monkeypatch, origin):
    monkeypatch.setattr(processes, "since_boot", lambda: origin)
    at = processes.moment()
    assert processes.began_before(processes.me(), at)
    assert not processes.began_before(processes.moment(), at)
