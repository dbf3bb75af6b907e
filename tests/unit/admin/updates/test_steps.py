"""Upgrade steps of the master, as an administrator sees them."""

import pathlib

import pytest
from salt.exceptions import SaltClientError

from saltext_safeupdate.admin.updates import rollout_requests, updating
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.record.phase import Phase
from tests.support.this_host import record

from .test_rollout_requests import NEW, N, made  # noqa: F401

SOURCE = "salt://safeupdate/steps"


@pytest.fixture
def asked(made, tmp_path):  # noqa: F811
    """Return the functions of Salt; what the master has may be changed."""
    made.opts["safeupdate"] |= {"steps_source": SOURCE, "steps_dir": str(tmp_path / "none")}
    (tmp_path / "3008-rename").write_text("#!/bin/sh")

    def cache_dir(source):
        assert source == SOURCE
        functions["asked"] += 1
        if isinstance(functions["has"], Exception):
            raise functions["has"]
        return functions["has"]

    functions = {"cp.cache_dir": cache_dir, "has": [str(tmp_path / "3008-rename")], "asked": 0}
    return functions


def test_a_plan_shows_them(made, asked):  # noqa: F811
    assert updating.plan(made, asked, NEW)["steps"] == ["3008-rename"]
    made.opts["safeupdate"]["steps_source"] = ""


@pytest.mark.parametrize("has", [[], SaltClientError("no master")])
def test_an_update_without_them_does_not_begin(made, asked, has):  # noqa: F811
    asked["has"] = has
    with pytest.raises(SafeUpdateError, match=r"salt://safeupdate/steps.*Nothing was changed"):
        updating.update(made, asked, NEW)
    assert SOURCE in rollout_requests.request(made, asked, N, NEW)["refused"]
    assert made.launched == 0


def test_they_are_fetched_ahead(made, asked):  # noqa: F811
    told = rollout_requests.prefetch(made, asked, NEW, spawn=lambda work: work())
    assert (told["staged"], asked["asked"]) == ("done", 1)


def test_an_update_that_has_begun_keeps_those_that_it_began_with(made, asked):  # noqa: F811
    record(made, Phase.INSTALLING)
    updating.plan(made, asked, NEW)
    assert asked["asked"] == 0


class TestBefore:
    """What runs before a version is on offer may have it offered."""

    @pytest.fixture
    def repo(self, made, asked, tmp_path):  # noqa: F811
        (tmp_path / "3999-repo.before").write_text("#!/bin/sh")
        asked["has"] = [*asked["has"], str(tmp_path / "3999-repo.before")]
        return asked

    def test_a_plan_shows_it_and_stops_nothing(self, made, repo):  # noqa: F811
        told = updating.plan(made, repo, "3999.1")
        assert told["steps"] == ["3999-repo.before", "3008-rename"]
        (found,) = (item for item in told["findings"] if item["code"] == "target-unavailable")
        assert not found["blocking"]
        assert "upgrade steps" in found["fix"]

    def test_the_supervisor_resolves_what_is_asked_for_then(self, made, repo):  # noqa: F811
        asked_for = updating.update(made, repo, "3999.1")
        assert asked_for["to"] == {}
        last = made.store.latest()
        assert (last.phase, last.request.version) == (Phase.REQUESTED, "3999.1")
        assert made.launched == 1

    @pytest.mark.parametrize("wanted", [None, "3008"])
    def test_what_names_no_version_is_resolved_then_as_well(self, made, repo, wanted):  # noqa: F811
        """A newer one than is on offer now may come; an exact version is what it is."""
        repo["has"] += [str(_program(repo["has"][0], "3008-repo.before"))]
        assert updating.update(made, repo, wanted)["to"] == {}
        assert made.store.latest().versions_to == {}
        assert updating.plan(made, repo, wanted)["targets"]["salt"] == NEW

    def test_an_exact_version_is_known_now(self, made, repo):  # noqa: F811
        repo["has"] += [str(_program(repo["has"][0], "3008-repo.before"))]
        assert updating.update(made, repo, NEW)["to"]["salt"] == NEW
        assert made.store.latest().versions_to["salt"] == NEW

    @pytest.mark.parametrize("wanted", ["3999", "3999.1"])
    def test_a_rollout_and_a_series_are_the_same(self, made, repo, wanted):  # noqa: F811
        told = rollout_requests.request(made, repo, N, wanted)
        assert not told["refused"], told
        assert made.store.latest().request.version == wanted

    def test_without_one_it_is_refused(self, made, asked):  # noqa: F811
        with pytest.raises(SafeUpdateError, match=r"\[target-unavailable\].*Nothing was changed"):
            updating.update(made, asked, "3999.1")


def _program(beside, name):
    path = pathlib.Path(beside).with_name(name)
    path.write_text("#!/bin/sh")
    return path
