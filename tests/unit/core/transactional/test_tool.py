"""Every exit status of the tool's contract, against what the default snapshot was and is."""

import os
import signal
import socket

import pytest

from saltext_safeupdate.core.errors import CommandError, InputError, LockHeldError, SafeUpdateError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.transactional import cli, closing, roots
from saltext_safeupdate.core.transactional.cli import Options
from saltext_safeupdate.core.transactional.invocation import Host, is_busy
from saltext_safeupdate.core.transactional.outcome import Limits
from saltext_safeupdate.core.transactional.tool import Tool

BUSY = "Couldn't get lock, is another instance already running?\n"
BASE = "ERROR: Base snapshot '99' does not exist.\n"


class FakeSystem:
    """A system with numbered snapshots; ``act`` is what the next call of the tool does."""

    def __init__(self, tmp_path, version):
        self.version, self.default, self.answer, self.after = version, 1, (0, "", ""), None
        self.calls, self.open, self.now = [], [], 0.0
        self.mountinfo = tmp_path / "mountinfo"
        self.mountinfo.write_text(
            "1 0 0:25 /@/.snapshots/1/snapshot / ro - btrfs /dev/vda ro,subvolid=261\n"
        )
        (tmp_path / "etc").mkdir()
        self.host = Host(
            base=tmp_path / "base",
            etc=tmp_path / "etc",
            mountinfo=self.mountinfo,
            pid_file=tmp_path / "pid",
            tukit_lock=tmp_path / "tukit",
            bus=tmp_path / "bus",
            snapshots=tmp_path / "snapshots",
        )
        for number in (1, 2):
            (self.host.snapshots / str(number) / "snapshot").mkdir(parents=True)

    def __call__(self, argv, *, timeout, ok=(0,), env=None, stdin=None, keep=None):
        argv = tuple(argv)
        if argv == cli.VERSION:
            return self.result(argv, 0, f"transactional-update {self.version}\n", "")
        if argv == roots.GET_DEFAULT:
            path = f"@/.snapshots/{self.default}/snapshot"
            return self.result(
                argv, 0, f"ID {260 + self.default} gen 9 top level 5 path {path}", ""
            )
        if argv[1] == "inspect-internal":
            number = int(argv[-1].split("/")[-2])
            return self.result(argv, 0, f"{260 + number}\n", "")
        if argv == roots.LIST:
            rows = [
                f'{{"number": {n}, "date": "d", "userdata": '
                f'{{"transactional-update-in-progress": "yes"}}}}'
                for n in self.open
            ]
            return self.result(argv, 0, f'{{"root": [{", ".join(rows)}]}}', "")
        self.calls.append(argv)
        if argv[0] == "snapper":
            return self.result(argv, 0, "", "")
        if argv[1] == "rollback" and self.after is not None and len(self.calls) > 1:
            self.default = int(argv[2])
            return self.result(argv, 0, "", "")
        answer = self.answer.pop(0) if isinstance(self.answer, list) else self.answer
        if self.after is not None:
            self.default = self.after
        return self.result(argv, *answer)

    @staticmethod
    def result(argv, code, stdout, stderr):
        return Result(argv=argv, returncode=code, stdout=stdout, stderr=stderr)

    def pause(self, seconds):
        self.now += seconds

    def tool(self):
        return Tool(run=self, environ={}, host=self.host, clock=lambda: self.now, pause=self.pause)


@pytest.fixture
def system(tmp_path):
    return FakeSystem(tmp_path, "6.1.1")


@pytest.mark.parametrize(
    ("answer", "after", "options", "failure"),
    [
        # ran, changed
        ((0, "out", ""), 2, {}, None),
        # ran, nothing changed: dropped
        ((0, "", ""), 1, {}, None),
        # must have left a snapshot
        ((0, "", ""), 1, {"drop_if_no_change": False}, "no new default snapshot"),
        # close failed with exit status 0
        ((0, "", "ERROR: Plugin failed\n"), 1, {}, "no new default snapshot"),
        ((0, "", "ERROR: said by the command\n"), 2, {}, None),
        # exit statuses of the command, of errno, of signals
        ((7, "", "Removing snapshot #2...\n"), 1, {}, "exit status 7"),
        ((1, "usage", ""), 1, {}, "exit status 1"),
        ((2, "", "Calling x failed: No such file or directory"), 1, {}, "exit status 2"),
        ((9, "", ""), 1, {}, "exit status 9"),
        ((13, "", ""), 1, {}, "exit status 13"),
        ((141, "", ""), 1, {}, "exit status 141"),
        ((1, "", BASE), 1, {}, "exit status 1"),
        # failed, and the default changed all the same
        ((1, "", ""), 2, {}, "Snapshot 2 is the default now all the same"),
    ],
)
def test_outcomes_since_5_5(system, answer, after, options, failure):
    system.answer, system.after = answer, after
    found = system.tool().run_command(["x"], Options(**options), Limits())
    if failure is None:
        assert found.failure is None
        assert found.check() is found
    else:
        assert failure in found.failure
        with pytest.raises(CommandError, match="transactional-update: "):
            found.check()
    assert found.new_default is (after == 2)
    assert len(system.calls) == 1  # and nothing was undone on a guess


