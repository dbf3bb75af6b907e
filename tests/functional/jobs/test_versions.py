"""The first release and this version work on one database, in turn: none takes from the other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.supervisor import leaving

REPO = Path(__file__).resolve().parents[3]
(WHEEL,) = (REPO / "tests" / "lab" / "data").glob("first-*.whl")
# What the first release does: it has no more than its own code.
EARLIER = """
import json, sys
sys.path.insert(0, sys.argv[1])
from saltext_safeupdate.core.ledger import Ledger
from saltext_safeupdate.core.record import Phase
from saltext_safeupdate.core.store import Store
store, ledger = Store(sys.argv[2]), Ledger(sys.argv[2])
last = store.latest()
found = {"phase": last.phase.value, "jobs": sorted(job.jid for job in ledger.open())}
store.save(last.advance(Phase.CANCELLED, reason="by the first release"))
ledger.accept("9", jid="9", fun="test.ping", master="m", call=b"x", owner="me")
ledger.delivered("1")
print(json.dumps(found))
"""


@pytest.fixture
def earlier(tmp_path):
    """Have the first release do something with a database; return what it has found."""

    def act(path):
        argv = (sys.executable, "-I", "-c", EARLIER, str(WHEEL), str(path))
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return act


def test_each_reads_what_the_other_writes_and_keeps_what_it_does_not_know(tmp_path, earlier):
    path = str(tmp_path / "safeupdate.db")
    store, ledger = Store(path), Ledger(path)
    progress = Progress(delay=7.0)
    store.save(Update(id="u1", kind="restart", phase=Phase.WAITING, created=1.0, progress=progress))
    leaving.ask(store, "/etc/salt/minion")
    ledger.add_undelivered("1", jid="1", fun="test.ping", master="m", payload=b"x")
    assert earlier(path) == {"phase": "waiting", "jobs": ["1"]}
    last = store.latest()
    assert (last.phase, last.reason) == (Phase.CANCELLED, "by the first release")
    assert last.progress.delay == 7.0
    assert store.fact("leaving")["config"] == "/etc/salt/minion"
    assert {job.jid: job.state for job in ledger.open()} == {"9": State.ACCEPTED}
    # And once more, after this version has written again.
    store.save(Update(id="u2", kind="restart", phase=Phase.WAITING, created=2.0))
    assert earlier(path) == {"phase": "waiting", "jobs": ["9"]}
    assert ledger.outcome("1") == (State.DELIVERED, 0)
