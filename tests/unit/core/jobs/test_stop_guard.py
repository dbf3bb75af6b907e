"""The files of the stop guard, and what is said where they are not right."""

import os
import shutil
import stat

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.jobs import guard_file, stop_guard
from saltext_safeupdate.core.jobs.stop_guard import StopGuard
from saltext_safeupdate.core.settings import Settings
from tests.support.fakes import FakeRunner
from tests.support.guarded import have_guard

RELOAD = ("systemctl", "daemon-reload")
SHOW = (
    *("systemctl", "show", "--property=ExecStop,TimeoutStopUSec", "--"),
    "salt-minion.service",
)


@pytest.fixture
def make(tmp_path):
    def make(shown="", of_unit=(0, "", ""), **kwargs):
        settings = Settings(state_dir=str(tmp_path / "state"), **kwargs)
        run = FakeRunner({RELOAD: (0, "", ""), SHOW: (0, shown, "")})
        guard = StopGuard(settings, run=run, units=str(tmp_path / "units"))
        run.answers[("/bin/sh", guard.program, "--obstacle", "salt-minion.service")] = of_unit
        guard.runner = run
        return guard

    return make


def test_it_is_installed_once(make):
    guard = make()
    assert sorted(guard.install()) == sorted([guard.program, guard.drop_in])
    assert guard.install() == []
    assert guard.runner.calls == [RELOAD]
    assert stat.S_IMODE(os.stat(os.path.dirname(guard.program)).st_mode) == 0o700


def test_no_other_user_may_change_what_systemd_runs(make, tmp_path, monkeypatch):
    """The state directory of a minion with the option ``user`` belongs to that user."""
    ours = make()
    ours.install()
    monkeypatch.setattr(stop_guard, "_is_of_others", lambda directory: True)
    guard = make()
    assert guard.program != ours.program
    assert os.path.dirname(guard.program) == os.path.dirname(guard.drop_in)
    assert sorted(guard.install()) == sorted([guard.program, guard.drop_in])
    assert stat.S_IMODE(os.stat(os.path.dirname(guard.program)).st_mode) == 0o755
    assert guard.remove()
    assert os.listdir(tmp_path / "units") == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives a directory away")
@pytest.mark.parametrize("state_dir", ["", "state", "state/none"])
@pytest.mark.parametrize("kind", ["owner", "group", "link"])
def test_whose_the_directory_is_is_found(tmp_path, kind, state_dir):
    """Also if it is root's in a directory of others, who could rename it."""
    (tmp_path / "theirs" / "state").mkdir(parents=True)
    theirs = tmp_path / "theirs"
    wanted = str(theirs / state_dir)
    assert not stop_guard._is_of_others(wanted)
    assert not stop_guard._is_of_others(f"/{wanted}"), "it ends"
    if kind == "owner":
        os.chown(theirs, 65534, 65534)
    elif kind == "group":
        theirs.chmod(0o775)
    else:
        theirs.rename(tmp_path / "elsewhere")
        theirs.symlink_to("elsewhere")
    assert stop_guard._is_of_others(wanted)


def test_a_file_of_other_bytes_is_written_anew(make):
    guard = make()
    guard.install()
    with open(guard.drop_in, "wb") as file:
        file.write(b"\xff")
    assert guard.install() == [guard.drop_in]


def test_the_drop_in_names_the_program_and_gives_it_its_time(make):
    guard = make(stop_timeout=100.0, shutdown_timeout=7.0, service="my-minion")
    guard.install()
    with open(guard.drop_in) as file:
        text = file.read()
    assert guard.drop_in.endswith("my-minion.service.d/50-safeupdate-guard.conf")
    wanted = (
        f"ExecStop=-/bin/sh {guard.program} /run/salt-safeupdate my-minion.service 100 7 handover\n"
    )
    assert wanted in text
    assert "TimeoutStopSec=220\n" in text
    assert text.endswith("\nSuccessExitStatus=SIGUSR2\n[Unit]\nStartLimitBurst=20\n")


