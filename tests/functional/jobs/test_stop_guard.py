"""The program of the stop guard, with real locks and processes."""

import fcntl
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import saltext_safeupdate.core.jobs.stop_guard
from saltext_safeupdate.core.generations.meeting import Meeting, Step
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

    def system(self, state, job=""):
        path = self.bin / "systemctl"
        path.write_text(
            f"#!/bin/sh\n[ $1 = is-system-running ] && echo {state} && exit\n"
            f"[ $1 = list-jobs ] && [ '{job}' ] && echo ' 7  {job}' && exit\n"
            "case $1 in list-jobs) exit ;; daemon-reload | show) exit 1 ;; esac\n"
            "trap 'kill $!; exit 143' TERM\nsleep 300 & wait\n"
        )
        path.chmod(0o755)

    def popen(self, argv, **kwargs):
        process = subprocess.Popen(argv, **kwargs)
        self.processes.append(process)
        return process

    def guard(self, limit=60, shutdown=60, way="wait", **env):
        words = [str(self.run_dir), "salt-minion.service", str(limit), str(shutdown), way]
        return self.popen(
            ["sh", PROGRAM, *words],
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
        job = Job("1", "1", fun, "m", State.RUNNING, owner, "", 0.0, 0.0, 1, 0, 0, "", None, None)
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


# A user that nothing else runs as.
THEM = 60999


def _lock_is_a_link(run_dir, aim):
    (run_dir / "drain.lock").symlink_to(aim)


def _jobs_are_a_link_to_a_file(run_dir, aim):
    aim.write_text("root:x\n")
    (run_dir / "jobs.lock").symlink_to(aim)


def _bypass_is_a_pipe(run_dir, aim):
    os.mkfifo(run_dir / "bypass")
    os.chown(run_dir / "bypass", THEM, THEM)


def _lock_is_a_pipe(run_dir, aim):
    os.mkfifo(run_dir / "jobs.lock")
    os.chown(run_dir / "jobs.lock", THEM, THEM)


def _waited_is_a_link(run_dir, aim):
    (run_dir / "waited").symlink_to(aim)


def _it_names_another_file(run_dir, aim):
    aim.write_text("1\n")
    (run_dir / "handover.1.word").write_text(f"{aim}\n")


PLANTED = [
    *(_lock_is_a_link, _jobs_are_a_link_to_a_file, _waited_is_a_link),
    *(_bypass_is_a_pipe, _lock_is_a_pipe, _it_names_another_file),
]


@pytest.fixture
def theirs():
    """A minion of another user, whose directory of locks is that user's; the guard is root."""
    if os.geteuid() != 0:
        pytest.skip("only root runs as another user")
    # Any user may pass through it.
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        os.chmod(directory, 0o711)
        made = Host(Path(directory))
        os.chown(made.run_dir, THEM, THEM)
        made.minion = made.popen(["sleep", "300"], user=THEM, group=THEM)
        yield made
        for process in made.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("way", ["wait", "handover"])
def test_in_a_directory_of_another_user_root_does_nothing(theirs, plant, way):
    """
    No file of root is made, changed or removed, and no stop is held up, by whatever is there.

    | There is | Root would |
    | --- | --- |
    | a link instead of a lock, or of what is told | make or change its target |
    | a pipe instead of a lock or the bypass | wait for somebody who writes into it |
    | the name of a file that Salt shall not find | remove that file |
    """
    place = theirs.run_dir.parent / "roots"
    place.mkdir(0o755)
    aim = place / "file"
    plant(theirs.run_dir, aim)
    before = {path: path.read_bytes() for path in place.iterdir()}
    (theirs.run_dir / f"handover.{theirs.minion.pid}.open").mkdir()
    assert theirs.guard(way=way).wait(WAIT) == 0
    assert {path: path.read_bytes() for path in place.iterdir()} == before


def test_in_a_directory_of_another_user_jobs_are_waited_for_all_the_same(theirs):
    for name in ("jobs.lock", "drain.lock"):
        (theirs.run_dir / name).touch()
        os.chown(theirs.run_dir / name, THEM, THEM)
    with theirs.held("jobs"):
        guard = theirs.guard()
        theirs.until(lambda: theirs.locked("drain"))
        assert theirs.minion.poll() is None
    assert guard.wait(WAIT) == 0
    assert theirs.stopped()
    assert (theirs.run_dir / "jobs.lock").read_text(), "the next minion knows what was ended"


def test_a_directory_that_is_swapped_while_root_looks_is_of_others(theirs):
    """Its real path is not known at that moment, as of links that lead to each other."""
    real, place, aim = shutil.which("readlink"), theirs.run_dir, theirs.run_dir.parent / "aim"
    (place / "drain.lock").symlink_to(aim)
    stub = theirs.bin / "readlink"
    stub.write_text(
        f'#!/bin/sh\nmv {place} {place}.away && ln -s {place} {place}\n{real} "$@"\nfound=$?\n'
        f"rm {place} && mv {place}.away {place}\nexit $found\n"
    )
    stub.chmod(0o755)
    assert theirs.guard().wait(WAIT) == 0
    assert not aim.exists()


def test_another_user_cannot_stand_in_for_a_supervisor(theirs):
    """Files of two file systems may have the same number, by which the kernel lists locks."""
    os.chown(theirs.run_dir, 0, 0)
    theirs.run_dir.chmod(0o755)
    paths = [theirs.run_dir / f"{name}.lock" for name in ("jobs", "supervisor")]
    for path in paths:
        path.touch(0o644)
    _holder(theirs, paths, user=THEM)
    guard = theirs.guard(limit=1)
    assert guard.wait(WAIT) == 0
    assert "did not end" in guard.stdout.read()


def test_where_the_minion_is_root_a_directory_of_another_user_is_not_used(theirs):
    theirs.minion = theirs.popen(["sleep", "300"])
    with theirs.held("jobs"):
        guard = theirs.guard()
        assert guard.wait(WAIT) == 0
    assert f"others than root can change {theirs.run_dir}" in guard.stdout.read()
    assert not (theirs.run_dir / "drain.lock").exists()


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


@pytest.mark.parametrize(
    "system",
    [
        ("stopping",),
        ("running", "suspend.target start waiting"),
        ("running", "sleep.target start waiting"),
        ("running", "suspend-then-hibernate.target  start waiting"),
    ],
)
def test_at_a_shutdown_and_before_a_sleep_it_has_another_bound(host, system):
    """
    ==============================  =====================
    The stop                        Its bound
    ==============================  =====================
    of the service, by anyone       ``stop_timeout``
    in a shutdown                   ``shutdown_timeout``
    by a unit before sleep.target   ``shutdown_timeout``
    by a program in system-sleep    ``shutdown_timeout``
    ==============================  =====================
    """
    host.system(*system)
    with host.held("jobs"):
        guard = host.guard(limit=1000, shutdown=1)
        assert guard.wait(WAIT) == 0
    assert "did not end within 1 s" in guard.stdout.read()


def test_time_in_which_the_host_slept_was_none_for_its_jobs(host):
    uptime, looks = host.bin / "uptime", host.bin / "looks"
    uptime.write_text("1000\n")
    cut = host.bin / "cut"
    cut.write_text(f"#!/bin/sh\ncat {uptime} | tee -a {looks}\n")
    cut.chmod(0o755)
    with host.held("jobs"):
        guard = host.guard(limit=100)
        host.until(lambda: host.locked("drain"))
        for at in (1050, 4650, 4690):
            uptime.write_text(f"{at}\n")
            host.until(lambda at=at: looks.read_text().count(f"{at}\n") > 1)
            assert guard.poll() is None, at
        uptime.write_text("4705\n")
        assert guard.wait(WAIT) == 0
    assert "did not end within 100 s" in guard.stdout.read()


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


def _holder(host, alone, shared=(), user=None):
    """Return a process that has locks alone, and a share of others."""
    process = _begin_holder(host, alone, shared, user)
    process.stdout.readline()
    return process


def _begin_holder(host, alone, shared=(), user=None):
    """Return a process that takes locks, one after the other."""
    code = (
        "import fcntl, os, sys, time\n"
        "flags = os.O_RDONLY | (0 if os.geteuid() else os.O_CREAT)\n"
        "files = [(os.open(name[1:], flags, 0o600), name[0]) for name in sys.argv[1:]]\n"
        "for file, how in files:\n"
        "    fcntl.flock(file, fcntl.LOCK_EX if how == '!' else fcntl.LOCK_SH)\n"
        "print(flush=True)\n"
        "time.sleep(300)"
    )
    names = [f"!{path}" for path in alone] + [f"={path}" for path in shared]
    return host.popen(["python3", "-c", code, *names], stdout=subprocess.PIPE, user=user)


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
        # Else the guard may be the first to see that the jobs have ended.
        guard.send_signal(signal.SIGSTOP)
    holder.stdout.readline()
    guard.send_signal(signal.SIGCONT)
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


@pytest.mark.parametrize(
    "words",
    ["restart salt-minion", "--no-ask-password stop salt-minion.service", "try-restart salt*"],
)
def test_a_job_is_not_kept_waiting_for_the_stop_that_waits_for_it(host, words):
    """The stop cannot be put off here, without systemd, so that this wait is ended."""
    job = job_that_calls(host, words)
    guard = host.guard()
    assert job.wait(WAIT) == 7
    assert job.stdout.read() == "goes on\n"
    assert guard.wait(WAIT) == 0
    assert f"{words} )" in guard.stdout.read()
    assert host.stopped()


@pytest.mark.parametrize("words", ["disable salt-minion", "restart salt-minion-2", "status"])
def test_a_job_that_asks_for_something_else_is_left_alone(host, words):
    job = job_that_calls(host, words)
    guard = host.guard(limit=2)
    assert guard.wait(WAIT) == 0
    assert "did not end within 2 s" in guard.stdout.read()
    callers = processes.descendants(job.pid)
    assert len(callers) > 1, "it was not ended"
    for pid in callers:
        os.kill(pid, signal.SIGTERM)


def job_that_calls(host, words):
    """Return a process that has the lock of the jobs and waits for a systemctl."""
    job = host.popen(
        ["sh", "-c", f"exec 9>>{host.run_dir}/jobs.lock; flock -s 9; "
         f"sh -c 'exec 9>&-; {host.bin}/systemctl {words}; echo goes on'; exit 7"],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    host.until(lambda: host_holds(host))
    return job


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


def test_who_calls_in_a_container_is_left_alone(host):
    """The processes of containers are among those of the host, and the names of units are there."""
    contained = ["unshare", "--pid", "--fork", "--kill-child"]
    with host.held("jobs") as lock:
        words = [*contained, host.bin / "systemctl", "restart", "salt-minion"]
        client = host.popen(words, pass_fds=[lock.fileno()])
        host.until(lambda: processes.descendants(client.pid))
        guard = host.guard(limit=3)
        assert guard.wait(WAIT) == 0
        assert "did not end within 3 s" in guard.stdout.read()
        assert client.poll() is None


# -- handover ------------------------------------------------------------------

# The main process of the unit, with the minion and a job of it. When it is told to end because it
# was handed over, it notes what it sees.
MAIN = """
seen() { ls -d "$0"/handover.*; cat /proc/$$/cgroup "$1/cgroup.procs"; }
trap 'seen "$1" >"$0.seen"; trap - USR2; kill -USR2 $$' USR2
while :; do sleep 0.01; done &
sleep 300 &
echo
while :; do wait; done
"""
# What systemd does: the guard is a process of the unit. It sees the groups of this test only.
UNIT = """
mount --bind "$1$3" "$2$3"
mount --rbind "$2" /sys/fs/cgroup
echo $$ >"/sys/fs/cgroup$3/unit/cgroup.procs"
shift 3
exec sh "$@"
"""
SCOPE = """#!/bin/sh
echo "$*" >>"$0.words"
while [ "${{1#--}}" != "$1" ]; do shift; done
echo $$ >"/sys/fs/cgroup{group}/{name}/cgroup.procs"
exec "$@"
"""


def _hierarchy():
    """Return where the hierarchy of control groups is that systemd has."""
    with open("/proc/mounts", encoding="utf-8") as mounts:
        places = [line.split()[1] for line in mounts if line.split()[2] == "cgroup2"]
    return Path(places[0]) if places and os.geteuid() == 0 else None


class Handover(Host):
    """A minion in a unit, with the control groups of the unit and of a scope."""

    def __init__(self, tmp_path, hierarchy):
        super().__init__(tmp_path)
        self._mounted = hierarchy
        self.seen = tmp_path / "cgroup"
        self.group = f"/safeupdate-test-{os.getpid()}"
        self.unit, self.scope = (hierarchy / self.group[1:] / name for name in ("unit", "scope"))
        for group in (self.unit.parent, self.unit, self.scope):
            group.mkdir()
        (self.seen / self.group[1:]).mkdir(parents=True)
        (self.seen / "cgroup.controllers").touch()
        self.minion = self.popen(
            ["sh", "-c", f"echo $$ >{self.unit}/cgroup.procs\n{MAIN}", self.run_dir, self.unit],
            stdout=subprocess.PIPE,
        )
        self.minion.stdout.readline()
        self.meeting = Meeting(str(self.run_dir), self.minion.pid)
        self.meeting.open()
        self.jobs("123 salt-minion.service restart running")
        self.program("systemd-run", SCOPE.format(group=self.group, name="scope"))

    def program(self, name, text):
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def jobs(self, *lines, properties=()):
        """Have systemd work on these jobs, and say this of the unit."""
        listed, shown = "\n".join(lines), "\n".join(properties)
        self.program(
            "systemctl",
            f'#!/bin/sh\necho "$*" >>{self.bin}/systemctl.words\ncase $1 in\n'
            f"list-jobs) echo '{listed}' ;;\nshow) echo '{shown}' ;;\n"
            "is-system-running) echo running ;;\nesac\n",
        )

    def requested(self):
        """Return which units systemd was told to stop."""
        words = (self.bin / "systemctl.words").read_text().splitlines()
        return [each for each in words if "stop" in each.split()]

    def children(self):
        [path] = Path(f"/proc/{self.minion.pid}/task").glob("*/children")
        return [int(pid) for pid in path.read_text().split()]

    def restart(self, way="handover", path=None, unit="salt-minion.service"):
        argv = [PROGRAM, self.run_dir, unit, 60, 77, way]
        places = [self._mounted, self.seen, self.group]
        return self.popen(
            ["unshare", "--mount", "sh", "-c", UNIT, "sh", *places, *argv],
            env={
                "PATH": path or f"{self.bin}:{os.environ['PATH']}",
                "MAINPID": str(self.minion.pid),
            },
            stdout=subprocess.PIPE,
            text=True,
        )

    def popen(self, argv, **kwargs):
        return super().popen(list(map(str, argv)), **kwargs)

    def was_asked(self):
        return not self.meeting.is_at(Step.OPEN)

    def agrees(self):
        self.until(lambda: self.meeting.go(Step.ASKED, Step.TAKING))
        assert self.meeting.go(Step.TAKING, Step.TAKEN)

    def ended_for_the_next(self):
        return self.minion.wait(WAIT) == -signal.SIGUSR2

    def waits(self, **how):
        """
        Check that a restart waits for a job that runs, and that the minion stops after it.

        Return whether the minion was asked, and what the guard has said.
        """
        with self.held("jobs"):
            guard = self.restart(**how)
            self.until(lambda: self.locked("drain") or guard.poll() is not None)
            assert guard.poll() is None, guard.stdout.read()
            assert self.minion.poll() is None
            asked = self.was_asked()
        assert guard.wait(WAIT) == 0
        assert self.stopped()
        return asked, guard.stdout.read()

    def left(self):
        """Return what is there but the word of the minion that it can be asked."""
        found = [path for path in self.run_dir.glob("handover.*") if path.suffix != ".open"]
        return sorted(path.name for path in found)

    def members(self, group):
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]

    def close(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        while pids := [*self.members(self.unit), *self.members(self.scope)]:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        for group in (self.unit, self.scope, self.unit.parent):
            group.rmdir()


@pytest.fixture
def handover(tmp_path):
    hierarchy = _hierarchy()
    if hierarchy is None:
        pytest.skip("only the superuser moves processes, where there are control groups")
    made = Handover(tmp_path, hierarchy)
    yield made
    made.close()
    for process in made.processes:
        process.communicate()


def test_a_restart_waits_for_no_job_of_a_minion_that_is_handed_over(handover):
    children = handover.children()
    with handover.held("jobs"):
        guard = handover.restart()
        handover.agrees()
        assert guard.wait(WAIT) == 0
        assert handover.ended_for_the_next()
        assert "is handed over" in guard.stdout.read()
    assert handover.meeting.is_at(Step.MOVED)
    assert not handover.locked("drain")
    assert handover.requested() == []
    assert set(children) <= set(handover.members(handover.scope))
    assert handover.members(handover.unit) == []


def test_its_main_process_ends_once_everything_else_is_moved(handover):
    children = handover.children()
    guard = handover.restart()
    handover.agrees()
    assert guard.wait(WAIT) == 0
    step, *seen = (handover.run_dir.parent / "run.seen").read_text().splitlines()
    assert step == f"{handover.run_dir}/handover.{handover.minion.pid}.moved"
    assert f"0::{handover.group}/unit" in seen
    assert {str(handover.minion.pid), str(guard.pid)} <= set(seen)
    assert not set(map(str, children)) & set(seen)


def test_the_scope_waits_for_its_jobs_as_the_unit_does(handover):
    main = handover.children()[-1]
    guard = handover.restart()
    handover.agrees()
    assert guard.wait(WAIT) == 0
    words = (handover.bin / "systemd-run.words").read_text()
    # By the process that works there.
    assert f"--scope --quiet --collect --unit=salt-minion-before-{main} " in words
    assert " --property=KillSignal=SIGURG " in words
    assert " --property=TimeoutStopSec=77 " in words


@pytest.mark.parametrize(
    "jobs",
    [
        ["123 salt-minion.service stop running"],
        ["123 salt-minion.service stop running", "124 my-salt-minion.service restart running"],
        ["123 salt-minion.service stop running", "124 salt-minion.service.x restart running"],
        [],
    ],
)
def test_a_stop_waits_as_ever(handover, jobs):
    handover.jobs(*jobs)
    with handover.held("jobs"):
        guard = handover.restart()
        handover.until(lambda: handover.locked("drain") or handover.was_asked())
        assert not handover.was_asked()
    handover.waits()
    assert guard.wait(WAIT) == 0
    assert set(handover.requested()) == {"stop salt-minion-before-*.scope"}


def test_a_restart_among_other_jobs_is_one(handover):
    handover.jobs(
        "  1 other.service       stop    running",
        " 12 salt-minion.service restart running",
        "130 last.service        start   waiting",
    )
    guard = handover.restart()
    handover.agrees()
    assert guard.wait(WAIT) == 0
    assert handover.ended_for_the_next()


def test_a_restart_is_one_though_systemd_does_not_answer_at_first(handover):
    """As while it executes itself anew."""
    first = f"mkdir {handover.bin}/asked 2>/dev/null && exit 1;"
    text = (handover.bin / "systemctl").read_text()
    handover.program("systemctl", text.replace("list-jobs)", f"list-jobs) {first}"))
    guard = handover.restart()
    handover.agrees()
    assert guard.wait(WAIT) == 0
    assert (handover.bin / "asked").exists()
    assert handover.ended_for_the_next()


@pytest.mark.parametrize("way", ["wait", ""])
def test_without_the_setting_a_restart_waits_as_ever(handover, way):
    (handover.run_dir / "waited").touch()
    assert not handover.waits(way=way)[0]
    assert way or handover.requested() == []
    assert not (handover.run_dir / "waited").exists(), "it was to wait"
    assert not (handover.bin / "systemd-run.words").exists()


def test_without_the_setting_no_scope_is_stopped(handover):
    handover.jobs("123 salt-minion.service stop running")
    assert handover.restart("wait").wait(WAIT) == 0
    assert handover.requested() == []


def test_with_a_bypass_a_restart_waits_for_nothing(handover):
    (handover.run_dir / "bypass").touch()
    with handover.held("jobs"):
        assert handover.restart().wait(WAIT) == 0
        assert handover.stopped()
    assert not (handover.run_dir / "bypass").exists()


@pytest.mark.parametrize(("word", "scopes"), [("unit\n", []), ("", ["stop"]), ("x\n", ["stop"])])
def test_a_stop_by_a_supervisor_leaves_earlier_minions_alone(handover, word, scopes):
    """What it stops is the next one, which has not shown that it works."""
    handover.jobs("123 salt-minion.service stop running")
    (handover.run_dir / "bypass").write_text(word)
    with handover.held("jobs"):
        assert handover.restart().wait(WAIT) == 0
    assert handover.stopped()
    assert [each.split()[0] for each in handover.requested()] == scopes
    assert not (handover.run_dir / "bypass").exists()


def test_a_restart_that_becomes_a_stop_waits_as_ever(handover):
    """Somebody wants it to stop while its processes are moved."""
    handover.jobs("")
    stop = (handover.bin / "systemctl").read_text()
    handover.program("stop", stop)
    handover.jobs("123 salt-minion.service restart running")
    handover.program(
        "systemd-run",
        SCOPE.format(group=handover.group, name="scope").replace(
            "exec ", f"cp {handover.bin}/stop {handover.bin}/systemctl\nexec "
        ),
    )
    with handover.held("jobs"):
        guard = handover.restart()
        handover.agrees()
        handover.until(lambda: handover.meeting.is_at(Step.BACK))
        handover.until(lambda: handover.locked("drain"))
        assert handover.minion.poll() is None
    assert guard.wait(WAIT) == 0
    assert handover.stopped()
    assert handover.requested() == ["stop salt-minion-before-*.scope"]


def test_a_stop_right_after_the_handover_is_one_of_the_scope_too(handover):
    moved = handover.run_dir / f"handover.{handover.minion.pid}.moved"
    handover.jobs("123 salt-minion.service restart running")
    text = (handover.bin / "systemctl").read_text()
    handover.program("systemctl", text.replace("list-jobs)", f"list-jobs) [ -d {moved} ] ||"))
    scope = f"salt-minion-before-{handover.children()[-1]}.scope"
    guard = handover.restart()
    handover.agrees()
    assert guard.wait(WAIT) == 0
    assert handover.ended_for_the_next()
    assert handover.requested() == [f"--no-block stop {scope}"]


def test_another_user_hands_nothing_over(handover):
    handover.program("id", "#!/bin/sh\necho 1000\n")
    assert not handover.waits()[0]


def test_without_the_unified_hierarchy_nothing_is_handed_over(handover):
    (handover.seen / "cgroup.controllers").unlink()
    assert not handover.waits()[0]


def test_without_systemd_run_nothing_is_handed_over(handover, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in os.environ["PATH"].split(":"):
        for name in os.listdir(directory) if os.path.isdir(directory) else []:
            if name not in ("systemd-run", "systemctl") and not (tools / name).is_symlink():
                (tools / name).symlink_to(f"{directory}/{name}")
    shutil.copy(handover.bin / "systemctl", tools)
    assert shutil.which("flock", path=tools)
    assert not handover.waits(path=str(tools))[0]


def test_on_a_kernel_that_tells_no_children_nothing_is_handed_over(handover):
    """The next minion would find the PID file of this one, and not start."""
    cat = shutil.which("cat")
    handover.program("cat", f'#!/bin/sh\ncase $* in */children) ;; *) exec {cat} "$@" ;; esac\n')
    asked, said = handover.waits()
    assert not asked
    assert "does not tell the children" in said


UNFIT = [
    (["PrivateTmp=yes"], "PrivateTmp="),
    (["PrivateTmp=yes", "PrivateTmpEx=connected"], "PrivateTmp="),
    (["RuntimeDirectory=salt", "RuntimeDirectoryPreserve=no"], "RuntimeDirectory="),
    (["User=salt"], "User="),
    (["MemoryMax=1073741824"], "MemoryMax="),
    (["MemoryMax=infinity", "CPUQuotaPerSecUSec=500ms"], "CPUQuotaPerSecUSec="),
    (["DevicePolicy=closed", "DeviceAllow=char-rtc r"], "DevicePolicy="),
    (["IPAddressAllow=", "IPAddressDeny=::/0 0.0.0.0/0"], "IPAddressDeny="),
]
FIT = [
    [],
    ["PrivateTmp=no", "RuntimeDirectory=", "RuntimeDirectoryPreserve=no", "User="],
    ["PrivateTmp=yes", "PrivateTmpEx=disconnected"],
    ["RuntimeDirectory=salt", "RuntimeDirectoryPreserve=restart"],
    ["RuntimeDirectory=salt", "RuntimeDirectoryPreserve=yes"],
    ["User=root"],
    ["MemoryMax=infinity", "MemoryHigh=18446744073709551615", "CPUQuotaPerSecUSec=infinity"],
    ["AllowedCPUs=", "DevicePolicy=auto", "IPAddressAllow=", "IPAddressDeny="],
]
RESTART = "123 salt-minion.service restart running"


@pytest.mark.parametrize(("properties", "named"), UNFIT, ids=str)
def test_if_the_unit_takes_something_from_jobs_nothing_is_handed_over(handover, properties, named):
    """systemd removes it at the end of the unit, while they still run."""
    handover.jobs(RESTART, properties=properties)
    asked, said = handover.waits()
    assert not asked
    assert named in said
    assert named in (handover.run_dir / "waited").read_text()


@pytest.mark.parametrize("depth", [1, 2])
def test_what_is_in_groups_of_its_own_in_the_unit_is_waited_for(handover, depth):
    """systemd ends it with the unit, and the scope has no such groups."""
    groups = [handover.unit / "/".join(["job"] * number) for number in range(1, depth + 1)]
    for group in groups:
        group.mkdir()
    inside = handover.popen(["sleep", "300"])
    (groups[-1] / "cgroup.procs").write_text(str(inside.pid))
    try:
        asked, said = handover.waits()
        assert not asked
    finally:
        inside.kill()
        inside.wait()
        for group in reversed(groups):
            handover.until(lambda group=group: not handover.members(group))
            group.rmdir()
    assert "control groups of its own" in said
    assert "control groups of its own" in (handover.run_dir / "waited").read_text()


def test_a_group_in_the_unit_that_is_empty_is_not_in_the_way(handover):
    (handover.unit / "was").mkdir()
    try:
        guard = handover.restart()
        handover.agrees()
        assert guard.wait(WAIT) == 0
        assert handover.ended_for_the_next()
    finally:
        (handover.unit / "was").rmdir()


@pytest.mark.parametrize("name", [None, "few.slice"])
def test_jobs_stay_in_the_slice_of_the_unit(handover, name):
    """What it limits is to hold for them, too."""
    properties, words = ([f"Slice={name}"], [f"--slice={name}"]) if name else ([], [])
    handover.jobs(RESTART, properties=properties)
    guard = handover.restart()
    handover.agrees()
    assert guard.wait(WAIT) == 0
    said = (handover.bin / "systemd-run.words").read_text().split()
    assert [each for each in said if each.startswith("--slice")] == words


@pytest.mark.parametrize("properties", FIT, ids=str)
def test_what_stays_for_jobs_is_not_in_the_way(handover, properties):
    handover.jobs(RESTART, properties=properties)
    guard = handover.restart()
    handover.agrees()
    assert guard.wait(WAIT) == 0
    assert handover.ended_for_the_next()


def test_a_minion_that_refuses_says_why(handover):
    waited = handover.run_dir / "waited"
    with handover.held("jobs"):
        guard = handover.restart()
        handover.until(lambda: handover.meeting.go(Step.ASKED, Step.TAKING))
        handover.meeting.leave_word("it has no time")
        assert handover.meeting.go(Step.TAKING, Step.REFUSED)
        handover.until(lambda: handover.locked("drain"))
        assert waited.read_text() == "it has no time\n"
        assert "it has no time" in guard.stdout.readline()
    assert guard.wait(WAIT) == 0
    assert handover.stopped()
    assert waited.exists(), "the next minion tells it, too"


def test_once_one_is_handed_over_nothing_is_told_of_an_earlier_wait(handover):
    waited = handover.run_dir / "waited"
    waited.write_text("it had no time\n")
    guard = handover.restart()
    handover.agrees()
    assert guard.wait(WAIT) == 0
    assert not waited.exists()


def test_what_is_told_goes_into_no_file_of_others(handover, tmp_path):
    """The directory may be that of another user."""
    (handover.run_dir / "waited").symlink_to(tmp_path / "theirs")
    handover.program("sleep", "#!/bin/sh\n")
    assert handover.restart().wait(WAIT) == 0
    assert not (tmp_path / "theirs").exists()
    assert not (handover.run_dir / "waited").is_symlink()


def test_a_minion_that_does_not_answer_is_waited_for(handover):
    """Its time passes at once."""
    handover.program("sleep", "#!/bin/sh\n")
    with handover.held("jobs"):
        guard = handover.restart()
        assert "did not answer" in guard.stdout.readline()
        assert "did not answer" in (handover.run_dir / "waited").read_text()
        assert handover.left() == [], "it finds nothing to agree to"
        assert handover.minion.poll() is None
    assert guard.wait(WAIT) == 0
    assert handover.stopped()
    assert not (handover.bin / "systemd-run.words").exists()


def test_a_minion_that_begins_to_answer_has_some_more_time(handover):
    asked = handover.run_dir / f"handover.{handover.minion.pid}.asked"
    taking, taken = asked.with_suffix(".taking"), asked.with_suffix(".taken")
    tries = handover.run_dir / "tries"
    handover.program(
        "sleep",
        f"#!/bin/sh\necho >>{tries}\n[ ! -d {asked} ] || mv {asked} {taking}\n"
        f"[ $(wc -l <{tries}) != 70 ] || mv {taking} {taken}\n",
    )
    assert handover.restart().wait(WAIT) == 0
    assert handover.ended_for_the_next()


def test_a_minion_that_begins_to_answer_and_goes_no_further_is_waited_for(handover):
    asked = handover.run_dir / f"handover.{handover.minion.pid}.asked"
    handover.program(
        "sleep", f"#!/bin/sh\n[ ! -d {asked} ] || mv {asked} {asked.with_suffix('.taking')}\n"
    )
    guard = handover.restart()
    assert "is not handed over" in guard.stdout.readline()
    assert handover.left() == []
    assert guard.wait(WAIT) == 0
    assert handover.stopped()


def test_a_minion_that_refuses_is_waited_for(handover):
    with handover.held("jobs"):
        guard = handover.restart()
        handover.until(lambda: handover.meeting.go(Step.ASKED, Step.REFUSED))
        assert "is not handed over" in guard.stdout.readline()
        assert handover.left() == []
        handover.until(lambda: handover.locked("drain"))
        assert handover.minion.poll() is None
    assert guard.wait(WAIT) == 0
    assert handover.stopped()
    assert not (handover.bin / "systemd-run.words").exists()


def test_a_minion_that_dies_when_it_is_asked_is_not_waited_for(handover):
    with handover.held("jobs"):
        guard = handover.restart()
        handover.until(lambda: handover.meeting.is_at(Step.ASKED))
        handover.minion.kill()
        assert guard.wait(WAIT) == 0
    assert handover.left() == []


# -- one that cannot be asked ------------------------------------------------------------


def _earlier(handover, pid):
    """Have the jobs of an earlier minion with this process go on."""
    (handover.seen / "system.slice" / f"salt-minion-before-{pid}.scope").mkdir(parents=True)


def test_a_minion_that_has_not_begun_waits_for_no_job_of_an_earlier_one(handover):
    """Salt would take some more in the seconds that it takes to end, and end those."""
    handover.meeting.end()
    _earlier(handover, os.getpid())
    with handover.held("jobs"):
        assert handover.restart().wait(WAIT) == 0
    assert handover.ended_for_the_next()
    handover.until(lambda: handover.members(handover.unit) == [])
    assert handover.left() == []


def test_an_earlier_minion_is_looked_for_in_the_slice_of_the_unit(handover):
    handover.meeting.end()
    name = handover.unit.name
    handover.jobs(f"123 {name} restart running")
    scope = handover.unit.parent / f"{name}-before-{os.getpid()}.scope"
    scope.mkdir()
    try:
        with handover.held("jobs"):
            assert handover.restart(unit=name).wait(WAIT) == 0
        assert handover.ended_for_the_next()
    finally:
        scope.rmdir()


def test_what_is_left_in_the_background_of_an_earlier_minion_is_none(handover):
    handover.meeting.end()
    _earlier(handover, 4_000_001)
    handover.waits()


@pytest.mark.parametrize("way", ["handover", "wait"])
def test_what_jobs_have_left_in_the_background_goes_back_to_the_unit_at_a_stop(handover, way):
    """It fares there as its KillMode= says, as with plain Salt, and keeps no scope from ending."""
    handover.jobs("123 salt-minion.service stop running")
    main = handover.popen(["sh", "-c", "sleep 300 & echo; wait"], stdout=subprocess.PIPE)
    main.stdout.readline()
    left = handover.popen(["sleep", "300"])
    [path] = Path(f"/proc/{main.pid}/task").glob("*/children")
    ours = [main.pid, int(path.read_text())]
    for pid in (*ours, left.pid):
        (handover.scope / "cgroup.procs").write_text(str(pid))
    scopes = handover.seen / "system.slice"
    scopes.mkdir()
    name = f"salt-minion-before-{main.pid}.scope"
    (scopes / name).symlink_to(f"/sys/fs/cgroup{handover.group}/scope")
    assert handover.restart(way).wait(WAIT) == 0
    assert sorted(handover.members(handover.scope)) == sorted(ours)
    assert left.pid in handover.members(handover.unit)
    assert handover.requested() == ["stop salt-minion-before-*.scope"]


def test_but_for_those_of_its_own(handover):
    handover.meeting.end()
    _earlier(handover, os.getpid())
    job = _holder(handover, [], [handover.run_dir / "jobs.lock"])
    (handover.unit / "cgroup.procs").write_text(str(job.pid))
    guard = handover.restart()
    handover.until(lambda: handover.locked("drain") or guard.poll() is not None)
    job.kill()
    assert guard.wait(WAIT) == 0
    assert handover.stopped()


def _has_run_for_long(handover):
    handover.meeting.end()
    _earlier(handover, os.getpid())
    cut = shutil.which("cut")
    later = f'case $* in */proc/uptime) echo 99999999 ;; *) exec {cut} "$@" ;; esac'
    handover.program("cut", f"#!/bin/sh\n{later}\n")


CONNECTS = "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); "
LISTENS = "import socket; s = socket.create_server(('127.0.0.1', 0)); "


def _main(handover, program, *words):
    """Have a unit whose minion runs this program."""
    program += "print(flush=True); import time; time.sleep(300)"
    quoted = shlex.join([sys.executable, "-c", program, *map(str, words)])
    handover.minion.kill()
    handover.minion.wait()
    text = f"echo $$ >{handover.unit}/cgroup.procs\n{quoted} &\nwhile :; do wait; done"
    handover.minion = handover.popen(["sh", "-c", text], stdout=subprocess.PIPE)
    handover.minion.stdout.readline()


def test_one_that_has_run_for_long_may_have_jobs_that_it_does_not_tell_of(handover):
    with socket.create_server(("127.0.0.1", 0)) as master:
        _main(handover, CONNECTS, master.getsockname()[1])
        _has_run_for_long(handover)
        asked, said = handover.waits()
        assert asked, "it has not said that it can be asked"
    assert "does not say that it can be" in said
    assert "does not say that it can be" in (handover.run_dir / "waited").read_text()


@pytest.mark.parametrize("program", ["", LISTENS])
def test_one_that_was_never_connected_has_no_jobs_however_long_it_has_run(handover, program):
    """Its master is not where its settings say, and somebody has mended that."""
    _main(handover, program)
    _has_run_for_long(handover)
    with handover.held("jobs"):
        assert handover.restart().wait(WAIT) == 0
    assert handover.ended_for_the_next()
    handover.until(lambda: handover.members(handover.unit) == [])


def test_its_own_jobs_are_found_by_whatever_name_the_directory_has(handover, tmp_path):
    handover.meeting.end()
    _earlier(handover, os.getpid())
    job = _holder(handover, [], [handover.run_dir / "jobs.lock"])
    (handover.unit / "cgroup.procs").write_text(str(job.pid))
    link = tmp_path / "link"
    link.symlink_to(handover.run_dir)
    handover.run_dir = link
    guard = handover.restart()
    handover.until(lambda: handover.locked("drain") or guard.poll() is not None)
    assert guard.poll() is None, "the job is waited for"
    job.kill()
    assert guard.wait(WAIT) == 0
    assert handover.stopped()


@pytest.mark.parametrize("name", ["", "other-before-5.scope", "salt-minion-before-5.service"])
def test_without_an_earlier_one_it_waits_as_ever(handover, name):
    handover.meeting.end()
    if name:
        _earlier(handover, name)
    handover.waits()


LEFT = [step.value for step in Step if step not in (Step.OPEN, Step.ASKED)]


@pytest.mark.parametrize("step", [*LEFT, "withdrawn"])
def test_what_is_left_of_another_stop_answers_nothing(handover, step):
    (handover.run_dir / f"handover.{handover.minion.pid}.{step}").mkdir()
    guard = handover.restart()
    handover.until(lambda: handover.left() == [f"handover.{handover.minion.pid}.asked"])
    handover.agrees()
    assert guard.wait(WAIT) == 0
    assert handover.ended_for_the_next()


@pytest.mark.parametrize("step", LEFT)
def test_one_that_is_at_another_step_is_not_asked(handover, step):
    handover.meeting.go(Step.OPEN, Step(step))
    handover.waits()
    assert not (handover.bin / "systemd-run.words").exists()


# -- one that cannot be moved ------------------------------------------------------------


def _taken_back(handover):
    with handover.held("jobs"):
        guard = handover.restart()
        handover.agrees()
        handover.until(lambda: handover.meeting.is_at(Step.BACK))
        assert handover.left() == [f"handover.{handover.minion.pid}.back"]
        assert "cannot be moved" in guard.stdout.readline()
        handover.until(lambda: handover.locked("drain"))
        assert handover.minion.poll() is None
    assert guard.wait(WAIT) == 0
    assert handover.stopped()


def test_if_there_can_be_no_scope_the_minion_is_told_so_and_waited_for(handover):
    handover.program("systemd-run", "#!/bin/sh\nexit 1\n")
    _taken_back(handover)


def test_if_the_processes_stay_in_the_unit_the_minion_is_told_so_and_waited_for(handover):
    handover.program("systemd-run", SCOPE.format(group=handover.group, name="unit"))
    _taken_back(handover)


def test_if_the_scope_takes_no_process_the_minion_is_told_so_and_waited_for(handover):
    readonly = f"mount -o remount,bind,ro /sys/fs/cgroup{handover.group}\nexec"
    text = SCOPE.format(group=handover.group, name="scope").replace("exec", readonly)
    handover.program("systemd-run", text)
    _taken_back(handover)


def _pid_file(handover, pid):
    """Return the files by which Salt finds that a minion runs already."""
    files = [handover.run_dir.parent / name for name in ("m.pid", "process_responsibility_m.pid")]
    for path in files:
        path.write_text(str(pid))
    return files


def _handed_over_with(handover, word):
    guard = handover.restart()
    handover.until(lambda: handover.meeting.go(Step.ASKED, Step.TAKING))
    word()
    assert handover.meeting.go(Step.TAKING, Step.TAKEN)
    assert guard.wait(WAIT) == 0
    assert handover.ended_for_the_next()


@pytest.mark.parametrize("which", [0, 1])
def test_the_next_minion_finds_no_process_that_is_handed_over(handover, which):
    files = _pid_file(handover, handover.children()[which])
    _handed_over_with(handover, lambda: handover.meeting.leave_word(str(files[0])))
    assert [path.exists() for path in files] == [False, False]


@pytest.mark.parametrize("whose", ["another", "main", "nobody", "none", "no number"])
def test_the_pid_files_of_others_are_left_alone(handover, whose):
    pid = {
        "another": os.getpid(),
        "main": handover.minion.pid,
        "nobody": 4_000_001,
        "none": "",
        "no number": f"../{handover.children()[0]}",
    }[whose]
    files = _pid_file(handover, pid)
    _handed_over_with(handover, lambda: handover.meeting.leave_word(str(files[0])))
    assert [path.read_text() for path in files] == [str(pid)] * 2


def test_a_word_that_is_a_link_is_not_followed(handover):
    files = _pid_file(handover, handover.children()[0])
    elsewhere = handover.run_dir.parent / "word"
    elsewhere.write_text(f"{files[0]}\n")
    word = handover.run_dir / f"handover.{handover.minion.pid}.word"
    _handed_over_with(handover, lambda: word.symlink_to(elsewhere))
    assert all(path.exists() for path in files)
    assert elsewhere.exists()


@pytest.mark.parametrize("text", ["/nonexistent/m.pid", "", "/"])
def test_without_a_pid_file_a_minion_is_handed_over_all_the_same(handover, text):
    _handed_over_with(handover, lambda: handover.meeting.leave_word(text))
