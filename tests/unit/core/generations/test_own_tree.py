"""A generation has its own copy of its code for as long as one of its processes lives."""

import errno
import os
import pathlib
import shutil
import sys
import time
import types

import pytest

from saltext_safeupdate.core.generations import own_tree
from saltext_safeupdate.core.host import linked_copy, processes
from saltext_safeupdate.core.host.linked_copy import Bounds
from tests.support.forked import forked

OTHER = "0b00-1:18:500"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(own_tree, "_held", [])
    root = tmp_path / "salt"
    (root / "modules").mkdir(parents=True)
    for name in ("version.py", "modules/a.py", "modules/b.py"):
        (root / name).write_text(name)
    yield str(root)
    dies()


@pytest.fixture
def me():
    return processes.me()


def later():
    """A clock by which nothing has changed a moment ago."""
    return time.time() + 3600


def make(root, process, bounds=None):
    return own_tree.make([root], process, bounds, later)


def sweep(root):
    own_tree.sweep([root], clock=later)


def dies():
    """The kernel closes what the process has open."""
    while own_tree._held:
        os.close(own_tree._held.pop())


def beside(root):
    return sorted(name for name in os.listdir(os.path.dirname(root)) if name != "salt")


def replace(root, name="modules/a.py"):
    """Put another file in the place of one, as package managers do."""
    path = pathlib.Path(root, name)
    fresh = path.with_suffix(".dpkg-new")
    fresh.write_text("new")
    fresh.rename(path)


def test_it_is_found_by_the_process_that_holds_it(root, me):
    copies = make(root, me)
    assert own_tree.of([root], me) == copies
    assert own_tree.of([f"{root}/modules"], me) == {}
    assert os.path.samefile(f"{copies[root]}/version.py", f"{root}/version.py")
    dies()
    assert own_tree.of([root], me) == own_tree.of([root], OTHER) == {}


def test_it_is_found_by_another_process(root, me):
    def other(hear, say):
        own_tree.make([root], processes.me(), None, later)
        say("made")
        hear()

    with forked(other) as child:
        assert child.hear() == "made"
        found = own_tree.of([root], processes.identity(child.pid))
        assert list(found) == [root]
        assert own_tree.of([root], me) == {}
        dead = processes.identity(child.pid)
    assert own_tree.of([root], dead) == {}


def test_what_another_user_has_open_is_not_known(root, me, monkeypatch):
    def refuse(pid):
        raise PermissionError(errno.EACCES, "Permission denied")

    make(root, me)
    monkeypatch.setattr(processes, "opened", refuse)
    assert own_tree.of([root], me) == {}


def test_the_next_generation_takes_the_one_that_there_is(root, me, monkeypatch):
    first = make(root, me)
    dies()
    monkeypatch.setattr(linked_copy, "make", lambda *args, **kwargs: pytest.fail("made again"))
    assert make(root, OTHER) == first
    dies()
    sweep(root)
    assert make(root, me) == first
    assert own_tree.of([root], me) == first


def test_the_next_generation_lists_no_directory(root, me, monkeypatch):
    first = make(root, me)
    monkeypatch.setattr(own_tree.os, "scandir", lambda path: pytest.fail(f"{path} is listed"))
    assert make(root, OTHER) == first


@pytest.mark.parametrize("content", [None, b"", b"\0modules", b"none", b"modules\0" * 3])
def test_a_list_that_is_damaged_is_written_again(root, me, monkeypatch, content):
    first = make(root, me)
    path = pathlib.Path(first[root], own_tree._LIST)
    whole = path.read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    assert make(root, OTHER) == first
    assert path.read_bytes() == whole


@pytest.mark.parametrize("what", ["replaced", "added", "removed", "directory", "the root's own"])
def test_it_makes_another_one_if_the_code_has_changed(root, me, what):
    before = make(root, me)[root]
    if what == "replaced":
        replace(root)
    elif what == "added":
        pathlib.Path(root, "modules/new.py").write_text("new")
    elif what == "removed":
        pathlib.Path(root, "modules/b.py").unlink()
    elif what == "directory":
        shutil.copytree(f"{root}/modules", f"{root}/more")
        shutil.rmtree(f"{root}/modules")
    else:
        replace(root, "version.py")
    os.utime(f"{root}/modules" if what != "directory" else f"{root}/more", (1, 1))
    now = make(root, OTHER)[root]
    assert now != before
    assert sorted(map(str, pathlib.Path(now).rglob("*.py"))) == sorted(
        str(path).replace(root, now) for path in pathlib.Path(root).rglob("*.py")
    )
    assert pathlib.Path(before, "modules/a.py").read_text() == "modules/a.py"


def test_byte_code_is_no_change(root, me):
    os.mkdir(f"{root}/modules/__pycache__")
    first = make(root, me)
    pathlib.Path(root, "modules/__pycache__/a.pyc").write_text("code")
    assert make(root, OTHER) == first


def test_one_of_code_that_has_just_changed_is_for_nobody_else(root, me):
    """What changes next may have the same time."""
    first = own_tree.make([root], me)
    assert own_tree.make([root], OTHER) != first
    os.utime(root, (1, 1))
    assert own_tree.make([root], f"{OTHER}1") != first, "that time anybody can set"
    dies()
    sweep(root)
    assert beside(root) == []