def test_the_error_says_what_the_tool_printed_on_standard_output(system):
    """Usage goes to standard output, and standard error is empty then."""
    system.answer = (1, "Syntax: transactional-update [option...]", "")
    with pytest.raises(CommandError, match="Syntax"):
        system.tool().invoke(["dup"], Options(), Limits()).check()


def test_the_error_shows_both_streams(system):
    system.answer = (7, "3 of 4 done\n", "disk full\n")
    with pytest.raises(CommandError, match=r"exit status 7: 3 of 4 done\ndisk full"):
        system.tool().run_command(["x"], Options(), Limits()).check()


@pytest.mark.parametrize("version", ["5.4.0", "5.1.0", "4.8.3"])
@pytest.mark.parametrize("status", ["7\n", "-9\n", "127\n", None])
def test_a_failed_command_before_5_5_is_undone(tmp_path, version, status):
    """The tool returns 0 and makes the failed snapshot the default."""
    system = FakeSystem(tmp_path, version)
    system.after = 2

    def answer(argv, **kwargs):
        if "run" in argv and status is not None:
            place = argv[argv.index("-IS") + 2]
            with open(place, "w", encoding="ascii", opener=private) as file:
                file.write(status)
        return system(argv, **kwargs)

    tool = Tool(run=answer, environ={}, host=system.host, clock=lambda: 0.0, pause=system.pause)
    found = tool.run_command(["x", "a b"], Options(), Limits())
    assert found.failure.startswith("the command ")
    assert "The default is 1 as before. Its snapshot 2 was discarded" in found.failure
    assert (found.undone, system.default, found.new_default) == (2, 1, False)
    assert system.calls[0][-2:] == ("x", "a b")
    assert system.calls[1:] == [
        ("transactional-update", "rollback", "1"),
        ("snapper", "--no-dbus", "delete", "2"),
    ]


def private(path, flags):
    import os

    return os.open(path, flags, 0o600)


def test_since_5_5_what_the_tool_has_committed_is_undone_too(system):
    """The command returned 0, and nothing but that counts for the tool."""
    system.after = 2
    found = system.tool().invoke(["dup"], Options(), Limits(), failed=lambda: "it failed")
    assert found.failure == "it failed. The default is 1 as before. Its snapshot 2 was discarded"
    assert (found.undone, system.default) == (2, 1)


def test_a_default_that_existed_before_is_not_undone(system):
    """Somebody else went back to it meanwhile."""
    system.after, system.open = 2, [2]
    found = system.tool().invoke(["dup"], Options(), Limits(), failed=lambda: "it failed")
    assert (
        "it failed. Snapshot 2 is the default now all the same (before it was 1)" in found.failure
    )
    assert (found.undone, len(system.calls)) == (None, 1)


@pytest.mark.parametrize(
    ("snapshot", "base"), [(None, 1), ("continue", 2), (2, 2), (9, None)], ids=str
)
def test_what_a_call_has_made_the_default_is_looked_at(system, snapshot, base):
    system.default, system.after = 2, 3
    looked = []
    with closing.looked_at_by(looked.append):
        found = system.tool().invoke(["dup"], Options(snapshot=snapshot), Limits())
    assert (found.failure, found.after.default.number) == (None, 3)
    assert [at and at.number for at in looked] == [base]


def test_what_may_not_stay_is_undone(system):
    system.after = 2
    refusal = closing.Refusal(reason="It was rolled back here.", packages=["salt"])
    with closing.looked_at_by(lambda base: refusal):
        found = system.tool().invoke(["dup"], Options(), Limits())
    assert found.failure == (
        "It was rolled back here. The default is 1 as before. Its snapshot 2 was discarded"
    )
    assert (found.undone, system.default, found.refusal) == (2, 1, refusal)


