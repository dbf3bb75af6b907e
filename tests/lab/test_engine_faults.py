"""
Every phase of an update, and what dies in it: the table of issue 5.

The supervisor is stopped the moment its record is in the phase; then the fault happens, and
it goes on. Every row has to end committed or rolled back, with a minion that works.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import Lab
from devtools.lab.recipes import FAULT_FILE, PREFIX
from tests.lab.engine import OLD, QUICK, EngineScene, deb
from tests.lab.scene import STATE_DIR

FAULTY = "3008.3+faulty"
# "repairing" and "waiting_for_boot" are not on the way of an update that was asked for here.
PHASES = (
    "requested", "checking", "staging", "waiting", "installing", "delivering", "stepping",
    "restarting", "watching", "rolling_back",
)  # fmt: skip
FAULTS = ("supervisor", "minion", "package manager", "power")
# One of each kind where it hurts most; the others belong to the soak.
SHORT = {
    ("installing", "supervisor"),
    ("installing", "package manager"),
    ("installing", "power"),
    ("watching", "minion"),
    ("rolling_back", "power"),
}
BROKEN = f"sed -i '1a raise SystemExit(1)' {PREFIX}/bin/salt-minion\n"
# Waits for the phase of a newer update than the given one, and stops its supervisor there. With
# a name it then waits for that program and kills it. What it did is its output.
_AMBUSH = """
import fcntl, os, signal, sqlite3, sys, time
path, phase, before, victims = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]

def processes():
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    yield int(name), file.read().split(bytes(1))
            except OSError:
                pass

def supervisor():
    for pid, words in processes():
        if any(word.endswith(b"/core/launch.py") for word in words) and pid != os.getpid():
            return pid

def held(name):
    # Who asks for the update waits until its supervisor has this lock.
    with open(f"/run/salt-safeupdate/{name}.lock", "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False

db = sqlite3.connect(path, timeout=30, isolation_level=None)
end = time.monotonic() + 120
while time.monotonic() < end:
    row = db.execute(
        "SELECT 1 FROM phases WHERE phase = ? AND id NOT IN (SELECT value FROM json_each(?))",
        (phase, before),
    ).fetchone()
    if row:
        break
    time.sleep(0.002)
else:
    sys.exit("the phase was never reached")
db.close()
killed = ""
while victims and time.monotonic() < end and not killed:
    for pid, words in processes():
        if os.path.basename(words[0].decode(errors="replace")) in victims:
            os.kill(pid, signal.SIGKILL)
            killed = words[0].decode(errors="replace")
    time.sleep(0.002)
while not held("supervisor") and time.monotonic() < end:
    time.sleep(0.002)
pid = supervisor()
if pid and not victims:
    os.kill(pid, signal.SIGSTOP)
print(pid or 0, killed, flush=True)
"""


@pytest.fixture(scope="module")
def scene(lab: Lab, site: Path) -> Iterator[EngineScene]:
    made = EngineScene(lab, site, OLD, offers=[deb(OLD), deb(FAULTY)], config=QUICK)
    try:
        yield made.up()
    finally:
        made.down()


@pytest.fixture(scope="module")
def table() -> Iterator[list[str]]:
    rows: list[str] = []
    yield rows
    print("\n" + "\n".join([f"{'phase':<14}{'what died':<18}{'end':<14}seconds", *rows]))


@pytest.mark.parametrize(
    ("phase", "fault"),
    [
        pytest.param(phase, fault, marks=() if (phase, fault) in SHORT else pytest.mark.soak)
        for phase in PHASES
        for fault in FAULTS
        # The package manager works in these only.
        if fault != "package manager" or phase in ("staging", "installing", "rolling_back")
    ],
)
def test_whatever_dies_in_whichever_phase(
    scene: EngineScene, table: list[str], phase: str, fault: str
) -> None:
    _get_ready(scene, broken=phase == "rolling_back")
    began = time.monotonic()
    asked = _ambushed(scene, phase, fault)
    _wait_end(scene, asked)
    record = scene.record()
    table.append(f"{phase:<14}{fault:<18}{record['phase']:<14}{time.monotonic() - began:.0f}")
    try:
        wanted = ("rolled_back",) if phase == "rolling_back" else ("committed", "rolled_back")
        assert record["phase"] in wanted, record
        scene.assert_runs(FAULTY if record["phase"] == "committed" else OLD)
    except BaseException:
        print(scene.container.logs())
        raise


def _get_ready(scene: EngineScene, *, broken: bool) -> None:
    """Have the old version, nothing in quarantine, and what is to be installed."""
    scene.container.write(FAULT_FILE, "")
    if scene.version() != OLD:
        assert scene.update(OLD, allow_downgrade=True)["phase"] == "committed"
        scene.answers()
    if scene.call("safeupdate.revisions")["skipped"]:
        scene.call("safeupdate.unquarantine", FAULTY)
    scene.container.write(FAULT_FILE, BROKEN if broken else "")


def _ambushed(scene: EngineScene, phase: str, fault: str) -> str:
    """Ask for the update, and let the fault happen in the phase; return the update's ID."""
    known = json.dumps([row["update"] for row in scene.call("safeupdate.history", limit=100)])
    victims = {
        "installing": ["dpkg"],
        "rolling_back": ["dpkg"],
        "staging": ["apt-get", "dpkg-query", "dpkg-deb"],
    }[phase] if fault == "package manager" else []  # fmt: skip
    argv = ["python3", "-c", _AMBUSH, f"{STATE_DIR}/safeupdate.db", phase, known, *victims]
    ambush = scene.container.popen(argv)
    try:
        asked = scene.ask(FAULTY)["update"]
        output, _ = ambush.communicate(timeout=150)
    finally:
        ambush.kill()
    assert ambush.returncode == 0, output
    pid = output.split()[0]
    _happen(scene, fault, pid)
    return str(asked)


def _happen(scene: EngineScene, fault: str, pid: str) -> None:
    run = scene.container.run
    if fault == "power":
        scene.container.power_cut()
        return
    if fault == "supervisor":
        run(["kill", "-KILL", pid])
        return
    if fault == "minion":
        run(["systemctl", "kill", "-s", "KILL", "--kill-who=all", "salt-minion"], check=False)
        run(["kill", "-CONT", pid], check=False)
        if scene.container.service()["ActiveState"] == "failed":
            # Nobody but an administrator starts it where no update restarts it.
            run(["systemctl", "start", "salt-minion"], check=False)


def _wait_end(scene: EngineScene, update: str) -> Any:
    record = scene.wait_end(400)
    assert record["id"] == update, record
    return record


def test_the_table_is_complete() -> None:
    rows = [(phase, fault) for phase in PHASES for fault in FAULTS]
    assert set(rows) >= SHORT
    assert len(rows) == 40
