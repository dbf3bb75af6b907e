"""Which upgrade steps are due."""

import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import VerificationError
from saltext_safeupdate.core.prepare.upgrade_steps import Steps
from saltext_safeupdate.core.record.facts import STEPS_BEGUN, STEPS_SINCE, Begun
from saltext_safeupdate.core.record.store import Store

OLD, NEW = {"salt": "3006.28"}, {"salt": "3007.15"}


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "steps"


def _have(directory, *names):
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).touch(0o755)


def _steps(directory):
    return Steps(str(directory), Store(str(directory.parent / "state" / "safeupdate.db")))


def _due(directory, old=OLD, new=NEW):
    return [step.name for step in _steps(directory).due(old, new)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("3006.28", "3007.15", ["3007", "3007-b", "3007.9-a"]),
        ("3006.28", "3008.3", ["3007", "3007-b", "3007.9-a", "3007.16", "3008.1"]),
        ("3007.15-1", "1:3007.16+ds-2", ["3007.16"]),
        ("3007.8", "3007.9", ["3007.9-a"]),
        ("3007.9", "3007.9-2", []),
        ("3008.3", "3006.28", []),
        ("3008.3", "3008.3", []),
    ],
)
def test_those_between_two_versions_in_their_order(directory, old, new, expected):
    _have(directory, "3007-b", "3007", "3007.9-a", "3007.16", "3006.28", "3008.1", "3009")
    old, new = {"salt": old, "python": "3.11"}, {"salt": new, "python": "3.14"}
    assert _due(directory, old, new) == expected


def test_what_is_no_step_is_left_alone(directory):
    _have(directory, "3007~", "3007.dpkg-old", "README", ".3007", "3007-a b", "3007-kept")
    _have(directory, "3007-text")
    (directory / "3007-text").chmod(0o644)
    # Where somebody keeps those of a series, or one that he has put aside.
    for name in ("3007", "3007-old", "3007-old.before", "3007.revert"):
        (directory / name).mkdir()
    (directory / "3007-gone").symlink_to("nowhere")
    assert _due(directory) == ["3007-kept"]
    assert _steps(directory).before(OLD, NEW) == []


class TestPrograms:
    """A step that has more than one."""

    def _steps(self, directory):
        step = ("3007-a", "3007-a.before", "3007-a.revert")
        _have(directory, *step, "3007.before", "3006.1.before", "3008.before", "3007.9.revert")
        return _steps(directory)

    def test_those_before_are_of_the_same_versions_and_order(self, directory):
        steps = self._steps(directory)
        assert [step.name for step in steps.before(OLD, NEW)] == ["3007-a.before", "3007.before"]
        assert [step.name for step in steps.due(OLD, NEW)] == ["3007-a"]
        assert steps.before(NEW, OLD) == []

    def test_down_they_are_those_that_take_back_what_has_run(self, directory):
        steps = self._steps(directory)
        assert steps.due(NEW, OLD) == []
        steps.ended(["3007-a.before", "3007-a", "3007.9"])
        assert [step.name for step in steps.due(NEW, OLD)] == ["3007.9.revert", "3007-a.revert"]
        assert steps.due({"salt": "3007.2"}, OLD)[0].name == "3007-a.revert"
        steps.ended(["3007.9.revert", "3007-a.revert"])
        assert (steps.taken(), steps.due(NEW, OLD)) == ((), [])

    def test_only_those_keep_jobs_away_that_run_when_packages_are_in_place(self, directory):
        steps = self._steps(directory)
        assert steps.names() == ["3007-a"]
        steps.ended(["3007.9"])
        assert steps.names() == ["3007-a", "3007.9.revert"]


def test_there_may_be_none(directory):
    assert _due(directory) == []
    _have(directory, "3007")
    assert _due(directory, OLD, {}) == []


def test_what_the_kernel_would_not_run_is_told_before(directory, monkeypatch):
    """On such a file system not even root may execute what has the permission."""
    _have(directory, "3007-own", "3009-later")
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.X_OK)
    assert _due(directory) == ["3007-own"]
    asked = []

    def statvfs(place):
        asked.append(place)
        return os.statvfs_result((4096, 4096, 1, 1, 1, 1, 1, 1, os.ST_NOEXEC, 255))

    ((problem, fix),) = _steps(directory).cannot_run(["3007-own"], statvfs)
    assert f"{directory}, whose file system is mounted noexec" in problem
    assert "'safeupdate:steps_dir'" in fix
    assert asked == [str(directory)]
    assert _steps(directory).cannot_run(["3007-own"]) == []
    assert _steps(directory).cannot_run([], statvfs) == []


