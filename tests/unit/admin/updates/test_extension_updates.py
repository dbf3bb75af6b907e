"""A rollout brings this extension to a version, before Salt."""

import pytest

from saltext_safeupdate import factory
from saltext_safeupdate.admin.updates import rollout_requests
from saltext_safeupdate.core.extensions import ourselves
from saltext_safeupdate.core.prepare.own_extension import NAME, OwnExtension
from saltext_safeupdate.core.record.phase import Phase
from tests.support import wheels

from ...core.prepare.test_own_extension import Pip
from .test_rollout_requests import N, made  # noqa: F401


@pytest.fixture
def extended(made, tmp_path, monkeypatch):  # noqa: F811
    place = wheels.install(tmp_path / "place", "1.1")
    wheels.write(tmp_path / "wheels", "1.2")
    monkeypatch.setattr(ourselves, "home", lambda: str(place / "saltext_safeupdate"))
    monkeypatch.setattr(ourselves, "running_version", lambda: "1.1")
    made.sources = []

    def extension(host, source=""):
        made.sources.append(source)
        return OwnExtension(str(place), "/python", Pip(tmp_path / "wheels"), source)

    monkeypatch.setattr(factory, "extension", extension)
    made.manager.unowned = set
    made.place = place
    return made


def _ask(made, number, extension="1.2", functions=None):  # noqa: F811
    return rollout_requests.request(made, functions or {}, number, extension=extension)


def test_an_update_begins(extended):
    told = _ask(extended, N)
    assert (told["number"], told["phase"], told["refused"]) == (N, "requested", "")
    update = extended.store.latest()
    assert update.of_extension
    assert (update.versions_from, update.versions_to) == ({NAME: "1.1"}, {NAME: "1.2"})
    assert str(extended.place / "saltext_safeupdate") in update.code.roots
    assert _ask(extended, N)["phase"] == "requested"
    assert len(extended.store.updates()) == 1
    assert told["intended"] == "", "that is a version of Salt"


def test_a_version_that_nobody_offers_is_refused(extended):
    told = _ask(extended, N, "1.9")
    assert "No matching distribution" in told["refused"]
    assert (told["again"], told["number"]) == (False, 0)
    assert extended.store.latest() is None


def test_what_is_installed_and_does_not_run_is_restarted(extended):
    told = _ask(extended, N, "1.1")
    assert (told["phase"], extended.launched) == ("idle", 0)
    extended.place.joinpath("saltext_safeupdate-1.1.dist-info").rename(
        extended.place / "saltext_safeupdate-1.2.dist-info"
    )
    wheels.install(extended.place / "again", "1.2")
    (extended.place / "saltext_safeupdate" / "__init__.py").write_text('__version__ = "1.2"\n')
    told = _ask(extended, N + 1)
    assert (told["phase"], extended.store.latest().kind) == ("waiting", "restart")
    assert (told["extension"], told["extension_on_disk"]) == ("1.1", "1.2")


def test_a_version_in_quarantine_and_an_older_one_are_refused(extended):
    extended.store.quarantine({NAME: "1.2"}, "u1", "it died")
    assert "rolled back on this minion" in _ask(extended, N)["refused"]
    assert "older than the installed" in _ask(extended, N, "1.0")["refused"]


def test_what_a_package_has_brought_is_left_to_the_package_manager(extended):
    extended.manager.unowned = lambda paths: set()
    told = _ask(extended, N)
    assert "part of a package" in told["refused"]
    assert told["again"] is False


def test_it_comes_from_the_master(extended, tmp_path):
    asked = []
    extended.opts["safeupdate"]["extension_source"] = "salt://safeupdate/wheels"
    path = str(tmp_path / "cached" / "saltext_safeupdate-1.2-py3-none-any.whl")
    functions = {"cp.cache_file": lambda path: asked.append(path) or answers[0]}
    answers = [path]
    assert _ask(extended, N, functions=functions)["phase"] == "requested"
    assert asked == ["salt://safeupdate/wheels/saltext_safeupdate-1.2-py3-none-any.whl"]
    assert str(tmp_path / "cached") in extended.sources
    extended.store.save(extended.store.latest().advance(Phase.CANCELLED))
    answers = [""]
    assert "does not have" in _ask(extended, N + 1, "1.3", functions)["refused"]


def test_it_is_downloaded_ahead(extended):
    def at_once(work):
        work()

    ask = lambda version: rollout_requests.prefetch(extended, {}, "", version, spawn=at_once)  # noqa: E731
    assert ask("1.2")["staged"] == "done"
    assert ask("1.9")["staged"] == "failed"
    assert ask("1.1")["staged"] == "done"
