"""
An update to a slot, and what dies or is full in it: the old slot or the new one serves.

The first table has each phase, as those of packages have. The second one has each write by which a
slot becomes the active one: whatever writes stops itself just before, and then the power fails, or
from there on the disk is full.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import SITE_PACKAGES, Lab
from devtools.lab.recipes import FAULT_FILE
from tests.lab import faults
from tests.lab.engine import NEW, OLD, QUICK
from tests.lab.scene import FINAL, TELLS
from tests.lab.slotted import FRESH, Slotted

PHASES = faults.PHASES
FAULTS = ("power", "supervisor")
ROWS = [(phase, fault) for phase in PHASES for fault in FAULTS]
SLOTS = "/opt/salt-slots"
# A Salt whose minion does not start as long as the file says so.
FAULTY = f"""

_minion = salt_minion


def salt_minion():
    import os

    if os.path.exists({FAULT_FILE!r}) and os.path.getsize({FAULT_FILE!r}):
        raise SystemExit(1)
    return _minion()
"""
# Run by each Python of the host when it starts: the supervisor stops itself before a write, or is
# told that there is no room for it and for all that follow. The write is told by its number, or by
# what is done to a file with which name.
AT, CUT = "/var/tmp/cut", "/var/tmp/cut.py"
STOPPED = "/var/tmp/cut.stopped"
PTH = f"import os; os.path.exists({AT!r}) and exec(open({CUT!r}).read(), {{}})\n"
HOOK = f"""\
import errno, os, signal, sys

