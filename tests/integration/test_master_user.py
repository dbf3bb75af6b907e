"""
A master that runs as another user, as upstream's packages set it up, and wants signed returns.

Its minions are keys and the protocol. Nobody may read the code of a checkout but its owner: what is
not root's process here may read anything, and write what its user may write.
"""

import contextlib
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import salt.client
import salt.config
import salt.runner
import yaml
from pytestskipmarkers.utils import ports

from devtools.as_packaged import USER, as_user
from saltext_safeupdate.master import questions
from saltext_safeupdate.master.account import Account, path_of
from tests.integration.conftest import LOGS
from tests.support.raw_minion import HonestMinion
from tests.support.waiting import wait_for

REPORT = "safeupdate.report"
# It begins as root and becomes the user by itself, as Salt's programs do.
AS_ROOT = ["setpriv", "--securebits=+no_setuid_fixup", "--"]
# For minions that do not hear of a job, or are not heard.
_SHORT = 3.0


class Master:
    """The processes of a master, and what an administrator does beside it."""

    def __init__(self, path):
        self.path = path
        self.config = {
            "user": USER,
            "root_dir": str(path / "root"),
            # The path of a socket has to be short.
            "sock_dir": "/s",
            "interface": "127.0.0.1",
            "publish_port": ports.get_unused_localhost_port(),
            "ret_port": ports.get_unused_localhost_port(),
            "engines": [{"safeupdate_redeliver": {"window": 600}}],
            "auto_accept": True,
            "worker_threads": 2,
            "require_minion_sign_messages": True,
            "drop_messages_signature_fail": True,
            "signing_algorithm": "PKCS1v15-SHA1",
            **LOGS,
        }
        for name in ("etc", "root"):
            (path / name).mkdir()
        (path / "etc" / "master").write_text(yaml.safe_dump(self.config))
        for each in (path, *path.rglob("*")):
            shutil.chown(each, USER)
        self.opts = salt.config.master_config(str(path / "etc" / "master"))
        self._process = subprocess.Popen(
            as_user([*self._program("salt_master"), "-l", "quiet"]), start_new_session=True
        )
        self.directory = Path(path_of(self.opts)).parent
        self.account = Account(path_of(self.opts))
        wait_for(lambda: self.account.fact("engine") == "started", "the engine of the master")
        self.client = salt.client.LocalClient(mopts=self.opts.copy())

    def _program(self, name):
        program = f"from salt.scripts import {name}; {name}()"
        return [sys.executable, "-c", program, "-c", str(self.path / "etc")]

    def run(self, *argv):
        """Call ``salt-run`` as root does; return what it says."""
        done = subprocess.run(
            [*AS_ROOT, *self._program("salt_run"), "--out", "json", *argv],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return done.stdout + done.stderr

    def publish(self, minion, *args):
        return self.client.pub(minion.id, "test.echo", list(args))["jid"]

    def missed(self, minion):
        """Publish a job that the minion misses; return its JID."""
        minion.away = True
        jid = self.publish(minion, "missed")
        wait_for(lambda: any(load["jid"] == jid for load in minion.published), "the publication")
        minion.away = False
        return jid

    def log(self):
        path = Path(self.opts["log_file"])
        return path.read_text() if path.exists() else "There is no log."

    def close(self):
        self.client.destroy()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="module")
def master():
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    # Directories of pytest are closed to others.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        made = Master(Path(place))
        try:
            yield made
        finally:
            print(made.log())
            made.close()


@pytest.fixture
def minion(master, tmp_path_factory):
    """Start minions that sign what they send."""
    made = []

    def start(name):
        minion = HonestMinion(master.opts, name, tmp_path_factory.mktemp(name))
        minion.opts["minion_sign_messages"] = True
        made.append(minion)
        wait_for(lambda: _hears(master, minion), f"{name} hears")
        return minion

    yield start
    for each in made:
        each.close()


def _hears(master, minion):
    jid = master.publish(minion)
    with contextlib.suppress(pytest.fail.Exception):
        return wait_for(lambda: _ran(minion, jid), "a job", timeout=_SHORT)


def _ran(minion, jid):
    return [run[0] for run in minion.ran].count(jid)


def _is_all_the_users(directory):
    """Everything in there belongs to the user of the master, and nobody else may look into it."""
    user = pwd.getpwnam(USER).pw_uid
    for each in (directory, *directory.rglob("*")):
        info = each.stat()
        assert info.st_uid == user, each
        assert each.is_dir() or stat.S_IMODE(info.st_mode) == 0o600, each
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert (directory / "account.db").exists()


def test_root_beside_it_takes_nothing_away(master, minion):
    """Root's ``salt-run``, which becomes the user, and its programs, which do not."""
    victim = minion("victim")
    _is_all_the_users(master.directory)
    jid = master.missed(victim)
    said = master.run("safeupdate.redeliver", "victim")
    wait_for(lambda: _ran(victim, jid), f"what it has missed: {said}")
    assert jid in said
    _is_all_the_users(master.directory)
    runner = salt.runner.RunnerClient(master.opts.copy())
    # It is heard, and what it says is noted.
    assert "senseless" in str(runner.cmd("safeupdate.versions", ["victim"], print_event=False))
    _is_all_the_users(master.directory)
    jid = master.missed(victim)
    victim.start_event()
    wait_for(lambda: _ran(victim, jid), "what it has missed")
    # The master can still write what it and root have written.
    assert "senseless" in master.run("safeupdate.versions", "victim")
    _is_all_the_users(master.directory)
    assert {_ran(victim, run[0]) for run in victim.ran} == {1}


def test_a_return_counts_if_it_is_signed(master, minion):
    """The master drops others, so they answer no question."""
    signer = minion("signer")
    signer.slow = True
    jid = master.publish(signer, "once")
    wait_for(lambda: _ran(signer, jid), "the job")
    ret = {"cmd": "_return", "jid": jid, "fun": "test.echo", "return": True, "success": True}
    ret |= {"retcode": 0, "fun_args": ["once"]}
    signer.opts["minion_sign_messages"] = False
    assert signer.send(ret) is False
    assert signer.send({**ret, "sig": b"broken"}) is False
    assert questions.ask(master.opts, ["signer"], REPORT, timeout=_SHORT) == {}
    signer.opts["minion_sign_messages"] = True
    signer.slow = False
    assert signer.send(ret) is None
    assert questions.ask(master.opts, ["signer"], REPORT) == {"signer": True}
