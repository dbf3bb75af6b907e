"""A real keeper, and a program below it that stands for the minion: who runs, and who ends."""

import json
import os
import pathlib
import pty
import signal
import stat
import subprocess
import sys

import pytest

from saltext_safeupdate.core.errors import InputError, SafeUpdateError
from saltext_safeupdate.core.host import keeper, processes
from saltext_safeupdate.core.host.direct import Direct
from saltext_safeupdate.core.slots import keep
from saltext_safeupdate.core.slots.installer import program as program_of
from saltext_safeupdate.core.slots.kept import KeptUnit
from tests.support.waiting import wait_for

UNIT = "salt-minion"
# It notes that it runs, and what it was asked; it ends when it is told, with the status 7.
MINION = """\
#!{python} -IS
import os, signal, sys
def note(*words):
    with open({notes!r}, "a") as file:
        print({name!r}, *words, file=file)
def end(number, frame):
    note("ends", number)
    os._exit(7)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, {deaf} or end)
signal.signal(signal.SIGUSR1, lambda *_: note("usr1"))
note("runs", os.getpid(), *sys.argv[1:])
if {broken}:
    os._exit(3)
while True:
    signal.pause()
"""


class Host:
    """A host without systemd, whose minion is started by the path of a program."""

    def __init__(self, path):
        self.path = path
        self.notes = path / "notes"
        self.program = path / "venv" / UNIT
        self.before = path / "venv" / f".{UNIT}.without-slot"
        self.slots, self.keepers = path / "slots", str(path / "keepers")
        self.link = program_of(str(self.slots), UNIT)
        self.services = Direct(_no_program, scripts=(), keepers=self.keepers)
        self.write(self.program, "before")
        self.process = None

    def write(self, program, name, *, broken=False, deaf=False):
        program.parent.mkdir(parents=True, exist_ok=True)
        values = {"python": sys.executable, "notes": str(self.notes), "name": name}
        program.write_text(
            MINION.format(**values, broken=broken, deaf="signal.SIG_IGN" if deaf else None)
        )
        program.chmod(0o755)

    def keep(self):
        keep.put(str(self.program), slots_dir=str(self.slots), place=self.keepers)

    def start(self, *arguments):
        self.process = subprocess.Popen([str(self.program), *arguments])
        return self

    def activate(self, name, **kwargs):
        """Have a slot of that name, and the link lead to it."""
        tree = self.slots / name
        self.write(tree / "bin" / UNIT, name, **kwargs)
        link = self.slots / "minions" / UNIT / "active"
        link.parent.mkdir(parents=True, exist_ok=True)
        new = link.with_name("new")
        new.symlink_to(tree)
        os.replace(new, link)

    def said(self):
        text = self.notes.read_text() if self.notes.exists() else ""
        return [tuple(line.split()) for line in text.splitlines()]

    def wait_run(self, name, times=1):
        """Wait until a program runs; return its PID."""

        def found():
            rows = [row for row in self.said() if row[:2] == (name, "runs")]
            return rows[times - 1 : times]

        ((_, _, pid, *_),) = wait_for(found, f"{name} to run")
        return int(pid)

    def state(self):
        return self.services.state(UNIT)

    def clean(self):
        kept = self.services.kept(UNIT)
        if kept:
            os.kill(processes.pid(kept.keeper), signal.SIGKILL)
            if kept.pid:
                os.kill(kept.pid, signal.SIGKILL)
        if self.process:
            self.process.kill()
            self.process.wait()


def _no_program(argv, **_):
    raise AssertionError(f"nobody asks {argv}")


@pytest.fixture
def host(tmp_path):
    made = Host(tmp_path)
    yield made
    made.clean()