def test_one_of_code_that_changes_meanwhile_is_for_nobody_else(root, me, monkeypatch):
    link = os.link

    def slow(source, target, **kwargs):
        link(source, target, **kwargs)
        if target.endswith("a.py"):
            monkeypatch.setattr(os, "link", link)
            replace(root, "modules/b.py")

    monkeypatch.setattr(os, "link", slow)
    first = make(root, me)
    assert make(root, OTHER) != first


def test_two_that_make_it_at_the_same_time_have_one_each_or_the_same(root, me, monkeypatch):
    made, rename = linked_copy.make, os.rename

    def slower(*args, **kwargs):
        monkeypatch.setattr(linked_copy, "make", made)
        mine = made(*args, **kwargs)
        others.update(make(root, OTHER))
        return mine

    others = {}
    monkeypatch.setattr(linked_copy, "make", slower)
    assert make(root, me) == others
    assert rename is os.rename
    dies()
    sweep(root)
    assert beside(root) == [os.path.basename(others[root])]


def test_it_stays_until_nobody_holds_it_and_the_code_has_changed(root, me):
    copy = make(root, me)[root]
    replace(root)
    sweep(root)
    assert beside(root) == [os.path.basename(copy)]
    dies()
    sweep(root)
    assert beside(root) == []


def test_that_of_the_code_as_it_is_stays_for_the_next_one(root, me):
    make(root, me)
    dies()
    sweep(root)
    assert len(beside(root)) == 1
    own_tree.sweep([root], everything=True)
    assert beside(root) == []


def test_an_update_removes_those_of_nobody_only(root, me):
    copy = make(root, me)[root]
    linked_copy.make([root], "ab12")
    linked_copy.remove_leftovers([root])
    assert beside(root) == [os.path.basename(copy)]


def test_a_sweep_leaves_the_copy_of_an_update(root):
    linked_copy.make([root], "ab12")
    own_tree.sweep([root], everything=True)
    assert beside(root) == [".salt-safeupdate-ab12-salt"]


@pytest.mark.parametrize(
    ("bounds", "code"),
    [
        (lambda: Bounds(3, 60), errno.EFBIG),
        (lambda: Bounds(99, 2, iter((1, 2, 9)).__next__), errno.ETIMEDOUT),
    ],
)
def test_a_tree_that_is_too_large_is_not_copied_and_a_sweep_removes_what_was(
    root, me, bounds, code
):
    with pytest.raises(OSError) as raised:
        make(root, me, bounds())
    assert raised.value.errno == code
    assert own_tree.of([root], me) == {}
    sweep(root)
    assert beside(root) == []


def test_the_bound_counts_what_it_makes(root, me):
    assert make(root, me, Bounds(4, 60))


def test_more_files_than_may_be_are_not_looked_at(root, me, monkeypatch):
    monkeypatch.setattr(own_tree, "_FILES", 3)
    with pytest.raises(OSError, match="too many files"):
        make(root, me)


def test_no_content_is_copied(root, me, monkeypatch):
    def link(source, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="cross-device"):
        make(root, me)
    sweep(root)
    assert beside(root) == []


def test_one_that_is_swept_before_it_is_held_is_none(root, me, monkeypatch):
    hold = linked_copy.hold

    def late(copy):
        own_tree.sweep([root], everything=True)
        return hold(copy)

    monkeypatch.setattr(linked_copy, "hold", late)
    with pytest.raises(FileNotFoundError):
        make(root, me)


def test_one_that_is_swept_when_it_is_about_to_be_taken_is_made_again(root, me, monkeypatch):
    make(root, me)
    dies()
    hold = linked_copy.hold

    def late(copy):
        monkeypatch.setattr(linked_copy, "hold", hold)
        own_tree.sweep([root], everything=True)
        assert beside(root) == []
        return hold(copy)

    monkeypatch.setattr(linked_copy, "hold", late)
    copy = make(root, me)[root]
    assert pathlib.Path(copy, "version.py").read_text() == "version.py"


def test_one_that_is_taken_when_it_is_about_to_be_swept_stays(root, me, monkeypatch):
    make(root, me)
    dies()
    found = linked_copy.leftovers

    def late(*args):
        yield from list(found(*args))
        make(root, me)

    monkeypatch.setattr(linked_copy, "leftovers", late)
    own_tree.sweep([root], everything=True)
    assert own_tree.of([root], me)
    assert len(beside(root)) == 1


def test_the_copy_of_another_minion_that_runs_from_the_same_tree_stays(root, me):
    make(root, me)
    mine = list(own_tree._held)
    make(root, OTHER)
    for fd in mine:
        own_tree._held.remove(fd)
        os.close(fd)
    own_tree.sweep([root], everything=True)
    assert len(beside(root)) == 1


def test_one_that_the_host_lets_nobody_read_is_none(root, me, monkeypatch):
    """Whoever may read only what is known by its path finds no module in a copy."""

    def known_only(path, *args, **kwargs):
        if str(path).endswith(".py") and not str(path).startswith(os.path.join(root, "")):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        return open(path, *args, **kwargs)

    module = types.ModuleType("a")
    module.__file__ = f"{root}/modules/a.py"
    monkeypatch.setitem(sys.modules, "modules.a", module)
    make(root, me)
    dies()
    monkeypatch.setattr(own_tree, "open", known_only, raising=False)
    for _ in range(2):
        with pytest.raises(PermissionError):
            make(root, me)
        assert not own_tree.is_read()
        assert own_tree.of([root], me) == {}
    replace(root)
    sweep(root)
    assert beside(root) == []


def test_without_a_process_there_is_none(root):
    with pytest.raises(OSError, match="/proc"):
        make(root, "")
    assert pathlib.Path(root).exists()
