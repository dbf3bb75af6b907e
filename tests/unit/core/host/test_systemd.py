import pathlib
import time

import pytest

from saltext_safeupdate.core.errors import CommandError, SafeUpdateError
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.host.service import LastRun, ServiceState
from saltext_safeupdate.core.host.systemd import Systemd
from tests.support.fakes import FakeRunner
from tests.support.simulated import Clock

UNIT = "salt-minion"
OK = (0, "", "")
SHOW = (
    "systemctl",
    "show",
    "--property=ActiveState,SubState,UnitFileState,MainPID,InvocationID",
    "--",
    "salt-minion.service",
)
RELOAD = ("systemctl", "daemon-reload")


def _shown(active="active", enabled="enabled", pid=77):
    return (
        0,
        f"ActiveState={active}\nUnitFileState={enabled}\nMainPID={pid}\nInvocationID=ab=12\n",
        "",
    )


LAST_RUN = (
    "systemctl",
    "show",
    "--property=ActiveState,Result,ExecMainCode,ExecMainStatus,NRestarts,"
    "InactiveExitTimestampMonotonic,ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic,ActiveExitTimestampMonotonic",
    "--",
    "salt-minion.service",
)


def _systemd(answers, tmp_path=pathlib.Path("/nonexistent"), sleep=None):
    run = FakeRunner(answers)
    return Systemd(run, str(tmp_path), sleep=sleep or Clock().sleep), run


def test_the_state_is_read_in_one_call():
    systemd, run = _systemd({SHOW: _shown()})
    assert systemd.state(UNIT) == ServiceState("active", "enabled", 77, "ab=12")
    assert run.calls == [SHOW]


def test_a_unit_that_is_not_there():
    answer = (0, "ActiveState=inactive\nUnitFileState=\nMainPID=0\nInvocationID=\n", "")
    systemd, _ = _systemd({SHOW: answer})
    assert systemd.state(UNIT) == ServiceState("inactive", "", 0, "")
    assert not systemd.state(UNIT).running


def test_a_unit_of_an_init_script_whose_processes_have_ended():
    """systemd makes one of the script that Salt's packages bring, if there is no other unit."""
    answer = (0, "ActiveState=active\nSubState=exited\nUnitFileState=generated\nMainPID=0\n", "")
    systemd, _ = _systemd({SHOW: answer})
    assert systemd.state(UNIT) == ServiceState("failed", "generated", 0, "")


# What is so of a unit, when it left "inactive", its process began and ended, and it left "active".
# The restart before was at 10.
@pytest.mark.parametrize(
    ("active", "times", "stopped"),
    [
        pytest.param("active", (20, 21, 9, 8), False, id="it runs"),
        pytest.param("inactive", (20, 21, 40, 30), True, id="systemctl stop"),
        pytest.param("failed", (20, 21, 40, 30), True, id="a stop that ends in a failure"),
        pytest.param("inactive", (20, 21, 30, 31), False, id="it ends by itself"),
        pytest.param("failed", (20, 21, 30, 31), False, id="it dies"),
        pytest.param("inactive", (20, 21, 30, 8), True, id="a stop before it is ready"),
        pytest.param("failed", (20, 21, 30, 8), False, id="it dies before it is ready"),
        pytest.param("inactive", (20, 7, 9, 8), True, id="a stop during ExecStartPre"),
        pytest.param("failed", (20, 7, 9, 8), False, id="ExecStartPre fails"),
        pytest.param("inactive", (0, 0, 0, 0), False, id="it never ran"),
    ],
)
def test_whether_somebody_has_stopped_it(active, times, stopped):
    names = LAST_RUN[2].split(",")[5:]
    told = "".join(f"{name}={value}\n" for name, value in zip(names, times, strict=True))
    answer = (0, f"ActiveState={active}\nExecMainStatus=77\nNRestarts=2\n{told}", "")
    systemd, _ = _systemd({LAST_RUN: answer})
    assert systemd.last_run(UNIT) == LastRun(stopped, status=77, restarts=2)


# By itself it ends before its unit leaves "active"; if somebody stops it, afterwards.
BY_ITSELF, STOPPED = (20, 21, 39, 40), (20, 21, 40, 39)


