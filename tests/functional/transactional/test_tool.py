"""The core against a real btrfs root: every row of the tool's contract that can lose something."""

import json
import os
import signal

import pytest

from tests.support.waiting import LONGEST, wait_for

from .conftest import WAITER

pytestmark = pytest.mark.soak

MODERN, OLD, OVERLAY = "6.1.1", "5.1.0", "4.8.3"
VERSIONS = [MODERN, OLD, OVERLAY]


@pytest.fixture(params=VERSIONS)
def any_version(rig, request):
    rig.version(request.param)
    return rig


@pytest.fixture(params=[MODERN, OLD])
def both(rig, request):
    rig.version(request.param)
    return rig


def sh(script):
    return ["sh", "-c", script]


def test_a_change_is_the_new_default(any_version):
    rig = any_version
    found = rig.drive("run", command=sh("echo new > /data/x; echo said"))
    assert (found["failure"], found["stdout"]) == (None, "said\n")
    assert (found["new_snapshot"], found["pending"], found["live"]) == (2, True, False)
    assert rig.in_snapshot(2, "/data/x").read_text() == "new\n"
    assert not rig.path("/data/x").exists()
    rig.assert_clean(2, [1, 2])
    rig.boot()
    assert rig.path("/data/x").read_text() == "new\n"
    assert rig.drive("status")["pending"] is False


def test_no_change_drops_the_snapshot_and_arguments_arrive_as_they_are(any_version):
    words = ["a b", "", "'", '"', "\\n", "line\nbreak", "$HOME", "ü✓", "*", ";"]
    script = "import sys, json; print(json.dumps(sys.argv[1:]))"
    found = any_version.drive("run", command=["/usr/bin/python3", "-c", script, *words])
    assert json.loads(found["stdout"]) == words
    assert (found["failure"], found["new_snapshot"], found["pending"]) == (None, None, False)
    any_version.assert_clean(1, [1])


def test_a_failed_command_is_an_error_and_nothing_stays(any_version):
    for script, words in (
        ("echo half > /data/x; echo why >&2; exit 7", "exit status 7"),
        ("echo half > /data/x; kill -9 $$", "9"),
        ("echo half > /data/x; exit 1", "exit status 1"),
    ):
        found = any_version.drive("run", command=sh(script))
        assert words in found["failure"]
        assert (found["pending"], found["discarded"]) == (False, True)
        any_version.assert_clean(1, [1])
    assert any_version.drive("run", command=["/no/such/program"])["failure"]
    any_version.assert_clean(1, [1])


def test_an_etc_change_alone_is_live(any_version):
    found = any_version.drive("run", command=sh("echo x > /etc/changed"))
    assert (found["failure"], found["new_snapshot"], found["live"]) == (None, None, True)
    assert any_version.path("/etc/changed").read_text() == "x\n"
    any_version.assert_clean(1, [1])


def test_the_pending_snapshot_is_the_base_of_continue(rig):
    rig.drive("run", command=sh("echo 1 > /data/one"))
    found = rig.drive("run", command=sh("ls /data > /data/two"), snapshot="continue")
    assert found["new_snapshot"] == 3
    assert rig.in_snapshot(3, "/data/two").read_text() == "one\ntwo\n"
    found = rig.drive("run", command=sh("ls /data > /data/three"), snapshot=1)
    assert rig.in_snapshot(found["new_snapshot"], "/data/three").read_text() == "three\n"


def test_an_etc_change_on_a_pending_base_waits_for_the_reboot(rig):
    rig.drive("run", command=sh("echo 1 > /data/one"))
    found = rig.drive("run", command=sh("echo x > /etc/changed"), snapshot="continue")
    assert (found["failure"], found["new_snapshot"], found["live"]) == (None, None, False)
    assert not rig.path("/etc/changed").exists()
    rig.boot()
    assert rig.path("/etc/changed").exists()


