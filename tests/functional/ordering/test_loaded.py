"""What a run loads: all that a state may need, except for a state that is called alone."""

import subprocess
import sys

import pytest

ROOM = "saltext_safeupdate.ordering."
# What looks after the own packages, and after what the ledger records.
RARE = {"deferring", "guard", "kept", "of_packages", "own_packages", "parallel", "resume"}
_CODE = """
import sys
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.ordering import patches
from saltext_safeupdate.this_host import Host

later = patches.Later(Host({}), Settings())
class State:
    opts, mocked = {}, False
if sys.argv[1] == "ready":
    later.build()
elif sys.argv[1] == "alone":
    call = later.around_call(lambda self, low, chunks, running, retries=1: {"result": True})
    low = {"state": "test", "fun": "nop", "name": "a", "__id__": "a"}
    assert call(State(), low) == {"result": True}
else:
    function = later.by(sys.argv[1])
    assert function(lambda state, what: {}, State(), []) == {}
print(*sorted(sys.modules))
"""


def _loaded(how):
    argv = [sys.executable, "-c", _CODE, how]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {name.removeprefix(ROOM) for name in done.stdout.split() if name.startswith(ROOM)}


def test_a_state_that_is_called_alone_loads_nothing_that_few_states_need():
    loaded = _loaded("alone")
    assert "calling" in loaded
    assert not RARE & loaded


@pytest.mark.parametrize("how", ["ready", "call_high", "call_chunks"])
def test_a_ready_minion_and_a_run_of_many_states_load_it_all(how):
    """One of the states may replace this package: the rest of the run needs the same one."""
    assert _loaded(how) >= RARE