@pytest.mark.parametrize(
    ("ended", "times", "stopped", "killed"),
    [
        pytest.param(("signal", 2, 9), BY_ITSELF, False, True, id="killed"),
        pytest.param(("exit-code", 1, 247), BY_ITSELF, False, True, id="its child was killed"),
        pytest.param(("oom-kill", 1, 0), STOPPED, False, True, id="no memory"),
        pytest.param(("signal", 2, 11), BY_ITSELF, False, False, id="a fault of its own"),
        pytest.param(("timeout", 2, 9), BY_ITSELF, False, False, id="it was not ready in time"),
        pytest.param(("exit-code", 1, 1), BY_ITSELF, False, False, id="an error"),
        pytest.param(("signal", 2, 9), STOPPED, True, False, id="a stop that did not end"),
    ],
)
def test_whether_something_else_has_killed_it(ended, times, stopped, killed):
    names = LAST_RUN[2].removeprefix("--property=").split(",")
    told = dict(zip(names, ("failed", *ended, "", *times), strict=True))
    lines = "".join(f"{name}={value}\n" for name, value in told.items())
    systemd, _ = _systemd({LAST_RUN: (0, lines, "")})
    assert systemd.last_run(UNIT) == LastRun(stopped, ended[2], killed=killed)


INTERRUPTED = (
    "systemctl",
    "show",
    "--property=MainPID,ActiveExitTimestampMonotonic,InactiveEnterTimestampMonotonic,"
    "InactiveExitTimestampMonotonic,ExecMainStartTimestampMonotonic",
    "--",
    "salt-minion.service",
)


@pytest.mark.parametrize(
    ("times", "by_itself"),
    [
        pytest.param((50, 51, 51.01), True, id="systemctl restart"),
        pytest.param((50, 55, 55.01), True, id="a crash, with RestartSec=5"),
        pytest.param((50, 10, 30), True, id="a crash, with RestartMode=direct"),
        pytest.param((50, 51, 71), False, id="a stop and a start"),
        pytest.param((50, 52, 57), False, id="a crash, and a stop before RestartSec is over"),
        pytest.param((0, 0, 5), None, id="the first start of this boot"),
        pytest.param((50, 71, 51), None, id="it is stopping"),
    ],
)
def test_what_was_between_the_last_two_runs(times, by_itself):
    names = INTERRUPTED[2].partition("=")[2].split(",")[1:4]
    told = "".join(
        f"{name}={round(value * 1e6)}\n" for name, value in zip(names, times, strict=True)
    )
    systemd, _ = _systemd({INTERRUPTED: (0, told, "")})
    found = systemd.interruption(UNIT)
    if by_itself is None:
        assert found is None
    else:
        assert found.by_itself is by_itself
        assert found.began == pytest.approx(time.monotonic() - times[0], abs=5.0)


def test_the_host_has_slept_since_then(monkeypatch):
    """
    An hour, as the age of the minion shows: the clock of systemd stands still meanwhile.

    Else a job that was missed in the restart seems to come from before it.
    """
    now = time.monotonic()
    left, began = now - 60, now - 50
    names = INTERRUPTED[2].partition("=")[2].split(",")[1:]
    told = "".join(
        f"{name}={round(value * 1e6)}\n"
        for name, value in zip(names, (left, began, began, began), strict=True)
    )
    monkeypatch.setattr(processes, "age", lambda pid: 3650.0 if pid == 77 else None)
    systemd, _ = _systemd({INTERRUPTED: (0, f"MainPID=77\n{told}", "")})
    assert systemd.interruption(UNIT).began == pytest.approx(3660.0, abs=5.0)


LEFT = (
    "systemctl",
    "show",
    "--property=ActiveState,Job,Result,ConditionResult,AssertResult,Requires,Requisite,BindsTo",
    "--",
    "salt-minion.service",
)
NEEDED = ("systemctl", "show", "--property=ActiveState", "--", "system.slice", "vpn.service")


