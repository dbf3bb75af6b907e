"""Which commands an update of the minion gives a transactional system."""

import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.extensions import supervisor_copy
from saltext_safeupdate.core.transactional import cli
from saltext_safeupdate.core.transactional.invocation import Host
from saltext_safeupdate.core.transactional.roots import Roots, Subvolume
from saltext_safeupdate.core.transactional.snapshots import Snapshots

ONE, TWO = Subvolume(1, 261), Subvolume(2, 262)


class FakeTool:
    """The way to the tool: snapshot 1 runs, and nothing waits."""

    def __init__(self, base):
        self.host = Host(base=base)
        self.now = Roots(running=ONE, default=ONE)
        self.calls, self.seen = [], []
        self.failure = None

    def roots(self):
        return self.now

    def lock_holder(self):
        return None

    def run_command(self, words, options, limits):
        self.calls.append((words, options))
        self.seen = sorted(os.listdir(pathlib.Path(words[-1]).parent))
        return self

    def rollback(self, number, limits):
        self.calls.append(("rollback", number))
        return self

    def check(self):
        if self.failure:
            raise CommandError(("transactional-update",), self.failure)


class FakeRun:
    """btrfs knows snapshots by their ids; every other program succeeds."""

    def __init__(self):
        self.idents = {}

    def __call__(self, argv, *, timeout, **kwargs):
        result = type("Result", (), {"stdout": "", "returncode": 0})()
        if argv[0] == "btrfs":
            result.stdout = f"{self.idents[argv[-1]]}\n"
        return result


@pytest.fixture
def tool(tmp_path):
    return FakeTool(tmp_path / "cache")


@pytest.fixture
def snapshots(tool, tmp_path):
    return Snapshots(FakeRun(), tool, str(tmp_path / "snapshots"))


def _there(snapshots, number, ident):
    path = os.path.join(snapshots.place, str(number), "snapshot")
    os.makedirs(path)
    snapshots._run.idents[path] = ident


@pytest.fixture
def packages(tmp_path):
    found = []
    for name in ("salt.rpm", "salt-minion.rpm"):
        (tmp_path / name).write_text(name)
        found.append(str(tmp_path / name))
    return found


def test_packages_are_installed_from_a_place_that_the_snapshot_sees(snapshots, tool, packages):
    snapshots.install(packages)
    (words, options) = tool.calls[0]
    assert words[1:3] == ["-I", "-B"]
    assert words[3].endswith("/core/transactional/programs/installer.py")
    assert words[4] == "--"
    assert [os.path.basename(path) for path in words[5:]] == ["salt.rpm", "salt-minion.rpm"]
    assert all(path.startswith(str(tool.host.base)) for path in (words[3], *words[5:]))
    assert [name for name in tool.seen if name.endswith(".rpm")] == ["salt-minion.rpm", "salt.rpm"]
    # What changes nothing is a failure here, and nothing is left of it afterwards.
    assert options.drop_if_no_change is False
    assert options.snapshot is None
    assert os.listdir(tool.host.base) == []


def test_the_line_is_one_that_the_tool_takes(snapshots, tool, packages):
    snapshots.install(packages)
    words, options = tool.calls[0]
    line = cli.build(["run", *words], options, (6, 1, 1))
    assert line[:4] == ("transactional-update", "--non-interactive", "--no-selfupdate", "run")


@pytest.mark.parametrize("strict", [True, False])
def test_what_is_beside_salt_goes_along(snapshots, tool, packages, tmp_path, strict):
    staged = tmp_path / "staged"
    staged.mkdir()
    snapshots.install(packages, extensions=str(staged), program="/usr/bin/salt", strict=strict)
    words = tool.calls[0][0][4:-3]
    assert words[:2] == ["--program", "/usr/bin/salt"]
    assert words[2] == "--extensions"
    assert ("--strict" in words) is strict


def test_a_failed_installation_is_an_error(snapshots, tool, packages):
    tool.failure = "exit status 1"
    with pytest.raises(CommandError, match="exit status 1"):
        snapshots.install(packages)
    assert os.listdir(tool.host.base) == []


def test_the_copy_of_the_core_is_whole(tmp_path):
    home = pathlib.Path(supervisor_copy.make(str(tmp_path))).parent
    assert (home / "transactional" / "programs" / "installer.py").is_file()
    assert (home / "transactional" / "install.py").is_file()


def test_what_runs_and_what_waits(snapshots, tool):
    assert (snapshots.running(), snapshots.pending) == ({"number": 1, "ident": 261}, False)
    assert snapshots.next_root is None
    tool.now = Roots(running=ONE, default=TWO)
    assert (snapshots.default(), snapshots.pending) == ({"number": 2, "ident": 262}, True)
    assert snapshots.next_root == os.path.join(snapshots.place, "2", "snapshot")


def test_going_back(snapshots, tool):
    tool.now = Roots(running=TWO, default=TWO)
    _there(snapshots, 1, 261)
    snapshots.go_back({"number": 1, "ident": 261})
    assert tool.calls == [("rollback", 1)]


def test_going_back_to_what_is_the_default_does_nothing(snapshots, tool):
    snapshots.go_back({"number": 1, "ident": 261})
    assert tool.calls == []


@pytest.mark.parametrize("there", [None, 999], ids=["gone", "another one of that number"])
def test_going_back_to_what_is_gone(snapshots, tool, there):
    tool.now = Roots(running=TWO, default=TWO)
    if there is not None:
        _there(snapshots, 1, there)
    with pytest.raises(CommandError, match="snapshot 1, which is to be the default again, is gone"):
        snapshots.go_back({"number": 1, "ident": 261})
    assert tool.calls == []
