import os

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.host.inhibitor import UnitInhibitor
from tests.support.simulated import Clock

UNIT = "salt-minion"
OURS = {
    "PIDFile": "{place}/inhibitor.pid",
    "KillMode": "none",
    "Type": "forking",
    "ExecStart": "{{ path=/bin/sh ; argv[]=/bin/sh {place}/inhibitor.sh start ; }}",
}


class System:
    """A systemd with one unit: its properties change with what it has read and was asked for."""

    def __init__(self, tmp_path, pid, **properties):
        self.place = tmp_path / "salt-minion.service.d"
        self.pid, self.properties = pid, properties
        self.theirs = {"PIDFile": "", "KillMode": "mixed"}
        self.known, self.can_start = False, True
        self.calls = []
        self.began, self.stopped = [], []

    def __call__(self, argv, *, timeout, ok=(0,)):
        self.calls.append(argv[1] if argv[0] == "systemctl" else argv[0])
        said, failed = "", False
        self.began += [word.partition("=")[2] for word in argv if word.startswith("--unit=")]
        self.stopped += argv[-1:] if "stop" in argv else ()
        if argv[1] == "show":
            names = argv[2].partition("=")[2].split(",")
            said = "".join(f"{name}={self._value(name)}\n" for name in names)
        elif argv[1] == "daemon-reload":
            self.known = (self.place / "~safeupdate-inhibitor.conf").exists()
        elif argv[1] == "start":
            failed = not self.can_start
            self.pid = self.pid if failed else self._noted()
        elif argv[1] == "stop":
            self.pid = 0
        if failed and ok is not None:
            raise CommandError(argv, "exit status 5")
        return Result(argv=argv, returncode=int(failed), stdout=said, stderr="")

    def _value(self, name):
        if name == "MainPID":
            return self.pid
        ours = {key: value.format(place=self.place) for key, value in OURS.items()}
        read = {**self.theirs, **(ours if self.known else {})}
        return self.properties.get(name, read.get(name, ""))

    def _noted(self):
        noted = (self.place / "inhibitor.process").read_text().split()
        return int(noted[0]) if noted else 4711


@pytest.fixture
def made(tmp_path):
    def make(pid, **properties):
        system = System(tmp_path, pid, **properties)
        return system, UnitInhibitor(system, str(tmp_path), Clock().sleep)

    return make


def test_nothing_is_left(made, tmp_path):
    system, inhibitor = made(os.getpid())
    inhibitor.inhibit(UNIT)
    inhibitor.inhibit(UNIT)
    assert inhibitor.inhibited(UNIT)
    assert system.known
    assert {os.stat(each).st_mode & 0o777 for each in system.place.iterdir()} == {0o644}
    inhibitor.release(UNIT)
    assert not inhibitor.inhibited(UNIT)
    assert not system.known
    assert system.pid == os.getpid()
    assert list(tmp_path.iterdir()) == []
    calls = len(system.calls)
    inhibitor.release(UNIT)
    assert "daemon-reload" not in system.calls[calls:]


def test_the_drop_ins_of_others_stay(made):
    system, inhibitor = made(os.getpid())
    inhibitor.inhibit(UNIT)
    (system.place / "other.conf").write_text("")
    inhibitor.release(UNIT)
    assert os.listdir(system.place) == ["other.conf"]


def test_a_crash_between_the_removal_and_the_reload(made):
    system, inhibitor = made(os.getpid())
    inhibitor.inhibit(UNIT)
    for each in system.place.iterdir():
        each.unlink()
    inhibitor.release(UNIT)
    assert not system.known


def test_a_process_that_was_stopped_is_taken_again(made):
    system, inhibitor = made(os.getpid())
    inhibitor.inhibit(UNIT)
    system.pid = 0
    inhibitor.resume(UNIT)
    assert system.pid == os.getpid()
    system.pid = 0
    inhibitor.release(UNIT)
    assert system.pid == os.getpid()


def test_it_is_the_same_process_after_a_crash_of_the_one_who_asked(made):
    system, inhibitor = made(os.getpid())
    inhibitor.inhibit(UNIT)
    # A scriptlet has stopped it, and the next supervisor asks again.
    system.pid = 0
    inhibitor.inhibit(UNIT)
    inhibitor.release(UNIT)
    assert system.pid == os.getpid()


