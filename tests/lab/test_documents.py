"""What the documents tell users to type, typed as it stands on a fresh master and minion."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools import venvs
from devtools.command import REPO
from devtools.lab.container import Container, Lab, Network
from devtools.lab.recipes import PREFIX
from tests.support import documents
from tests.support.waiting import wait_for

OLD, NEW = "3007.15", "3008.3"
MINION = "web1"
HERE = "tests/lab/test_documents.py"
# A person waits for what runs; nobody else is asked whether it still does.
MASTER = {"auto_accept": True, "interface": "127.0.0.1", "timeout": 120, "worker_threads": 2}
MASTER_UNIT = f"""\
[Service]
Type=notify
ExecStart={PREFIX}/bin/salt-master
[Install]
WantedBy=multi-user.target
"""
PROGRAMS = ("salt", "salt-call", "salt-key", "salt-run")
PUBLISHING = 0x1199  # the master's port 4505


class Hosts:
    """A host with nothing but a master, and one with nothing but a minion, both from packages."""

    def __init__(self, lab: Lab, make: Callable[..., Container]) -> None:
        network = Network(lab)
        self.master = make(NEW, network=network)
        offers = [f"salt-minion_{OLD}", f"salt-minion_{NEW}", "nginx_1.22.1"]
        self.minion = make(OLD, network=network, offers=offers)
        upper = self.master.dir / "up"
        units = upper / "etc/systemd/system"
        (units / "multi-user.target.wants").mkdir(parents=True)
        # What upstream's salt-master package adds to the tree, which all of its packages share.
        (units / "salt-master.service").write_text(MASTER_UNIT)
        (units / "multi-user.target.wants/salt-master.service").symlink_to("../salt-master.service")
        (units / "salt-minion.service").symlink_to("/dev/null")
        (upper / "usr/bin").mkdir(parents=True, exist_ok=True)
        for name in PROGRAMS:
            link = upper / "usr/bin" / name
            link.unlink(missing_ok=True)
            link.symlink_to(f"{PREFIX}/bin/{name}")
        for name in venvs.SOURCES:
            if (REPO / name).exists():
                self._copy(REPO / name, upper / "root/source" / name)
        self.master.write("/etc/salt/master.d/here.conf", json.dumps(MASTER))
        (upper / "srv/salt").mkdir(parents=True)
        config = {"id": MINION, "master": "127.0.0.1", "acceptance_wait_time": 1}
        self.minion.write("/etc/salt/minion.d/here.conf", json.dumps(config))

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(source, target, ignore=skip)
        else:
            shutil.copy2(source, target)

    def up(self) -> Hosts:
        self.master.up()
        self.minion.up()
        self.wait_minion("")
        return self

    def wait_minion(self, before: str) -> None:
        """Wait until a minion other than the one with this PID listens to the master."""
        wait_for(lambda: self.pid() not in ("0", before), "a new minion", timeout=300)
        wait_for(self._listens, "the minion listens to its master", timeout=300)

    def pid(self) -> str:
        return self.minion.service()["MainPID"]

    def _listens(self) -> bool:
        rows = Path(f"/proc/{self.minion.leader}/net/tcp").read_text().splitlines()[1:]
        found = (row.split()[2:4] for row in rows)
        return any(int(to.partition(":")[2], 16) == PUBLISHING and st == "01" for to, st in found)

    def type(self, command: str) -> str:
        """Run a command as it stands on the host of the master; return what it prints."""
        before = self.pid()
        said = self.master.run(
            ["sh", "-c", f"cd /root/source && {command}"], timeout=900, check=False
        )
        print(f"$ {command}\n{said.stdout}{said.stderr}")
        assert said.rc == 0, (command, said.stdout, said.stderr)
        assert "did not return" not in said.stdout, (command, said.stdout)
        if "safeupdate.enabled" in command or "state.apply" in command:
            # The minion restarts by itself. What is sent before it listens again is lost, unless
            # the master is set up as well: a person waits, too.
            self.wait_minion(before)
        return said.stdout


def follow(hosts: Hosts, page: str) -> None:
    """Type every command of a page that names this file, and compare what the page shows."""
    last, wrong = "", []
    for block in documents.blocks(REPO / page):
        if block.mark == "file":
            hosts.master.write(block.said, block.text + "\n")
        if block.said.partition("::")[0] != HERE:
            continue
        if block.mark == "run":
            for command in block.commands:
                last = hosts.type(command)
        elif documents.shape(last) != documents.shape(block.text):
            wrong.append(f"{page}, line {block.line}: printed was\n{last}")
    assert not wrong, "\n".join(wrong)


def committed(hosts: Hosts) -> None:
    assert hosts.minion.packages()["salt-minion"] == (NEW, "install ok installed")
    said = json.loads(hosts.type(f"salt {MINION} safeupdate.status --out json"))
    assert (said[MINION]["phase"], said[MINION]["running"]) == ("committed", NEW)


def test_the_readme(lab: Lab, make_container: Callable[..., Container]) -> None:
    hosts = Hosts(lab, make_container).up()
    follow(hosts, "README.md")
    committed(hosts)


@pytest.mark.soak
def test_the_tutorial(lab: Lab, make_container: Callable[..., Container]) -> None:
    hosts = Hosts(lab, make_container).up()
    follow(hosts, "docs/topics/tutorial/first-update.md")
    committed(hosts)
