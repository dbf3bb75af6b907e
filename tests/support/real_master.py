"""A real master on loopback, in processes of its own, that notes each return it gets."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import salt.client
import salt.config
import salt.exceptions
import salt.runner
import yaml
from pytestskipmarkers.utils import ports

from devtools import as_packaged
from devtools.master import GRAINS_ONCE
from saltext_safeupdate.master.account import Account, path_of
from tests.support.as_user import as_user
from tests.support.masters import kill_all, silenced
from tests.support.minion import MODULES
from tests.support.real_minion import startup
from tests.support.waiting import wait_for

PROGRAM = "from salt.scripts import salt_master; salt_master()"
# Seconds until a minion that has not answered is asked once more.
_PATIENCE = 2


class RealMaster:
    """
    Publishes jobs, and again those that a minion has missed in a restart.

    *zone* is its time zone. It has the keys of the master *like*, as all masters of a minion.
    """

    def __init__(self, path, *, zone="UTC", like=None, **options):
        self._noted = path / "noted"
        startup(path / "srv")
        self.config = {
            "user": as_packaged.USER,
            "root_dir": str(path / "root"),
            # The path of a socket has to be short.
            "sock_dir": str(path / "s"),
            "interface": "127.0.0.1",
            "publish_port": ports.get_unused_localhost_port(),
            "ret_port": ports.get_unused_localhost_port(),
            "file_roots": {"base": [str(path / "srv")]},
            "engines": [{"safeupdate_redeliver": {"window": 900}}],
            "peer_run": {".*": ["safeupdate.master_version"]},
            "auto_accept": True,
            "worker_threads": 2,
            "module_dirs": [str(MODULES)],
            "master_job_cache": "noted",
            "noted_jobs": str(self._noted),
            "log_level_logfile": "info",
            **GRAINS_ONCE,
            **options,
        }
        (path / "master").write_text(yaml.safe_dump(self.config))
        if like:
            keys = "root/etc/salt/pki/master"
            (path / keys).mkdir(parents=True)
            for name in ("master.pem", "master.pub"):
                shutil.copy(Path(like.opts["pki_dir"], name), path / keys)
        # Its job cache notes returns next to its configuration.
        shutil.chown(path, as_packaged.USER)
        as_packaged.give(path / "root", path / "s")
        self._process = subprocess.Popen(
            as_packaged.as_user([sys.executable, "-c", PROGRAM, "-c", str(path), "-l", "quiet"]),
            start_new_session=True,
            env={**os.environ, "TZ": zone},
        )
        self.opts = salt.config.master_config(str(path / "master"))
        account = Account(path_of(self.opts))
        wait_for(lambda: account.fact("engine") == "started", "the engine of the master")
        self._client = salt.client.LocalClient(mopts=self.opts.copy())

    def publish(self, minion, fun, *args):
        """Publish a job to one minion; return its JID."""
        return self._client.pub([minion.id], fun, list(args), tgt_type="list")["jid"]

    def aim(self, target, kind, fun, *args, **more):
        """Publish a job to a target; return its JID, and the minions that Salt waits for."""
        published = self._client.pub(target, fun, list(args), tgt_type=kind, **more) or {}
        return published.get("jid"), published.get("minions") or []

    def redeliver(self, minion):
        """Have the engine ask a minion what it has missed; return what it says."""

        def run():
            runner = salt.runner.RunnerClient(self.opts.copy())
            return runner.cmd("safeupdate.redeliver", [minion.id], print_event=False)

        return as_user(run)

    def call(self, minion, fun, *args):
        """Run a job on a minion, and return what it returns."""
        jid = self.publish(minion, fun, *args)
        wait_for(lambda: self.returned(minion, jid), f"the return of {fun}")
        return self._values(minion, jid)[0]

    def wait_minion(self, minion):
        """Wait until the minion answers."""
        asked = {}

        def answers():
            # Each that goes out before it listens is lost.
            if time.monotonic() >= max(asked.values(), default=0.0) + _PATIENCE:
                with contextlib.suppress(salt.exceptions.SaltClientError):
                    jid, _ = self.aim([minion.id], "list", "test.ping")
                    # Without its key, there is nobody to ask.
                    if jid:
                        asked[jid] = time.monotonic()
            return any(self.returned(minion, jid) for jid in asked)

        wait_for(answers, f"{minion.id} answers")

    def returned(self, minion, jid):
        """Return how often the minion has returned this job."""
        return len(self._values(minion, jid))

    def _values(self, minion, jid):
        if not self._noted.exists():
            return []
        noted = map(json.loads, self._noted.read_text().splitlines())
        return [
            value["return"]
            for kind, its, value in noted
            if (kind, its, value.get("id")) == ("return", jid, minion.id)
        ]

    @contextlib.contextmanager
    def unable_to_store(self):
        """Have its job cache fail meanwhile."""
        kept = self._noted.with_suffix(".kept")
        self._noted.rename(kept)
        self._noted.mkdir()
        try:
            yield
        finally:
            self._noted.rmdir()
            kept.rename(self._noted)

    def silent(self):
        """Have no process of it do anything meanwhile."""
        return silenced(self._process.pid)

    def jammed(self):
        """Have no worker of it do anything meanwhile: its port still greets."""
        return silenced(self._process.pid, "MWorker-")

    def close(self):
        if self._process.poll() is None:
            self._client.destroy()
            kill_all(self._process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
