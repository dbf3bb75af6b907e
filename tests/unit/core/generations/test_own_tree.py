"""A generation has its own copy of its code for as long as one of its processes lives."""

import errno
import os
import pathlib

import pytest

from saltext_safeupdate.core.generations import own_tree
from saltext_safeupdate.core.host import linked_copy
from saltext_safeupdate.core.host.linked_copy import Bounds

ME, OTHER = "0b00-1:17:400", "0b00-1:18:500"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(own_tree, "_held", [])
    root = tmp_path / "salt"
    (root / "modules").mkdir(parents=True)
    for name in ("version.py", "modules/a.py", "modules/b.py"):
        (root / name).write_text(name)
    yield str(root)
    dies()


def dies():
    """The kernel closes what the process has open."""
    while own_tree._held:
        os.close(own_tree._held.pop())


def beside(root):
    return sorted(name for name in os.listdir(os.path.dirname(root)) if name != "salt")


def test_it_is_found_by_the_process(root):
    copies = own_tree.make([root], ME)
    assert beside(root) == [".salt-safeupdate-g0b00.17.400-salt"]
    assert own_tree.of([root], ME) == copies
    assert own_tree.of([root], OTHER) == own_tree.of([root], "") == {}
    assert os.path.samefile(f"{copies[root]}/version.py", f"{root}/version.py")


def test_it_stays_until_its_owner_dies(root):
    own_tree.make([root], ME)
    own_tree.sweep([root])
    assert len(beside(root)) == 1
    dies()
    own_tree.sweep([root])
    assert beside(root) == []


def test_an_update_removes_those_of_nobody_only(root):
    own_tree.make([root], ME)
    linked_copy.make([root], "ab12")
    linked_copy.remove(linked_copy.leftovers([root]))
    assert beside(root) == [".salt-safeupdate-g0b00.17.400-salt"]


def test_a_sweep_leaves_the_copy_of_an_update(root):
    linked_copy.make([root], "ab12")
    own_tree.sweep([root])
    assert beside(root) == [".salt-safeupdate-ab12-salt"]


@pytest.mark.parametrize(
    ("bounds", "code"),
    [
        (lambda: Bounds(3, 60), errno.EFBIG),
        (lambda: Bounds(99, 2, iter((1, 2, 9)).__next__), errno.ETIMEDOUT),
    ],
)
def test_a_tree_that_is_too_large_is_not_copied_and_a_sweep_removes_what_was(root, bounds, code):
    with pytest.raises(OSError) as raised:
        own_tree.make([root], ME, bounds())
    assert raised.value.errno == code
    assert own_tree.of([root], ME) == {}
    own_tree.sweep([root])
    assert beside(root) == []


def test_the_bound_counts_what_it_makes(root):
    assert own_tree.make([root], ME, Bounds(4, 60))


def test_no_content_is_copied(root, monkeypatch):
    def link(source, target):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="cross-device"):
        own_tree.make([root], ME)
    own_tree.sweep([root])
    assert beside(root) == []


def test_one_that_is_swept_before_it_is_held_is_none(root, monkeypatch):
    hold = linked_copy.hold

    def late(copy):
        own_tree.sweep([root])
        return hold(copy)

    monkeypatch.setattr(linked_copy, "hold", late)
    with pytest.raises(FileNotFoundError):
        own_tree.make([root], ME)


def test_the_copy_of_another_minion_that_runs_from_the_same_tree_stays(root):
    own_tree.make([root], ME)
    mine = list(own_tree._held)
    own_tree.make([root], OTHER)
    for fd in mine:
        own_tree._held.remove(fd)
        os.close(fd)
    own_tree.sweep([root])
    assert beside(root) == [".salt-safeupdate-g0b00.18.500-salt"]


def test_without_a_process_there_is_none(root):
    with pytest.raises(OSError, match="/proc"):
        own_tree.make([root], "")
    assert pathlib.Path(root).exists()