def test_a_missing_base_is_an_error(both):
    found = both.drive("run", command=["true"], snapshot=99)
    assert found["failure"]
    assert "does not exist" in found["stderr"]
    both.assert_clean(1, [1])


def test_a_failed_etc_change_before_5_5_says_that_it_is_live(both):
    found = both.drive("run", command=sh("echo x > /etc/changed; exit 3"))
    assert "exit status 3" in found["failure"]
    assert found["etc_leaked"] is both.path("/etc/changed").exists()
    assert ("/etc to the live system" in found["effect"]) is found["etc_leaked"]


def test_a_close_that_fails_with_exit_status_0_is_an_error(any_version):
    any_version.fault("close-fails")
    found = any_version.drive("run", command=sh("echo x > /data/x"))
    assert found["returncode"] == 0
    assert "there is no new default snapshot" in found["failure"]
    any_version.assert_clean(1, [1])


def test_a_close_that_fails_is_an_error_without_dropping_too(rig):
    rig.fault("close-fails")
    found = rig.drive("run", command=["true"], drop_if_no_change=False)
    assert "there is no new default snapshot" in found["failure"]


def test_a_kept_snapshot_of_a_failed_command_is_not_the_default(rig):
    found = rig.drive("run", command=sh("echo x > /data/x; exit 7"), keep=True)
    assert (
        "exit status 7. Its snapshot 2 was kept: look at /.snapshots/2/snapshot" in found["failure"]
    )
    assert found["kept_snapshot"] == 2
    assert (rig.default(), rig.numbers()) == (1, [1, 2])
    assert rig.drive("status")["crashed"] == [2]


def test_a_number_used_again_is_another_snapshot(rig):
    assert rig.drive("run", command=["true"])["new_snapshot"] is None
    rig.drive("run", command=sh("echo 1 > /data/x"))
    rig.drive("rollback")
    rig.ok("snapper", "delete", "2")
    assert (rig.default(), rig.numbers()) == (1, [1])
    found = rig.drive("run", command=sh("echo 2 > /data/x"))
    assert (found["new_snapshot"], found["failure"]) == (2, None)
    assert rig.in_snapshot(2, "/data/x").read_text() == "2\n"


def test_the_same_number_as_before_is_seen_as_new(rig):
    """The default is 2, goes away inside the call, and 2 is the default again, made anew."""
    rig.drive("run", command=sh("echo 1 > /data/x"))
    found = rig.python(
        "import json\n"
        "from saltext_safeupdate.core.transactional.tool import Tool\n"
        "from saltext_safeupdate.core.host.command import run\n"
        "before = Tool().roots()\n"
        "run(('transactional-update', 'rollback'), timeout=60)\n"
        "run(('snapper', 'delete', '2'), timeout=60)\n"
        "run(('transactional-update', 'run', 'touch', '/data/y'), timeout=60)\n"
        "after = Tool().roots()\n"
        "print(json.dumps([before.default.number, after.default.number,"
        " before.default == after.default]))"
    )
    assert found == [2, 2, False]


def test_a_busy_tool_is_waited_for(both):
    first = both.drive_started("run", command=sh(WAITER + "echo 1 > /data/first"))
    second = both.start(
        *both.drive_argv("run", command=sh("ls /data > /data/second"), snapshot="continue")
    )
    both.go()
    results = [json.loads(process.communicate(timeout=LONGEST)[0]) for process in (first, second)]
    assert [found["failure"] for found in results] == [None, None]
    assert [found["new_snapshot"] for found in results] == [2, 3]
    assert both.in_snapshot(3, "/data/second").read_text() == "first\nsecond\n"
    both.assert_clean(3, [1, 2, 3])


