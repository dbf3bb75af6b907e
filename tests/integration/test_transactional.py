"""A real master, and a real minion on a transactional system."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import salt.client
from salt.exceptions import SaltClientError

from devtools import as_packaged
from devtools.master import GRAINS_ONCE
from tests.functional.transactional.conftest import rig, system  # noqa: F401
from tests.functional.transactional.test_salt import FILE, chunk
from tests.support.fleet import free_ports
from tests.support.waiting import wait_for

BIN = Path(sys.executable).parent


class Master:
    """A master on loopback; everything of it lies in *home*."""

    def __init__(self, home):
        self.home = home
        publish, ret = free_ports(2)
        self.ports = {"master_port": ret, "publish_port": publish}
        (home / "srv").mkdir()
        config = {
            "interface": "127.0.0.1",
            "publish_port": publish,
            "ret_port": ret,
            "root_dir": str(home),
            "conf_file": str(home / "master"),
            "pki_dir": str(home / "pki"),
            "cachedir": str(home / "cache"),
            "sock_dir": str(home / "s"),
            "log_file": str(home / "log"),
            "pidfile": str(home / "pid"),
            "file_roots": {"base": [str(home / "srv")]},
            "auto_accept": True,
            "worker_threads": 3,
            "user": as_packaged.USER,
            **GRAINS_ONCE,
        }
        self.config = home / "master"
        self.config.write_text(json.dumps(config))
        as_packaged.give(home)
        self.process = subprocess.Popen(
            as_packaged.as_user([str(BIN / "salt-master"), "-c", str(home), "-l", "quiet"]),
            stdout=subprocess.DEVNULL,
        )

    def sls(self, name, text):
        (self.home / "srv" / f"{name}.sls").write_text(text)

    def run(self, fun, *args, timeout=120):
        """Give the minion a job; return what it returns, None if it does not."""
        with (
            contextlib.suppress(SaltClientError),
            salt.client.LocalClient(c_path=str(self.config)) as client,
        ):
            return client.cmd("rig", fun, args, timeout=timeout).get("rig")

    def salt(self, *words):
        """Give it one as a program, which costs ten times that; return that and its status."""
        done = subprocess.run(
            (BIN / "salt", "-c", self.home, "--out", "json", "-t", "120", *words),
            capture_output=True,
            text=True,
            check=False,
        )
        text = done.stdout[done.stdout.index("{") :] if "{" in done.stdout else "{}"
        return json.loads(text).get("rig"), done.returncode


def end(process):
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture
def fleet(rig):  # noqa: F811
    home = Path(tempfile.mkdtemp(prefix="tu-"))
    master = Master(home)
    rig.configure(
        file_client="remote",
        master="127.0.0.1",
        module_executors=["transactional_update", "direct_call"],
        state_output_pct=False,
        **master.ports,
    )
    argv = rig.argv(str(BIN / "salt-minion"), "-c", "/etc/salt", "-l", "quiet")
    minion = subprocess.Popen(argv, env=rig.environment(), stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: master.run("test.ping", timeout=3) is True, "the minion answers", 120)
        yield master, rig
    finally:
        end(minion)
        end(master.process)
        shutil.rmtree(home, ignore_errors=True)


def test_transactions_from_a_master(fleet):
    master, rig = fleet  # noqa: F811
    assert master.run("transactional_update.call", "test.arg", 1, "a=[x, 2]")["args"] == [1]

    # states from the master's tree, through the executor
    master.sls("good", FILE.format(name="/data/x", text="{{ pillar['word'] }}"))
    found, status = master.salt("rig", "state.apply", "good", 'pillar={"word": "a b"}')
    assert (chunk(found, "/data/x")["result"], status) == (True, 0)
    assert rig.in_snapshot(2, "/data/x").read_text() == "a b\n"

    # a failing state: every result, the right status, nothing of it in effect
    master.sls("bad", FILE.format(name="/data/y", text="y") + "bad:\n  test.fail_without_changes\n")
    found, status = master.salt("rig", "state.apply", "bad")
    assert (chunk(found, "/data/y")["result"], chunk(found, "bad")["result"]) == (True, False)
    assert status != 0
    assert rig.default() == 2

    # a delegated function, and one that is delegated for this call only
    assert master.run("cmd.run", "cat /data/x; touch /data/z") == "a b"
    assert rig.default() == 3
    options = "--executor-opts={add_delegated_functions: [transactional_update.in_transaction]}"
    assert master.salt(options, "rig", "transactional_update.in_transaction")[0] is True
    status = master.run("transactional_update.status")
    assert (status["running"], status["default"], status["pending"]) == (1, 3, True)
    rig.assert_clean(3, [1, 2, 3])
