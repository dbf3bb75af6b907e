"""Minions that are nothing but their key and the protocol: one that works, one that lies."""

import contextlib
import threading

import salt.channel.client
import salt.config
import salt.crypt
import salt.exceptions
import salt.loader
import salt.payload
import zmq

from saltext_safeupdate.core.jobs.meant import AWAY, MISSED, NOT_MEANT, about

QUERY = "safeupdate.accepted"


def without_a_key(master, load, timeout=60):
    """Send a message as anybody on the network can; return the answer, None if there is none."""
    with zmq.Context() as context, context.socket(zmq.REQ) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"tcp://127.0.0.1:{master['ret_port']}")
        socket.send(salt.payload.dumps({"enc": "pub", "version": 3, "load": load}))
        return salt.payload.loads(socket.recv()) if socket.poll(timeout * 1000) else None


class RawMinion:
    """Hears all that a master publishes, and may send whatever it likes, with its own key."""

    def __init__(self, master, minion_id, path):
        self.id = minion_id
        self.opts = salt.config.minion_config(None)
        self.opts.update(
            id=minion_id,
            root_dir=str(path),
            pki_dir=str(path / "pki"),
            cachedir=str(path / "cache"),
            sock_dir=str(path / "sock"),
            conf_file=str(path / "minion"),
            master="127.0.0.1",
            master_ip="127.0.0.1",
            master_port=master["ret_port"],
            publish_port=master["publish_port"],
            master_uri=f"tcp://127.0.0.1:{master['ret_port']}",
            # A machine that others use as well may be slow.
            auth_timeout=60,
            auth_tries=5,
            request_channel_timeout=60,
            __role="minion",
            grains={},
        )
        (path / "pki").mkdir(parents=True)
        self.auth = salt.crypt.SAuth(self.opts)
        self.auth.authenticate()
        self.published = []
        self._context = zmq.Context()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send(self, load):
        """Send one message over the encrypted channel; return what the master answers."""
        with salt.channel.client.ReqChannel.factory(self.opts, crypt="aes") as channel:
            return channel.send(dict(load), timeout=60, tries=1)

    def lie(self, load):
        """Send what the master may fail at: then it answers in clear text, or not at all."""
        with contextlib.suppress(TypeError, ValueError, salt.exceptions.SaltException):
            self.send(load)

    def event(self, tag, data, **more):
        return self.lie({"cmd": "_minion_event", "tag": tag, "data": data, **more})

    def start_event(self):
        return self.event(f"salt/minion/{self.id}/start", "started")

    def heard_of(self, fun):
        """Return the JIDs under which a function was published."""
        return [load["jid"] for load in self.published if load["fun"] == fun]

    def close(self):
        self._end.set()
        self._thread.join()
        self._context.term()

    def _listen(self):
        with self._context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.SUBSCRIBE, b"")
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(f"tcp://127.0.0.1:{self.opts['publish_port']}")
            while not self._end.is_set():
                if socket.poll(50):
                    payload = salt.payload.loads(socket.recv_multipart()[-1])
                    load = self._decrypted(payload["load"])
                    self.published.append(load)
                    self.heard(load)

    def _decrypted(self, load):
        try:
            return self.auth.crypticle.loads(load)
        except salt.exceptions.AuthenticationError:
            # A master that was started anew has a new key.
            self.auth.authenticate()
            return self.auth.crypticle.loads(load)

    def heard(self, load):
        """Nothing, in one that only listens."""


class HonestMinion(RawMinion):
    """
    Runs, once, what is published to it; unless it is away, as in a restart, or slow.

    *ran* has what it ran, as JID, function and arguments. A *slow* one keeps its returns. One
    without a *ledger* runs everything as often as it comes, and cannot answer queries. Of
    *failing* queries the answer is an error.
    """

    def __init__(self, master, minion_id, path, *, ledger=True):
        self.ran, self.away, self.slow, self.ledger = [], False, False, ledger
        self._missed = set()
        self.queries, self.failing = [], 0
        opts = {**salt.config.minion_config(None), "id": minion_id, "grains": {}}
        self._matchers = salt.loader.matchers(opts, loaded_base_name=f"honest.{minion_id}")
        super().__init__(master, minion_id, path)

    def heard(self, load):
        if self.away:
            self._missed.add(load["jid"])
            return
        if not self._meant(load):
            return
        jid, fun = load["jid"], load["fun"]
        known = {run[0] for run in self.ran}
        if fun == QUERY:
            self.queries.append(load)
            answer = {asked: "delivered" for asked in load["arg"][0] if asked in known}
            answer |= self._said(load["arg"][1], known)
            if self.failing:
                self.failing -= 1
                self.returns(jid, fun, "ERROR: it is locked", success=False, retcode=1)
            elif self.ledger:
                self.returns(jid, fun, answer)
            else:
                self.returns(jid, fun, f"'{fun}' is not available.", success=False, retcode=254)
        elif jid not in known or not self.ledger:
            self.ran.append((jid, fun, load["arg"]))
            if not self.slow:
                self.returns(jid, fun, True)

    def _meant(self, load):
        match = self._matchers[f"{load.get('tgt_type', 'glob')}_match.match"]
        return bool(match(load["tgt"], opts=self.opts))

    def _said(self, aims, known):
        """Return of each publication whether it is meant, by Salt's own matchers, and missed."""
        return {
            about(number): self._why(aim, jid)
            for aim in aims
            for number, jid in aim["jobs"].items()
            if jid not in known
        }

    def _why(self, aim, jid):
        if not self._meant(aim):
            return NOT_MEANT
        return MISSED if jid in self._missed else AWAY

    def returns(self, jid, fun, value, **more):
        """
        Return a job to the master, as often as it takes.

        A master of Salt 3008 may refuse the token of a minion that is signed in, and then fail to
        sign it in again. Then the engine of a real minion sends the return again.
        """
        returned = {"success": True, "retcode": 0, "fun_args": [], **more}
        while True:
            try:
                return self.send(
                    {"cmd": "_return", "jid": jid, "fun": fun, "return": value, **returned}
                )
            except (salt.exceptions.AuthenticationError, salt.exceptions.SaltClientError):
                if self._end.wait(1.0):
                    raise
