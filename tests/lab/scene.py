"""A container with the extension and a real master, and the questions that the tests ask."""

from __future__ import annotations

import contextlib
import fcntl
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from devtools.experiment import EXTENSION_CONFIG, MINION, extension_layer, minion_config
from devtools.lab.container import Container, Lab, Network
from devtools.lab.recipes import MINION_PACKAGES, Installed
from devtools.master import Master
from saltext_safeupdate.core.settings import of_minion

# With less of the watch than users get: most tests are not about that.
# Minions may ask the master for its version.
TELLS: Mapping[str, Any] = {"peer_run": {".+": ["safeupdate.master_version"]}}
SET_UP: Mapping[str, Any] = {**EXTENSION_CONFIG, "safeupdate": {"stable_interval": 3}}
STATE_DIR = "/var/lib/salt-safeupdate"
RUN_DIR = "/run/salt-safeupdate"
OWN_COPY = ".salt-safeupdate-g"
DROP_IN = "/run/systemd/system/{unit}.service.d/50-safeupdate-quiet.conf"
# SQLite resolves links by itself, so the file can only be read from inside.
_READ = """
import json, os, sqlite3, sys
row = None
if os.path.exists(sys.argv[1]):
    db = sqlite3.connect(sys.argv[1], timeout=10)
    db.row_factory = sqlite3.Row
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'updates'").fetchone():
        row = db.execute("SELECT * FROM updates ORDER BY created DESC LIMIT 1").fetchone()
print(json.dumps(dict(row) if row else {}))
"""
_QUERY = """
import json, sqlite3, sys
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True, timeout=30)
print(json.dumps(db.execute(sys.argv[2]).fetchall()))
"""
# Seconds after which the record is read although its file looks the same.
READ_INTERVAL = 5.0
FINAL = ("committed", "failed", "postponed", "cancelled", "rolled_back")


