"""This version and a newer one work on one database, in turn: none takes from the other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.record.facts import LEAVING
from saltext_safeupdate.core.record.parts import Code, Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.supervisor import leaving
from tests.support import wheels

SOURCE = Path(__file__).resolve().parents[3] / "src"
# What the newer version has besides: a field of a part, and a column.
ADDED = {
    "core/record/parts.py": """


@frozen
class Code(Code):
    added: str = ""


PARTS["code"] = Code
""",
    "core/record/database.py": """

Database.VERSION += 1
Database.ADDED += (("updates", "added", "TEXT NOT NULL DEFAULT ''"),)
""",
}
# What it does: it has no more than its own code.
ACT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from dataclasses import replace
from saltext_safeupdate import __version__
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
store, ledger = Store(sys.argv[2]), Ledger(sys.argv[2])
last = store.latest()
found = {
    "version": __version__,
    "phase": last.phase.value,
    "added": last.code.added,
    "jobs": sorted(job.jid for job in ledger.open()),
}
code = replace(last.code, added="by the newer one")
store.save(last.advance(Phase[sys.argv[3]], reason="by the newer one", code=code))
with store.transaction() as db:
    found["column"] = db.execute("SELECT added FROM updates").fetchone()[0]
    db.execute("UPDATE updates SET added = 'theirs'")
ledger.accept("9", jid="9", fun="test.ping", master="m", call=b"x", owner="me")
ledger.delivered("1")
print(json.dumps(found))
"""


@pytest.fixture
def newer(tmp_path):
    """Have the newer version bring the record to a phase; return what it has found."""
    wheel = wheels.rebuild(SOURCE, tmp_path / "newer", "99.0", **ADDED)

    def act(path, phase):
        argv = (sys.executable, "-I", "-B", "-c", ACT, str(wheel), path, phase.name)
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return act


def test_each_reads_what_the_other_writes_and_keeps_what_it_does_not_know(tmp_path, newer):
    path = str(tmp_path / "safeupdate.db")
    store, ledger = Store(path), Ledger(path)
    progress, code = Progress(delay=7.0), Code(extension="/opt")
    update = Update(id="u1", kind="restart", phase=Phase.WAITING, created=1.0, code=code)
    store.save(update.advance(Phase.DELIVERING, progress=progress))
    leaving.ask(store, "/etc/salt/minion")
    ledger.add_undelivered("1", jid="1", fun="test.ping", master="m", payload=b"x")
    said = {"version": "99.0", "phase": "delivering", "added": "", "jobs": ["1"], "column": ""}
    assert newer(path, Phase.RESTARTING) == said
    last = store.latest()
    assert (last.phase, last.reason) == (Phase.RESTARTING, "by the newer one")
    assert (last.progress, last.code) == (progress, code)
    assert store.fact(LEAVING).config == "/etc/salt/minion"
    assert {job.jid: job.state for job in ledger.open()} == {"9": State.ACCEPTED}
    # And once more, after this version has written again.
    store.save(last.advance(Phase.WATCHING, code=Code(extension="/usr")))
    kept = {"phase": "watching", "added": "by the newer one", "column": "theirs"}
    assert newer(path, Phase.COMMITTED) == {**said, **kept, "jobs": ["9"]}
    assert store.latest().code == Code(extension="/usr")
    assert ledger.outcome("1") == (State.DELIVERED, 0)