def _cut():
    with open({AT!r}) as file:
        kind, at = file.read().split()
    wanted = at.split(":")
    places = ("{SLOTS}/minions", "/etc/systemd/system/salt-minion.service.d", "/usr/local/bin/")
    target = {{"os.rename": 1, "os.symlink": 1, "os.link": 1, "os.mkdir": 0, "open": 0}}
    removes = {{"os.remove": 0, "os.rmdir": 0}}
    seen, met = [0], []

    def hook(event, args):
        if event == "subprocess.Popen":
            # systemd is told of what was written.
            path = "systemctl"
            if not seen[0] or "daemon-reload" not in list(args[1] or ()):
                return
        elif event in target or event in removes:
            path = args[{{**target, **removes}}[event]]
            if not isinstance(path, str) or not path.startswith(places):
                return
            if event == "open" and not (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return
        else:
            return
        seen[0] += 1
        if not met:
            if str(seen[0]) != at and [event, os.path.basename(path)] != wanted:
                return
            met.append(event)
            with open({STOPPED!r}, "w") as file:
                file.write(event)
            if kind == "power":
                os.kill(os.getpid(), signal.SIGSTOP)
        if kind == "full" and event in target:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sys.addaudithook(hook)

if any(word.endswith("/core/launch.py") for word in sys.orig_argv):
    _cut()
"""
# Steps that no way has.
MOST_STEPS = 40


class Faulty(Slotted):
    """A minion that goes between slots, each with a source of its own."""

    # Versions as they are asked for, by those that are installed.
    names: dict[str, str]

    def prepare(self) -> faults.Pair:
        """Make both builds, and go to the first slot; return what they are called."""
        self.names = {}
        for version, more in ((OLD, ""), (NEW, FAULTY)):
            self.build(version, place=version, more=more)
            staged = self.call("safeupdate.stage", version, source=f"salt://{version}", timeout=300)
            assert isinstance(staged, dict), staged
            self.names[staged["targets"]["salt"]] = version
        old, new = self.names
        self.container.write(FAULT_FILE, "")
        assert self.update(old)["phase"] == "committed"
        return faults.Pair(OLD, NEW, {}, old, new)

    def version(self) -> str:
        """Return the slot that is active, or the version of the package."""
        if not self.follows():
            return super().version()
        return str(self.call("safeupdate.revisions")["active"]["salt"])

    def ask(self, version: str | None = None, **kwargs: Any) -> dict[str, Any]:
        assert version is not None
        name = self.names.get(version, version)
        given = {"source": f"salt://{name}", "allow_downgrade": True, **kwargs}
        return super().ask(name, timeout=300, **given)

    def assert_packages(self, version: str) -> None:
        """The slot is active, the package is as it was, and no slot is half made."""
        assert self.version() == version
        assert self.follows() == (version in self.names)
        assert super().version() == OLD
        listed = self.container.run(["ls", "-A", f"{SLOTS}/slots"]).stdout.split()
        assert [name for name in listed if name.endswith((".part", ".gone"))] == []

    # -- at each write -------------------------------------------------------------------

    def arm(self, kind: str, at: int | str) -> None:
        """Have something happen at a write."""
        self.container.run(["rm", "-f", STOPPED])
        for place in (SITE_PACKAGES, "/usr/local/lib/python3.11/dist-packages"):
            self.container.write(f"{place}/cut.pth", PTH)
        self.container.write(CUT, HOOK)
        self.container.write(AT, f"{kind} {at}")

    def disarm(self) -> None:
        self.container.run(["rm", "-f", AT])

    def go(self, version: str) -> str:
        """Ask for the way to a slot, or back to the package; return the update."""
        if version in self.names:
            return str(self.ask(version)["update"])
        return str(self.call("safeupdate.rollback", to="without_slot", timeout=300)["update"])

    def pardon(self) -> None:
        """Have nothing in quarantine."""
        for row in self.call("safeupdate.revisions")["skipped"]:
            self.call("safeupdate.unquarantine", row["version"])


@pytest.fixture(scope="module")
def prepared(lab: Lab, site: Path) -> Iterator[tuple[Faulty, faults.Pair]]:
    scene = Faulty(lab, site, OLD, config=QUICK, master_config={**TELLS, **FRESH})
    try:
        scene.up()
        yield scene, scene.prepare()
    finally:
        scene.down()


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("phase", "fault"), ROWS)
def test_whatever_dies_in_whichever_phase(
    prepared: tuple[Faulty, faults.Pair],
    table: list[str],
    phase: str,
    fault: str,
    request: pytest.FixtureRequest,
) -> None:
    scene, pair = prepared
    try:
        table.append(faults.survive(scene, pair, phase, fault))
    finally:
        scene.tell_of(request.node)


def steps(scene: Faulty, table: list[str], kind: str, one: str, other: str) -> None:
    """Go there and back, and have the fault happen at each write in turn, until none is left."""
    left = {one, other}
    for at in range(1, MOST_STEPS):
        for version in (one, other):
            if version in left and not step(scene, table, kind, at, version):
                left.remove(version)
            if scene.version() != version:
                scene.pardon()
                assert scene.ended(scene.go(version), 400)["phase"] == "committed"
                scene.answers()
        if not left:
            return
    raise AssertionError("it never ended")


def step(scene: Faulty, table: list[str], kind: str, at: int | str, version: str) -> bool:
    """Have the fault happen at one write of the way to a version; tell whether there is such."""
    scene.pardon()
    before = scene.version()
    scene.arm(kind, at)
    asked = scene.go(version)

    def reached() -> str:
        # What has ended is still tidied up.
        ended = scene.record()["phase"] in FINAL and not scene.locked("supervisor")
        return scene.container.read(STOPPED, "ended" if ended else "")

    event = scene.master.wait(reached, 400, f"the write {at}")
    if kind == "power" and event != "ended":
        scene.disarm()
        scene.container.power_cut()
    record = scene.ended(asked, 400)
    scene.disarm()
    now = version if record["phase"] == "committed" else before
    if kind == "full" and event != "ended":
        # A supervisor that had no space to tidy up is started again by its watchdog.
        scene.master.wait(lambda: scene.leftovers() == [], 120, "the update to be tidied up")
    scene.assert_runs(now)
    if event != "ended":
        row = f"{kind:<6}{before:<18}{version:<18}{at:>16} {event:<18}{record['phase']}"
        print(row)
        table.append(row)
    return bool(event != "ended")


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("way", ["slot", "package"])
@pytest.mark.parametrize("kind", ["power", "full"])
def test_at_each_write_of_an_activation(
    prepared: tuple[Faulty, faults.Pair],
    table: list[str],
    kind: str,
    way: str,
    request: pytest.FixtureRequest,
) -> None:
    scene, pair = prepared
    other = OLD if way == "package" else pair.before
    try:
        if scene.version() != other:
            scene.pardon()
            assert scene.ended(scene.go(other), 400)["phase"] == "committed"
        steps(scene, table, kind, pair.after, other)
    finally:
        scene.disarm()
        scene.tell_of(request.node)


# Just before the link by which it is active is put in its place.
AN_ACTIVATION = "os.rename:active"


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", ["power", "full"])
def test_at_one_write_of_an_activation(
    prepared: tuple[Faulty, faults.Pair],
    table: list[str],
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    scene, pair = prepared
    try:
        faults.get_ready(scene, pair)
        assert step(scene, table, kind, AN_ACTIVATION, pair.after)
    finally:
        scene.disarm()
        scene.tell_of(request.node)


# -- a disk that is really full ------------------------------------------------------------------

# Fills the disk of the slots as soon as one is being made.
FILL = """
import glob, os, sys, time
print(flush=True)
end = time.monotonic() + 300
while not glob.glob(sys.argv[1] + "/slots/*.part/tree/*"):
    if time.monotonic() > end:
        sys.exit("no slot was made")
    time.sleep(0.001)
fd = os.open(sys.argv[1] + "/filling", os.O_WRONLY | os.O_CREAT)
size = 1 << 20
while size:
    try:
        os.write(fd, bytes(size))
    except OSError:
        size //= 2
"""


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_disk_that_fills_up_while_a_slot_is_made(
    lab: Lab, site: Path, request: pytest.FixtureRequest
) -> None:
    scene = Faulty(lab, site, OLD, config=QUICK)
    try:
        scene.up()
        run = scene.container.run
        scene.container.small_disk(SLOTS, "600m")
        scene.build(NEW, place=NEW)
        scene.names = {}
        filling = scene.container.popen(["python3", "-c", FILL, SLOTS])
        assert filling.stdout is not None
        filling.stdout.readline()
        pid = scene.pid()
        answer = scene.call("safeupdate.update", NEW, source=f"salt://{NEW}", timeout=400)
        print(answer)
        assert filling.wait(60) == 0
        assert "No space left on device" in answer
        assert "Nothing was changed" in answer
        assert run(["ls", "-A", f"{SLOTS}/slots"]).stdout.split() == []
        assert (scene.pid(), scene.answers()) == (pid, OLD)
        # Before it begins, too.
        refused = scene.call("safeupdate.update", NEW, source=f"salt://{NEW}", timeout=400)
        assert "[disk-space]" in refused
        run(["rm", f"{SLOTS}/filling"])
        asked = scene.call("safeupdate.update", NEW, source=f"salt://{NEW}", timeout=400)
        assert scene.ended(asked["update"], 600)["phase"] == "committed"
        assert scene.runs() == NEW
    finally:
        scene.tell_of(request.node)
        scene.down()


def test_the_table_is_complete() -> None:
    assert len(ROWS) == len(PHASES) * len(FAULTS) == 20
