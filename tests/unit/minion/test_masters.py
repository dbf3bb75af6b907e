"""Which master gets what, for every form of ``master:``."""

import logging

import pytest
import salt.payload

from saltext_safeupdate.core.generations.generation import Probe
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs.delivering import Answer
from saltext_safeupdate.core.jobs.ledger import Job, State
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.minion import queues
from saltext_safeupdate.minion.complaints import Complaints
from saltext_safeupdate.minion.delivery import Delivery
from saltext_safeupdate.minion.masters import Masters, Noting, addresses

ME = processes.me()


class Part:
    """A part of the minion in the main process: its opts change while it lives."""

    def __init__(self, master, *, connected=True, **opts):
        self.opts = {"master": master, **opts}
        self.connected = connected


class World:
    def __init__(self, path, master, **opts):
        # The engine's opts are those of the configuration.
        self.opts = {"id": "m1", "cachedir": str(path / "cache"), "master": master, **opts}
        self.store = Store(str(path / "state" / "safeupdate.db"))
        self.path = path
        self.start()

    def start(self):
        """Start another minion on this host."""
        self.noting = Noting(self.store, Complaints(), lambda jid: jid == "begun")
        self.masters = Masters(self.opts, self.store, ME)
        self.delivery = Delivery(self.opts, {"event.send": None}, self.masters)

    def part(self, master, **kwargs):
        part = Part(master, cachedir=self.opts["cachedir"], **kwargs)
        part.opts["master_type"] = self.opts.get("master_type", "str")
        self.work(part)
        return part

    def work(self, part):
        """Look into its queue, and return the JIDs that it works on."""
        self.noting.note(part)
        self.noting.take_over(part)
        opts = {"cachedir": part.opts["cachedir"], "master": part.opts["master"]}
        return {jid for each in queues._directories(opts) for jid in _jids(each)}


def _jids(directory):
    return [name.removesuffix(".p").split("_", 2)[2] for name in queues._names(directory)]


PROBE = Probe(jid="7", fun="test.echo")


def _job(master, jid="7"):
    call = salt.payload.dumps({"jid": jid, "fun": "test.ping", "arg": []})
    return Job(jid, jid, "test.ping", master, State.HELD, "", "", 1.0, 1.0, 1, 0, 0, "", call, None)


@pytest.mark.parametrize(
    ("configured", "master_type", "present"),
    [
        ("one", "str", ["one"]),
        ("one:4506", "str", ["one"]),
        ("[::1]:4506", "str", ["::1"]),
        ("fe80::1", "str", ["fe80::1"]),
        (["one", "two:4516"], "str", ["one", "two"]),
        (["one:4506", "two"], "failover", ["two"]),
        (["one:4506", "two"], "distributed", ["one"]),
        ("which.master", "func", ["one"]),
    ],
)
def test_the_probe_lies_in_a_queue_that_is_worked_on(tmp_path, configured, master_type, present):
    world = World(tmp_path, configured, master_type=master_type)
    assert world.delivery.probe(PROBE) is False
    parts = [world.part(master) for master in present]
    assert world.delivery.probe(PROBE) is True
    assert world.work(parts[0]) == {"7"}
    assert world.delivery.queued() == {"7"}
    assert world.masters.working() == present


def test_it_goes_to_a_master_that_is_connected(tmp_path):
    world = World(tmp_path, ["one", "two"])
    one, two = world.part("one"), world.part("two")
    one.connected = False
    world.work(one)
    assert world.masters.working() == ["two", "one"]
    world.delivery.probe(PROBE)
    assert (world.work(one), world.work(two)) == (set(), {"7"})


def test_a_main_process_without_hooks_has_what_is_configured(tmp_path):
    world = World(tmp_path, ["one:4506", "two"])
    masters = Masters(world.opts, world.store, ME, hooked=False)
    assert masters.working() == ["one", "two"]
    assert masters.in_charge_of("two", "") == "two"


def test_what_an_earlier_minion_was_connected_to_does_not_count(tmp_path):
    world = World(tmp_path, "one")
    world.part("one")
    world.masters = Masters(world.opts, world.store, "another process")
    assert world.masters.working() == []


