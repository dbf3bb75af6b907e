"""A minion in a container without systemd is updated to slots: its keeper starts it."""

from __future__ import annotations

import contextlib
import math
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from devtools.experiment import MINION
from devtools.lab.container import Container, Lab
from devtools.lab.recipes import PREFIX
from tests.lab.engine import NEW, OLD, QUICK
from tests.lab.jobs import ENGINE
from tests.lab.pings import Pings
from tests.lab.scene import FINAL, TELLS
from tests.lab.test_slots import SOURCE, Slotted
from tests.lab.test_slots_hosts import AFTER, ALL, BEFORE, FIRST

PROGRAM = f"{PREFIX}/bin/salt-minion"
WORK = "/var/tmp/work"
# Nobody reads what it says while it runs, and a pipe that is full would stop it.
CONSOLE = "exec >> /var/tmp/console 2>&1"
# A container in the one of the lab: processes of its own, a /run of its own, and no systemd. What
# is started is its first process. Who kills the outer one takes the power away.
START = (
    f"{CONSOLE}; echo $$ > /var/tmp/outer; "
    "exec unshare --pid --fork --kill-child --mount --mount-proc "
    f"sh -c 'mount -t tmpfs -o mode=755 run /run && exec {PROGRAM}'"
)
# It is no minion: whoever starts it gets nothing.
BROKEN = "\n\ndef salt_minion():\n    raise SystemExit(3)\n"


class Contained(Slotted):
    """A minion whose Salt lies in a directory that no package owns, and that a keeper starts."""

    process: subprocess.Popen[str]

    def _prepared(
        self, lab: Lab, version: str, offers: Sequence[str], layers: Sequence[Path]
    ) -> Container:
        network = self._network(lab)
        return lab.container(None, extra_layers=[*layers, lab.cache.tree(version)], network=network)

    def up(self) -> Contained:
        self.master.start()
        self.container.up()
        python = f"{PREFIX}/bin/python3"
        self.container.run([python, "-m", "saltext_safeupdate.core.slots.keep", PROGRAM])
        self.start()
        self.master.wait_minion(MINION, 90)
        return self

    def start(self) -> None:
        """Start the container, by the same command each time."""
        self.process = self.container.popen(["sh", "-c", START])

    def kill(self) -> None:
        """Take the power away from everything in it."""
        self.container.run(["kill", "-9", self.container.read("/var/tmp/outer").strip()])
        self.process.wait(60)

    def runs_on(self) -> bool:
        """Tell whether whoever has started it still sees it."""
        return self.process.poll() is None

    def ask_for(self, version: str, **kwargs: Any) -> str:
        asked = self.call("safeupdate.update", version, source=SOURCE, timeout=300, **kwargs)
        assert "update" in asked, asked
        return str(asked["update"])

    def down(self) -> None:
        with contextlib.suppress(AttributeError):
            self.process.kill()
        super().down()


