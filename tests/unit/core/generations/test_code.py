"""Whether the code that a minion runs from is the one that it started with."""

import contextlib
import mmap
import os
import sys
import types
from array import array

import pytest

from saltext_safeupdate.core.generations import code
from tests.support.simulated import Clock


class Files:
    """Files that a minion runs from, and what looks at them."""

    def __init__(self, place):
        self.place = place
        self.clock, self.maps = Clock(), set()
        for name in ("a", "b", "c"):
            (place / name).write_text("1")
        stamps = {str(place / name): code.stamp(str(place / name)) for name in ("a", "b", "c")}
        self.code = code.Code(
            stamps, 5, monotonic=self.clock.monotonic, maps=lambda pid: {*self.maps} if pid else {}
        )

    def put(self, name, text="2"):
        part = self.place / "part"
        part.write_text(text)
        os.replace(part, self.place / name)

    def later(self):
        self.clock.work(20)
        return [os.path.basename(each) for each in self.code.changed()]


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


def test_nothing_is_told_where_nothing_has_changed(files):
    assert [files.later() for _ in range(3)] == [[], [], []]


def test_now_is_more_than_the_last_look_has_seen(files):
    assert not files.code.is_as_noted(), "there was none"
    files.later()
    assert files.code.is_as_noted()
    assert files.code.is_unchanged()
    files.maps.add("/usr/lib/libssl.so.3")
    assert files.code.is_as_noted()
    assert not files.code.is_unchanged()
    files.maps.clear()
    (files.place / "a").write_text("written over")
    assert not files.code.is_unchanged()


def test_what_was_replaced_or_removed_is_told_when_that_has_ended(files):
    files.put("b")
    assert files.later() == []
    (files.place / "a").unlink()
    assert files.later() == []
    files.put("b", "3")
    assert files.later() == []
    # Until somebody has acted upon it, again and again.
    assert files.later() == ["a", "b"]
    assert files.code.changed() == (), "not between two looks"
    assert files.later() == ["a", "b"]
    files.code.settle()
    assert [files.later(), files.later()] == [[], []]
    files.put("c")
    assert [files.later(), files.later()] == [[], ["a", "b", "c"]]


def test_a_file_of_the_same_content_is_another_one(files):
    """Whoever replaces a package by itself replaces all of its files."""
    files.put("a", "1")
    assert [files.later(), files.later()] == [[], ["a"]]


def test_what_is_as_it_was_is_not_told(files):
    os.rename(files.place / "a", files.place / "kept")
    files.put("a")
    files.later()
    os.replace(files.place / "kept", files.place / "a")
    assert [files.later(), files.later()] == [[], []]


def test_a_library_that_is_gone_counts(files):
    files.maps = {"/usr/lib/libssl.so.3"}
    assert [files.later(), files.later()] == [[], ["libssl.so.3"]]


@pytest.mark.parametrize("quiet", range(6))
def test_what_no_directory_shows_is_told_with_one_of_the_next_looks(files, quiet):
    assert [files.later() for _ in range(quiet)] == [[]] * quiet
    files.maps = {"/usr/lib/libssl.so.3"}
    # It is written in its place.
    (files.place / "a").write_text("22")
    told = [files.later() for _ in range(6)]
    assert ["a", "libssl.so.3"] in told
    assert {*map(tuple, told)} == {(), ("a", "libssl.so.3")}


def test_most_looks_are_at_directories_only(files, monkeypatch):
    files.later()
    seen, stat = [], os.stat
    monkeypatch.setattr(os, "stat", lambda path, **more: (seen.append(path), stat(path, **more))[1])
    for _ in range(3):
        assert files.later() == []
    assert seen == [str(files.place)] * 3


def test_a_library_that_was_replaced_is_found_in_the_maps_of_its_process(tmp_path, monkeypatch):
    library, other = tmp_path / "a library", tmp_path / "read only"
    for each in (library, other):
        each.write_bytes(b"x" * 4096)
    executable = mmap.PROT_READ | mmap.PROT_EXEC
    with library.open("rb") as code_, other.open("rb") as data, contextlib.ExitStack() as maps:
        for file, prot in ((code_, executable), (data, mmap.PROT_READ)):
            maps.enter_context(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, prot))
        monkeypatch.setattr(code, "_NO_CODE", ())
        assert code.replaced_maps(os.getpid()) == set()
        for each in (library, other):
            (tmp_path / "new").write_bytes(b"y" * 4096)
            os.replace(tmp_path / "new", each)
        assert code.replaced_maps(os.getpid()) == {str(library)}
        monkeypatch.undo()
        assert code.replaced_maps(os.getpid()) == set(), "nobody installs anything there"


def test_of_a_process_that_is_gone_nothing_is_known(tmp_path):
    assert code.replaced_maps(5, str(tmp_path)) == set()


def test_what_was_installed_counts_and_what_a_master_has_sent_does_not(tmp_path):
    site, cache = tmp_path / "site", tmp_path / "site" / "cache"
    files = [site / "a.py", cache / "extmods" / "b.py", tmp_path / "elsewhere" / "c.py"]

    def module(file):
        made = types.ModuleType("m")
        made.__file__ = file
        return made

    class Lazy(types.ModuleType):
        def __getattr__(self, name):
            raise ImportError(name)

    modules = [*map(module, [*map(str, files), None]), Lazy("lazy"), None, object()]
    loaded = code.files_of(modules)
    assert code.installed(loaded, [str(site), ""], [str(cache), ""]) == {str(files[0])}


def test_no_module_is_loaded_and_no_dictionary_made_to_find_a_file():
    class Deferred(types.ModuleType):
        def __getattribute__(self, name):
            raise AssertionError(f"{name} loads it")

    class Library:
        __class__ = types.ModuleType

        @property
        def __dict__(self):
            raise AssertionError("this makes a dictionary of all its functions")

    known = types.ModuleType("known")
    known.__file__ = "/usr/lib/known.py"
    assert code.files_of([Deferred("deferred"), Library(), known]) == {"/usr/lib/known.py"}


def test_a_process_remembers_what_it_had_loaded_at_first(monkeypatch, tmp_path):
    monkeypatch.setattr(code, "_noted_files", [])
    monkeypatch.setattr(code, "_noted_stamps", array("q"))
    monkeypatch.setattr(code, "_noted_by", [])
    monkeypatch.syspath_prepend(tmp_path)
    early, later = types.ModuleType("early"), types.ModuleType("later")
    for module in (early, later):
        path = tmp_path / f"{module.__name__}.py"
        path.touch()
        module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "early", early)
    code.remember([])
    first = dict(code.remembered())
    assert not code.are_inherited()
    monkeypatch.setattr(code.os, "getpid", lambda: 1)
    assert code.are_inherited()
    before = code.folders()
    (tmp_path / "another").touch()
    assert code.folders() != before
    assert {pytest.__file__, early.__file__} <= first.keys()
    monkeypatch.setitem(sys.modules, "later", later)
    code.remember([])
    assert code.remembered() == first
    # What has changed meanwhile is known to have changed.
    (tmp_path / "early.py").write_text("new")
    code.remember([], more=True)
    assert code.remembered() == {**first, later.__file__: code.remembered()[later.__file__]}
