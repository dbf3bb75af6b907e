"""A return is stored before it is sent, and kept until its master has it."""

import contextlib
import logging
import sqlite3

import pytest
import salt.payload
from salt.exceptions import SaltReqTimeoutError
from salt.utils.jid import gen_jid

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.minion import returns
from saltext_safeupdate.minion.complaints import Complaints
from saltext_safeupdate.minion.returns import Returns

from .conftest import JID, FakeMinion


def test_a_delivered_return_is_wiped(world):
    world.run(world.publish())
    job = world.ledger.full(JID)
    assert (job.state, job.call, job.payload) == (State.DELIVERED, None, None)


def test_a_return_is_kept_before_it_is_sent(world, monkeypatch):
    seen = []
    original = FakeMinion._return_pub

    def send(self, ret, **kwargs):
        value = original(self, ret, **kwargs)
        seen.append(world.ledger.full(JID))
        return value

    monkeypatch.setattr(FakeMinion, "_return_pub", send)
    world.run(world.publish())
    assert seen[0].state is State.FINISHED
    assert salt.payload.loads(seen[0].payload)["return"] == "ok"


@pytest.mark.parametrize("answer", ["", False], ids=["failed", "refused"])
def test_a_return_that_the_master_has_not_taken_stays(world, answer):
    world.minion.acknowledge = answer
    world.run(world.publish())
    assert world.states() == {JID: "finished"}


def test_a_return_that_salt_fails_to_send_stays(world, monkeypatch):
    def fail(self, ret, **kwargs):
        raise ConnectionError("the bus is gone")

    monkeypatch.setattr(FakeMinion, "_return_pub", fail)
    for jid, fun in ((JID, "cmd.run"), (gen_jid({}), "test.ping")):
        data = world.publish(jid, fun)
        with pytest.raises(ConnectionError):
            world.run(data)
    assert sorted(world.states().values()) == ["finished", "finished"]


def test_a_return_that_could_not_be_stored_at_first_is_stored_when_it_did_not_arrive(
    world, monkeypatch
):
    """The database was busy as the return was prepared; the return was lost."""
    finish, tries = Ledger.finish, []

    def busy(*args):
        tries.append(args)
        if len(tries) == 1:
            raise RecordError("database is locked")
        return finish(*args)

    monkeypatch.setattr(Ledger, "finish", busy)
    world.minion.acknowledge = ""
    world.run(world.publish())
    assert world.states() == {JID: "finished"}
    assert salt.payload.loads(world.ledger.full(JID).payload)["return"] == "ok"


def test_the_return_of_a_cheap_function_is_kept_where_it_did_not_arrive(world):
    world.minion.acknowledge = ""
    world.run(world.publish(fun="test.ping"))
    (job,) = world.ledger.undelivered()
    assert (job.jid, job.fun) == (JID, "test.ping")


def test_where_nothing_is_to_be_returned_nothing_is_kept(world):
    world.minion.opts["pub_ret"] = False
    world.minion.acknowledge = ""
    world.run(world.publish())
    assert world.states() == {JID: "delivered"}


def sending(world, job=None):
    """Send the return of JID 1 from the process of *job*."""
    current.begin(job)
    try:
        load = {"cmd": "_return", "jid": "1", "return": "ok"}
        return world.returns.send(lambda minion, load, timeout: "taken", world.minion, load, 60)
    finally:
        current.end()


def test_a_return_that_is_kept_is_left_to_the_engine_where_too_many_are_sent(world):
    world.returns = Returns(world.settings, Complaints(), turn_timeout=0.0)
    lock = locks.Lock(world.settings.run_dir, "jobs")
    kept = current.Job(jid="1", lock=lock, key="1", stored=True)
    assert sending(world, kept) == "taken"
    turns = [locks.acquire(world.settings.run_dir, name, "") for name in locks.RETURNS]
    with pytest.raises(SaltReqTimeoutError, match="the engine sends"):
        sending(world, kept)
    assert sending(world, current.Job(jid="1", lock=lock, key="1")) == "taken", "it is not kept"
    assert sending(world) == "taken"
    turns[0].close()
    assert sending(world, kept) == "taken"
    assert locks.Lock(world.settings.run_dir, turns[0].name).try_exclusive(), "the turn is over"


def test_what_is_no_return_waits_for_no_turn(world):
    for name in locks.RETURNS:
        locks.acquire(world.settings.run_dir, name, "")
    event = {"cmd": "_minion_event"}
    assert world.returns.send(lambda *args: "taken", world.minion, event, 60) == "taken"


def test_what_could_not_be_sent_is_not_logged(caplog):
    log = logging.getLogger("test.minion")
    log.addFilter(returns.without_payload)
    load = {"cmd": "_return", "jid": "1", "return": "secret", "fun_args": ["secret"]}
    log.error("Timeout encountered while sending %r request. id=%s", load, "request")
    log.error("Something else: %s", "kept")
    assert "secret" not in caplog.text
    assert "{'cmd': '_return', 'jid': '1'} request. id=request" in caplog.text
    assert "kept" in caplog.text


def test_of_several_returns_of_a_job_each_is_kept_until_its_master_has_it(world):
    """On 3008, a state run returns for each resource of its minion, and at last for itself."""
    data = world.publish(JID, "state.apply")
    world.minion.acknowledge = ""

    def returned():
        for resource in ("web1", "web2"):
            ret = {"jid": JID, "fun": "state.apply", "return": resource, "resource_id": resource}
            world.returns.publish(FakeMinion._return_pub, world.minion, ret)

    world.while_it_runs = returned
    world.run(data, "its own")
    kept = [world.ledger.full(job.key) for job in world.ledger.undelivered()]
    loads = [salt.payload.loads(job.payload) for job in kept]
    found = {load.get("resource_id"): load["return"] for load in loads}
    assert found == {"web1": "web1", "web2": "web2", None: "its own"}


def test_a_return_of_a_resource_that_arrived_leaves_the_job_as_it_is(world):
    data = world.publish(JID, "state.apply")

    def returned():
        ret = {"jid": JID, "fun": "state.apply", "return": "x", "resource_id": "web1"}
        world.returns.publish(FakeMinion._return_pub, world.minion, ret)
        assert world.states() == {JID: "running"}

    world.while_it_runs = returned
    world.run(data, "its own")
    assert world.states() == {JID: "delivered"}


def test_a_database_that_is_locked_delays_a_job_once_and_not_at_each_step(world, monkeypatch):
    waited = []
    monkeypatch.setattr(current, "PATIENCE", 0.02)
    monkeypatch.setattr(current, "_BLIND_PATIENCE", 0.01)
    data = world.publish()
    with contextlib.closing(sqlite3.connect(world.ledger.path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3,
            "connect",
            lambda path, timeout, **more: waited.append(timeout) or connect(path, timeout, **more),
        )
        world.run(data)
    of_job = [timeout for timeout in waited if timeout in (0.02, 0.01)]
    assert of_job[0] == 0.02
    assert of_job[1:]
    assert set(of_job[1:]) == {0.01}
    assert world.minion.sent["return"] == "ok"
