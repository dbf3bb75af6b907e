"""What dies in which phase of an update: the runner of the tables of faults."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from devtools.lab.recipes import FAULT_FILE, PREFIX
from tests.lab.engine import EngineScene

# "repairing" and "waiting_for_boot" are not on the way of an update that was asked for here.
PHASES = (
    "requested", "checking", "staging", "waiting", "installing", "delivering", "stepping",
    "restarting", "watching", "rolling_back",
)  # fmt: skip
FAULTS = ("supervisor", "minion", "package manager", "power")
# The phases in which the package manager works.
WORKING = ("staging", "installing", "rolling_back")
Row = tuple[str, str]
Happen = Callable[[EngineScene, str, str], None]
ROWS: Sequence[Row] = [
    (phase, fault)
    for phase in PHASES
    for fault in FAULTS
    if fault != "package manager" or phase in WORKING
]
BROKEN = f"sed -i '/^import re/i raise SystemExit(1)' {PREFIX}/salt-minion\n"
# Waits for the phase of a newer update than the given one, and stops its supervisor there. With
# programs (a name, and words of its arguments) it then waits for one and kills it. What it did is
# its output.
_AMBUSH = """
import fcntl, os, signal, sqlite3, sys, time
path, phase, before, victims = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]

def processes():
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    yield int(name), file.read().decode(errors="replace").split(chr(0))
            except OSError:
                pass

def is_victim(words):
    # The second word is the program if the first one interprets it.
    names = {os.path.basename(word) for word in words[:2]}
    wanted = (victim.split() for victim in victims)
    return any(name in names and set(rest) <= set(words) for name, *rest in wanted)

def supervisor():
    for pid, words in processes():
        if any(word.endswith("/core/launch.py") for word in words) and pid != os.getpid():
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
end = time.monotonic() + 480
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
killed = ""
while victims and time.monotonic() < end and not killed:
    for pid, words in processes():
        if pid != os.getpid() and is_victim(words):
            os.kill(pid, signal.SIGKILL)
            killed = " ".join(words)
    time.sleep(0.002)
while not held("supervisor") and time.monotonic() < end:
    time.sleep(0.002)
pid = supervisor()
if pid and not victims:
    # Not while it writes, or closes the last connection: then nobody else could read the record.
    db.execute("BEGIN IMMEDIATE")
    os.kill(pid, signal.SIGSTOP)
    db.execute("ROLLBACK")
db.close()
print(pid or 0, killed, flush=True)
"""


@dataclass(frozen=True)
class Pair:
    """
    The versions before and after: as they are asked for, and as the host has them.

    The one after does what is in FAULT_FILE. *programs* are those of the package manager in each
    phase: a name, and words of its arguments.
    """

    old: str
    new: str
    programs: Mapping[str, Sequence[str]]
    installed_old: str = ""
    installed_new: str = ""

    @property
    def before(self) -> str:
        return self.installed_old or self.old

    @property
    def after(self) -> str:
        return self.installed_new or self.new


def rows(short: set[Row]) -> list[Any]:
    """Return the rows as parameters; all but those of *short* belong to the soak."""
    assert set(ROWS) >= short
    return [pytest.param(*row, marks=() if row in short else pytest.mark.soak) for row in ROWS]


def survive(
    scene: EngineScene, pair: Pair, phase: str, fault: str, happen: Happen | None = None
) -> str:
    """
    Let the fault happen in the phase; assert that the minion works; return a row of it.

    *happen* makes it happen, while the supervisor is stopped that has the PID which it gets.
    """
    get_ready(scene, pair)
    scene.container.write(FAULT_FILE, BROKEN if phase == "rolling_back" else "")
    began = time.monotonic()
    asked = _ambushed(scene, pair, phase, fault, happen or strike)
    record = scene.wait_end(400)
    assert record["id"] == asked, record
    row = f"{phase:<14}{fault:<18}{record['phase']:<14}{time.monotonic() - began:.0f}"
    try:
        wanted = ("rolled_back",) if phase == "rolling_back" else ("committed", "rolled_back")
        assert record["phase"] in wanted, record
        scene.assert_runs(pair.after if record["phase"] == "committed" else pair.before)
    except BaseException:
        print(scene.container.logs())
        raise
    return row


def get_ready(scene: EngineScene, pair: Pair) -> None:
    """Have the old version, nothing in quarantine, and nothing that breaks the new one."""
    scene.container.write(FAULT_FILE, "")
    if scene.version() != pair.before:
        assert scene.update(pair.old, allow_downgrade=True)["phase"] == "committed"
        scene.answers()
    if scene.call("safeupdate.revisions")["skipped"]:
        scene.call("safeupdate.unquarantine", pair.new)


def _ambushed(scene: EngineScene, pair: Pair, phase: str, fault: str, happen: Happen) -> str:
    """Ask for the update, and let the fault happen in the phase; return the update's ID."""
    known = json.dumps([row["update"] for row in scene.call("safeupdate.history", limit=100)])
    victims = pair.programs[phase] if fault == "package manager" else []
    argv = ["python3", "-c", _AMBUSH, f"{scene.state_dir}/safeupdate.db", phase, known, *victims]
    ambush = scene.container.popen(argv)
    try:
        asked = scene.ask(pair.new)["update"]
        output, _ = ambush.communicate(timeout=500)
    finally:
        ambush.kill()
    assert ambush.returncode == 0, output
    pid, _, killed = output.strip().partition(" ")
    assert bool(killed) == bool(victims), f"killed {killed or 'nothing'}"
    happen(scene, fault, pid)
    return str(asked)


def strike(scene: EngineScene, fault: str, pid: str) -> None:
    """Have the fault happen, and the supervisor *pid*, which is stopped, go on."""
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
