"""The program of the stop guard, with real locks and processes."""

import fcntl
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import saltext_safeupdate.core.jobs.stop_guard
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs import idle
from saltext_safeupdate.core.jobs.job import Job, State
from saltext_safeupdate.core.record.store import Store

PROGRAM = Path(saltext_safeupdate.core.jobs.stop_guard.__file__).with_name("stop_guard.sh")
WAIT = 30.0


class Host:
    """A minion (a process that sleeps), jobs (holds of the lock), and the guard."""

    def __init__(self, tmp_path):
        self.run_dir = tmp_path / "run"
        self.run_dir.mkdir()
        self.bin = tmp_path / "bin"
        self.bin.mkdir()
        self.system("running")
        self.processes = []
        self.minion = self.popen(["sleep", "300"])

    def system(self, state):
        path = self.bin / "systemctl"
        path.write_text(
            f"#!/bin/sh\n[ $1 = is-system-running ] && echo {state} && exit\n"
            "trap 'kill $!; exit 143' TERM\nsleep 300 & wait\n"
        )
        path.chmod(0o755)

    def popen(self, argv, **kwargs):
        process = subprocess.Popen(argv, **kwargs)
        self.processes.append(process)
        return process

    def guard(self, limit=60, shutdown=60, **env):
        return self.popen(
            ["sh", PROGRAM, str(self.run_dir), "salt-minion.service", str(limit), str(shutdown)],
            env={
                "PATH": f"{self.bin}:{os.environ['PATH']}",
                "MAINPID": str(self.minion.pid),
                **env,
            },
            stdout=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def held(self, name, operation=fcntl.LOCK_SH):
        with open(self.run_dir / f"{name}.lock", "a") as file:
            fcntl.flock(file, operation)
            yield file

    def locked(self, name):
        with open(self.run_dir / f"{name}.lock", "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    def until(self, condition):
        deadline = time.monotonic() + WAIT
        while not condition():
            assert time.monotonic() < deadline, "it did not happen"
            time.sleep(0.02)

    def stopped(self):
        return self.minion.wait(WAIT) == -signal.SIGTERM


@pytest.fixture
def host(tmp_path):
    made = Host(tmp_path)
    yield made
    for process in made.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_without_jobs_the_minion_stops_at_once(host):
    assert host.guard().wait(WAIT) == 0
    assert host.stopped()


def test_it_waits_for_jobs_and_holds_new_ones(host):
    with host.held("jobs"):
        guard = host.guard()
        host.until(lambda: host.locked("drain"))
        assert guard.poll() is None
        assert host.minion.poll() is None
    assert guard.wait(WAIT) == 0
    assert host.stopped()
    assert not host.locked("drain")


def test_what_was_killed_while_it_waited_does_not_come_back(host, tmp_path):
    parent = host.popen(["sh", "-c", "trap 'kill $!' TERM; sleep 300 & wait"])
    children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
    host.until(lambda: children.read_text().split())
    main = processes.identity(int(children.read_text()))
    host.minion = parent

    def comes_back(owner, fun="state.apply"):
        job = Job("1", "1", fun, "m", State.RUNNING, owner, "", 0.0, 0.0, 1, 0, "", None, None)
        return not idle.was(Store(str(tmp_path / "db")), str(host.run_dir), job)

    assert comes_back(main)
    with host.held("jobs"):
        guard = host.guard()
        host.until(lambda: host.locked("drain"))
        assert comes_back(main)
    assert guard.wait(WAIT) == 0
    assert not comes_back(main)
    assert comes_back(main, "safeupdate.wait"), "no restart waits for it"
    assert comes_back(processes.me())
    assert comes_back(f"another{main}")


def test_it_waits_within_its_bound(host):
    with host.held("jobs"):
        guard = host.guard(limit=1)
        assert guard.wait(WAIT) == 0
        assert host.stopped()
    assert (host.run_dir / "jobs.lock").read_text() == "", "a job may have been ended"
    assert "did not end within 1 s" in guard.stdout.read()


def test_a_clock_that_is_set_ends_no_job(host):
    """By the time of day, a day passes with each look."""
    clock = host.bin / "date"
    clock.write_text(f"#!/bin/sh\necho x >>{clock}.days\necho $(wc -l <{clock}.days)00000\n")
    clock.chmod(0o755)
    with host.held("jobs"):
        guard = host.guard()
        assert "stops when its jobs have ended" in guard.stdout.readline()
        assert host.minion.poll() is None
    assert guard.wait(WAIT) == 0
    assert host.stopped()


def test_at_a_shutdown_it_has_another_bound(host):
    host.system("stopping")
    with host.held("jobs"):
        guard = host.guard(limit=1000, shutdown=1)
        assert guard.wait(WAIT) == 0
    assert "did not end within 1 s" in guard.stdout.read()


def test_the_bypass_works_before_and_while_it_waits(host):
    with host.held("jobs"):
        guard = host.guard()
        host.until(lambda: host.locked("drain"))
        (host.run_dir / "bypass").touch()
        assert guard.wait(WAIT) == 0
        assert host.stopped()
        host.minion = host.popen(["sleep", "300"])
        (host.run_dir / "bypass").touch()
        assert host.guard().wait(WAIT) == 0
        assert host.stopped(), "systemd would wait for long"
    assert not (host.run_dir / "bypass").exists()


@pytest.mark.parametrize("pid", ["0", "", "none"])
def test_without_a_minion_it_waits_for_nothing(host, pid):
    with host.held("jobs"):
        assert host.guard(MAINPID=pid).wait(WAIT) == 0


def test_a_minion_that_died_is_not_waited_for(host):
    host.minion.kill()
    # Nobody has fetched its status: it is a zombie now.
    os.waitid(os.P_PID, host.minion.pid, os.WEXITED | os.WNOWAIT)
    with host.held("jobs"):
        assert host.guard().wait(WAIT) == 0


def test_without_the_directory_it_does_not_wait(host):
    assert host.popen(["sh", PROGRAM, "/nonexistent", "x", "9", "9"]).wait(WAIT) == 0


def _holder(host, alone, shared=()):
    """Return a process that has locks alone, and a share of others."""
    process = _begin_holder(host, alone, shared)
    process.stdout.readline()
    return process


def _begin_holder(host, alone, shared=()):
    """Return a process that takes locks, one after the other."""
    code = (
        "import fcntl, sys, time\n"
        "files = [(open(name[1:], 'a'), name[0]) for name in sys.argv[1:]]\n"
        "for file, how in files:\n"
        "    fcntl.flock(file, fcntl.LOCK_EX if how == '!' else fcntl.LOCK_SH)\n"
        "print(flush=True)\n"
        "time.sleep(300)"
    )
    names = [f"!{path}" for path in alone] + [f"={path}" for path in shared]
    return host.popen(["python3", "-c", code, *names], stdout=subprocess.PIPE)


def test_the_supervisors_own_restart_is_not_held_up(host):
    _holder(host, [host.run_dir / f"{name}.lock" for name in ("jobs", "supervisor", "drain")])
    assert host.guard().wait(WAIT) == 0
    assert host.minion.poll() is None, "systemd stops it, as without the guard"


def test_a_supervisor_that_begins_its_restart_meanwhile_is_not_held_up(host):
    """It would wait for this stop, and this for its lock."""
    with host.held("jobs"):
        guard = host.guard(limit=1000)
        host.until(lambda: host.locked("drain"))
        taken = [host.run_dir / f"{name}.lock" for name in ("supervisor", "jobs")]
        holder = _begin_holder(host, taken)
        host.until(lambda: host.locked("supervisor"))
    assert guard.wait(WAIT) == 0
    assert holder.poll() is None
    assert host.minion.poll() is None, "systemd stops it, as without the guard"


def test_the_supervisor_of_another_minion_need_not_wait(host, tmp_path):
    """It restarts all minions that run from the packages it has changed."""
    _holder(host, [host.run_dir / "jobs.lock", tmp_path / "supervisor.lock"])
    assert host.guard(limit=1000).wait(WAIT) == 0
    assert host.minion.poll() is None


def test_an_update_that_installs_is_waited_for(host):
    """There the job has the lock of the jobs alone, and not the supervisor."""
    _holder(host, [host.run_dir / "jobs.lock"], [host.run_dir / "supervisor.lock"])
    guard = host.guard(limit=1)
    assert guard.wait(WAIT) == 0
    assert "did not end" in guard.stdout.read()


@pytest.mark.parametrize("word", ["salt-minion", "salt-minion.service", "salt*"])
def test_a_job_that_waits_for_the_stop_is_let_go(host, word):
    job = host.popen(
        ["sh", "-c", f"exec 9>>{host.run_dir}/jobs.lock; flock -s 9; "
         f"sh -c 'exec 9>&-; {host.bin}/systemctl restart {word}; echo let go'; exit 7"],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    host.until(lambda: host_holds(host))
    guard = host.guard()
    assert job.wait(WAIT) == 7
    assert job.stdout.read() == "let go\n"
    note = host.run_dir / f"let_go.{job.pid}"
    assert f"restart {word}" in note.read_text()
    assert note.stat().st_mode & 0o777 == 0o600
    assert guard.wait(WAIT) == 0
    assert host.stopped()


def test_the_note_of_an_earlier_stop_is_gone(host):
    (host.run_dir / "let_go.1").write_text("systemctl restart salt-minion")
    assert host.guard().wait(WAIT) == 0
    assert not (host.run_dir / "let_go.1").exists()


def host_holds(host):
    """Tell whether a job has the lock, without waiting for it."""
    with open(host.run_dir / "jobs.lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


@pytest.mark.parametrize("words", ["restart other", "restart my-salt-minion-x"])
def test_others_are_left_alone(host, words):
    with host.held("jobs") as lock:
        client = host.popen([host.bin / "systemctl", *words.split()], pass_fds=[lock.fileno()])
        stranger = host.popen([host.bin / "systemctl", "restart", "salt-minion"])
        guard = host.guard(limit=3)
        assert guard.wait(WAIT) == 0
        assert client.poll() is None
        del stranger
