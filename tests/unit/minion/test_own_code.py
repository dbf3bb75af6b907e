"""The main process reads its own copy of its code, or works as it does otherwise."""

import os
import pathlib
import sys

import pytest
import salt

from saltext_safeupdate.core.errors import CommandError, InputError
from saltext_safeupdate.core.generations import own_tree
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs import guard_file
from saltext_safeupdate.core.slots.store import Slots
from saltext_safeupdate.minion import own_code
from tests.support import builds
from tests.support.guarded import have_guard
from tests.support.this_host import SimulatedHost, opts


class World:
    def __init__(self, path, **settings):
        self.root = path / "tree" / "salt"
        self.root.mkdir(parents=True)
        (self.root / "a.py").touch()
        given = opts(path)
        given["safeupdate"] |= settings
        self.host, self.redirected = SimulatedHost(given), []
        self.host.own_roots = lambda: (str(self.root),)

    def take(self):
        own_code.take(self.host, self.redirected.append)

    def start(self):
        self.take()
        own_code.read()

    @property
    def copies(self):
        return [name for name in os.listdir(self.root.parent) if name != "salt"]


@pytest.fixture(autouse=True)
def process(monkeypatch, tmp_path):
    held = []
    have_guard(monkeypatch, tmp_path)
    monkeypatch.setattr(own_code, "_tried", [])
    monkeypatch.setattr(own_code, "_unread", [])
    monkeypatch.setattr(own_tree, "_held", held)
    yield held
    for fd in held:
        os.close(fd)


def test_it_reads_a_copy_of_its_own(tmp_path):
    world = World(tmp_path)
    world.start()
    copies = own_tree.of([str(world.root)], processes.me())
    assert world.redirected == [copies]
    assert list(copies) == [str(world.root)]
    assert own_tree.is_read()


@pytest.mark.parametrize(
    ("root", "code"),
    [
        ("{tree}", "lib/python3.11/site-packages/salt"),
        ("{tree}/lib/salt", "lib/salt"),
        # Wheels start with a Python of the host, which may have a directory of its own.
        ("/opt/python3.11", "lib/salt"),
    ],
    ids=["onedir", "wheels", "wheels and another Python"],
)
def test_from_a_slot_it_copies_nothing_and_keeps_the_slot(
    tmp_path, process, monkeypatch, root, code
):
    world = World(tmp_path, slots_dir=str(tmp_path / "slots"))
    slots = Slots(world.host.settings.slots_dir)
    path = builds.tarball(tmp_path / "it.tar.xz", builds.onedir())
    slot = slots.stage(builds.parsed(path), {"it.tar.xz": path})
    world.root = pathlib.Path(root.format(tree=slot.tree))
    monkeypatch.setattr(salt, "__file__", f"{slot.tree}/{code}/__init__.py")
    world.take()
    assert own_tree.is_read()
    assert world.redirected == []
    assert [name for name in os.listdir(os.path.dirname(slot.tree)) if "safeupdate" in name] == []
    assert slots.prune(0) == []
    with pytest.raises(InputError, match="a minion still runs from it"):
        slots.forget(slot.ident)
    os.close(process.pop())
    assert slots.prune(0) == [slot.ident]


def test_from_a_slot_that_is_just_removed_it_goes_on(tmp_path, caplog, monkeypatch):
    world = World(tmp_path, slots_dir=str(tmp_path / "slots"))
    world.root = tmp_path / "slots" / "slots" / "gone" / "tree"
    monkeypatch.setattr(salt, "__file__", f"{world.root}/lib/salt/__init__.py")
    world.take()
    assert not own_tree.is_read()
    assert "this minion reads no copy of its code" in caplog.text


def test_it_is_read_when_the_minion_is_ready_and_by_children_from_their_begin(tmp_path):
    world = World(tmp_path)
    world.take()
    assert world.copies, "it is copied before"
    pid = os.fork()
    if not pid:
        os._exit(len(world.redirected))
    of_child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert (of_child, world.redirected) == (1, [])
    own_code.read()
    own_code.read()
    assert len(world.redirected) == 1
    pid = os.fork()
    if not pid:
        os._exit(len(world.redirected))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1, "it has that of its parent"


def test_once_whatever_number_of_masters_it_has(tmp_path):
    world = World(tmp_path)
    world.start()
    world.start()
    assert len(world.redirected) == len(world.copies) == 1


def test_only_if_it_is_handed_over(tmp_path, caplog):
    world = World(tmp_path, restart="wait")
    world.start()
    assert world.copies == world.redirected == []
    assert caplog.text == ""


@pytest.mark.parametrize(
    "lacks",
    [
        lambda world: os.unlink(guard_file.path("salt-minion")),
        lambda world: os.unlink(guard_file.GROUPS),
        lambda world: world.host.opts.update(multiprocessing=False),
        lambda world: world.host.opts.update(ipc_mode="tcp"),
    ],
    ids=["guard", "control groups", "processes", "sockets"],
)
def test_where_that_is_not_possible_nothing_is_copied_and_nothing_said(tmp_path, caplog, lacks):
    world = World(tmp_path)
    lacks(world)
    world.start()
    assert world.copies == world.redirected == []
    assert caplog.text == ""


def test_if_the_guard_was_written_for_another_setting_nothing_is_copied(tmp_path, monkeypatch):
    have_guard(monkeypatch, tmp_path, "wait")
    world = World(tmp_path)
    world.start()
    assert world.copies == []


def test_on_a_transactional_system_there_is_nothing_to_copy_or_to_say(tmp_path, caplog):
    world = World(tmp_path)
    world.host.own_roots = tuple
    world.start()
    assert world.copies == world.redirected == []
    assert caplog.text == ""


def test_the_grain_that_is_the_path_itself_stays(tmp_path):
    world = World(tmp_path)
    world.host.opts["grains"] = {"pythonpath": sys.path}
    world.start()
    assert world.host.opts["grains"] == {"pythonpath": sys.path}
    assert world.host.opts["grains"]["pythonpath"] is not sys.path


def _no_space(roots, process):
    raise OSError(28, "No space left on device")


def _unknown():
    raise CommandError(("btrfs",), "it is broken")


@pytest.mark.parametrize(
    ("breaks", "said"),
    [
        (lambda world, patch: patch.setattr(own_tree, "make", _no_space), "No space left"),
        (lambda world, patch: patch.setattr(world.host, "own_roots", _unknown), "broken"),
        (
            lambda world, patch: patch.setitem(
                world.host.opts, "cachedir", f"{world.root}/var/cache"
            ),
            "cachedir",
        ),
    ],
)
def test_without_a_copy_it_starts_and_says_so_once(tmp_path, monkeypatch, caplog, breaks, said):
    world = World(tmp_path)
    breaks(world, monkeypatch)
    world.start()
    world.start()
    assert world.redirected == world.copies == []
    assert not own_tree.is_read()
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert said in caplog.text


def test_those_that_have_ended_are_looked_for_now_and_then(tmp_path):
    world, now = World(tmp_path), [0.0]
    sweep = own_code.Sweep(world.host, lambda: now[0])
    for at, left in ((0, 0), (30, 1), (61, 0)):
        now[0] = at
        sweep()
        assert len(world.copies) == left
        os.makedirs(f"{world.root.parent}/.salt-safeupdate-g1.2.3-salt", exist_ok=True)
