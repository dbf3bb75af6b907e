"""A ``./dev`` that is ended or killed leaves nothing behind: programs, directories, networks."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from devtools import processes
from devtools.command import REPO
from tests.support.waiting import wait_for

pytestmark = pytest.mark.usefixtures("real_process")

# Starts what has a session of its own, as a salt-master has, and takes time to clean up.
PROGRAM = """
import pathlib, subprocess, sys, time
other = subprocess.Popen(["sleep", "600"], start_new_session=True)
fresh = pathlib.Path(sys.argv[1]).with_suffix(".new")
try:
    fresh.write_text(str(other.pid))
    fresh.rename(sys.argv[1])
    time.sleep(600)
finally:
    time.sleep(0.3)
    pathlib.Path(sys.argv[1] + ".cleaned").touch()
"""
ALONE = """
import os, sys
from devtools import ending, rundir
from devtools.command import run

def work():
    with rundir.TempRun() as tmp:
        print(tmp, flush=True)
        run([sys.executable, "-c", sys.argv[1], sys.argv[2]], timeout=600,
            env={**os.environ, "TMPDIR": str(tmp)})

sys.exit(ending.run(work))
"""
IN_A_LANE = """
import os, sys
from devtools import ending, rundir
from devtools.command import run
from devtools.pool import Pool

class Lane:
    name, busy, seconds = "lane", True, 1.0

    def run(self):
        run([sys.executable, "-c", sys.argv[1], sys.argv[2]], timeout=600,
            env={**os.environ, "TMPDIR": str(tmp)})

with rundir.TempRun() as tmp:
    print(tmp, flush=True)
    status = ending.run(Pool([Lane()]).run)
sys.exit(status)
"""
# What a run of the lab has: a directory that is a mount, and a network with programs in it.
MACHINES = """
import pathlib, sys, time
from devtools.lab import state
from devtools.lab.container import Network

class Lab:
    run_dir = state.RunDir()

lab = Lab()
network = Network(lab)
inside = network.popen(["sleep", "600"])
fresh = pathlib.Path(sys.argv[1]).with_suffix(".new")
fresh.write_text(f"{lab.run_dir.path} {network.path} {inside.pid}")
fresh.rename(sys.argv[1])
time.sleep(600)
"""


@pytest.fixture
def begin(tmp_path):
    """Start a program like ``./dev``; none is left after the test."""
    started = []

    def start(program, *arguments):
        argv = [sys.executable, "-c", program, *arguments]
        started.append(
            subprocess.Popen(argv, cwd=REPO, stdout=subprocess.PIPE, text=True, stderr=None)
        )
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def gone(pid):
    return processes.start_time(pid) is None


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("program", [ALONE, IN_A_LANE], ids=["alone", "in a lane"])
def test_a_signal_lets_what_runs_clean_up_and_ends_the_rest(begin, tmp_path, program, sig):
    told = tmp_path / "told"
    dev = begin(program, PROGRAM, str(told))
    tmp = Path(dev.stdout.readline().strip())
    wait_for(told.exists, "the program runs")
    other = int(told.read_text())
    dev.send_signal(sig)
    dev.send_signal(sig)
    assert dev.wait(90) == 128 + sig
    assert Path(f"{told}.cleaned").exists()
    assert gone(other)
    assert not tmp.exists()
    assert not os.path.ismount(tmp)


def test_what_a_killed_one_leaves_is_removed_at_once(begin, tmp_path):
    told = tmp_path / "told"
    dev = begin(ALONE, PROGRAM, str(told))
    tmp = Path(dev.stdout.readline().strip())
    wait_for(told.exists, "the program runs")
    other = int(told.read_text())
    dev.kill()
    wait_for(lambda: gone(other), "the end of what it started")
    wait_for(lambda: not tmp.exists(), "the end of its directory")


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace, needs root")
def test_neither_machines_nor_networks_are_left(begin, tmp_path, sig):
    told = tmp_path / "told"
    dev = begin(ALONE, MACHINES, str(told))
    wait_for(told.exists, "the machines run")
    folder, network, inside = told.read_text().split()
    assert os.path.ismount(folder)
    assert os.path.exists(network)
    dev.send_signal(sig)
    dev.wait(90)
    for what, left in (
        ("program", lambda: not gone(int(inside))),
        ("network", lambda: os.path.exists(network)),
        ("directory", lambda: os.path.exists(folder)),
    ):
        wait_for(lambda left=left: not left(), f"the end of the {what}")
