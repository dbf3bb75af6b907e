"""Which executors are loaded for a job, by Salt's own loader."""

import pytest
import salt.config
import salt.loader
import salt.loader.lazy

from saltext_safeupdate.ordering import loaders


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
