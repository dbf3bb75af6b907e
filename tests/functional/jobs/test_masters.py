"""What Salt's own minion makes of each form of ``master:``, and that we follow it."""

import asyncio
import inspect
import os
import types

import pytest
import salt.channel.client
import salt.config
import salt.loader
import salt.minion
import salt.utils.network
import salt.utils.state
from salt.exceptions import SaltClientError

from saltext_safeupdate.core.generations.generation import Probe
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.minion.complaints import Complaints
from saltext_safeupdate.minion.delivery import Delivery
from saltext_safeupdate.minion.masters import Masters, Noting

FUNCTION = "which.master"


class Network:
    """Masters that can be reached, but for those that are *down*."""

    def __init__(self):
        self.down = set()

    def channel(self, opts, **kwargs):
        auth = types.SimpleNamespace(gen_token=lambda word: b"", authenticated=True)
        return types.SimpleNamespace(
            connect=lambda: self._connect(opts["master"]), auth=auth, close=lambda: None
        )

    async def _connect(self, master):
        if master in self.down:
            raise SaltClientError("no master is there")


@pytest.fixture
def network(monkeypatch):
    made = Network()
    factory = types.SimpleNamespace(factory=made.channel)
    monkeypatch.setattr(salt.channel.client, "AsyncPubChannel", factory)
    # A name with several addresses comes down to one of them.
    monkeypatch.setattr(salt.utils.network, "dns_check", lambda *args, **kwargs: "10.0.0.1")
    monkeypatch.setattr(salt.loader, "raw_mod", lambda *args: {FUNCTION: lambda: "one:4516"})
    return made


class Part(salt.minion.MinionBase):
    """A part of the minion, as far as it chooses its master."""

    connected = False

    def choose(self, **kwargs):
        """Do what Salt does at the start, and if it has lost its master."""
        master, _ = _wait(lambda: self.eval_master(self.opts, **kwargs))
        self.opts["master"] = master


def _wait(function):
    if inspect.iscoroutinefunction(salt.minion.MinionBase.eval_master):
        return asyncio.run(function())
    tornado = getattr(salt, "ext", None) and getattr(salt.ext, "tornado", None)
    if tornado is None:
        import tornado.ioloop
    return tornado.ioloop.IOLoop().run_sync(function)


class Minion:
    """What the configuration has, as the engine knows it, and the parts of the main process."""

    def __init__(self, path, **options):
        self.opts = {
            **salt.config.DEFAULT_MINION_OPTS,
            "__role": "minion",
            "id": "m1",
            "cachedir": str(path / "cache"),
            "retry_dns": 0,
            **options,
        }
        several = isinstance(self.opts["master"], list) and self.opts["master_type"] == "str"
        masters = self.opts["master"] if several else [self.opts["master"]]
        self.parts = [Part({**self.opts, "master": master}) for master in masters]
        store = Store(str(path / "state" / "safeupdate.db"))
        self.noting = Noting(store, Complaints(), lambda jid: False)
        self.masters = Masters(self.opts, store, processes.me())
        self.delivery = Delivery(self.opts, {"event.send": None}, self.masters)

    def look(self):
        """Look into the queues, as each part does all the time."""
        for part in self.parts:
            self.noting.note(part)
            self.noting.take_over(part)

    def has(self, part=0):
        """Return how many jobs lie in the queue that this part works on."""
        directory = salt.utils.state.job_queue_dir(self.parts[part].opts)
        return len(os.listdir(directory)) if os.path.isdir(directory) else 0


@pytest.mark.parametrize(
    "options",
    [
        {"master": "one"},
        {"master": "one:4516"},
        {"master": "10.0.0.7:4516"},
        {"master": "[::1]:4516"},
        {"master": "::1"},
        {"master": ["one:4516"]},
        {"master": ["one", "two:4516"]},
        {"master": ["one:4516", "two"], "master_type": "failover"},
        {"master": FUNCTION, "master_type": "func"},
        {"master": "10.0.0.7", "master_uri_format": "ip_only"},
    ],
    ids=str,
)
def test_the_probe_lies_where_salt_looks(network, tmp_path, options):
    minion = Minion(tmp_path, **options)
    for part in minion.parts:
        part.choose()
    minion.look()
    assert minion.delivery.probe(Probe(jid="7", fun="test.echo"))
    assert minion.has() == 1
    for part in minion.parts:
        assert minion.masters.in_charge_of(str(part.opts["master"]), "") is not None


def test_before_and_after_a_switch(network, tmp_path):
    minion = Minion(tmp_path, master=["one:4516", "two:4516"], master_type="failover")
    (part,) = minion.parts
    part.choose()
    minion.look()
    assert minion.masters.working() == ["one"]
    minion.delivery.probe(Probe(jid="7", fun="test.echo"))
    network.down = {"one"}
    part.connected = False
    part.choose(failed=True)
    minion.look()
    assert minion.masters.working() == ["two"]
    assert minion.has() == 1, "what was held moves along"
    assert minion.masters.in_charge_of("one", "") == "two"


def test_distributed_is_what_no_salt_can_do_yet(network, tmp_path):
    """It chooses like failover; that we treat it so counts from the release that mends it."""
    minion = Minion(tmp_path, master=["one", "two"], master_type="distributed")
    with pytest.raises(TypeError):
        minion.parts[0].choose()