class Scene:
    """One minion of *version* with the extension, its master, and packages on offer."""

    # What this minion is called, and where it is: its service, its configuration, its cache, the
    # directory of its tree.
    name = MINION
    unit = "salt-minion"
    config_dir = "/etc/salt"
    cache_dir = "/var/cache/salt"
    tree_parent = "/opt/saltstack"
    call_program = "salt-call"

    def __init__(
        self,
        lab: Lab,
        site: Path,
        version: str | Installed = "3007.15",
        *,
        offers: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
        set_up: bool = True,
        master_config: Mapping[str, Any] | None = None,
    ) -> None:
        layers = [self._extension(lab, site)]
        self.master = self._master(lab, site, master_config or TELLS)
        self.failed = False
        self.container: Container = self._prepared(lab, version, offers, layers)
        # Each minion of a host has directories of its own.
        ours = of_minion({"conf_file": f"{self.config_dir}/minion"})[0]
        self.state_dir, self.run_dir = ours.state_dir, ours.run_dir
        settings = {**(self._set_up() if set_up else {}), **(config or {}), "id": self.name}
        self.container.write(f"{self.config_dir}/minion.d/lab.conf", minion_config(settings))

    def _master(self, lab: Lab, site: Path, config: Mapping[str, Any]) -> Master:
        return Master.take(lab, config=config, pythonpath=site)

    def _set_up(self) -> dict[str, Any]:
        """Return what the state would write, so that it takes no restart."""
        stand_ins = f"{self.config_dir}-safeupdate/minion"
        places = {"executor_dirs": "executor", "engines_dirs": "engines"}
        return {**SET_UP, **{key: [f"{stand_ins}/{name}"] for key, name in places.items()}}

    def _extension(self, lab: Lab, site: Path) -> Path:
        return extension_layer(lab, site)

    def _prepared(
        self, lab: Lab, version: str | Installed, offers: Sequence[str], layers: Sequence[Path]
    ) -> Container:
        network = self._network(lab)
        return lab.container(version, offers=offers, extra_layers=layers, network=network)

    def _network(self, lab: Lab) -> Network:
        """Return the network that the minion is in."""
        return self.master.network

    def up(self) -> Scene:
        self.master.start()
        self.container.up()
        self.master.wait_minion(self.name, 90)
        return self

    def enable(self) -> None:
        """Add the stop guard as users do it. What is configured already needs no restart."""
        self.sls("setup", "safeupdate:\n  safeupdate.enabled: []\n")
        assert self.returned(self.publish("state.apply", "setup"))["success"]

    def down(self) -> None:
        self.container.down()
        self.master.give_back(usable=not self.failed)

    # -- what a user does ----------------------------------------------------------------

    def tell_of(self, test: object) -> None:
        """Print the logs if *test* has failed."""
        if getattr(test, "failed_call", False):
            self.failed = True
            print(self.container.logs(), self.master.log())

    def sls(self, name: str, text: str) -> None:
        (self.master.files / f"{name}.sls").write_text(text)

    def publish(self, function: str | list[str], *args: Any, **kwargs: Any) -> str:
        return self.master.publish(function, *args, target=self.name, tgt_type="list", **kwargs)

    def call(self, function: str, *args: Any, timeout: float = 120, **kwargs: Any) -> Any:
        return self.master.call(function, *args, minion=self.name, timeout=timeout, **kwargs)

    def returned(self, jid: str, timeout: float = 180) -> dict[str, Any]:
        return self.master.wait_return(jid, self.name, timeout)

    def salt_call(self, *words: str, check: bool = True, timeout: float = 180) -> Any:
        argv = [self.call_program, "--out", "json", "--log-level", "quiet", *words]
        result = self.container.run(argv, timeout=timeout, check=check)
        return json.loads(result.stdout)["local"]

    # -- what is so ----------------------------------------------------------------------

    def version(self) -> str:
        """Return the version of the packages; if they have different ones, all of them."""
        return self._packages(0)

    def dpkg_status(self) -> str:
        return self._packages(1)

    def _packages(self, column: int) -> str:
        found = self.container.packages(*MINION_PACKAGES)
        return ", ".join(sorted({found[package][column] for package in MINION_PACKAGES}))

    def record(self, state_dir: str = "") -> dict[str, Any]:
        """Return the newest record, empty where there is none; of another minion by its place."""
        argv = ["python3", "-c", _READ, f"{state_dir or self.state_dir}/safeupdate.db"]
        return dict(json.loads(self.container.run(argv).stdout))

    def wait_phase(self, *phases: str, timeout: float = 240) -> dict[str, Any]:
        """Wait until the newest record is in one of *phases*."""

        record: dict[str, Any] = {}
        seen: list[Any] = []

        def reached() -> dict[str, Any] | None:
            nonlocal record, seen
            state = database_state(self.container, self.state_dir)
            if state != seen:
                seen, record = state, self.record()
            return record if record.get("phase") in phases else None

        found: dict[str, Any] = self.master.wait(
            reached, timeout, f"phase {' or '.join(phases)} (is {self.record().get('phase')})"
        )
        return found

    def wait_end(self, timeout: float = 240) -> dict[str, Any]:
        """Wait until the newest update has ended and its supervisor too."""
        record = self.wait_phase(*FINAL, timeout=timeout)
        self.master.wait(lambda: not self.locked("supervisor"), 60, "the supervisor to end")
        return record

    def locked(self, name: str) -> bool:
        """Tell whether somebody holds the lock alone, without waiting for it."""
        path = self.container.path(f"{self.run_dir}/{name}.lock")
        if not path.exists():
            return False
        with path.open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return True
            return False

    def leftovers(self) -> list[str]:
        """Return whatever an update has left behind; nothing should be."""
        found = [f"lock {name}" for name in ("drain", "update", "supervisor") if self.locked(name)]
        if self.container.exists(DROP_IN.format(unit=self.unit)):
            found.append("drop-in")
        opt = self.container.path(self.tree_parent)
        # The copy that a generation reads is the next one's, too.
        found += [
            path.name
            for path in opt.iterdir()
            if path.name.startswith(".salt-safe") and not path.name.startswith(OWN_COPY)
        ]
        queue = self.container.path(f"{self.cache_dir}/minion/queues")
        found += [f"held {path.name}" for path in queue.rglob("queued_*.p")]
        refused = self.container.run(
            ["systemctl", "show", "-p", "RefuseManualStop", "--value", self.unit]
        ).stdout.strip()
        if refused != "no":
            found.append("RefuseManualStop")
        return found + self.half_done()

    def half_done(self) -> list[str]:
        """Return what the package manager has begun and not ended."""
        unfinished = self.container.run(["dpkg", "--audit"], check=False).stdout.strip()
        return [f"dpkg: {unfinished}"] if unfinished else []

    def answers(self, timeout: float = 90) -> str:
        """Return the version that the running minion tells, once it answers."""
        self.master.wait_minion(self.name, timeout)
        return str(self.call("test.version"))

    def pid(self) -> str:
        return self.container.service(f"{self.unit}.service")["MainPID"]

    def query(self, statement: str) -> list[list[Any]]:
        """Ask the minion's database."""
        argv = ["python3", "-c", _QUERY, f"{self.state_dir}/safeupdate.db", statement]
        rows: list[list[Any]] = json.loads(self.container.run(argv).stdout)
        return rows

    def generations(self) -> dict[str, str]:
        """Return how each process stands, by its PID."""
        rows = self.query("SELECT process, standing FROM generations ORDER BY rowid")
        return {process.split(":")[1]: standing for process, standing in rows}

    def wait_generations(
        self, holds: Callable[[dict[str, str]], bool], timeout: float, what: str
    ) -> None:
        """Wait until that holds for how the processes stand."""
        found: dict[str, str] = {}
        seen: list[Any] = []

        def reached() -> bool:
            nonlocal found, seen
            state = database_state(self.container, self.state_dir)
            if state != seen:
                seen, found = state, self.generations()
            return holds(found)

        self.master.wait(reached, timeout, what)

    def wait_alone(self) -> None:
        """Wait until an earlier minion of a handover takes no more jobs."""
        what = "the earlier minion to take no more jobs"
        self.wait_generations(lambda each: "overlapping" not in each.values(), 60, what)

    def settled(self, timeout: float = 60) -> None:
        """Wait until the queue of held jobs is empty."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and any("held" in item for item in self.leftovers()):
            time.sleep(0.2)


def database_state(container: Container, state_dir: str) -> list[Any]:
    """
    Return what changes with every write to a minion's database, and every READ_INTERVAL.

    A program inside has to read it, which takes a thousand times longer than this look.
    """
    found: list[Any] = [time.monotonic() // READ_INTERVAL]
    for name in ("safeupdate.db", "safeupdate.db-wal"):
        with contextlib.suppress(OSError):
            status = container.path(f"{state_dir}/{name}").stat()
            found.append((status.st_ino, status.st_size, status.st_mtime_ns))
    return found


def state(result: Mapping[str, Any], state_id: str) -> dict[str, Any]:
    """Return one state's result from a run's."""
    return next(dict(r) for r in result.values() if r["__id__"] == state_id)