@pytest.mark.parametrize(
    ("told", "needed", "left"),
    [
        ({}, "active", True),
        ({"ActiveState": "failed"}, "active", True),
        ({"ActiveState": "activating"}, "active", False),
        ({"Job": "812"}, "active", False),
        ({"ConditionResult": "no"}, "active", False),
        ({"AssertResult": "no"}, "active", False),
        ({"ActiveState": "failed", "Result": "timeout"}, "active", True),
        ({"ActiveState": "failed", "Result": "start-limit-hit"}, "active", False),
        ({}, "failed", False),
    ],
)
def test_whether_somebody_wants_a_unit_stopped(told, needed, left):
    shown = {
        **{"ActiveState": "inactive", "Result": "success"},
        **{"ConditionResult": "yes", "AssertResult": "yes"},
        **{"Requires": "system.slice", "BindsTo": "vpn.service", **told},
    }
    lines = "".join(f"{name}={value}\n" for name, value in shown.items())
    units = f"ActiveState=active\n\nActiveState={needed}\n"
    systemd, _ = _systemd({LEFT: (0, lines, ""), NEEDED: (0, units, "")})
    assert systemd.is_left_stopped(UNIT) is left


def test_a_unit_that_needs_no_other_one_is_asked_about_alone():
    systemd, run = _systemd({LEFT: (0, "ActiveState=inactive\nResult=success\n", "")})
    assert systemd.is_left_stopped(UNIT)
    assert run.calls == [LEFT]


def test_a_systemd_that_tells_nothing_of_the_last_run():
    systemd, _ = _systemd({LAST_RUN: (0, "ActiveState=inactive\n", "")})
    assert systemd.last_run(UNIT) == LastRun()
    assert systemd.obstacle(UNIT) == ""


@pytest.mark.parametrize(
    ("now", "wanted", "calls"),
    [
        ("enabled", "enabled", []),
        ("disabled", "enabled", [("enable", UNIT)]),
        ("enabled", "disabled", [("disable", UNIT)]),
        ("enabled", "masked", [("mask", UNIT)]),
        ("masked", "enabled", [("unmask", UNIT), ("enable", UNIT)]),
        ("masked-runtime", "enabled", [("unmask", "--runtime", UNIT), ("enable", UNIT)]),
        ("masked", "disabled", [("unmask", UNIT), ("disable", UNIT)]),
        ("enabled", "masked-runtime", [("mask", "--runtime", UNIT)]),
        ("disabled", "enabled-runtime", [("enable", "--runtime", UNIT)]),
        ("enabled", "static", []),
        ("enabled", "", []),
    ],
)
def test_a_unit_gets_the_state_back_that_it_had(now, wanted, calls):
    calls = [("systemctl", *call) for call in calls]
    systemd, run = _systemd({SHOW: _shown(enabled=now), **dict.fromkeys(calls, OK)})
    systemd.set_enabled(UNIT, wanted)
    assert [call for call in run.calls if call != SHOW] == calls


def test_a_restart_is_asked_for_and_not_waited_for():
    argv = ("systemctl", "--no-block", "restart", UNIT)
    systemd, run = _systemd({argv: OK})
    systemd.begin_restart(UNIT)
    assert run.calls == [argv]


def test_a_unit_that_failed_often_may_start_again():
    reset, start = ("systemctl", "reset-failed", UNIT), ("systemctl", "--no-block", "start", UNIT)
    systemd, run = _systemd({reset: (1, "", "not loaded"), start: OK})
    systemd.start(UNIT)
    assert run.calls == [reset, start]


def test_the_file_of_a_unit():
    argv = ("systemctl", "show", "--property=FragmentPath", "--", "salt-minion.service")
    systemd, run = _systemd({argv: (0, "FragmentPath=/lib/x.service\n", "")})
    assert systemd.unit_file(UNIT) == "/lib/x.service"
    run.answers[argv] = (0, "FragmentPath=\n", "")
    assert systemd.unit_file(UNIT) is None


class Spawner:
    """systemd-run under a name that is taken for some time, whoever asks."""

    def __init__(self, taken, message):
        self.taken, self.message = taken, message
        self.started = []

    def __call__(self, argv, *, timeout, ok=(0,), env=None, stdin=None, keep=None):
        if argv[0] != "systemd-run":
            return
        if self.taken:
            self.taken -= 1
            raise CommandError(argv, "exit status 1", stderr=self.message, returncode=1)
        self.started.append(tuple(argv))


ALREADY = (
    "Failed to start transient service unit: Unit x.service already exists.",
    "Failed to start transient service unit: Unit x.service was already loaded or has a fragment.",
)