def test_a_tool_that_somebody_else_started_is_waited_for(rig):
    other = rig.start("transactional-update", "run", *sh(WAITER + "echo 1 > /data/other"))
    wait_for(rig.path("/var/cache/started").exists, "the other transaction runs")
    status = rig.drive("status")
    assert (status["lock_holder"], status["open"], status["crashed"]) == (rig.tool_pid(), [2], [])
    refused = rig.drive("run", command=["true"], lock_timeout=0)
    assert refused["error"] == "LockHeldError"
    assert f"process {rig.tool_pid()}" in refused["message"]
    ours = rig.start(*rig.drive_argv("run", command=sh("touch /data/ours"), snapshot="continue"))
    rig.go()
    other.communicate(timeout=LONGEST)
    assert json.loads(ours.communicate(timeout=LONGEST)[0])["new_snapshot"] == 3


def test_a_busy_tukit_is_waited_for_and_given_up(rig):
    rig.fault("tukit-busy")
    found = rig.drive("run", command=["true"], lock_timeout=0.3)
    assert found["error"] == "LockHeldError"
    assert "was busy for 0.3 s" in found["message"]
    ours = rig.start(*rig.drive_argv("run", command=sh("touch /data/ours")))
    wait_for(lambda: len(rig.tool_argv()) > 4, "the tool was tried again")
    rig.path("/run/rig/tukit-busy").unlink()
    assert json.loads(ours.communicate(timeout=LONGEST)[0])["new_snapshot"] == 2


def test_a_hung_command_that_ignores_sigterm_ends_too(rig):
    script = "trap '' TERM; while :; do sleep 0.1; done"
    found = rig.drive("run", command=sh(script), timeout=0.5)
    assert "did not end within" in found["failure"]
    rig.assert_clean(1, [1])


def test_a_command_that_leaves_its_group_ends_too(rig):
    script = "setsid sh -c 'touch /var/cache/started; sleep 1000' & wait"
    found = rig.drive("run", command=sh(script), timeout=1)
    assert "did not end within" in found["failure"]
    rig.assert_clean(1, [1])


def test_sigterm_to_the_tool_discards(both):
    process = both.drive_started("run", command=sh(WAITER + "echo x > /data/x"))
    os.kill(both.tool_pid(), signal.SIGTERM)
    both.go()
    found = json.loads(process.communicate(timeout=LONGEST)[0])
    assert "exit status 1" in found["failure"]
    both.assert_clean(1, [1])


def test_sigkill_to_the_tool_leaves_nothing_open(both):
    process = both.drive_started("run", command=sh(WAITER + "echo x > /data/x"))
    os.kill(both.tool_pid(), signal.SIGKILL)
    found = json.loads(process.communicate(timeout=LONGEST)[0])
    assert "was killed while it worked" in found["failure"]
    both.path("/run/transactional-update.pid").unlink()  # stale; the tool takes it over
    both.assert_clean(1, [1])
    assert both.drive("run", command=["true"])["failure"] is None


def test_sigterm_to_the_caller_leaves_nothing_open(both):
    process = both.drive_started("run", command=sh(WAITER + "echo x > /data/x"))
    process.terminate()
    process.communicate(timeout=LONGEST)
    assert process.returncode == 143
    both.assert_clean(1, [1])


def test_sigkill_to_the_caller_lets_the_tool_finish(rig):
    rig.version(OLD)  # the one that has a hand-over of its own
    process = rig.drive_started("run", command=sh(WAITER + "echo x > /data/x"))
    process.kill()
    process.communicate()
    assert rig.drive("status")["lock_holder"] == rig.tool_pid()
    rig.go()
    wait_for(lambda: rig.default() == 2, "the tool finishes")
    wait_for(lambda: not rig.path("/run/transactional-update.pid").exists(), "and lets go")
    left = [path.name for path in rig.path("/var/cache/salt-safeupdate").iterdir()]
    assert len(left) == 2
    assert rig.drive("run", command=["true"])["failure"] is None
    rig.assert_clean(2, [1, 2])


