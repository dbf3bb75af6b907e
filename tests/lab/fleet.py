"""Many hosts of one master, whose engine drives rollouts, and for which weeks can pass."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import salt.config

from devtools.command import ToolError, run
from devtools.experiment import MASTER_CONFIG
from devtools.lab.container import Lab
from devtools.master import Master
from saltext_safeupdate.master.store import Store
from tests.lab.engine import NEW, OLD, QUICK, deb
from tests.lab.rpm import RpmHost
from tests.lab.scene import FINAL, TELLS, Scene, database_state
from tests.lab.transactional import TransactionalHost
from tests.support.at_once import most_at_once

# Phases in which an update changes nothing.
QUIET = ("", "requested", "checking", "staging", "waiting", *FINAL)
# As many boot at the same time.
BOOTING = 3
_INTERVALS = """
import json, os, sqlite3, sys
rows = []
if os.path.exists(sys.argv[1]):
    db = sqlite3.connect(sys.argv[1], timeout=30)
    ends = sys.argv[2:]
    end = f"MAX(CASE WHEN phase IN ({','.join('?' * len(ends))}) THEN at END)"
    asked = f"SELECT MIN(at), {end}, (SELECT phase FROM updates WHERE id = phases.id)"
    rows = db.execute(f"{asked} FROM phases GROUP BY id", ends).fetchall()
print(json.dumps(rows))
"""
# Makes all that a master has stored older. Times are numbers with a fraction; a whole number of
# that size is the number of a request. Of the account it is as if the host had booted meanwhile.
_OLDER = """
import sqlite3, sys
import salt.config
from saltext_safeupdate.master.account import path_of
from saltext_safeupdate.master.cache import Cache
from saltext_safeupdate.master.store import MINIONS, ROLLOUTS

opts, seconds = salt.config.master_config(sys.argv[1]), float(sys.argv[2])

def older(what):
    if isinstance(what, dict):
        return {key: older(value) for key, value in what.items()}
    if isinstance(what, list):
        return list(map(older, what))
    return what - seconds if isinstance(what, float) and 1.5e9 < what < 2.5e9 else what

cache = Cache(opts)
for bank in (MINIONS, ROLLOUTS):
    for key in cache.keys(bank):
        cache.write(bank, key, older(cache.read(bank, key)))
with sqlite3.connect(path_of(opts)) as db:
    db.execute("UPDATE publications SET at = at - ?, boot = 'an earlier one'", (seconds,))
"""


class Member(Scene):
    """A host of a fleet: it has a name, and the master of all."""

    def __init__(self, lab: Lab, site: Path, name: str, master: Master, **kwargs: Any) -> None:
        self.name = name
        self._of_all = master
        self._seen: list[Any] = []
        self._phase = ""
        super().__init__(lab, site, OLD, **{"config": QUICK, **kwargs})

    def _master(self, *_: object) -> Master:
        return self._of_all

    def up(self) -> Member:
        self.container.up()
        self.master.wait_minion(self.name, 180)
        return self

    def down(self) -> None:
        self.container.down()

    def phase(self) -> str:
        """Return the phase of its newest update; it is read if its database has changed."""
        state = database_state(self.container, self.state_dir)
        if state != self._seen:
            self._seen, self._phase = state, str(self.record().get("phase", ""))
        return self._phase

    def intervals(self) -> list[tuple[float, float]]:
        """Return when its updates began and ended, by its own record; the end may be open."""
        database = f"{self.state_dir}/safeupdate.db"
        said = self.container.run(["python3", "-c", _INTERVALS, database, *FINAL])
        return [
            (begin, float("inf") if end is None else end)
            for begin, end, phase in json.loads(said.stdout)
            # One that was taken back while it waited has changed nothing.
            if phase != "cancelled"
        ]

    def keep(self, kept: bool = True) -> None:
        """Have its administrator keep it as it is, or not any more."""
        self.container.run(["apt-mark", "hold" if kept else "unhold", "salt-minion"])


class RpmMember(RpmHost, Member):
    """Such a host of rpm's."""


class TransactionalMember(TransactionalHost, RpmMember):
    """Such a host whose root is a snapshot; an update reboots it."""

    def phase(self) -> str:
        try:
            return super().phase()
        except ToolError:
            # It has just gone down for a reboot: nothing has changed.
            return self._phase