@pytest.mark.parametrize("message", ALREADY)
def test_a_program_starts_as_soon_as_its_predecessor_is_forgotten(message):
    run, clock = Spawner(3, message), Clock()
    Systemd(run, sleep=clock.sleep).spawn("x", ["/bin/true", "-n"])
    (argv,) = run.started
    assert argv[1] == "--unit=x"
    assert argv[-3:] == ("--", "/bin/true", "-n")
    assert "--property=Restart=on-failure" in argv
    assert clock.passed == pytest.approx(0.3)


def test_a_name_that_stays_taken_is_an_error():
    run, clock = Spawner(1000, ALREADY[0]), Clock()
    with pytest.raises(CommandError, match="already exists"):
        Systemd(run, sleep=clock.sleep).spawn("x", ["/bin/true"])
    assert clock.passed < 10


def test_another_failure_to_start_is_told_at_once():
    run, clock = Spawner(1, "Failed to connect to bus"), Clock()
    with pytest.raises(CommandError, match="bus"):
        Systemd(run, sleep=clock.sleep).spawn("x", ["/bin/true"])
    assert clock.passed == 0


class TestWatchdog:
    NAME = "salt-safeupdate-recover"
    ENABLE = ("systemctl", "enable", "--no-reload", f"{NAME}.service", f"{NAME}.timer")
    START = ("systemctl", "--no-block", "start", f"{NAME}.timer")
    STOP = ("systemctl", "--no-block", "stop", f"{NAME}.timer")
    DISABLE = ("systemctl", "disable", "--no-reload", f"{NAME}.service", f"{NAME}.timer")

    def _made(self, tmp_path):
        run = FakeRunner(
            dict.fromkeys((self.ENABLE, self.START, self.STOP, self.DISABLE, RELOAD), OK)
        )
        return Systemd(run, "/nonexistent", str(tmp_path)), run

    def test_it_starts_at_every_boot_and_every_minute(self, tmp_path):
        systemd, run = self._made(tmp_path)
        systemd.arm(self.NAME, ["/usr/bin/python3", "-I", '{"a": "50%", "b": "$x\\\\"}'])
        service_text = (tmp_path / f"{self.NAME}.service").read_text()
        assert (
            'ExecStart=/usr/bin/python3 -I "{\\"a\\": \\"50%%\\", \\"b\\": \\"$$x\\\\\\\\\\"}"\n'
        ) in service_text
        assert "WantedBy=multi-user.target" in service_text
        assert "OnUnitInactiveSec=60" in (tmp_path / f"{self.NAME}.timer").read_text()
        assert run.calls == [self.ENABLE, self.START]

    def test_systemd_reads_again_what_it_may_know_already(self, tmp_path):
        systemd, run = self._made(tmp_path)
        systemd.arm(self.NAME, ["/bin/true"])
        systemd.arm(self.NAME, ["/bin/false"])
        assert run.calls[2:] == [self.ENABLE, RELOAD, self.START]

    def test_on_a_host_that_goes_down_the_boot_starts_it(self, tmp_path):
        systemd, run = self._made(tmp_path)
        run.answers[self.START] = (1, "", "Transaction is destructive")
        run.answers[("systemctl", "is-system-running")] = (1, "running\n", "")
        jobs = ("systemctl", "list-jobs", "--no-legend")
        run.answers[jobs] = OK
        with pytest.raises(CommandError, match="destructive"):
            systemd.arm(self.NAME, ["/bin/true"])
        run.answers[jobs] = (0, "123 reboot.target start waiting\n", "")
        systemd.arm(self.NAME, ["/bin/true"])

    def test_what_defines_it(self, tmp_path):
        systemd, _ = self._made(tmp_path)
        assert systemd.watchdog(self.NAME) == ""
        systemd.arm(self.NAME, ["/srv/of state %/supervisor-1/launch.py"])
        assert "supervisor-1/launch.py" in systemd.watchdog(self.NAME)
        assert '"/srv/of state %%/supervisor-1' in systemd.watchdog(self.NAME)

    def test_it_is_gone_without_ending_the_one_that_runs_in_it(self, tmp_path):
        systemd, run = self._made(tmp_path)
        systemd.arm(self.NAME, ["/bin/true"])
        run.calls.clear()
        systemd.disarm(self.NAME)
        assert run.calls == [self.STOP, self.DISABLE, RELOAD]
        assert list(tmp_path.iterdir()) == []
        systemd.disarm(self.NAME)
        assert len(run.calls) == 3

    def test_a_directory_that_cannot_be_written(self, tmp_path):
        (tmp_path / "file").write_text("")
        systemd, _ = self._made(tmp_path / "file")
        with pytest.raises(SafeUpdateError, match="cannot be written"):
            systemd.arm(self.NAME, ["/bin/true"])


