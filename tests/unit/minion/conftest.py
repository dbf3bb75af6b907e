"""A minion's main process and the processes of its jobs, without Salt's own minion."""

import pytest

from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.admission import Admission
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.minion import queues
from saltext_safeupdate.minion.complaints import Complaints
from saltext_safeupdate.minion.intake import Intake
from saltext_safeupdate.minion.job_process import JobProcess, Ticket
from saltext_safeupdate.minion.returns import Returns
from saltext_safeupdate.minion.succession import Succession
from tests.support.state_runs import no_runs

JID = "20260101000000000001"
OTHER_JID = "20260101000000000002"
THIRD_JID = "20260101000000000003"
FOURTH_JID = "20260101000000000004"


class FakeMinion:
    """The few attributes of Salt's minion that its hooks touch."""

    def __init__(self, path, world):
        self.opts = {
            "id": "m1",
            "master": "master1",
            "cachedir": str(path / "cache"),
            "multiprocessing": True,
            "pub_ret": True,
            "pillar": {},
        }
        self.connected = True
        self.answers = []
        self.acknowledge = None
        self._world = world

    def _queue_job(self, data):
        def put(minion, job):
            queues.put(minion.opts, job)

        return self._world.intake.queue(put, self, data)

    def _return_pub_main(self, ret):
        self.answers.append(ret)

    def _return_pub(self, ret, **kwargs):
        def prepare(minion, ret, ret_cmd):
            return {"cmd": ret_cmd, "id": "m1", **ret}

        self.sent = self._world.returns.prepare(prepare, self, ret)
        return self.acknowledge


class World:
    def __init__(self, path):
        self.settings = Settings(state_dir=str(path / "state"), run_dir=str(path / "run"))
        self.tickets, self.redirected = {}, []
        complaints = Complaints()
        store = Store(self.settings.database)
        admission = Admission(self.settings, store, complain=complaints.tell)
        succession = Succession(self.settings, store, complaints)
        self.intake = Intake(
            self.settings, complaints, self.tickets, admission, succession, no_runs()
        )
        self.job_process = JobProcess(
            self.settings, complaints, self.tickets, admission, self.redirected.append
        )
        self.returns = Returns(self.settings, complaints)
        self.minion = FakeMinion(path, self)
        self.ledger = Ledger(self.settings.database)
        self.while_it_runs = lambda: None

    def publish(self, jid=JID, fun="cmd.run", *, queued=False, **more):
        """Pass a job in; return what Salt was given to start, or None."""
        data = {"jid": jid, "fun": fun, "arg": ["x"], "ret": "", "user": "root", **more}
        if queued:
            data[queues.QUEUED] = True
        started = []

        def start(minion, job):
            started.append(job)
            self.ticket = self.tickets[id(job)]
            self.counted = self.ticket.lock is not None and not self._alone()
            return object()

        self.intake.invoke(start, self.minion, data)
        return started[0] if started else None

    def run(self, data, value="ok"):
        """Do what the job's process does: run it, and return."""

        def target(cls, minion, opts, job, *rest):
            self.job_process.function(lambda minion: self.while_it_runs(), minion)
            if value is not None:
                ret = {"jid": job["jid"], "fun": job["fun"], "return": value}
                self.returns.publish(FakeMinion._return_pub, minion, ret)

        lock = self.ticket.lock and locks.share(self.settings.run_dir, "jobs")
        self.tickets[id(data)] = Ticket(lock, self.ticket.key, goes_on=self.ticket.goes_on)
        try:
            self.job_process.target(target, None, self.minion, self.minion.opts, data)
        finally:
            current.end()

    def _alone(self):
        return locks.Lock(self.settings.run_dir, "jobs").try_exclusive()

    def states(self):
        with self.ledger.connection() as db:
            return dict(db.execute("SELECT key, state FROM jobs").fetchall())


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def drain(world):
    lock = locks.acquire(world.settings.run_dir, "drain", "held")
    yield lock
    lock.close()