def test_what_stands_for_a_unit_that_does_not_run_is_stopped(made):
    system, inhibitor = made(0)
    inhibitor.inhibit(UNIT)
    inhibitor.resume(UNIT)
    assert system.pid == 0
    system.pid = 4711
    inhibitor.release(UNIT)
    assert system.pid == 0


def test_a_pid_that_was_given_to_another_process(made):
    system, inhibitor = made(os.getpid())
    inhibitor.inhibit(UNIT)
    (system.place / "inhibitor.process").write_text(f"{os.getpid()} 1\n")
    system.pid = 4711
    inhibitor.release(UNIT)
    assert system.pid == 0


@pytest.mark.parametrize(
    "theirs",
    [
        {"KillMode": "mixed"},
        {"PIDFile": "/run/salt-minion.pid"},
        {"Type": "simple"},
        {"ExecStart": "{ path=/usr/bin/salt-minion ; argv[]=/usr/bin/salt-minion ; }"},
    ],
)
def test_a_drop_in_that_prevents_it(made, tmp_path, theirs):
    system, inhibitor = made(os.getpid(), **theirs)
    with pytest.raises(CommandError, match="a later drop-in"):
        inhibitor.inhibit(UNIT)
    assert list(tmp_path.iterdir()) == []
    assert not system.known


@pytest.mark.parametrize(("private", "held"), [("yes", 1), ("no", 0)])
def test_temporary_files_of_its_own_outlive_a_stop(made, private, held):
    system, inhibitor = made(os.getpid(), PrivateTmp=private)
    inhibitor.inhibit(UNIT)
    assert system.calls.count("systemd-run") == held
    inhibitor.release(UNIT)
    assert set(system.began) <= set(system.stopped)


@pytest.mark.parametrize("patient", [True, False], ids=["ends by itself", "is killed"])
def test_a_process_whose_unit_is_gone_ends(made, monkeypatch, patient):
    system, inhibitor = made(77)
    sent, alive = [], [True]
    monkeypatch.setattr(processes, "start_time", lambda pid: "1" if alive[0] else "")
    monkeypatch.setattr(processes, "descendants", lambda pid: [78])

    def kill(pid, number):
        sent.append((pid, int(number)))
        alive[0] = not patient

    monkeypatch.setattr(os, "kill", kill)
    inhibitor.inhibit(UNIT)
    system.pid, system.can_start = 0, False
    inhibitor.release(UNIT)
    assert sent == ([(77, 15)] if patient else [(77, 15), (77, 9), (78, 9)])


@pytest.mark.parametrize(
    ("unit", "drop_in", "program"),
    [
        ("ExecStart=/usr/bin/salt-minion -c /etc/salt\n", "", "/usr/bin/salt-minion"),
        ('ExecStart = -@"/usr/bin/salt-minion" salt\n', "", "/usr/bin/salt-minion"),
        ("ExecStart=/a\n", "ExecStart=\nExecStart=/slot/salt-minion -x\n", "/slot/salt-minion"),
        ("ExecStart=/a\n", "ExecStart=\n", None),
        ("", "", None),
    ],
)
def test_the_program_is_what_the_unit_starts_afterwards(made, tmp_path, unit, drop_in, program):
    system, inhibitor = made(os.getpid())
    inhibitor.inhibit(UNIT)
    paths = [tmp_path / "unit.service", system.place / "10-other.conf"]
    for path, text in zip(paths, (unit, drop_in), strict=True):
        path.write_text(f"[Service]\n{text}")
    ours = system.place / "~safeupdate-inhibitor.conf"
    system.properties["FragmentPath"] = paths[0]
    system.properties["DropInPaths"] = f"{paths[1]} {ours}"
    assert inhibitor.program(UNIT) == program


@pytest.mark.parametrize("dead", [True, False])
def test_what_a_dead_process_had_begun_ends(made, monkeypatch, dead):
    """Salt's minion has one child, and that one has the jobs: they are left alone."""
    system, inhibitor = made(77)
    sent, alive, parents = [], {77, 78, 79}, {78: 77, 79: 78}
    monkeypatch.setattr(processes, "start_time", lambda pid: "1" if pid in alive else "")
    monkeypatch.setattr(processes, "descendants", lambda pid: [78, 79])
    monkeypatch.setattr(processes, "parent", parents.get)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, int(number))))
    inhibitor.inhibit(UNIT)
    if dead:
        alive.remove(77)
        system.pid = 0
    inhibitor.release(UNIT)
    assert sent == ([(78, 9)] if dead else [])
