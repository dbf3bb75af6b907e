"""What whole systems with the real tool did, row by row: each of these was wrong once."""

import contextlib
import json
import os
import random
import signal

import psutil
import pytest

from tests.support.waiting import LONGEST, wait_for

from .conftest import WAITER, WITHOUT_SALT

pytestmark = WITHOUT_SALT

# It has written when it says that it runs, and returns 0 when it is told to stop.
STUBBORN = (
    "trap 'exit 0' TERM; echo half > /data/x; touch /var/cache/started; "
    "while :; do sleep 0.05; done"
)


def sh(script):
    return ["sh", "-c", script]


def stop(process, signum):
    """Stop a job as saltutil.term_job and kill_job do; return when nothing of it is left."""
    leader = psutil.Process(process.pid)
    processes = [*leader.children(recursive=True), leader]
    # None sees another one killed, however long that takes.
    for each in (signal.SIGSTOP, signum) if signum == signal.SIGKILL else (signum,):
        for one in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(each)
    process.communicate(timeout=LONGEST)
    _, left = psutil.wait_procs(processes, timeout=LONGEST)
    assert not left


def drive_noted(rig, **given):
    """Start a call, and wait until it has written down in which snapshot it works."""
    process = rig.drive_started("run", **given)
    base = rig.path("/var/cache/salt-safeupdate")
    wait_for(lambda: list(base.glob("*/snapshot")), "the call has noted its snapshot")
    return process


def test_what_is_applied_runs(rig):
    rig.drive("run", command=sh("touch /data/x /etc/x"))
    assert rig.drive("status")["pending"] is True
    found = rig.drive("invoke", words=["apply"], drop_if_no_change=False)
    assert (found["running"], found["default"], found["pending"]) == (2, 2, False)
    assert rig.path("/etc/x").exists()
    # The next transaction starts from it.
    found = rig.drive("run", command=sh("ls /data > /data/y"))
    assert rig.in_snapshot(found["new_snapshot"], "/data/y").read_text() == "x\ny\n"


def test_what_was_created_and_deleted_again_is_a_change(rig):
    found = rig.drive("run", command=sh("touch /data/x; rm /data/x"))
    assert (found["failure"], found["new_snapshot"]) == (None, 2)


def test_a_snapshot_that_is_deleted_behind_the_daemons_back_breaks_later_drops(rig):
    """The stand-in's own: what the core must never do."""
    tool = ("transactional-update", "--non-interactive", "--drop-if-no-change", "run")
    rig.ok(*tool, "touch", "/data/x")
    rig.ok("transactional-update", "rollback", "1")
    rig.ok("snapper", "--no-dbus", "delete", "2")
    done = rig.run(*tool, "ls")
    assert done.returncode == 1
    assert "errno:2" in done.stderr
    assert "returned with error code 1" in done.stderr
    assert not rig.in_snapshot(rig.numbers()[-1], "/").exists()


@pytest.mark.parametrize("version", ["6.1.1", "5.1.0"])
def test_a_command_that_returns_0_when_it_is_told_to_stop_is_not_committed(rig, version):
    rig.version(version)
    found = rig.drive("run", command=sh(STUBBORN), timeout=1)
    assert rig.path("/var/cache/started").exists()
    assert "did not end within 1 s" in found["failure"]
    assert found["undone"] is None  # a power cut meanwhile would have booted it
    rig.assert_clean(1, [1])
    rig.ok("transactional-update", "--non-interactive", "--drop-if-no-change", "run", "ls")
    rig.assert_clean(1, [1])


def test_what_the_tool_commits_all_the_same_is_not_the_default(rig):
    """Whoever ends the tool's command: told to stop, this one was killed before it could tell."""
    rig.fault("commits")
    found = rig.drive("run", command=sh(STUBBORN), timeout=1)
    assert "The default is 1 as before. Its snapshot 2 was discarded" in found["failure"]
    rig.assert_clean(1, [1])


def test_a_job_that_is_killed_leaves_nothing_that_boots(rig):
    process = drive_noted(rig, command=sh(STUBBORN))
    stop(process, signal.SIGKILL)
    status = rig.drive("status")
    assert (status["default"], status["pending"]) == (1, False)
    assert (status["open"], status["crashed"]) == ([], [2])
    assert rig.drive("run", command=["true"])["failure"] is None
    rig.assert_clean(1, [1])


def test_a_job_that_is_told_to_stop_leaves_nothing(rig):
    process = rig.drive_started("run", command=sh(STUBBORN))
    stop(process, signal.SIGTERM)
    assert rig.default() == 1
    rig.path("/run/transactional-update.pid").unlink(missing_ok=True)
    rig.assert_clean(1, [1])


