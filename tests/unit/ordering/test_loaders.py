"""What Salt's own loader loads and lists in a process with our hooks."""

from types import SimpleNamespace

import pytest
import salt.config
import salt.loader
import salt.loader.lazy

from saltext_safeupdate.ordering import loaders
from saltext_safeupdate.patches import replaced


@pytest.fixture
def executors(monkeypatch, tmp_path):
    """The executors of a job in a process with our hooks, and those of *tmp_path*."""
    lazy = salt.loader.lazy.LazyLoader
    replace = loaders.around_load_module({})
    monkeypatch.setattr(lazy, "_load_module", replace(lazy._load_module))
    opts = {**salt.config.DEFAULT_MINION_OPTS, "grains": {}, "executor_dirs": [str(tmp_path)]}
    opts["extension_modules"] = str(tmp_path / "none")
    return salt.loader.executors(opts, {})


def test_an_executor_that_has_no_answer_does_not_have_all_others_loaded(executors):
    assert "direct_call.allow_missing_func" in executors
    assert executors["direct_call.allow_missing_func"]("no.such") is False
    assert executors.loaded_files == {"direct_call"}
    assert executors["direct_call.execute"]({}, {}, lambda text: text, ["runs"], {}) == "runs"


def test_the_answer_of_an_executor_counts(executors, tmp_path):
    answers = "def allow_missing_func(function):\n    return True\n"
    (tmp_path / "remote.py").write_text(f"{answers}\n\ndef execute(*args):\n    return 1\n")
    assert executors["remote.allow_missing_func"]("no.such") is True


def test_an_executor_that_is_not_there_has_no_answer(executors, tmp_path):
    (tmp_path / "absent.py").write_text(
        "def __virtual__():\n    return False\n\n\ndef execute(*args):\n    return 1\n"
    )
    assert "absent.allow_missing_func" not in executors
    assert "nowhere.allow_missing_func" not in executors
    assert "absent.execute" not in executors


@pytest.fixture
def listed(monkeypatch):
    """The loaders that have listed their directories, in a process where they do so once."""
    lazy, listings = salt.loader.lazy.LazyLoader, []
    refresh = lazy._refresh_file_mapping

    def noting(self):
        listings.append(self)
        refresh(self)

    replace = replaced(("self",), loaders.list_once)
    monkeypatch.setattr(lazy, "_refresh_file_mapping", replace(noting))
    return listings


def _loader(directory):
    (directory / "first.py").write_text("def run():\n    return 1\n")
    opts = {**salt.config.DEFAULT_MINION_OPTS, "grains": {}}
    return salt.loader.lazy.LazyLoader([str(directory)], opts, tag="module")


def test_a_loader_that_is_made_lists_its_directories_once(listed, tmp_path):
    loader = _loader(tmp_path)
    assert len(listed) == 1
    assert loader["first.run"]() == 1
    assert len(listed) == 1


def test_a_loader_that_misses_a_function_lists_its_directories_again(listed, tmp_path):
    loader = _loader(tmp_path)
    (tmp_path / "second.py").write_text("def run():\n    return 2\n")
    assert loader["second.run"]() == 2
    assert len(listed) == 2


def test_a_loader_that_is_cleared_lists_its_directories_again(listed, tmp_path):
    loader = _loader(tmp_path)
    (tmp_path / "first.py").unlink()
    loader.clear()
    assert len(listed) == 2
    assert "first.run" not in loader


def test_a_loader_that_does_not_tell_whether_it_is_being_made_lists_as_it_always_does():
    listings = []
    loader = SimpleNamespace(file_mapping={})
    loaders.list_once(listings.append, loader)
    assert listings == [loader]