def test_whoever_started_it_sees_one_process_and_its_minion_another_program(host):
    host.keep()
    host.start("-l", "info")
    first = host.wait_run("before")
    state = wait_for(lambda: host.state() if host.state().pid else None, "the state")
    assert (state.active, state.pid, state.running) == ("active", first, True)
    assert host.services.obstacle(UNIT) == ""
    assert host.services.program(UNIT) == str(host.before)
    unit = KeptUnit(UNIT, host.link, lambda: host.services.kept(UNIT))
    unit.check()
    assert (unit.follows, unit.program, unit.arguments) == (
        False,
        str(host.before),
        ["-l", "info"],
    )

    assert not os.path.lexists(unit.drop_in)
    host.activate("new")
    assert os.path.islink(unit.drop_in)
    assert (unit.follows, unit.program) == (True, host.link)
    assert processes.alive(processes.identity(first)), "what runs goes on"
    host.services.begin_restart(UNIT)
    second = host.wait_run("new")
    assert host.said()[-1][3:] == ("-l", "info")
    assert not processes.alive(processes.identity(first))
    now = wait_for(lambda: host.state() if host.state().pid == second else None, "the next state")
    assert now.invocation != state.invocation
    assert host.process.poll() is None

    host.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: ("new", "usr1") in host.said(), "what is passed on")
    host.process.terminate()
    assert host.process.wait(10) == 7, "it ends as the minion does"
    assert not processes.alive(processes.identity(second))
    assert host.services.kept(UNIT) is None


def test_without_its_keeper_no_minion_stays_behind(host):
    host.keep()
    host.start()
    pid = host.wait_run("before")
    who = processes.identity(pid)
    host.process.kill()
    host.process.wait()
    wait_for(lambda: not processes.alive(who), "the minion to end")
    assert host.services.kept(UNIT) is None
    with pytest.raises(SafeUpdateError, match=r"Nothing was changed; put a keeper"):
        KeptUnit(UNIT, host.link, lambda: host.services.kept(UNIT)).check()
    host.start()
    host.wait_run("before", times=2)


def test_a_minion_that_ends_by_itself_ends_the_keeper_unless_an_update_is_under_way(host):
    host.keep()
    host.activate("broken", broken=True)
    host.start()
    assert host.process.wait(10) == 3, "as without a keeper"
    count = len(host.said())

    # Whatever was cut off: who is armed is started with the keeper, and puts it in order.
    supervisor = host.path / "supervisor"
    supervisor.write_text("#!/bin/sh\n: > " + str(host.path / "supervised"))
    supervisor.chmod(0o755)
    keeper.watch(host.keepers, "salt-safeupdate-recover", [str(supervisor)])
    host.start()
    wait_for(lambda: len(host.said()) > count, "the broken one")
    wait_for((host.path / "supervised").exists, "the supervisor")
    state = wait_for(lambda: host.state() if host.state().active == "failed" else None, "its end")
    assert (state.pid, state.running) == (0, False)
    assert host.services.last_run(UNIT).status == 3
    assert host.services.watchdog("salt-safeupdate-recover")

    (host.slots / "minions" / UNIT / "active").unlink()
    host.services.start(UNIT)
    host.wait_run("before")
    host.services.stop(UNIT)
    assert (host.state().active, host.state().pid) == ("failed", 0)
    host.services.start(UNIT)
    host.wait_run("before", times=2)
    host.services.disarm("salt-safeupdate-recover")
    assert host.process.poll() is None
    host.services.stop(UNIT)
    assert host.process.wait(10) == 7, "nobody would start it again"


def test_a_supervisor_is_armed_only_where_a_keeper_lives(host):
    host.services.arm("x", ["/bin/true"])
    assert not os.path.exists(host.keepers)
    host.keep()
    host.start()
    host.wait_run("before")
    host.services.arm("x", ["/bin/true"])
    assert json.loads(host.services.watchdog("x")) == {"argv": ["/bin/true"]}
    path = os.path.join(host.keepers, "watchdogs", "x.json")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    host.services.disarm("x")
    host.services.disarm("x")
    assert host.services.watchdog("x") == ""


