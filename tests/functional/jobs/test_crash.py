"""The power of SIGKILL: a process ends at each step of each write, and the next one copes."""

import os
import signal
import sqlite3

import pytest

from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.jobs.suspension import Suspension, Suspensions

WRITES = {
    "accept": (
        lambda ledger: ledger.accept("1", jid="1", fun="f", master="m", call=b"call", owner="o"),
        None,
        State.ACCEPTED,
    ),
    "begin": (lambda ledger: ledger.begin("1", "child"), State.ACCEPTED, State.RUNNING),
    "chunk": (
        lambda ledger: ledger.add_chunk("1", "tag", "digest", b"result"),
        State.RUNNING,
        State.RUNNING,
    ),
    "suspend": (
        lambda ledger: Suspensions(ledger.path).begin("1", "tag", Suspension.of("")),
        State.RUNNING,
        State.RUNNING,
    ),
    "finish": (lambda ledger: ledger.finish("1", b"return"), State.RUNNING, State.FINISHED),
    "deliver": (lambda ledger: ledger.delivered("1"), State.FINISHED, State.DELIVERED),
}


class Fuse(sqlite3.Connection):
    """Ends the process before its *left*-th statement."""

    left = 0

    def execute(self, *args):
        self._burn()
        return super().execute(*args)

    def commit(self):
        self._burn()
        super().commit()

    def close(self):
        self._burn()
        super().close()

    def _burn(self):
        Fuse.left -= 1
        if Fuse.left < 0:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at(step, path, write):
    """Run *write* in a process that ends at *step*; tell whether it got through instead."""
    pid = os.fork()
    if not pid:
        try:
            connect = sqlite3.connect
            sqlite3.connect = lambda *args, **kwargs: connect(*args, **kwargs, factory=Fuse)
            Fuse.left = step
            write(Ledger(path))
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.waitstatus_to_exitcode(status) == 0
    return True


@pytest.mark.parametrize("name", list(WRITES))
def test_killed_at_every_statement_of_every_write(tmp_path, name):
    names = list(WRITES)
    kills = 0
    for step in range(1000):
        path = str(tmp_path / f"{name}{step}" / "safeupdate.db")
        for before in names[: names.index(name)]:
            WRITES[before][0](Ledger(path))
        write, old, new = WRITES[name]
        if killed_at(step, path, write):
            break
        kills += 1
        ledger = Ledger(path)
        found = ledger.full("1")
        assert (found.state if found else None) in (old, new)
        if found and found.state is State.FINISHED:
            assert found.payload == b"return"
        if found and found.state in (State.ACCEPTED, State.RUNNING):
            assert found.call == b"call"
        with ledger.connection() as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        # Whatever the end left, the next process can go on from there.
        for again in names[names.index(name) :]:
            WRITES[again][0](ledger)
        assert ledger.full("1").state is State.DELIVERED
    print(f"{name}: ended at {kills} points, recovered at each")
    assert kills >= 5
