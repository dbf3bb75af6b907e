import fcntl
import os
import subprocess
import sys

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.host import hidden
from saltext_safeupdate.core.transactional import detect
from saltext_safeupdate.core.transactional.roots import GET_READ_ONLY
from tests.support.fakes import FakeRunner

from . import captured


@pytest.mark.parametrize(
    ("environ", "inside"),
    [({}, False), ({"TRANSACTIONAL_UPDATE": ""}, False), ({"TRANSACTIONAL_UPDATE": "true"}, True)],
)
def test_in_transaction(environ, inside):
    assert hidden.in_transaction(environ) is inside


@pytest.mark.parametrize(
    ("table", "tool", "answer", "expected"),
    [
        (captured.MOUNTINFO, True, (0, "ro=true\n", ""), True),
        (captured.MOUNTINFO, True, (0, "ro=false\n", ""), False),
        (captured.MOUNTINFO, False, (0, "ro=true\n", ""), False),
        (captured.CONTAINER, True, (0, "ro=true\n", ""), False),
        (captured.MOUNTINFO, True, CommandError(["btrfs"], "cannot be started"), False),
    ],
)
def test_transactional(tmp_path, table, tool, answer, expected):
    (tmp_path / "mountinfo").write_text(table)
    run = FakeRunner({GET_READ_ONLY: answer})
    which = {True: "/usr/sbin/transactional-update", False: None}[tool]
    found = detect.transactional(run, mountinfo=tmp_path / "mountinfo", which=lambda _: which)
    assert found is expected


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "99999999999", "4194999", "12 34"])
def test_a_stale_or_damaged_pid_file_holds_nothing(tmp_path, text):
    (tmp_path / "pid").write_text(text)
    assert detect.lock_holder(tmp_path / "pid", tmp_path / "none") is None


def test_a_live_pid_holds_the_lock(tmp_path):
    (tmp_path / "pid").write_text(f"{os.getpid()}\n")
    assert detect.lock_holder(tmp_path / "pid", tmp_path / "none") == os.getpid()


def test_the_holder_of_tukits_lock_is_found_without_taking_it(tmp_path, real_process):
    path = tmp_path / "lock"
    path.touch()
    assert detect.lock_holder(tmp_path / "none", path) is None
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout.readline() == "held\n"
        assert detect.lock_holder(tmp_path / "none", path) == holder.pid
        holder.stdin.close()
        holder.wait()
    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
