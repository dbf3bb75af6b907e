"""A master on the host of its minion, from the same packages: one update for both, in one order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.experiment import MASTER_CONFIG, MINION, extension_layer, minion_config
from devtools.lab.container import Container, Lab, Network
from devtools.lab.recipes import FAULT_FILE, PREFIX, Installed
from devtools.master import GRAINS_ONCE
from tests.lab.load import Load
from tests.lab.scene import FINAL, SET_UP, STATE_DIR, TELLS, database_state
from tests.support.waiting import wait_for

OLD, NEW = "3007.15", "3008.3"
# It does what is in FAULT_FILE when it is configured.
FAULTY = f"{NEW}+faulty"
UNITS = ("salt-master", "salt-api", "salt-minion")
PACKAGES = ("salt-common", *UNITS)
KEY = f"/etc/salt/pki/master/minions/{MINION}"
# Services of others: one ends with the master, one has systemd start the master if it does not run.
NEEDS_IT = """\
[Unit]
Requires=salt-master.service
After=salt-master.service
[Service]
ExecStart=/bin/sleep infinity
[Install]
WantedBy=multi-user.target
"""
ASKS_FOR_IT = NEEDS_IT.replace("sleep infinity", "true")
MASTER: dict[str, Any] = {
    "auto_accept": True,
    "interface": "127.0.0.1",
    "timeout": 60,
    "worker_threads": 2,
    "user": "root",
    "rest_cherrypy": {"host": "127.0.0.1", "port": 8000, "disable_ssl": True},
    **GRAINS_ONCE,
    **TELLS,
    **MASTER_CONFIG,
}
# What the package of a master does when it is configured: it restarts it. Somebody else's timer has
# something started that needs it.
RESTART = (
    "systemctl restart salt-master 2>> /var/tmp/refused || echo refused >> /var/tmp/refused\n"
    "systemctl start asks-for-it\n"
    "pid=$(systemctl show --property=MainPID --value salt-master)\n"
    "tr '\\0' ' ' < /proc/$pid/cmdline > /var/tmp/stands-for-it\n"
)
BROKEN = f"sed -i '/^import re/i raise SystemExit(1)' {PREFIX}/salt-master\n"
# Where a fault happens, and in which update: one to a version that works, or to one that does not.
PHASES = ("installing", "delivering", "stepping", "restarting", "watching", "rolling_back")
DATABASE = f"{STATE_DIR}/safeupdate.db"
_READ = """
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=30)
db.row_factory = sqlite3.Row
row = db.execute("SELECT id, phase, reason FROM updates WHERE id = ?", sys.argv[2:]).fetchone()
print(json.dumps(dict(row) if row else {}))
"""
_COUNT = "SELECT COUNT(*) FROM phases WHERE phase = ? AND id = ?"
_REACHED = f"""
import os, sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
end = time.monotonic() + 400
while time.monotonic() < end:
    if db.execute("{_COUNT}", (sys.argv[2], sys.argv[3])).fetchone()[0]:
        sys.exit(0)
    time.sleep(0.01)