class Fleet:
    """
    The master with its hosts.

    The ones of apt are called *a1* and so on, those of dnf *d1*, the *transactional* ones *t1*.
    """

    def __init__(self, lab: Lab, site: Path, *, apt: int, dnf: int, transactional: int = 0) -> None:
        config = {**MASTER_CONFIG, **TELLS}
        self.site = site
        self.master = Master.take(lab, config=config, pythonpath=site)
        self.failed = False
        self.members: dict[str, Member] = {}
        for number in range(1, apt + 1):
            name = f"a{number}"
            self.members[name] = Member(lab, site, name, self.master, offers=[deb(OLD), deb(NEW)])
        for number in range(1, dnf + 1):
            name = f"d{number}"
            self.members[name] = RpmMember(lab, site, name, self.master, offers=[OLD, NEW])
        for number in range(1, transactional + 1):
            name = f"t{number}"
            offers = [OLD, NEW]
            self.members[name] = TransactionalMember(lab, site, name, self.master, offers=offers)

    def up(self, names: Iterable[str]) -> Fleet:
        self.master.start()
        with ThreadPoolExecutor(BOOTING) as pool:
            list(pool.map(lambda name: self.members[name].up(), names))
        return self

    def down(self) -> None:
        for member in self.members.values():
            member.down()
        self.master.give_back(usable=False)

    def tell_of(self, test: object) -> None:
        """Print the logs if *test* has failed."""
        if getattr(test, "failed_call", False):
            print(self.master.log(), *(each.container.logs() for each in self.running()))

    def running(self) -> list[Member]:
        return [each for each in self.members.values() if each.container.is_up]

    # -- what people do ------------------------------------------------------------------

    def write_policy(self, **settings: Any) -> None:
        group = {"name": "all", "target": "*", "version": NEW, **settings}
        path = self.master.dir / "safeupdate" / "policy.yml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"groups": [group]}))

    def policy(self) -> tuple[str, dict[str, Any]]:
        """Have the policy applied once; return the rollout that has begun, and its group."""
        found = self.master.runner("safeupdate.policy", apply=True)
        assert isinstance(found, dict), found
        return found["begun"], found["groups"][0]

    def die(self, *, days: float = 0) -> None:
        """
        Kill the master and start it again: that many days later, by all that it has stored.

        Its clock stays that of the hosts: all times that it knows are put back instead.
        """
        self.master.kill()
        if days:
            self._age(days * 86400)
        self.master.start()
        for member in self.running():
            self.master.wait_minion(member.name, 180)

    def _age(self, seconds: float) -> None:
        config = str(self.master.dir / "master")
        run(
            self.master.command("-c", _OLDER, config, str(seconds)),
            env={"PYTHONPATH": str(self.site)},
            timeout=120,
        )

    # -- what is so ----------------------------------------------------------------------

    def status(self, rollout: str) -> dict[str, Any]:
        found: dict[str, Any] = self.master.runner("safeupdate.status", rollout, rows=True)
        return found

    def at_work(self) -> bool:
        """Tell whether a host is in an update that changes it, by its own record."""
        return any(each.phase() not in QUIET for each in self.running())

    def ended(self, rollout: str, *, killed: bool = True) -> dict[str, Any]:
        """Return how a rollout has ended; have the master *killed* when a host is at work."""
        if killed:
            self.master.wait(self.at_work, 300, f"somebody of {rollout} to be at work")
            self.die()

        # To ask the master takes two hundred times longer than to look at what it has stored.
        store = Store(salt.config.master_config(str(self.master.dir / "master")))

        def over() -> bool:
            return store.outline(rollout).mode.value in ("finished", "stopped", "aborted")

        self.master.wait(over, 1800, f"the end of {rollout}")
        return self.status(rollout)

    def versions(self) -> dict[str, str]:
        """Return the version of Salt that each host has installed, without its release."""
        return {each.name: each.version().partition("-")[0] for each in self.running()}

    def at_once(self) -> int:
        """Return how many hosts were in an update at the same time, at most."""
        return most_at_once(self._intervals())

    def _intervals(self) -> list[tuple[float, float]]:
        return [each for member in self.running() for each in member.intervals()]