def test_what_somebody_else_has_made_the_default_is_not_looked_at(system):
    system.after, system.open = 2, [2]
    with closing.looked_at_by(lambda base: pytest.fail("asked")):
        assert system.tool().invoke(["dup"], Options(), Limits()).failure is None


def test_a_default_that_is_gone_cannot_be_gone_back_to(system):
    system.after = 2
    (system.host.snapshots / "1/snapshot").rmdir()
    found = system.tool().invoke(["dup"], Options(), Limits(), failed=lambda: "it failed")
    assert (
        "it failed. Snapshot 2 is the default now all the same (before it was 1)" in found.failure
    )
    assert (found.undone, len(system.calls)) == (None, 1)


def test_a_snapshot_that_is_to_be_kept_is_named(tmp_path):
    system = FakeSystem(tmp_path, "5.1.0")
    system.after = 2
    found = system.tool().invoke(["dup"], Options(keep=True), Limits(), failed=lambda: "it failed")
    assert f"Its snapshot 2 was kept: look at {system.host.snapshots}/2/snapshot" in found.failure
    assert (found.kept, found.report()["kept_snapshot"], system.default) == (2, 2, 1)
    assert system.calls[-1][1] == "rollback"


@pytest.mark.parametrize(("daemon", "words"), [(True, ()), (False, ("--no-dbus",))])
def test_snapshots_are_deleted_through_the_daemon_where_there_is_one(system, daemon, words):
    with socket.socket(socket.AF_UNIX) as bus:
        if daemon:
            bus.bind(str(system.host.bus))
        system.after = 2
        system.tool().invoke(["dup"], Options(), Limits(), failed=lambda: "it failed")
    assert system.calls[-1] == ("snapper", *words, "delete", "2")


def test_a_snapshot_that_cannot_be_deleted_is_named(system):
    system.after = 2

    def stuck(argv, **kwargs):
        if argv[0] == "snapper" and "delete" in argv:
            raise CommandError(argv, "exit status 1", stderr="IO Error")
        return system(argv, **kwargs)

    tool = Tool(run=stuck, environ={}, host=system.host, pause=system.pause)
    found = tool.invoke(["dup"], Options(), Limits(), failed=lambda: "it failed")
    assert "snapshot 2 could not be deleted, which has to be done by hand" in found.failure
    assert "discarded" not in found.failure


@pytest.mark.parametrize(("pending", "live"), [(False, True), (True, False)])
def test_an_etc_change_is_live_only_on_the_running_snapshot(system, pending, live):
    system.default = 2 if pending else 1
    assert system.tool().invoke(["dup"], Options(), Limits()).live is live


def test_an_undo_that_fails_says_not_to_reboot(tmp_path):
    system = FakeSystem(tmp_path, "5.1.0")
    system.after = 2

    def stuck(argv, **kwargs):
        if argv[1] == "rollback":
            return Result(argv=tuple(argv), returncode=1, stdout="", stderr="")
        return system(argv, **kwargs)

    tool = Tool(run=stuck, environ={}, host=system.host, pause=system.pause)
    with pytest.raises(
        SafeUpdateError, match=r"Do not reboot: run transactional_update\.rollback 1"
    ):
        tool.run_command(["x"], Options(), Limits())


@pytest.mark.parametrize(
    ("result", "busy"),
    [
        ((1, "", BUSY), True),
        ((1, BUSY, ""), True),
        ((1, "", "ERROR: Another instance of tukit is already running\n"), True),
        ((1, "", "ERROR: Another instance of tukit is already running."), True),
        ((1, "the command said this too\n", BUSY), False),
        ((0, "", BUSY), False),
        ((1, "", ""), False),
        ((1, "", f"grep: {BUSY}"), False),
    ],
)
def test_is_busy(result, busy):
    assert is_busy(FakeSystem.result(("x",), *result)) is busy


def test_a_busy_tool_is_tried_again(system):
    system.answer = [(1, "", BUSY), (1, "", BUSY), (0, "", "")]
    assert system.tool().invoke(["dup"], Options(), Limits()).failure is None
    assert len(system.calls) == 3


def test_a_busy_tool_is_given_up(system):
    system.answer = (1, "", BUSY)
    with pytest.raises(LockHeldError, match=r"busy for 5 s.*nothing was changed.*lock_timeout"):
        system.tool().invoke(["dup"], Options(), Limits(lock_timeout=5))
    assert system.now >= 5