def test_a_full_disk_before_and_during(full):
    script = "dd if=/dev/zero of=/data/fill bs=1M status=none"
    found = full.drive("run", command=sh(script))
    assert found["failure"]
    assert "No space left" in found["stderr"]
    full.assert_clean(1, [1])

    full.system.run("sh", "-c", "dd if=/dev/zero of=/var/fill bs=64k status=none")
    full.system.run("sh", "-c", "i=0; while echo $i > /var/log/$i; do i=$((i+1)); done")
    found = full.drive("run", command=sh("echo x > /data/x"))
    assert "No space left" in (found.get("message") or (found["failure"] and found["stderr"]))
    assert (full.default(), full.numbers()) == (1, [1])


def test_a_child_that_keeps_running_is_ended_and_the_result_stands(both):
    found = both.drive("run", command=sh("echo x > /data/x; sleep 1000 & exit 0"))
    assert (found["failure"], found["new_snapshot"]) == (None, 2)


def test_edits_of_the_live_etc_that_cannot_be_put_back_are_reported_and_kept(rig):
    rig.path("/etc/edited").write_text("before\n")
    rig.path("/etc/removed").write_text("before\n")
    changes = "for name in edited created removed; do echo x > /etc/$name; done"
    process = rig.drive_started("run", command=sh(WAITER + changes))
    rig.path("/etc/edited").write_text("an administrator was here\n")
    rig.path("/etc/created").write_text("and here\n")
    rig.path("/etc/removed").unlink()
    copies = rig.path("/var/cache/salt-safeupdate")
    wait_for(lambda: len(list(copies.glob("etc-edits-*/*"))) == 2, "the edits are seen")
    rig.go()
    found = json.loads(process.communicate(timeout=LONGEST)[0])
    assert rig.path("/etc/edited").read_text() == "x\n"  # the transaction changed it, too
    assert set(found["lost_etc_edits"]) == {"/etc/edited", "/etc/created", "/etc/removed"}
    kept = rig.path(found["etc_copies"])
    assert kept.stat().st_mode & 0o777 == 0o700
    texts = {path.name: path.read_text() for path in kept.iterdir()}
    assert texts == {
        "etc%edited": "an administrator was here\n",
        "etc%created": "and here\n",
    }
    assert {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o600}


def test_edits_of_the_live_etc_that_stay_are_not_reported(rig):
    process = rig.drive_started("run", command=sh(WAITER + "echo x > /data/x"))
    rig.path("/etc/created").write_text("stays\n")
    copies = rig.path("/var/cache/salt-safeupdate")
    wait_for(lambda: list(copies.glob("etc-edits-*/*")), "the edit is seen")
    rig.go()
    found = json.loads(process.communicate(timeout=LONGEST)[0])
    assert (found["failure"], found["lost_etc_edits"], found["etc_copies"]) == (None, {}, None)
    rig.assert_clean(2, [1, 2])


def test_rollback(both):
    both.drive("run", command=sh("echo x > /data/x"))
    assert both.drive("rollback", snapshot=99)["failure"]
    assert both.default() == 2
    assert both.drive("rollback")["default"] == 1
    assert both.drive("rollback", snapshot=1)["failure"] is None  # is the default already
    assert both.drive("rollback", snapshot=2)["default"] == 2
    assert both.drive("rollback", snapshot="last")["failure"] is None


@pytest.mark.parametrize("words", [["dup"], ["pkg", "install", "emacs"], ["initrd"], ["grub.cfg"]])
def test_the_other_subcommands_make_a_snapshot(rig, words):
    found = rig.drive("invoke", words=words)
    assert (found["failure"], found["new_snapshot"]) == (None, 2)
    assert rig.in_snapshot(2, "/data/changes").read_text() == " ".join(words) + "\n"
    general = ["--non-interactive", "--drop-if-no-change", "--no-selfupdate"]
    assert rig.tool_argv()[-1] == [*general, *words]