sys.exit("the phase was never reached")
"""


class Host:
    """A host with a master, an API and the minion of that master, all from one tree."""

    def __init__(self, lab: Lab, site: Path) -> None:
        self.network = Network(lab)
        self.container: Container = lab.container(
            Installed(OLD, PACKAGES),
            network=self.network,
            offers=[f"salt-minion_{OLD}", f"salt-minion_{FAULTY}"],
            extra_layers=[extension_layer(lab, site)],
        )
        upper = self.container.dir / "up"
        units = upper / "etc/systemd/system"
        (units / "multi-user.target.wants").mkdir(parents=True)
        (units / "needs-it.service").write_text(NEEDS_IT)
        (units / "multi-user.target.wants/needs-it.service").symlink_to("../needs-it.service")
        (units / "asks-for-it.service").write_text(ASKS_FOR_IT)
        (upper / "srv/salt").mkdir(parents=True)
        self.container.write("/etc/salt/master.d/here.conf", json.dumps(MASTER))
        stand_ins = "/etc/salt-safeupdate/minion"
        places = {"executor_dirs": "executor", "engines_dirs": "engines"}
        mine = {
            **SET_UP,
            # A machine that others use as well is slow: what is well is not rolled back for that.
            "safeupdate": {"stable_interval": 3, "watch_timeout": 900, "restart_timeout": 600},
            **{key: [f"{stand_ins}/{name}"] for key, name in places.items()},
        }
        self.container.write("/etc/salt/minion.d/lab.conf", minion_config(mine))

    def up(self) -> Host:
        self.container.up()
        self.wait_minion()
        return self

    def down(self) -> None:
        self.container.down()
        self.network.close()

    # -- what a user does ----------------------------------------------------------------

    def ran(self, program: str, *words: str, check: bool = True) -> Any:
        """Run a program of Salt; return what it prints, as data."""
        argv = [program, *words, "--out", "json", "--log-level", "quiet"]
        said = self.container.run(argv, check=check, timeout=400)
        return json.loads(said.stdout) if said.stdout.strip() else None

    def call(self, function: str, *words: str) -> Any:
        return self.ran("salt", "--timeout=120", MINION, function, *words)[MINION]

    def local(self, function: str, *words: str) -> Any:
        return self.ran("salt-call", "--local", function, *words)["local"]

    def publish(self, function: str, *words: str) -> str:
        argv = ["salt", "--async", MINION, function, *words]
        return self.container.run(argv, timeout=120).stdout.split()[-1]

    def update_master(self, version: str, *words: str) -> str:
        """Ask for the update of the master; return its ID."""
        quoted = f"'{version}'"
        asked = self.ran("salt-run", "safeupdate.update_master", quoted, *words)
        assert asked["minion"] == MINION, asked
        assert "salt-master" in asked["servers"], asked
        return str(asked["update"])

    # -- what is so ----------------------------------------------------------------------

    def pings(self) -> bool:
        argv = ["salt", "--timeout=5", "--out=json", MINION, "test.ping"]
        return f'"{MINION}": true' in self.container.run(argv, check=False, timeout=120).stdout

    def wait_minion(self) -> None:
        wait_for(self.pings, "the minion to answer its master", timeout=600)

    def record(self, update: str) -> dict[str, Any]:
        """Return the record; Salt's programs may be in the middle of a change."""
        said = self.container.run(["python3", "-c", _READ, DATABASE, update])
        return dict(json.loads(said.stdout))

    def ended(self, update: str) -> dict[str, Any]:
        """Wait for the end of that update; return its record."""
        found: dict[str, Any] = {}
        seen: list[Any] = []

        def over() -> bool:
            nonlocal found, seen
            state = database_state(self.container, STATE_DIR)
            if state != seen:
                seen, found = state, self.record(update)
            return found.get("phase") in FINAL

        wait_for(over, f"the end of {update}", timeout=900)
        wait_for(lambda: not self.drop_ins(), "nothing to be held back", timeout=120)
        return found

    def drop_ins(self) -> list[str]:
        found = self.container.path("/run/systemd/system").glob("*/50-safeupdate-quiet.conf")
        return [path.parent.name for path in found]

    def starts(self) -> dict[str, tuple[str, int]]:
        """Return the name of the start of each unit, and when it was."""
        names = ("InvocationID", "ExecMainStartTimestampMonotonic", "ActiveState")
        found = {}
        for unit in UNITS:
            argv = ["systemctl", "show", "-p", ",".join(names), unit]
            lines = self.container.run(argv).stdout.splitlines()
            shown = dict(line.split("=", 1) for line in lines)
            assert shown["ActiveState"] == "active", (unit, shown)
            found[unit] = (shown[names[0]], int(shown[names[1]]))
        return found

    def assert_runs(self, version: str) -> None:
        """Master, API and minion run this version, and nothing is held back or half done."""
        self.wait_minion()
        running = version.partition("+")[0]
        assert self.call("test.version") == running
        assert self.call("publish.runner", "safeupdate.master_version") == running
        assert self.container.packages("salt-minion")["salt-minion"][0] == version
        assert self.container.run(["dpkg", "--audit"], check=False).stdout.strip() == ""
        assert self.container.exists(KEY)
        assert self.drop_ins() == []
        self.starts()
        self.container.run(["systemctl", "is-active", "needs-it"])
        assert self.call("cmd.run", "echo works") == "works"

    def returned(self, jid: str) -> Any:
        return self.ran("salt-run", "jobs.lookup_jid", jid).get(MINION)


@pytest.fixture
def host(lab: Lab, site: Path, request: pytest.FixtureRequest) -> Iterator[Host]:
    made = Host(lab, site)
    try:
        yield made.up()
        if getattr(request.node, "failed_call", False):
            print(made.container.logs(), made.container.read("/var/log/salt/master", ""))
    finally:
        made.down()