def test_a_minion_that_does_not_end_is_killed_with_its_processes(host):
    host.write(host.program, "deaf", deaf=True)
    host.keep()
    host.start()
    pid = host.wait_run("deaf")
    host.services.arm("x", ["/bin/true"])
    now = iter(range(0, 10_000, 15))
    quick = Direct(_no_program, scripts=(), keepers=host.keepers, monotonic=lambda: next(now))
    quick.end(UNIT)
    wait_for(lambda: not host.state().pid, "its end")
    assert not processes.alive(processes.identity(pid))
    assert host.process.poll() is None
    host.services.disarm("x")
    host.process.wait(10)


def test_a_slot_that_cannot_be_started_leaves_the_program_of_before(host):
    host.keep()
    host.activate("gone")
    program = host.slots / "gone" / "bin" / UNIT
    program.write_text("#!/none/python\n")
    host.start()
    host.wait_run("before")
    assert host.services.program(UNIT) == host.link


def test_what_whoever_started_it_ignores_ends_nothing(host):
    """As with nohup, when the terminal is gone."""
    host.keep()
    host.process = subprocess.Popen(["nohup", str(host.program)], stdout=subprocess.DEVNULL)
    host.wait_run("before")
    host.process.send_signal(signal.SIGHUP)
    host.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: ("before", "usr1") in host.said(), "what came after it")
    assert host.process.poll() is None
    assert host.state().active == "active"


def test_a_keeper_that_cannot_write_its_state_runs_the_minion_all_the_same(host):
    with open(host.keepers, "w", encoding="utf-8"):
        pass
    host.keep()
    host.start()
    host.wait_run("before")
    assert host.services.kept(UNIT) is None
    host.process.terminate()
    assert host.process.wait(10) == 7


def test_it_is_put_in_place_at_once_and_again_and_taken_away(host):
    original = host.program.read_bytes()
    host.keep()
    kept = host.program.read_bytes()
    host.keep()
    assert host.program.read_bytes() == kept
    assert keep.is_keeper(str(host.program))
    assert host.before.read_bytes() == original
    # As pip does it.
    host.write(host.program, "newer")
    assert not keep.is_keeper(str(host.program))
    host.keep()
    assert "newer" in host.before.read_text()
    keep.leave(str(host.program))
    assert "newer" in host.program.read_text()
    assert not host.before.exists()
    with pytest.raises(InputError, match="is not a keeper"):
        keep.leave(str(host.program))


def test_what_is_no_minion_is_left_alone(host, tmp_path):
    other = tmp_path / "venv" / "salt-master"
    other.write_bytes(host.program.read_bytes())
    shell = tmp_path / "shell" / UNIT
    shell.parent.mkdir()
    shell.write_text("#!/bin/sh\nexec salt-minion\n")
    for program in (other, shell, tmp_path / "none" / UNIT):
        before = program.read_bytes() if program.exists() else None
        with pytest.raises(InputError, match="Nothing was changed"):
            keep.put(str(program), place=host.keepers)
        assert (program.read_bytes() if program.exists() else None) == before


def test_questions_and_daemons_are_as_without_a_keeper(host):
    host.keep()
    host.start("-d")
    pid = host.wait_run("before")
    assert pid == host.process.pid, "it stays with none that goes into the background"
    assert host.services.kept(UNIT) is None
    assert "no service" in host.services.obstacle(UNIT) or "neither" in host.services.obstacle(UNIT)


def test_a_second_start_takes_nothing_from_the_keeper_that_runs(host):
    """Such as somebody who asks in the same container for a report, or starts it by mistake."""
    host.keep()
    host.start("-l", "info")
    first = host.wait_run("before")
    wait_for(lambda: host.state().pid == first, "the state")
    second = subprocess.Popen([str(host.program), "-l", "debug"])
    try:
        # Nobody stays with that one: it is what was started.
        assert host.wait_run("before", times=2) == second.pid
        second.terminate()
        assert second.wait(10) == 7
    finally:
        second.kill()
        second.wait()
    kept = host.services.kept(UNIT)
    assert kept is not None
    assert (kept.pid, kept.arguments) == (first, ("-l", "info"))
    host.services.begin_restart(UNIT)
    host.wait_run("before", times=3)


