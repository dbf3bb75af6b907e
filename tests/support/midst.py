"""A job of the ledger that is suspended in the midst of its run, and goes on."""

import pytest

from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.jobs.suspension import Suspended, Suspension

KEY = "20260101000000000001"


class Run:
    """A job of the ledger, whose process starts, ends, and starts again behind a reboot."""

    def __init__(self, minion, path, monkeypatch):
        self.minion = minion
        self.ledger = Ledger(minion.host.settings.database)
        self.trace = path / "trace"
        self.asked = []
        self._monkeypatch = monkeypatch
        self.main = processes.me()
        minion.services.reboot = self.asked.append
        described = {"jid": KEY, "fun": "state.apply", "master": "m", "call": b""}
        self.ledger.accept(KEY, **described, owner=self.main)

    def begin(self, *, may_go_back=True, begin=True):
        """Begin the job in this process."""
        self.trace.write_text("")
        lock = locks.Lock(self.minion.host.settings.run_dir, "jobs")
        assert lock.try_shared()
        attempt = self.ledger.begin(KEY, processes.this_thread(), says=True) if begin else 1
        assert attempt
        key = KEY if begin else ""
        current.begin(
            current.Job(jid=KEY, lock=lock, key=key, attempt=attempt, may_go_back=may_go_back)
        )

    def attempt(self, content, *, may_go_back=True, begin=True, **kwargs):
        self.begin(may_go_back=may_go_back, begin=begin)
        return self.minion.apply(content, **kwargs)

    def suspended(self, content, **kwargs):
        """Run until the job is suspended; return what it waits for."""
        with pytest.raises(Suspended):
            self.attempt(content, **kwargs)
        return self.put_back()

    def put_back(self):
        """Have the process of a suspended job end; return what it waits for."""
        waits = Suspension.of(self.ledger.full(KEY).awaits)
        assert self.ledger.put_back(KEY, processes.this_thread())
        held = self.ledger.full(KEY)
        assert (held.state, held.attempts) == (State.HELD, 0)
        return waits

    def goes_on(self, *gone):
        """Have these processes end, and the engine start the job again."""
        alive = processes.alive
        self._monkeypatch.setattr(processes, "alive", lambda who: who not in gone and alive(who))
        assert self.ledger.take(self.ledger.full(KEY), self.main)
        described = {"jid": KEY, "fun": "state.apply", "master": "m", "call": b""}
        self.ledger.accept(KEY, **described, owner=self.main, over=(State.HELD,))

    def done(self):
        return self.trace.read_text().split()

    def cmd(self, word, *more, then="true"):
        return {"cmd.run": [{"name": f"echo {word} >> {self.trace}; {then}"}, *more]}

    def chain(self, **boot):
        """Return a run with a reboot between its states."""
        said = [{name: value} for name, value in boot.items()]
        return {"one": self.cmd("one"), "boot": {"safeupdate.rebooted": said}, "two": self.cmd("2")}
