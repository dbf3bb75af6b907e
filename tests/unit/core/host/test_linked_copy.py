import errno
import os
import pathlib
import shutil

import pytest

from saltext_safeupdate.core.host import copy_names, linked_copy


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "lib" / "salt"
    (root / "modules").mkdir(parents=True)
    (root / "version.py").write_text("old")
    (root / "modules" / "a.py").write_text("a")
    (root / "link").symlink_to("version.py")
    (root / "dead").symlink_to("nowhere")
    (root / "away").symlink_to(tmp_path)
    os.chmod(root / "modules", 0o750)
    return root


def test_the_copy_has_everything_and_no_content_is_copied(root):
    copy = linked_copy.make([str(root)], "u1")[str(root)]
    assert os.path.dirname(copy) == str(root.parent)
    assert sorted(os.listdir(copy)) == ["away", "dead", "link", "modules", "version.py"]
    assert os.path.samefile(f"{copy}/version.py", root / "version.py")
    assert os.path.samefile(f"{copy}/modules/a.py", root / "modules" / "a.py")
    assert [os.readlink(f"{copy}/{name}") for name in ("link", "dead")] == ["version.py", "nowhere"]
    assert os.path.islink(f"{copy}/away")
    assert os.stat(f"{copy}/modules").st_mode & 0o777 == 0o750


def test_it_outlives_what_a_package_manager_does(root):
    copy = linked_copy.make([str(root)], "u1")[str(root)]
    new = root / "version.py.dpkg-new"
    new.write_text("new")
    new.rename(root / "version.py")
    shutil.rmtree(root / "modules")
    assert pathlib.Path(f"{copy}/version.py").read_text() == "old"
    assert pathlib.Path(f"{copy}/modules/a.py").read_text() == "a"


def test_it_may_be_done_again(root):
    first = linked_copy.make([str(root)], "u1")
    (root / "version.py").unlink()
    assert linked_copy.make([str(root)], "u1") == first
    assert pathlib.Path(f"{first[str(root)]}/version.py").read_text() == "old"


def test_those_that_are_whole_are_found_by_their_names(root, tmp_path):
    other, missing = str(tmp_path / "other"), str(tmp_path / "missing")
    os.mkdir(other)
    roots = [str(root), other, missing]
    assert copy_names.of(roots, "u1") == {}
    made = linked_copy.make([str(root)], "u1")
    os.mkdir(copy_names.path(other, "u1") + linked_copy.PART)
    assert copy_names.of(roots, "u1") == made
    assert copy_names.of(roots, "u2") == {}


def test_half_a_copy_of_a_crash_is_made_anew(root):
    part = copy_names.path(str(root), "u1") + ".part"
    os.mkdir(part)
    pathlib.Path(f"{part}/rubbish").touch()
    copy = linked_copy.make([str(root)], "u1")[str(root)]
    assert not os.path.exists(f"{copy}/rubbish")
    assert not os.path.exists(part)


def test_files_are_copied_where_they_cannot_be_linked(root, monkeypatch):
    def no_links(source, target):
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    copy = linked_copy.make([str(root)], "u1")[str(root)]
    assert pathlib.Path(f"{copy}/version.py").read_text() == "old"
    assert not os.path.samefile(f"{copy}/version.py", root / "version.py")


def test_a_file_that_vanishes_meanwhile_is_not_missed(root, monkeypatch):
    link = os.link

    def vanishing(source, target):
        if source.endswith("a.py"):
            os.unlink(source)
        link(source, target)

    monkeypatch.setattr(os, "link", vanishing)
    copy = linked_copy.make([str(root)], "u1")[str(root)]
    assert os.listdir(f"{copy}/modules") == []
    assert os.path.exists(f"{copy}/version.py")


def test_nothing_is_left_where_one_of_several_cannot_be_copied(root):
    missing = root.parent / "missing"
    with pytest.raises(FileNotFoundError):
        linked_copy.make([str(root), str(missing)], "u1")
    assert os.listdir(root.parent) == ["salt"]


def test_thaw_removes_copies_and_their_parts_and_nothing_else(root):
    copy = linked_copy.make([str(root)], "u1")[str(root)]
    os.mkdir(f"{copy}.part")
    linked_copy.remove([copy, str(root), str(root.parent), copy])
    assert os.listdir(root.parent) == ["salt"]
    assert (root / "modules" / "a.py").exists()