def test_its_state_is_told_on_a_full_disk_and_what_could_not_be_is_told_later(host):
    state = pathlib.Path(host.keepers, UNIT, "state.json")
    new = state.with_name("state.json.new")
    host.keep()
    # It is full already.
    new.mkdir(parents=True)
    host.start()
    first = host.wait_run("before")
    host.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: ("before", "usr1") in host.said(), "what is passed on")
    assert host.services.kept(UNIT) is None
    new.rmdir()
    host.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: host.services.kept(UNIT), "the state")
    assert (host.state().active, host.state().pid) == ("active", first)
    # It is full again: the file that is there takes what is new.
    new.mkdir()
    host.services.begin_restart(UNIT)
    second = host.wait_run("before", times=2)
    wait_for(lambda: host.state().pid == second, "the state")
    assert host.state().active == "active"


def test_what_cannot_look_after_an_update_any_more_keeps_no_keeper(host):
    """The volume with its state was taken to another container, without all that it names."""
    host.keep()
    host.start()
    host.wait_run("before")
    launcher, settings = host.path / "launch.py", host.path / "settings.json"
    launcher.touch()
    settings.touch()
    argv = [sys.executable, "-I", "-B", str(launcher), str(settings)]
    host.services.arm("salt-safeupdate-recover", argv)
    settings.unlink()
    host.services.stop(UNIT)
    assert host.process.wait(10) == 7


@pytest.mark.parametrize("argument", ["-V", "--versions-report", "--vers", "-dlinfo", "--daem"])
def test_a_question_by_any_name_is_not_kept(host, argument):
    host.keep()
    host.start("-c", "/etc/salt", argument)
    assert host.wait_run("before") == host.process.pid


@pytest.mark.parametrize("argument", ["-cd", "-ldebug", "--disable-keepalive"])
def test_a_value_is_no_question(host, argument):
    host.keep()
    host.start(argument)
    assert host.wait_run("before") != host.process.pid


def test_what_it_makes_is_its_own_and_the_minion_has_the_mask_of_before(host):
    program = host.program.read_text().replace("sys.argv[1:]", '("mask", oct(os.umask(0)))')
    host.program.write_text(program)
    host.keep()
    host.process = subprocess.Popen([str(host.program)], umask=0)
    pid = host.wait_run("before")
    assert host.said()[-1][3:] == ("mask", "0o0")
    wait_for(lambda: host.state().pid == pid, "the state, which nobody else could have written")
    place = pathlib.Path(host.keepers)
    for path in (place, *place.rglob("*")):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022, path


def test_what_is_typed_reaches_the_minion_once(host):
    """A terminal sends it to both; a second one would cut the end of the minion short."""
    program = host.program.read_text().replace("os._exit(7)", "number == 15 and os._exit(7)")
    host.program.write_text(program)
    host.keep()
    pid, terminal = pty.fork()
    if not pid:
        os.execv(host.program, [str(host.program)])
    try:
        host.wait_run("before")
        os.kill(pid, signal.SIGSTOP)
        os.write(terminal, b"\x03")
        wait_for(lambda: ("before", "ends", "2") in host.said(), "what was typed")
        os.kill(pid, signal.SIGCONT)
        os.kill(pid, signal.SIGUSR1)
        wait_for(lambda: ("before", "usr1") in host.said(), "what came after it")
        assert host.said().count(("before", "ends", "2")) == 1
        # By whomever it is sent otherwise, it is passed on.
        os.kill(pid, signal.SIGINT)
        wait_for(lambda: host.said().count(("before", "ends", "2")) == 2, "what was sent")
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        os.close(terminal)