def test_the_master_its_api_and_the_minion_are_one_update(host: Host) -> None:
    """Also one that does not work; a package that restarts the master; a job of before."""
    container = host.container
    key = container.read(KEY)
    plan = host.ran("salt-run", "safeupdate.update_master", f"'{FAULTY}'", "test=True")
    codes = {each["code"]: each["blocking"] for each in plan["findings"]}
    assert codes["master-beside"] is False, plan["findings"]
    assert not any(codes.values()), plan["findings"]

    # A new master that does not start takes all of them back.
    container.write(FAULT_FILE, BROKEN)
    before = host.starts()
    record = host.ended(host.update_master(FAULTY))
    assert record["phase"] == "rolled_back", record
    assert "salt-master" in record["reason"]
    (told, *_) = host.call("safeupdate.history")
    assert (told["update"], told["servers"]) == (record["id"], ["salt-master", "salt-api"])
    host.assert_runs(OLD)
    assert host.starts()["salt-master"] != before["salt-master"]
    host.call("safeupdate.unquarantine", FAULTY)

    # One that works; its package restarts it, which does nothing in the middle of the update.
    container.write(FAULT_FILE, RESTART)
    words = "echo ran >> /var/tmp/ran; until test -e /var/tmp/go; do sleep 0.2; done; echo kept"
    jid = host.publish("cmd.run", words)
    wait_for(lambda: container.exists("/var/tmp/ran"), "the job to run")
    before = host.starts()
    update = host.update_master(FAULTY)
    told = host.local("safeupdate.status")
    assert (told["update"], told["servers"]) == (update, ["salt-master", "salt-api"])
    container.write("/var/tmp/go", "")
    record = host.ended(update)
    assert host.local("safeupdate.wait", "timeout=900")["phase"] == "committed"
    assert record["phase"] == "committed", record
    assert "refused" not in container.read("/var/tmp/refused").split()
    assert container.read("/var/tmp/stands-for-it").startswith("/bin/sh ")
    host.assert_runs(FAULTY)
    after = host.starts()
    assert all(after[unit][0] != before[unit][0] for unit in UNITS)
    assert [unit for unit, _ in sorted(after.items(), key=lambda row: row[1][1])] == list(UNITS)
    # The job was accepted before: the new master has its return, and it ran once.
    assert host.returned(jid) == "kept"
    assert container.read("/var/tmp/ran") == "ran\n"
    assert container.read(KEY) == key

    # The way back is one, too.
    update = str(host.call("safeupdate.rollback")["update"])
    assert host.ended(update)["phase"] == "committed"
    host.assert_runs(OLD)


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["supervisor", "power"])
@pytest.mark.parametrize("phase", PHASES)
def test_whatever_dies_in_a_phase_all_of_them_run(host: Host, phase: str, fault: str) -> None:
    container = host.container
    container.write(FAULT_FILE, BROKEN if phase == "rolling_back" else "")
    update = host.update_master(FAULTY)
    container.run(["python3", "-c", _REACHED, DATABASE, phase, update], timeout=500)
    if fault == "power":
        container.power_cut()
    else:
        argv = ["systemctl", "kill", "-s", "KILL", "--kill-who=all", "salt-safeupdate"]
        container.run(argv, check=False)
    record = host.ended(update)
    wanted = ("rolled_back",) if phase == "rolling_back" else ("committed", "rolled_back")
    assert record["phase"] in wanted, record
    host.assert_runs(FAULTY if record["phase"] == "committed" else OLD)


@pytest.fixture
def load(host: Host, tmp_path: Path) -> Iterator[Load]:
    made = Load(host.container, MINION, tmp_path)
    try:
        made.begin()
        yield made
    finally:
        made.close()


@pytest.mark.soak
@pytest.mark.parametrize("works", [True, False], ids=["works", "broken"])
def test_jobs_that_are_accepted_meanwhile_return_once(host: Host, load: Load, works: bool) -> None:
    """Many jobs a second: to the new version and back, or to one that does not start."""
    host.container.write(FAULT_FILE, "" if works else BROKEN)
    update = host.update_master(FAULTY, "when=now")
    assert host.ended(update)["phase"] == ("committed" if works else "rolled_back")
    load.wait_for_more()
    if works:
        update = str(host.call("safeupdate.rollback")["update"])
        assert host.ended(update)["phase"] == "committed"
        load.wait_for_more()
    load.end()
    host.assert_runs(OLD)
    load.assert_each_ran_once_and_returned()


@pytest.mark.soak
@pytest.mark.parametrize("phase", PHASES)
def test_jobs_return_once_if_the_power_is_cut(host: Host, load: Load, phase: str) -> None:
    host.container.write(FAULT_FILE, BROKEN if phase == "rolling_back" else "")
    update = host.update_master(FAULTY, "when=now")
    host.container.run(["python3", "-c", _REACHED, DATABASE, phase, update], timeout=500)
    host.container.power_cut()
    load.publish()
    record = host.ended(update)
    load.wait_for_more()
    load.end()
    host.assert_runs(FAULTY if record["phase"] == "committed" else OLD)
    load.assert_each_ran_once_and_returned()