class TestFailover:
    @pytest.fixture
    def world(self, tmp_path):
        return World(tmp_path, ["one:4506", "two"], master_type="failover")

    def test_held_jobs_and_returns_go_to_the_present_master(self, world):
        part = world.part("one")
        world.delivery.run(_job("one"))
        assert world.work(part) == {"7"}
        # While it looks for another, the opts name those that it tries.
        part.connected = False
        part.opts["master"] = "two"
        world.work(part)
        assert world.masters.working() == ["one"]
        part.connected = True
        assert world.work(part) == {"7"}
        assert world.masters.working() == ["two"]
        assert world.masters.in_charge_of("one", "") == "two"
        world.delivery.run(_job("one", "8"))
        assert world.work(part) == {"7", "8"}
        part.opts["master"] = "one"
        assert world.work(part) == {"7", "8"}, "and back"

    def test_what_the_last_minion_held_for_another_is_taken_over(self, world):
        world.part("one")
        world.delivery.run(_job("one"))
        world.delivery.run(_job("one", "begun"))
        path = queues.find(world.opts, "begun")
        (world.path / path).rename(path.replace("queued_", "running_"))
        world.start()
        assert world.work(world.part("two")) == {"7"}, "what has begun is the ledger's"


class TestGone:
    @pytest.fixture
    def world(self, tmp_path):
        world = World(tmp_path, ["one", "two:4516"])
        world.part("one")
        return world

    def test_it_is_told_once_of_each_master_and_nothing_is_sent(self, world, caplog):
        caplog.set_level(logging.ERROR)
        job = _job("gone")._replace(payload=salt.payload.dumps({"cmd": "_return"}))
        assert world.delivery.send(job) is Answer.NONE
        assert world.delivery.send(job) is Answer.NONE
        assert world.masters.tell_of_gone(
            lambda: [_job("two"), _job("gone", "9"), _job("lost", "10")]
        )
        told = [record.getMessage() for record in caplog.records]
        assert [line.split(",")[0] for line in told] == [
            "safeupdate: the return of job 7 belongs to master gone",
            "safeupdate: job 10 belongs to master lost",
        ]

    def test_it_is_not_said_of_a_master_of_another_part_that_is_away(self, tmp_path, caplog):
        """Of several at a time, the opts of each part have only its own."""
        world = World(tmp_path / "other", "one", multimaster=True)
        world.part("one")
        assert world.masters.in_charge_of("two", "job 7") is None
        assert "two, which has not been reached since the start, or" in caplog.text

    def test_one_that_is_only_away_keeps_what_is_its(self, world, caplog):
        job = _job("two")._replace(payload=salt.payload.dumps({"cmd": "_return"}))
        assert world.delivery.send(job) is Answer.NONE
        world.delivery.run(job)
        assert caplog.records == []
        assert world.work(world.part("two")) == {"7"}

    def test_nobody_is_gone_before_there_is_any(self, tmp_path, caplog):
        world = World(tmp_path / "other", "one")
        assert world.masters.tell_of_gone(lambda: [_job("gone")]) is False
        assert caplog.records == []


@pytest.mark.parametrize(
    ("opts", "found"),
    [
        ({"master": "m"}, [("m", 4506)]),
        ({"master": "m", "master_port": 4999}, [("m", 4999)]),
        ({"master": ["a:4510", "[::1]:4511", "b"]}, [("a", 4510), ("::1", 4511), ("b", 4506)]),
        ({"master": "now this", "master_list": ["a"]}, [("a", 4506)]),
        ({"master": "some.function", "master_type": "func"}, []),
        ({"master": "m", "master_type": "disable"}, []),
        ({}, []),
    ],
)
def test_where_masters_are_looked_for(opts, found):
    """Only with ZeroMQ, Salt's default, do they greet."""
    for transport in ({}, {"transport": "zeromq"}):
        assert addresses({**opts, **transport}) == [(*each, True) for each in found]
    for transport in ("tcp", "ws"):
        assert addresses({**opts, "transport": transport}) == [(*each, False) for each in found]
