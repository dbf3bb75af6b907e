"""A real master that may be killed, and real minions of it, as processes of their own."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import salt.client
import salt.config
import salt.runner
from salt.exceptions import SaltClientError

from devtools import as_packaged
from devtools.master import GRAINS_ONCE
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.master import orders

from . import at_once
from .as_user import as_user
from .masters import kill_all
from .packages import Database
from .waiting import LONGEST

BIN = Path(sys.executable).parent
REPO = Path(__file__).resolve().parents[2]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for found in sockets:
        found.bind(("127.0.0.1", 0))
    ports = [found.getsockname()[1] for found in sockets]
    for found in sockets:
        found.close()
    return ports


class Daemon:
    """A program of Salt with a directory of its own."""

    def __init__(self, program, home, config):
        self.program, self.home, self.process = program, home, None
        home.mkdir(parents=True, exist_ok=True)
        self.config = home / program.removeprefix("salt-")
        places = {name: str(home / name) for name in ("pki", "cache", "run", "log")}
        defaults = {
            "root_dir": str(home),
            "conf_file": str(self.config),
            "pki_dir": places["pki"],
            "cachedir": places["cache"],
            "sock_dir": places["run"],
            "log_file": places["log"],
            "pidfile": str(home / "pid"),
            "user": "root",
            "log_level_logfile": "info",
        }
        self.config.write_text(json.dumps({**defaults, **config}))

    def start(self):
        path = os.pathsep.join((str(REPO), os.environ.get("PYTHONPATH", "")))
        self.process = subprocess.Popen(
            self._as_user([str(BIN / self.program), "-c", str(self.home), "-l", "quiet"]),
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            stdout=subprocess.DEVNULL,
        )

    def _as_user(self, argv):
        return argv

    def kill(self):
        """End it, and all that it has forked, as a power cut does."""
        if self.process is None:
            return
        kill_all(self.process.pid)
        self.process.wait(LONGEST)
        self.process = None


class Master(Daemon):
    """A master with the engine."""

    def __init__(self, home, **config):
        publish, ret = free_ports(2)
        self.ports = {"publish_port": publish, "ret_port": ret}
        options = {
            "interface": "127.0.0.1",
            "auto_accept": True,
            "worker_threads": 3,
            "engines": [{"safeupdate_redeliver": {}}],
            "peer_run": {".*": ["safeupdate.master_version"]},
            **GRAINS_ONCE,
        }
        options |= {"user": as_packaged.USER, **self.ports}
        super().__init__("salt-master", home, {**options, **config})
        as_packaged.give(home)

    def _as_user(self, argv):
        return as_packaged.as_user(argv)

    @property
    def opts(self):
        return salt.config.master_config(str(self.config))

    def runner(self, fun, *args, **kwargs):
        """Call a runner function in this process, which costs less than a program."""

        def call():
            with salt.runner.RunnerClient(self.opts) as client:
                return client.cmd(f"safeupdate.{fun}", list(args), kwarg=kwargs, print_event=False)

        return as_user(call)

    def publish(self, minion, fun, *args):
        """Publish a job; return its JID."""
        with salt.client.LocalClient(mopts=self.opts) as client:
            return client.pub(minion, fun, list(args), timeout=LONGEST)["jid"]

    def ping(self, minions):
        """Return those of these minions that answer within some seconds."""
        # A busy master may not take it in time: whoever waits asks again.
        with (
            contextlib.suppress(SaltClientError),
            salt.client.LocalClient(mopts=self.opts) as client,
        ):
            return set(client.cmd(sorted(minions), "test.ping", tgt_type="list", timeout=20))
        return set()

    def reachable(self):
        """Tell whether its port for minions is open."""
        with contextlib.closing(socket.socket()) as found:
            return found.connect_ex(("127.0.0.1", self.ports["ret_port"])) == 0

    def order(self, what, rollout, **given):
        """Order something of the engine, as the runner does."""
        return orders.order(self.opts, what, {"rollout": rollout, **given})

    def command(self, *words):
        """Return how to call a runner function in a program."""
        return as_packaged.as_user(
            [str(BIN / "salt-run"), "-c", str(self.home), "--out", "json", *words]
        )


class Guest(Daemon):
    """A minion of such a master, with its fake packages."""

    def __init__(self, name, home, master, options, installed, available):
        self.id = name
        self.database = self.database_of(home)
        home.mkdir(parents=True)
        self.database.create(installed, available)
        ports = {"master_port": master.ports["ret_port"]}
        ports["publish_port"] = master.ports["publish_port"]
        config = {"id": name, "master": "127.0.0.1", **ports, **options}
        super().__init__("salt-minion", home, config)

    @staticmethod
    def database_of(home):
        return Database(home / "packages.json")

    @property
    def store(self):
        return Store(str(self.home / "state" / "safeupdate.db"))

    def phase(self):
        """Return the phase of the newest update, from the minion's own record."""
        latest = self.store.latest() if self.store.exists() else None
        return latest.phase.value if latest else ""

    def intervals(self):
        """Return when its updates began and ended, by its own record; the end may be open."""
        found = []
        for update in self.store.updates() if self.store.exists() else ():
            rows = self.store.history(update.id)
            ends = [row.at for row in rows if Phase(row.phase).final]
            found.append((rows[0].at, ends[0] if ends else float("inf")))
        return found


def most_at_once(guests):
    """Return how many of them were in an update at the same time, at most."""
    return at_once.most_at_once(each for guest in guests for each in guest.intervals())
