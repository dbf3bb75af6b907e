import os
import re
import signal

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host import command

pytestmark = pytest.mark.usefixtures("real_process")


def _sh(script, **kwargs):
    return command.run(("sh", "-c", script), **{"timeout": 30, **kwargs})


def test_what_a_program_leaves_behind():
    result = _sh("echo out; echo err >&2")
    assert result == command.Result(
        argv=("sh", "-c", "echo out; echo err >&2"), returncode=0, stdout="out\n", stderr="err\n"
    )


def test_of_a_long_output_only_some_lines_are_kept():
    script = "seq 200000; printf 'a caf\\351\\n' >&2; exit 3"
    result = _sh(script, keep=re.compile("^19999[18]$").search, ok=(3,))
    assert (result.stdout, result.stderr) == ("199991\n199998\n", "a caf\ufffd\n")
    with pytest.raises(CommandError) as caught:
        _sh("echo out; echo why >&2; exit 1", keep=re.compile("why").search)
    assert (caught.value.stdout, caught.value.stderr) == ("", "why\n")
    with pytest.raises(CommandError, match="did not end within"):
        _sh("echo begun; sleep 600", keep=bool, timeout=0.2)


def test_a_failure_is_an_error_with_all_that_is_known():
    with pytest.raises(CommandError, match="sh: exit status 3: why") as caught:
        _sh("echo part; echo why >&2; exit 3")
    assert (caught.value.returncode, caught.value.stdout) == (3, "part\n")


@pytest.mark.parametrize("ok", [(0, 3), None])
def test_an_exit_status_that_is_expected(ok):
    assert _sh("exit 3", ok=ok).returncode == 3


def test_a_program_that_is_not_there():
    with pytest.raises(CommandError, match="cannot be started: No such file") as caught:
        command.run(("/no/such/program",), timeout=5)
    assert caught.value.returncode is None


def test_a_program_that_does_not_end_is_ended_with_all_it_started(tmp_path):
    mark = tmp_path / "child"
    with pytest.raises(CommandError, match=r"did not end within 0\.5 s: begun") as caught:
        _sh(f"sleep 600 & echo $! > {mark}; echo begun; wait", timeout=0.5)
    assert caught.value.returncode is None
    _gone(int(mark.read_text()))


def _gone(pid):
    """Wait until the process has ended; the test's own time-out is the bound."""
    while os.path.exists(f"/proc/{pid}"):
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            if stat.read().rpartition(")")[2].split()[0] == "Z":
                return


def test_sigterm_first_and_sigkill_for_what_ignores_it(monkeypatch):
    monkeypatch.setattr(command, "_TERM_GRACE", 0.2)
    sent = []
    killpg = os.killpg
    monkeypatch.setattr(
        os, "killpg", lambda pgid, signum: (sent.append(signum), killpg(pgid, signum))
    )
    with pytest.raises(CommandError):
        _sh("trap '' TERM; while :; do sleep 0.05; done", timeout=0.2)
    assert sent == [signal.SIGTERM, signal.SIGKILL]


def test_a_daemon_that_is_left_behind_is_neither_waited_for_nor_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "_LOOK_INTERVAL", 0.05)
    monkeypatch.setattr(command, "_OUTPUT_GRACE", 0.05)
    mark = tmp_path / "daemon"
    result = _sh(f"sleep 600 & echo $! > {mark}; echo started", timeout=60)
    assert result.stdout == "started\n"
    os.kill(int(mark.read_text()), signal.SIGKILL)


def test_an_exception_on_the_way_ends_the_program(tmp_path, monkeypatch):
    mark = tmp_path / "pid"

    def interrupted(proc, stdin, timeout):
        while not mark.exists() or not mark.read_text().strip():
            pass
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "_collect", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _sh(f"echo $$ > {mark}; exec sleep 600")
    _gone(int(mark.read_text()))


def test_standard_input_is_empty_or_what_is_given():
    assert _sh("cat").stdout == ""
    assert _sh("cat", stdin="line\n").stdout == "line\n"
    assert _sh("exit 0", stdin="x" * 200_000).returncode == 0


def test_much_output_does_not_block():
    assert len(_sh("head -c 300000 /dev/zero | tr '\\0' x").stdout) == 300_000


def test_output_that_is_no_text_is_kept_readable():
    assert _sh("printf 'a\\377b'").stdout == "a\ufffdb"


def test_the_proxies_of_the_administrator_are_passed_in_each_spelling(monkeypatch):
    names = [f"{kind}_proxy" for kind in ("all", "ftp", "http", "https", "no")]
    names += [name.upper() for name in names]
    for name in names:
        monkeypatch.setenv(name, f"value of {name}")
    assert {name: command.environment()[name] for name in names} == {
        name: f"value of {name}" for name in names
    }


def test_the_environment_is_short_and_explicit(monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/salt/lib")
    monkeypatch.setenv("PYTHONPATH", "/opt/salt")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("APT_CONFIG", "/tmp/apt.conf")
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    seen = dict(
        line.split("=", 1)
        for line in command.run(("env",), timeout=30, env={"EXTRA": "1"}).stdout.splitlines()
    )
    assert seen["LC_ALL"] == "C"
    assert seen["EXTRA"] == "1"
    # What the guard sets for an upgrade without some packages has to be seen here as well.
    assert seen["APT_CONFIG"] == "/tmp/apt.conf"
    assert seen["https_proxy"] == "http://proxy:3128"
    assert "/usr/sbin" in seen["PATH"]
    assert {"LD_LIBRARY_PATH", "PYTHONPATH"} & seen.keys() == set()
