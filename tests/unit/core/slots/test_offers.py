import json
import os

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.slots import manifest, offers
from saltext_safeupdate.core.slots.offers import Directory
from tests.support import builds
from tests.unit.core.slots.test_signature import CHANGED, GOOD


def _no_program(argv, **_):
    pytest.fail(f"it was asked: {argv}")


def _gpgv(stdout, returncode=0):
    def run(argv, **_):
        return Result(argv=tuple(argv), returncode=returncode, stdout=stdout, stderr="bad")

    return run


@pytest.fixture
def source(tmp_path):
    """A source with one build, and what adds another manifest."""

    class Made(Directory):
        def add(self, name="salt", **said):
            path = builds.tarball(tmp_path / f"{name}.tar.xz", builds.onedir())
            told = builds.described(path, name=name, **said)
            (tmp_path / f"{name}.json").write_text(json.dumps(told))

        def write(self, name, content):
            (tmp_path / name).write_bytes(content)

    return Made(str(tmp_path))


@pytest.fixture
def ring(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "ring.gpg"
    path.touch()
    return str(path)


def _told(source, *, keyring="", run=_no_program):
    return offers.offers(source, keyring=keyring, run=run)


def test_each_sound_manifest_is_an_offer(source):
    source.add("b", version="3007.15")
    source.add("a")
    source.write("README", b"")
    found = _told(source)
    assert [(each.file, each.problem) for each in found] == [("a.json", ""), ("b.json", "")]
    assert [each.manifest.version for each in found] == ["3008.3", "3007.15"]


def test_one_that_is_not_sound_does_not_hide_the_others(source):
    source.add("good")
    source.write("bad.json", b"{")
    source.write("huge.json", b" " * (manifest.LONGEST + 10))
    os.mkfifo(source.path("pipe.json"))
    os.symlink("nowhere", source.path("link.json"))
    os.mkdir(source.path("directory.json"))
    found = {each.file: each.problem for each in _told(source)}
    assert found.pop("good.json") == ""
    assert all(found.values())
    assert len(found) == 5


def test_what_is_no_regular_file_is_not_opened(source, ring, monkeypatch):
    """A watchdog that is opened resets the host, unless somebody goes on to feed it."""
    source.add("salt")
    for name in ("null.json", "salt.json.asc"):
        os.symlink(os.devnull, source.path(name))
    devices, open_ = {os.stat(os.devnull).st_rdev}, os.open

    def opened(path, *args, **kwargs):
        assert os.stat(path).st_rdev not in devices
        return open_(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", opened)
    found = {each.file: each.problem for each in _told(source, keyring=ring, run=_gpgv(GOOD))}
    assert "salt.json.asc is a link" in found["salt.json"]
    found = {each.file: each.problem for each in _told(source)}
    assert "null.json is a link" in found["null.json"]


def test_a_build_whose_file_is_missing_is_none(source):
    source.add("salt")
    os.unlink(source.path("salt.tar.xz"))
    (found,) = _told(source)
    assert found.manifest is None
    assert found.problem == (
        "The source does not have salt.tar.xz, which belongs to it. Copy it there."
    )


def test_a_manifest_of_wheels_may_be_alone_but_not_beside_some_of_them(source):
    names = ("salt-3008.3-py3-none-any.whl", "needed-1.0-py3-none-any.whl")
    paths = [source.path(name) for name in names]
    for path in paths:
        with open(path, "wb") as file:
            file.write(b"x")
    told = builds.described(*paths, kind="wheels", python="3.11")
    with open(source.path("wheels.json"), "w", encoding="utf-8") as file:
        json.dump(told, file)
    os.unlink(paths[0])
    (found,) = _told(source)
    assert found.problem.startswith(f"The source does not have {names[0]}, which belongs to it.")
    os.unlink(paths[1])
    (found,) = _told(source)
    assert (found.problem, found.manifest is not None) == ("", True)


def test_a_source_that_is_not_there_is_told_with_what_to_do(tmp_path):
    with pytest.raises(SafeUpdateError, match=r"cannot be listed: No such .*create that directory"):
        _told(Directory(str(tmp_path / "nowhere")))


def test_a_source_of_thousands_is_cut(source, monkeypatch):
    monkeypatch.setattr(offers, "MOST_BUILDS", 2)
    for number in range(4):
        source.add(f"salt{number}")
    found = _told(source)
    assert [each.file for each in found] == ["salt0.json", "salt1.json", "salt2.json"]
    assert "more than 2 manifests" in found[-1].problem


def test_with_keys_only_what_is_signed_counts(source, ring):
    source.add("salt")
    (found,) = _told(source, keyring=ring)
    assert found.manifest is None
    assert "has no signature salt.json.asc" in found.problem
    source.write("salt.json.asc", b"")
    (found,) = _told(source, keyring=ring, run=_gpgv(CHANGED, 1))
    assert found.manifest is None
    assert "its signature is not valid" in found.problem
    (found,) = _told(source, keyring=ring, run=_gpgv(GOOD))
    assert (found.manifest.name, found.signed_by) == (
        "salt",
        "71D1EF6F22418BB2 Jo Doe <jo@example.org>",
    )


def test_the_signature_is_looked_at_before_what_is_signed(source, ring):
    source.write("bad.json", b"{")
    source.write("bad.json.asc", b"")
    (found,) = _told(source, keyring=ring, run=_gpgv(CHANGED, 1))
    assert "its signature is not valid" in found.problem
