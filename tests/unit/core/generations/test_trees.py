"""Linked copies of code, each with its owner."""

import os

import pytest

from saltext_safeupdate.core.generations.trees import Trees
from saltext_safeupdate.core.host import linked_copy
from saltext_safeupdate.core.record.store import Store


@pytest.fixture
def store(tmp_path):
    return Store(str(tmp_path / "state" / "safeupdate.db"))


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "code"
    root.mkdir()
    (root / "version.py").write_text("1")
    return str(root)


def rows(store):
    with store.connection() as db:
        return {path for (path,) in db.execute("SELECT path FROM trees")}


def test_nobody_has_one_without_a_database(store):
    assert Trees(store).of("u1") == {}
    Trees(store).remove("u1")
    assert not store.exists()


def test_each_owner_has_its_own(store, root):
    first, second = (Trees(store).make([root], owner) for owner in ("u1", "u2"))
    assert (Trees(store).of("u1"), Trees(store).of("u2")) == (first, second)
    assert Trees(store).make([root], "u1") == first, "it is made once"
    Trees(store).remove("u1")
    Trees(store).remove("u1")
    assert not os.path.exists(first[root])
    assert os.path.isfile(os.path.join(second[root], "version.py"))
    assert (Trees(store).of("u1"), Trees(store).of("u2")) == ({}, second)


def test_it_is_in_the_table_before_it_is_made(store, root, monkeypatch):
    """Whoever cleans up after a process that was killed finds all of them there."""

    def killed(roots, identity):
        assert rows(store) == {linked_copy.copy_path(root, "u1")}
        raise KeyboardInterrupt

    monkeypatch.setattr(linked_copy, "make", killed)
    with pytest.raises(KeyboardInterrupt):
        Trees(store).make([root], "u1")
    assert list(Trees(store).of("u1")) == [root]


def test_one_that_cannot_be_made_is_gone(store, root, tmp_path):
    with pytest.raises(FileNotFoundError):
        Trees(store).make([root, str(tmp_path / "missing" / "code")], "u1")
    assert (rows(store), os.listdir(tmp_path / "code")) == (set(), ["version.py"])
    assert list(linked_copy.leftovers([root])) == []


def test_those_of_others_are_removed_with_what_nobody_has_written_down(store, root):
    kept, other = (Trees(store).make([root], owner) for owner in ("u1", "u2"))
    stray = linked_copy.make([root], "stray")
    half = linked_copy.copy_path(root, "half") + linked_copy.PART
    os.mkdir(half)
    Trees(store).remove_others([root], "u1")
    assert [os.path.exists(path) for path in (*other.values(), *stray.values(), half)] == [
        False
    ] * 3
    assert os.path.isdir(kept[root])
    assert rows(store) == set(kept.values())
