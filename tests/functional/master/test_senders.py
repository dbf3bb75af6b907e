"""What the functions of Salt's own master do with messages, once the gate stands before them."""

import contextlib
import threading

import pytest
import salt.channel.server
import salt.config
import salt.master

from saltext_safeupdate.master.hooks import Keeper

try:
    from salt.ext.tornado.ioloop import IOLoop
except ImportError:
    from tornado.ioloop import IOLoop

RETURN = {"cmd": "_return", "id": "victim", "jid": "20260101120000000000", "return": "forged"}
ODD = ("pub", "", "AES", "aes ", None, 5, b"aes", ["aes"], {"aes": "clear"}, True)


class Functions:
    """What a worker calls: it notes what it is asked."""

    async_methods = ()

    def __init__(self):
        self.called = []

    def get_method(self, cmd):
        return lambda load: self.called.append(cmd)

    def run_func(self, func, load):
        self.called.append(func)
        return None, {"fun": "send_clear"}


class Worker(salt.master.MWorker):
    """One of Salt's, without its process, behind its channel."""

    def __init__(self):
        opts = self.opts = {**salt.config.DEFAULT_MASTER_OPTS, "minimum_auth_version": 3}
        self.clear_funcs, self.aes_funcs = Functions(), Functions()
        self._modules_loaded = threading.Event()
        self._modules_loaded.set()
        self.channel = object.__new__(salt.channel.server.ReqServerChannel)
        self.channel.opts = opts
        self.channel.payload_handler = self._handle_payload

    def __del__(self):
        """It has no process to end."""

    def gets(self, enc, load=RETURN, **more):
        """Have the channel take a message; return what was called for it."""

        message = {"enc": enc, "version": 3, "load": dict(load), **more}
        with contextlib.closing(IOLoop()) as loop:
            self.said = loop.run_sync(lambda: self.channel.handle_message(message))
        return self.aes_funcs.called + self.clear_funcs.called


@pytest.fixture
def worker(monkeypatch, request):
    (gate,) = (p for p in Keeper(None, None, None).table() if p.name == "_handle_payload")
    before = vars(gate.owner)[gate.name]
    if getattr(request, "param", True):
        monkeypatch.setattr(gate.owner, gate.name, gate.replace(before))
    return Worker()


@pytest.mark.parametrize("enc", ODD, ids=repr)
def test_a_message_that_the_channel_has_not_verified_is_dropped(worker, enc):
    assert worker.gets(enc) == []
    assert worker.said == {}


@pytest.mark.parametrize("worker", [True, False], indirect=True, ids=["with it", "plain"])
def test_what_is_in_the_open_reaches_salts_function_for_it(worker):
    assert worker.gets("clear", {"cmd": "ping"}) == ["ping"]


@pytest.mark.parametrize("worker", [True, False], indirect=True, ids=["with it", "plain"])
def test_what_the_channel_has_verified_reaches_salts_function_for_it(worker, monkeypatch):
    channel = salt.channel.server.ReqServerChannel
    monkeypatch.setattr(channel, "_decode_payload", lambda self, payload, version: payload)
    monkeypatch.setattr(channel, "validate_token", lambda self, payload, required=True: True)
    monkeypatch.setitem(worker.opts, "request_server_ttl", 0)
    assert worker.gets("aes", id="victim") == ["_return"]


def test_many_are_told_once_a_minute(monkeypatch, caplog):
    now = [0.0]
    keeper = Keeper(None, None, None, clock=lambda: now[0])
    (gate,) = (p for p in keeper.table() if p.name == "_handle_payload")
    monkeypatch.setattr(gate.owner, gate.name, gate.replace(vars(gate.owner)[gate.name]))
    worker = Worker()
    for at in (0.0, 1.0, 59.0, 60.0):
        now[0] = at
        assert worker.gets("pub") == []
    told = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
    assert [each.split()[2] for each in told] == ["1", "3"]