def test_a_held_lock_is_not_even_tried(system):
    import os

    system.host.pid_file.write_text(str(os.getpid()))
    with pytest.raises(LockHeldError, match=f"process {os.getpid()}"):
        system.tool().invoke(["dup"], Options(), Limits(lock_timeout=0))
    assert system.calls == []


def test_a_killed_tool_leaves_no_open_snapshot(system):
    system.open = [5]  # of an earlier crash: not ours

    def killed(argv, **kwargs):
        if argv[0] == "transactional-update" and argv[1] != "--version":
            system.open = [5, 6]
            return Result(argv=tuple(argv), returncode=-signal.SIGKILL, stdout="", stderr="")
        return system(argv, **kwargs)

    tool = Tool(run=killed, environ={}, host=system.host, pause=system.pause)
    found = tool.invoke(["dup"], Options(), Limits())
    assert "killed by signal 9" in found.failure
    assert system.calls == [("snapper", "--no-dbus", "delete", "6")]


def _left(system):
    """Return what is left of a call that was killed in snapshot 2."""
    left = system.host.base / ("f" * 32)
    system.host.base.mkdir(mode=0o700)
    left.mkdir(mode=0o700)
    (left / "snapshot").write_text("2 262")
    system.open = [2]
    return left


def test_what_a_reboot_left_open_is_removed_without_a_call(system):
    assert system.tool().sweep(), "there is nothing"
    left = _left(system)
    assert system.tool().sweep()
    assert system.calls == [("snapper", "--no-dbus", "delete", "2")]
    assert not left.exists()


def test_what_a_tool_without_its_caller_works_in_is_left_alone(system):
    left = _left(system)
    system.host.pid_file.write_text(str(os.getpid()))
    assert not system.tool().sweep()
    assert (system.calls, left.exists()) == ([], True)
    system.host.pid_file.unlink()
    assert system.tool().sweep()


@pytest.mark.parametrize(
    ("note", "open_now", "deleted"),
    [("2 262", [2], True), ("2 999", [2], False), ("2 262", [], False), ("x", [2], False)],
)
def test_what_a_killed_call_left_open_is_removed_by_the_next(system, note, open_now, deleted):
    system.open = open_now
    left = system.host.base / ("f" * 32)
    system.host.base.mkdir(mode=0o700)
    left.mkdir(mode=0o700)
    (left / "snapshot").write_text(note)
    assert system.tool().invoke(["dup"], Options(), Limits()).failure is None
    assert (("snapper", "--no-dbus", "delete", "2") in system.calls) is deleted
    assert not left.exists()


def test_a_tool_that_cannot_be_started(system):
    def missing(argv, **kwargs):
        if "dup" in argv:
            raise CommandError(argv, "cannot be started: No such file or directory")
        return system(argv, **kwargs)

    tool = Tool(run=missing, environ={}, host=system.host, pause=system.pause)
    with pytest.raises(CommandError, match="cannot be started"):
        tool.invoke(["dup"], Options(), Limits()).check()


@pytest.mark.parametrize(
    ("snapshot", "answer", "after", "failure"),
    [
        (None, (0, "", ""), 1, None),
        (2, (0, "", ""), 2, None),
        ("last", (0, "", ""), 3, None),
        (2, (0, "", ""), 1, "the default snapshot is 1, not 2"),
        (1, (1, "Active snapshot is already default snapshot.\n", ""), 1, None),
        (99, (1, "", "ERROR: Snapshot '99' does not exist.\n"), 1, "exit status 1"),
    ],
)
def test_rollback(system, snapshot, answer, after, failure):
    system.answer, system.after = answer, after
    found = system.tool().rollback(snapshot, Limits())
    assert (found.failure or "").endswith("") if failure is None else failure in found.failure
    assert (found.failure is None) is (failure is None)
    assert system.calls[0][:2] == ("transactional-update", "rollback")


def test_nesting_is_refused(system):
    tool = Tool(run=system, environ={"TRANSACTIONAL_UPDATE": "true"}, host=system.host)
    for call in (
        lambda: tool.invoke(["dup"], Options(), Limits()),
        lambda: tool.run_command(["x"], Options(), Limits()),
    ):
        with pytest.raises(InputError, match="transactions do not nest"):
            call()
    assert system.calls == []


@pytest.mark.parametrize("value", [-1, "x", True, float("inf"), float("nan"), 10**9])
@pytest.mark.parametrize("name", ["timeout", "lock_timeout"])
def test_limits_are_seconds(name, value):
    with pytest.raises(InputError, match=name):
        Limits(**{name: value})
