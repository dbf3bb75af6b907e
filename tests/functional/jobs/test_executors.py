"""What Salt loads for each job, whether this extension is set up or not, brings nothing along."""

import subprocess
import sys

import pytest

_CODE = """
import importlib, sys
executor = importlib.import_module("saltext_safeupdate.executors." + sys.argv[1])
executor.__virtual__()
print(*sorted(name for name in sys.modules if name.startswith("saltext_safeupdate")))
"""


@pytest.mark.parametrize("name", ["safeupdate", "transactional_update"])
def test_an_executor_that_nobody_calls_imports_nothing_of_ours(name):
    argv = [sys.executable, "-c", _CODE, name]
    found = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
    package = "saltext_safeupdate.executors"
    assert found == ["saltext_safeupdate", package, f"{package}.{name}"]
