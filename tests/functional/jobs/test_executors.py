"""What Salt loads for each job, whether this extension is set up or not, brings nothing along."""

import subprocess
import sys

import pytest
import salt.config
import salt.loader

EXECUTORS = "saltext_safeupdate.executors"
_CODE = """
import importlib, sys
executor = importlib.import_module("saltext_safeupdate.executors." + sys.argv[1])
executor.__virtual__()
if sys.argv[2:]:
    executor.execute({}, {"fun": sys.argv[2]}, print, [], {})
print(*sorted(name for name in sys.modules if name.startswith("saltext_safeupdate")))
"""


@pytest.mark.parametrize("name", ["safeupdate", "transactional_update"])
def test_an_executor_that_nobody_calls_imports_nothing_of_ours(name):
    assert _imported(name) == {EXECUTORS, f"{EXECUTORS}.{name}"}


def test_a_salt_call_that_only_looks_imports_only_the_table_of_functions():
    ours = {"core", "core.jobs", "core.jobs.functions", "minion", "minion.executor"}
    expected = {EXECUTORS, f"{EXECUTORS}.safeupdate", *(f"saltext_safeupdate.{n}" for n in ours)}
    assert _imported("safeupdate", "test.ping") == expected


def _imported(*argv):
    """Return what of ours an executor brings along, or a function that it is to execute."""
    command = [sys.executable, "-c", _CODE, *argv]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return set(said.split()) - {"saltext_safeupdate"}


def test_salt_learns_that_a_function_has_to_be_there_without_loading_other_executors():
    """Salt asks that for each job. Without an answer it loads them all, and lists them again."""
    opts = {**salt.config.minion_config(None), "grains": {}}
    executors = salt.loader.executors(opts, {})
    assert executors["safeupdate.allow_missing_func"]("no.such") is False
    assert executors.loaded_files == {"safeupdate"}


_RECORD = """
import sys
from saltext_safeupdate.core.record.store import Store

store = Store(sys.argv[1])
if sys.argv[2] == "updated":
    from saltext_safeupdate.core.record.update import Update

    store.save(Update(id="1", kind="update"))
    for name in ("update", "parts"):
        del sys.modules["saltext_safeupdate.core.record." + name]
last = store.latest()
print(last and last.id, "saltext_safeupdate.core.record.parts" in sys.modules)
"""


@pytest.mark.parametrize(("minion", "said"), [("new", "None False"), ("updated", "1 True")])
def test_what_a_record_consists_of_is_loaded_if_there_is_one(tmp_path, minion, said):
    command = [sys.executable, "-c", _RECORD, str(tmp_path / "state" / "db"), minion]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{said}\n"