def test_what_rests_is_started_at_the_next_boot_and_not_before():
    stop = ("systemctl", "--no-block", "stop", "name.timer")
    systemd, run = _systemd({stop: OK})
    systemd.rest("name")
    assert run.calls == [stop]


class TestEnd:
    STOP = ("systemctl", "--no-block", "stop", UNIT)
    KILL = ("systemctl", "kill", "--kill-who=all", "--signal=KILL", UNIT)

    def test_what_ends_by_itself_is_not_killed(self):
        states = [_shown("deactivating"), _shown("deactivating"), _shown("inactive", pid=0)]
        systemd, run = _systemd({self.STOP: OK, SHOW: lambda: states.pop(0)})
        systemd.end(UNIT)
        assert run.calls == [self.STOP, SHOW, SHOW, SHOW]

    def test_what_does_not_is_killed(self):
        state = [_shown("deactivating")]

        def kill():
            state[:] = [_shown("failed", pid=0)]
            return OK

        clock = Clock()
        systemd, run = _systemd(
            {self.STOP: OK, SHOW: lambda: state[0], self.KILL: kill}, sleep=clock.sleep
        )
        systemd.end(UNIT)
        assert run.calls[-2:] == [self.KILL, SHOW]
        assert clock.passed == 20


def test_running_units_are_those_with_a_process():
    argv = ("systemctl", "show", "--property=Id,MainPID", "--", "*salt*.service")
    shown = "MainPID=7\nId=salt-minion.service\n\nMainPID=0\nId=salt-master.service\n"
    assert Systemd(FakeRunner({argv: (0, shown, "")})).running("*salt*.service") == {
        "salt-minion.service": 7
    }
    assert Systemd(FakeRunner({argv: (0, "", "")})).running("*salt*.service") == {}


def test_a_reboot_is_asked_for_and_not_waited_for():
    run = FakeRunner({("systemctl", "--no-block", "--message=why", "reboot"): OK})
    Systemd(run).reboot("why")
    assert len(run.calls) == 1


# Units, what they say of others, and whether they run. As ``systemctl show`` names them.
RELATED = {
    "salt-master": ("RequiredBy=monitoring.service multi-user.target\nPartOf=x.service", "active"),
    "monitoring.service": ("BoundBy=page.service salt-master.service", "active"),
    "page.service": ("ConsistsOf=monitoring.service", "activating"),
    "idle.service": ("", "inactive"),
}


def _related(argv, **_):
    names, active = RELATED.get(argv[-1]) or RELATED[argv[-1].removesuffix(".service")]
    shown = f"{names}\nActiveState={active}\nCanStart=no\n"
    return Result(argv=argv, returncode=0, stdout=shown, stderr="")


def test_what_ends_with_a_unit_is_found_through_others():
    """Nothing twice, though they name each other; no target, which would start much more."""
    assert Systemd(_related).dependents("salt-master") == ["monitoring.service", "page.service"]


def test_what_is_about_to_start_would_not_start_any_more(monkeypatch):
    """During a boot it waits for the unit that it needs, and its job fails with that one's."""
    monkeypatch.setitem(RELATED, "salt-master", ("RequiredBy=idle.service", "activating"))
    monkeypatch.setitem(RELATED, "idle.service", ("Job=71", "inactive"))
    assert Systemd(_related).dependents("salt-master") == ["idle.service"]


def test_what_does_not_run_does_not_end(monkeypatch):
    monkeypatch.setitem(RELATED, "salt-master", ("RequiredBy=idle.service", "active"))
    assert Systemd(_related).dependents("salt-master") == []


def test_whether_a_unit_would_start_again():
    assert not Systemd(_related).can_start("salt-master")
    asked = ("systemctl", "show", "--property=CanStart", "--", f"{UNIT}.service")
    systemd, _ = _systemd({asked: (0, "", "")})
    assert systemd.can_start(UNIT), "an older systemd may not tell"