def test_the_program_has_what_puts_a_stop_off(make):
    guard = make(service="my-minion")
    guard.install()
    with open(guard.program) as file:
        text = file.read()
    place = "/run/systemd/system/my-minion.service.d"
    assert f"ExecStart=+/bin/sh {place}/inhibitor.sh start\n" in text
    assert "inhibitor.process: PID" in text
    assert "@INHIBITOR@" not in text


def test_if_restarts_are_to_wait_no_end_by_a_signal_is_a_good_one(make):
    guard = make(restart="wait")
    guard.install()
    with open(guard.drop_in) as file:
        text = file.read()
    assert " wait\n" in text
    assert "SIGUSR2" not in text


def test_what_keeps_a_minion_from_being_handed_over_is_said(make, tmp_path, monkeypatch):
    have_guard(monkeypatch, tmp_path, service="another")
    monkeypatch.setattr(shutil, "which", lambda name: name)
    guard = make()
    assert guard.missing()
    assert "not installed" in guard.obstacle()
    make(restart="wait").install()
    assert not guard.missing()
    assert "another setting" in guard.obstacle()
    guard.install()
    assert guard.obstacle() == ""
    assert make(of_unit=(0, "it has 'PrivateTmp='\n", "")).obstacle() == "it has 'PrivateTmp='"
    assert "cannot tell whether" in make(of_unit=(127, "", "no such file")).obstacle()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "systemd-run" in guard.obstacle()
    os.unlink(guard_file.GROUPS)
    assert "cgroup v2" in guard.obstacle()


def test_another_setting_is_another_file(make):
    make().install()
    guard = make(stop_timeout=5.0)
    assert guard.differing() == [guard.drop_in]
    assert guard.install() == [guard.drop_in]


def test_it_is_removed_and_nothing_else(make, tmp_path):
    guard = make()
    guard.install()
    assert guard.remove()
    assert not guard.remove()
    assert os.listdir(tmp_path / "units") == []
    assert guard.runner.calls == [RELOAD, RELOAD]


def test_what_is_wrong_is_said(make):
    guard = make()
    ((problem, fix),) = guard.problems()
    assert "not installed" in problem
    assert "safeupdate.enabled" in fix
    guard.install()
    ((problem, fix),) = guard.problems()
    assert "does not use" in problem
    assert "daemon-reload" in fix
    stop = f"ExecStop={{ path=/bin/sh ; argv[]=/bin/sh {guard.program} ; }}"
    good = make(shown=f"{stop}\nTimeoutStopUSec=12min\n")
    assert good.problems() == []
    with open(guard.program, "a") as file:
        file.write("# changed\n")
    ((problem, _),) = good.problems()
    assert "installed by another version" in problem


@pytest.mark.parametrize(
    ("span", "cut"),
    [("12min", 0), ("infinity", 0), ("10min", 0), ("9min 59s", 1), ("30s", 1), ("500ms", 1)],
)
def test_a_later_drop_in_that_cuts_the_wait_short_is_named(make, span, cut):
    guard = make()
    guard.install()
    shown = f"ExecStop={{ argv[]=/bin/sh {guard.program} ; }}\nTimeoutStopUSec={span}\n"
    found = make(shown=shown).problems()
    assert len(found) == cut
    assert all(f"after {span}" in problem and "TimeoutSec=" in fix for problem, fix in found)


def test_without_flock_it_says_so(make, monkeypatch):
    guard = make(shown="stop_guard.sh")
    guard.install()
    monkeypatch.setenv("PATH", "/nonexistent")
    assert any("flock" in problem for problem, _ in guard.problems())


def test_where_it_cannot_be_written_the_error_says_what_that_means(make, tmp_path):
    (tmp_path / "units").write_text("in the way")
    with pytest.raises(SafeUpdateError, match=r"cannot be written.*works without it"):
        make().install()