def test_a_crashed_snapshot_is_told_from_the_open_one(rig):
    """Both are of somebody else, so neither is touched."""
    argv = ("transactional-update", "--non-interactive", "run", *sh(WAITER))
    crashed = rig.start(*argv)
    wait_for(rig.path("/var/cache/started").exists, "the first transaction runs")
    stop(crashed, signal.SIGKILL)
    rig.path("/var/cache/started").unlink()
    opened = rig.start(*argv)
    wait_for(rig.path("/var/cache/started").exists, "the second transaction runs")
    status = rig.drive("status")
    assert (status["open"], status["crashed"]) == ([3], [2])
    rig.go()
    opened.communicate(timeout=LONGEST)
    assert rig.drive("run", command=["true"])["failure"] is None
    status = rig.drive("status")
    assert (status["open"], status["crashed"], status["default"]) == ([], [2], 3)


def test_a_late_edit_of_the_live_etc_is_reported(rig):
    """
    The command has ended and nobody looks any more; the tool writes into the same files.

    It also gives them their extended attributes, and leaves some files alone.
    """
    rig.path("/etc/edited").write_text("before\n")
    rig.path("/etc/marked").write_text("before\n")
    rig.fault("merge-waits")
    script = "import os; os.setxattr('/etc/marked', 'user.mark', b'x'); open('/etc/changed', 'w')"
    process = rig.start(*rig.drive_argv("run", command=["/usr/bin/python3", "-c", script]))
    wait_for(rig.path("/run/rig/merging").exists, "the tool is about to merge")
    inode = rig.path("/etc/edited").stat().st_ino
    for name in ("edited", "fstab"):
        rig.path(f"/etc/{name}").write_text("an administrator was here\n")
    rig.path("/run/rig/merge-waits").unlink()
    found = json.loads(process.communicate(timeout=LONGEST)[0])
    assert rig.path("/etc/edited").read_text() == "before\n"
    assert rig.path("/etc/edited").stat().st_ino == inode
    assert list(found["lost_etc_edits"]) == ["/etc/edited"]
    assert rig.path("/etc/changed").exists()
    assert os.getxattr(rig.path("/etc/marked"), "user.mark") == b"x"
    assert rig.path("/etc/fstab").read_text() == "an administrator was here\n"


def test_a_pending_snapshot_gets_the_live_etc_again(rig):
    rig.drive("run", command=sh("touch /data/x; echo inside > /etc/both"))
    for name in ("live", "both"):
        rig.path(f"/etc/{name}").write_text("live\n")
    rig.drive("run", command=sh("cat /etc/live /etc/both > /data/y"), snapshot="continue")
    assert rig.in_snapshot(3, "/data/y").read_text() == "live\ninside\n"
    rig.path("/etc/later").write_text("live\n")
    rig.boot()
    assert rig.path("/etc/later").read_text() == "live\n"
    assert rig.path("/etc/both").read_text() == "inside\n"


def storm(rig, rounds, seed):
    """Let transactions fail, hang, be killed and be dropped at random; return how often which."""
    chosen = random.Random(seed)
    done = dict.fromkeys(
        ("failed", "timed out", "killed", "told to stop", "orphaned", "dropped"), 0
    )
    for _ in range(rounds):
        what = chosen.choice(list(done))
        rig.path("/var/cache/started").unlink(missing_ok=True)
        if what == "failed":
            assert rig.drive("run", command=sh("echo half > /data/x; exit 7"))["failure"]
        elif what == "timed out":
            found = rig.drive("run", command=sh(STUBBORN), timeout=chosen.choice([0.3, 0.6, 1]))
            assert "did not end within" in found["failure"]
        elif what == "dropped":
            assert rig.drive("run", command=["true"])["failure"] is None
        else:
            process = drive_noted(rig, command=sh(STUBBORN))
            if what == "orphaned":
                os.kill(rig.tool_pid(), signal.SIGKILL)
                process.communicate(timeout=LONGEST)
            else:
                stop(process, signal.SIGKILL if what == "killed" else signal.SIGTERM)
        assert rig.default() == 1, what
        done[what] += 1
    return done


LONG = pytest.mark.skipif("SAFEUPDATE_SOAK" not in os.environ, reason="part of './dev soak'")


@pytest.mark.parametrize(
    "rounds",
    [
        pytest.param(12, id="short"),
        pytest.param(50, id="long", marks=[pytest.mark.soak, LONG]),
    ],
)
def test_after_a_storm_all_is_as_before(rig, rounds, capsys):
    seed = random.randrange(10**6)
    done = storm(rig, rounds, seed)
    rig.ok("transactional-update", "--non-interactive", "--drop-if-no-change", "run", "ls")
    assert rig.drive("run", command=["true"])["failure"] is None
    rig.assert_clean(1, [1])
    assert sum(done.values()) == rounds
    with capsys.disabled():
        print(f"\n{rounds} transactions (seed {seed}): {done}; no dead snapshot, default 1")