@pytest.fixture
def scene(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> Contained:
    made: Contained = begin(Contained(lab, site, OLD, config=QUICK))
    made.up()
    return made


def test_an_update_a_broken_slot_and_the_way_back_are_of_one_process(scene: Contained) -> None:
    assert "slot" not in {each["code"] for each in scene.call("safeupdate.check")}
    scene.build(NEW)
    job = scene.publish("cmd.run", f"echo begun >> {WORK}; sleep 20; echo done")
    update = scene.ask_for("3008")
    assert scene.ended(update, 600)["phase"] == "committed"
    assert scene.returned(job)["return"] == "done"
    assert scene.container.read(WORK).split() == ["begun"]
    assert scene.answers() == NEW

    scene.build(NEW, more=BROKEN)
    update = scene.ask_for(NEW)
    record = scene.ended(update, 900)
    assert record["phase"] == "rolled_back", record
    assert scene.answers() == NEW

    # Whatever has begun when the power goes: the same command starts what serves.
    back = scene.call("safeupdate.rollback", to="without_slot")
    scene.wait_phase("restarting", "watching")
    assert scene.runs_on()
    scene.kill()
    scene.start()
    record = scene.wait_phase(*FINAL, timeout=600)
    assert record["id"] == back["update"]
    assert record["phase"] == "committed", record
    assert scene.answers() == OLD
    assert scene.runs_on()


@pytest.mark.soak
@pytest.mark.parametrize("phase", ["staging", "waiting", "installing", "restarting", "watching"])
@pytest.mark.parametrize("broken", [False, True], ids=["sound", "broken"])
def test_a_power_cut_in_each_phase_ends_in_the_old_or_the_new_version(
    scene: Contained, phase: str, broken: bool
) -> None:
    scene.build(NEW, more=BROKEN if broken else "")
    update = scene.ask_for(NEW)
    scene.wait_phase(phase, *FINAL)
    scene.kill()
    scene.start()
    record = scene.wait_phase(*FINAL, timeout=900)
    assert record["id"] == update
    version = scene.answers()
    assert version == (NEW if record["phase"] == "committed" else OLD), record
    assert version == OLD or not broken
    assert scene.call("cmd.run", "echo works") == "works"


@pytest.mark.soak
@pytest.mark.timeout(2400)
def test_each_series_up_and_down_below_one_keeper(
    lab: Lab, site: Path, begin: Callable[[Any], Any]
) -> None:
    scene: Contained = begin(Contained(lab, site, FIRST, config=QUICK))
    scene.up()
    for number, version in enumerate((*ALL, "")):
        line = f"echo {number} >> {WORK}; sleep 20; echo done"
        job = scene.publish("cmd.run", line)
        if version:
            scene.build(version)
            update = scene.ask_for(version, allow_downgrade=True)
        else:
            update = scene.call("safeupdate.rollback", to="without_slot", timeout=300)["update"]
        record = scene.ended(update, 900)
        assert record["phase"] == "committed", record
        assert scene.returned(job)["return"] == "done"
        assert scene.answers() == (version or FIRST)
        assert scene.runs_on()
    assert scene.container.read(WORK).split() == list("01234")


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_below_a_keeper_pings_beside_an_update_are_all_answered_once(
    lab: Lab, site: Path, begin: Callable[[Any], Any]
) -> None:
    """What is published during the restart is published again; it prints how long pings took."""
    # There is always one that runs: it goes on when pings are held.
    config = {"safeupdate": {**QUICK["safeupdate"], "jobs_timeout": 15}}
    settings = {**ENGINE, **TELLS}
    scene: Contained = begin(Contained(lab, site, OLD, config=config, master_config=settings))
    scene.up()
    scene.build(NEW)
    jid = str(scene.master.ask("new_jid")["jid"])
    scene.master.wait(lambda: scene.call("safeupdate.accepted", [jid]) == {}, 60, "the ledger")
    for version in (NEW, OLD):
        with Pings(scene, rate=4, most=10) as pings:
            scene.master.wait(lambda: len(pings.sent) >= BEFORE, 120, "pings before the update")
            began = time.time()
            if version == NEW:
                update = scene.ask_for(version)
            else:
                update = scene.call("safeupdate.rollback", timeout=300)["update"]
            record = scene.ended(update, 600)
            assert scene.answers() == version
            most = len(pings.sent) + AFTER
            scene.master.wait(lambda most=most: len(pings.sent) >= most, 120, "pings after it")
        assert record["phase"] == "committed", record
        before, during = pings.took(0, began), pings.took(began, math.inf)
        print(
            f"to {version}: {len(pings.sent)} pings, lost {pings.lost()}, twice {pings.twice()}; "
            f"the longest one {max(during):.2f} s, before the update {max(before):.2f} s"
        )
        assert (pings.lost(), pings.twice()) == (0, 0)


class Supervised(Contained):
    """One whose keeper is no first process: its supervisor of an update outlives it."""

    def start(self) -> None:
        own_run = "mount --bind /var/tmp/run /run && echo $$ > /var/tmp/keeper"
        line = f"{CONSOLE}; {own_run} && exec {PROGRAM}"
        self.container.run(["mkdir", "-p", "/var/tmp/run"])
        self.process = self.container.popen(["unshare", "--mount", "sh", "-c", line])

    def stop(self) -> None:
        """Stop the keeper, as whoever has started it does that."""
        self.container.run(["kill", self.container.read("/var/tmp/keeper").strip()])
        self.process.wait(120)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_keeper_that_somebody_stops_in_the_midst_can_be_started_again(
    lab: Lab, site: Path, begin: Callable[[Any], Any]
) -> None:
    config = {"safeupdate": {"stable_interval": 3, "watch_timeout": 60}}
    scene: Supervised = begin(Supervised(lab, site, OLD, config=config))
    scene.up()
    scene.build(NEW)
    update = scene.ask_for(NEW)
    scene.wait_phase("watching")
    scene.stop()
    scene.start()
    record = scene.wait_phase(*FINAL, timeout=600)
    assert record["id"] == update
    assert scene.answers() == (NEW if record["phase"] == "committed" else OLD), record
    assert scene.call("cmd.run", "echo works") == "works"
