"""Work that leaves the processors to others first."""

import errno
import os

import pytest

from saltext_safeupdate.core.host.background import in_background


def nice():
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.fixture
def child():
    """Run in a process of its own, whose priority no other test sees."""

    def run(work):
        pid = os.fork()
        if not pid:
            failed = 1
            try:
                work()
                failed = 0
            finally:
                os._exit(failed)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    return run


def test_this_process_is_nicer_meanwhile(child):
    before = nice()

    def work():
        with in_background():
            assert nice() == min(before + 5, 19)
        assert nice() == before

    assert child(work) == 0


def test_it_is_left_if_the_work_fails(child):
    before = nice()

    def work():
        with pytest.raises(ValueError), in_background():
            raise ValueError
        assert nice() == before

    assert child(work) == 0


def test_a_container_without_the_capability_does_the_rest_of_it_in_the_background(child, caplog):
    caplog.set_level("INFO")

    def work():
        if not os.geteuid():
            os.setpriority(os.PRIO_PROCESS, 0, 0)
            # The user 'nobody' may not take it back, as root without CAP_SYS_NICE.
            os.setuid(65534)
        before = nice()
        with in_background():
            pass
        assert nice() == min(before + 5, 19)
        assert "runs in the background as well" in caplog.text

    assert child(work) == 0


def test_nothing_is_lost_where_the_kernel_refuses_it(monkeypatch, caplog):
    def refused(which, who, value):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    caplog.set_level("INFO")
    monkeypatch.setattr(os, "setpriority", refused)
    with in_background():
        done = True
    assert done
    assert "jobs share the processors with the update" in caplog.text