class TestSince:
    """A version that is the minion's, and no update's."""

    def test_a_host_that_was_moved_by_hand_catches_up(self, directory):
        _have(directory, "3006.20", "3007", "3007.10", "3008.1", "3008.4")
        steps = _steps(directory)
        steps.been_through("3006.28")
        now, target = {"salt": "3008.2"}, {"salt": "3008.4"}
        assert _due(directory, now, target) == ["3007", "3007.10", "3008.1", "3008.4"]
        assert steps.versions(now, target) == ("3006.28", "3008.4")
        steps.been_through("3008.4")
        assert _due(directory, target, {"salt": "3008.5"}) == []

    def test_one_that_was_taken_back_by_hand_goes_through_them_again(self, directory):
        _have(directory, "3007")
        _steps(directory).been_through("3008.3")
        assert _due(directory) == ["3007"]

    def test_no_version_says_nothing(self, directory):
        _have(directory, "3006.20", "3007")
        store = Store(str(directory.parent / "state" / "safeupdate.db"))
        store.set_fact(STEPS_SINCE, "")
        assert _due(directory) == ["3007"]


class TestFetched:
    @pytest.fixture
    def cached(self, tmp_path):
        """Files as Salt has fetched them: none can be executed."""

        def write(**texts):
            paths = []
            for name, text in texts.items():
                path = tmp_path / "cached" / name.replace("_", "-")
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
                paths.append(str(path))
            return paths

        return write

    def _have(self, directory, cached, **texts):
        steps = _steps(directory)
        steps.keep(cached(**{f"3007_{name}": text for name, text in texts.items()}))
        return steps

    def test_they_are_steps_as_well(self, directory, cached):
        _have(directory, "3007-b")
        steps = self._have(directory, cached, a="1", c="1")
        steps.keep([*cached(**{"3007_a": "1", "3007_c": "1"}), *cached(README="")])
        found = steps.due(OLD, NEW)
        assert [step.name for step in found] == ["3007-a", "3007-b", "3007-c"]
        fetched = found[0].path
        assert pathlib.Path(fetched).read_text() == "1"
        assert os.stat(fetched).st_mode & 0o777 == 0o700
        assert os.stat(os.path.dirname(fetched)).st_mode & 0o777 == 0o700

    def test_one_of_the_host_hides_one_of_the_master(self, directory, cached):
        _have(directory, "3007-a")
        (step,) = self._have(directory, cached, a="1").due(OLD, NEW)
        assert step.path == str(directory / "3007-a")

    def test_what_the_master_has_no_more_is_gone(self, directory, cached):
        self._have(directory, cached, a="1", b="1")
        self._have(directory, cached, b="2")
        assert _due(directory) == ["3007-b"]

    def test_what_takes_back_what_has_begun_stays(self, directory, cached):
        """An update may be called off by it, and the master may have others meanwhile."""
        names = ("3007-a.before", "3007-a.revert", "3007-a", "3007-b.revert")
        steps = _steps(directory)
        steps.keep(cached(**dict.fromkeys(names, "1")))
        begun = Begun(update="u1", versions=("3006.28", "3007.15"), programs=(names[0],))
        Store(str(directory.parent / "state" / "safeupdate.db")).set_fact(STEPS_BEGUN, begun)
        for given in ({"3007-c": "1"}, {"3007-d": "1"}):
            steps.keep(cached(**given))
            steps.verify()
            (back,) = steps.taking_back(begun.programs)
            assert (back.name, pathlib.Path(back.path).read_text()) == ("3007-a.revert", "1")
            assert _due(directory) == list(given)
        # One that the master has mended replaces it.
        steps.keep(cached(**{"3007-a.revert": "2"}))
        (back,) = steps.taking_back(begun.programs)
        assert pathlib.Path(back.path).read_text() == "2"

    def test_altered_since_they_are_refused_until_they_are_fetched_again(self, directory, cached):
        steps = self._have(directory, cached, a="1")
        steps.verify()
        (step,) = steps.due(OLD, NEW)
        with open(step.path, "a", encoding="utf-8") as file:
            file.write("2")
        with pytest.raises(VerificationError, match="has changed"):
            steps.verify()
        self._have(directory, cached, a="1").verify()
        os.unlink(step.path)
        with pytest.raises(VerificationError, match="cannot be read"):
            steps.verify()

    def test_what_lies_there_and_was_not_fetched_is_no_step(self, directory, cached):
        steps = self._have(directory, cached, a="1")
        (step,) = steps.due(OLD, NEW)
        stray = os.path.join(os.path.dirname(step.path), "3007-b")
        with open(os.open(stray, os.O_CREAT | os.O_WRONLY, 0o700), "w", encoding="utf-8"):
            pass
        assert _due(directory) == ["3007-a"]