def test_one_that_somebody_else_removes_at_the_same_time_is_removed(root, monkeypatch):
    (copy,) = linked_copy.make([str(root)], "u1").values()
    remove, removed = shutil.rmtree, []

    def meet(path):
        removed.append(path)
        if len(removed) == 1:
            raise FileNotFoundError(path)
        remove(path)

    monkeypatch.setattr(shutil, "rmtree", meet)
    linked_copy.remove([copy])
    assert not os.path.exists(copy)


def test_leftovers_in_a_lower_layer_are_removed(root, monkeypatch):
    """On overlayfs, such a directory cannot be renamed, and a program like mv copies it instead."""
    (copy,) = linked_copy.make([str(root)], "u1").values()

    def rename(before, after):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        linked_copy.remove_leftovers([str(root)])
    assert not os.path.exists(copy)
    assert os.listdir(root.parent) == ["salt"]


def test_leftovers_are_found_of_whatever_update(root, tmp_path):
    copies = {linked_copy.make([str(root)], each)[str(root)] for each in ("u1", "u2")}
    assert set(linked_copy.leftovers([str(root), str(tmp_path / "not" / "there")])) == copies


def test_a_slash_at_the_end_makes_no_difference(root):
    assert copy_names.path(f"{root}/", "u1") == copy_names.path(str(root), "u1")


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        (lambda root: None, False),
        (lambda root: (root / "modules" / "a.py").unlink(), True),
        (lambda root: (root / "modules" / "a.py;65a0b1c2").write_text(""), True),
        (lambda root: _replaced(root / "modules" / "a.py"), True),
        (lambda root: _replaced_in_kind(root / "version.py", "new"), True),
        (lambda root: _replaced_in_kind(root / "version.py", "old"), False),
        # Whoever imports a module, and scriptlets, write byte code.
        (lambda root: (root / "modules" / "__pycache__").mkdir(), False),
        (lambda root: _replaced(root / "modules" / "__pycache__" / "a.pyc"), False),
        (lambda root: (root / "modules" / "a.py").chmod(0o600), False),
    ],
)
def test_whether_files_are_those_of_the_copy(root, change, differs):
    copies = linked_copy.make([str(root)], "u1")
    change(root)
    assert linked_copy.differing(copies) == ([str(root)] if differs else [])


@pytest.mark.parametrize("linked", [True, False])
def test_without_links_the_copy_is_the_same_too(root, monkeypatch, linked):
    if not linked:
        monkeypatch.setattr(os, "link", _no_links)
    copies = linked_copy.make([str(root)], "u1")
    assert linked_copy.differing(copies) == []
    linked_copy.remove(copies.values())
    assert linked_copy.differing(copies) == [], "there is nothing to compare with"


def test_a_copy_of_what_lies_in_the_directory_is_none_of_its_files(root):
    linked_copy.make([str(root / "modules")], "g1.2")
    copies = linked_copy.make([str(root)], "u1")
    assert sorted(os.listdir(copies[str(root)])) == sorted({*os.listdir(root)} - set(_copies(root)))
    assert linked_copy.differing(copies) == []
    assert len(_copies(root)) == 1


@pytest.mark.parametrize("name", ["salt", "venv-salt-minion"])
def test_the_path_in_a_copy_tells_the_original_one(name):
    path = f"/opt/{name}/lib/a.py"
    copy = copy_names.path(f"/opt/{name}", "g0b00.17.400")
    assert copy_names.original(f"{copy}/lib/a.py") == path
    assert copy_names.original(path) == path
    assert copy_names.original(copy) == f"/opt/{name}"


def test_a_copy_that_is_held_is_no_leftover(root):
    copy = linked_copy.make([str(root)], "u1")[str(root)]
    fd = linked_copy.hold(copy)
    assert list(linked_copy.leftovers([str(root)])) == []
    os.close(fd)
    assert list(linked_copy.leftovers([str(root)])) == [copy]
    assert list(linked_copy.leftovers([str(root)], "g")) == []


def _copies(root):
    return [name for name in os.listdir(root) if copy_names.is_copy(name)]


def _replaced(path):
    path.parent.mkdir(exist_ok=True)
    path.with_name("fresh").write_text("another version")
    path.with_name("fresh").replace(path)


def _replaced_in_kind(path, text):
    """Put another file of the same size and time in its place."""
    seen = path.stat()
    path.with_name("fresh").write_text(text)
    os.utime(path.with_name("fresh"), ns=(seen.st_atime_ns, seen.st_mtime_ns))
    path.with_name("fresh").replace(path)


def _no_links(source, target):
    raise PermissionError(source)
