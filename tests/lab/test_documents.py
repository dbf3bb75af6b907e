"""What the documents tell users to type, typed as it stands on a fresh master and minion."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from devtools.command import REPO, run
from devtools.lab.container import Container, Lab, Network
from devtools.lab.recipes import MASTER_PACKAGES, PREFIX, Installed
from saltext_safeupdate import __version__
from tests.lab.managed import served
from tests.lab.released import archives, wheel
from tests.support import documents
from tests.support.waiting import wait_for

OLD, NEW = "3007.15", "3008.3"
MINION = "web1"
HERE = "tests/lab/test_documents.py"
# A person waits for what runs; nobody else is asked whether it still does.
# The administrator has an engine, and lets the minion call something, before we come.
ENGINES = "/srv/engines"
MASTER = {
    "auto_accept": True,
    "interface": "127.0.0.1",
    "timeout": 120,
    "worker_threads": 2,
    "engines_dirs": [ENGINES],
    "engines": [{"beat": {}}],
    "peer_run": {MINION: ["test.arg"]},
}
BEAT = """
import os, time
def start():
    with open("/run/salt/master/beat", "w") as file:
        print(os.getpid(), file=file)
    while True:
        time.sleep(3600)
"""
# The file roots, and how a wheel is built into them if there is no release.
FILES = "/srv/salt"
BUILD = f"python3 -m pip wheel --no-deps --no-build-isolation --wheel-dir {FILES} ."
INDEX = "/srv/index"
# Where salt-pip installs to, what sets the master and the minion up, and a supervisor that runs.
EXTRAS = f"{PREFIX}/extras-3.11"
SET_UP, MINION_SET_UP = "/etc/salt/master.d/_safeupdate.conf", "/etc/salt/minion.d/_safeupdate.conf"
# The SLS of the set-up, next to a file of the administrator, and what the master has recorded.
SLS, STEP = "/srv/salt/safeupdate", "/srv/salt/safeupdate/steps/3008-site"
RECORDED = "/var/cache/salt/master/safeupdate"
SUPERVISOR = "/run/systemd/units/invocation:salt-safeupdate.service"
LATER = f"{__version__}.post1"
RESTARTING = ("safeupdate.enabled", "safeupdate.disabled", "state.apply")
PUBLISHING = 0x1199  # the master's port 4505


class Hosts:
    """
    A host with nothing but a master, and one with nothing but a minion, both from packages.

    Of this project the master has what is released: the source archive, unpacked. The *wheel* of
    the release is not there yet.
    """

    def __init__(self, lab: Lab) -> None:
        self.network = network = Network(lab)
        self.typed: set[str] = set()
        self.master = lab.container(Installed(NEW, MASTER_PACKAGES), network=network)
        offers = [f"salt-minion_{OLD}", f"salt-minion_{NEW}", "nginx_1.22.1"]
        self.minion = lab.container(OLD, network=network, offers=offers)
        upper = self.master.dir / "up"
        source = upper / "root/source"
        source.mkdir(parents=True)
        built = archives(lab, lab.run_dir.path / f"release{lab.run_dir.number()}")
        self.wheel = wheel(built)
        unpack = ["tar", "--extract", "--strip-components=1", "--file", str(built)]
        run([*unpack, "--directory", str(source)], timeout=60)
        self.master.write("/etc/salt/master.d/here.conf", json.dumps(MASTER))
        self.master.write(f"{ENGINES}/beat.py", BEAT)
        (upper / "srv/salt").mkdir(parents=True)
        config = {"id": MINION, "master": "127.0.0.1", "acceptance_wait_time": 1}
        self.minion.write("/etc/salt/minion.d/here.conf", json.dumps(config))

    def up(self) -> Hosts:
        self.master.up()
        self.minion.up()
        self.wait_minion("")
        return self

    def take_release(self) -> None:
        """Have the wheel of the release where a page builds one, which is not typed then."""
        shutil.copy(self.wheel, self.master.path(FILES))
        self.typed.add(BUILD)

    def down(self) -> None:
        for host in (self.minion, self.master):
            host.down()
        self.network.close()

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
        self.typed.add(command)
        print(f"$ {command}\n{said.stdout}{said.stderr}")
        assert said.rc == 0, (command, said.stdout, said.stderr)
        assert "did not return" not in said.stdout, (command, said.stdout)
        if any(word in command for word in RESTARTING) and "changed=" in said.stdout:
            # The minion restarts by itself. What is sent before it listens again is lost, unless
            # the master is set up as well: a person waits, too.
            self.wait_minion(before)
        if command == "systemctl restart salt-master":
            wait_for(self._listens, "the minion listens to its master", timeout=300)
        return said.stdout

    def refused(self, command: str) -> str:
        """Run a command that is refused in one line; return the line."""
        said = self.master.run(["sh", "-c", command], timeout=300, check=False)
        print(f"$ {command}\n{said.stdout}{said.stderr}")
        assert said.rc == 1, (command, said.stdout, said.stderr)
        assert "Traceback" not in said.stdout + said.stderr
        return said.stdout + said.stderr

    def beat(self) -> str:
        """Return the PID of the engine that the administrator has; it runs."""
        said = self.master.run(
            ["sh", "-c", "read pid < /run/salt/master/beat && kill -0 $pid && echo $pid"]
        )
        return said.stdout

    def asked(self, command: str) -> Any:
        """Type a command to the minion and return what it answers."""
        return json.loads(self.type(f"salt {MINION} {command} --out json"))[MINION]


def follow(
    hosts: Hosts,
    page: str,
    then: Callable[[str, str], None] = lambda command, said: None,
    *,
    before: str = "",
) -> None:
    """
    Type every command of a page that names this file, and compare what the page shows.

    A block that names the test of another page is typed if that page has not been followed on
    these hosts. *then* gets each command, and what it has printed. The first command with *before*
    in it is not typed any more.
    """
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0].partition("::")[2]
    last, wrong = "", []
    for block in documents.blocks(REPO / page):
        if block.mark == "file":
            hosts.master.write(block.said, block.text + "\n")
        if block.said.partition("::")[0] != HERE:
            continue
        if block.mark == "run":
            others = block.said.partition("::")[2] not in ("", test)
            for command in block.commands:
                if before and before in command:
                    return
                if others and command in hosts.typed:
                    continue
                last = hosts.type(command)
                then(command, last)
        elif documents.shape(last) != documents.shape(block.text):
            wrong.append(f"{page}, line {block.line}: printed was\n{last}")
    assert not wrong, "\n".join(wrong)


def committed(hosts: Hosts) -> None:
    assert hosts.minion.packages()["salt-minion"] == (NEW, "install ok installed")
    said = json.loads(hosts.type(f"salt {MINION} safeupdate.status --out json"))
    assert (said[MINION]["phase"], said[MINION]["running"]) == ("committed", NEW)


@pytest.fixture(scope="module")
def shared(lab: Lab) -> Iterator[list[Hosts]]:
    """The hosts that one page leaves to the next; a boot and a master are dear."""
    made: list[Hosts] = []
    yield made
    for each in made:
        each.down()


@pytest.fixture
def hosts(lab: Lab, shared: list[Hosts], request: pytest.FixtureRequest) -> Iterator[Hosts]:
    if not shared:
        shared.append(Hosts(lab).up())
    yield shared[0]
    if getattr(request.node, "failed_call", False):
        each = shared.pop()
        print(each.master.logs(), each.minion.logs())
        each.down()


@pytest.fixture
def fresh(shared: list[Hosts], request: pytest.FixtureRequest) -> Hosts:
    """Hosts that no page has been followed on."""
    while shared:
        shared.pop().down()
    found: Hosts = request.getfixturevalue("hosts")
    return found


def test_the_readme(hosts: Hosts) -> None:
    """The wheel that users build is the one that is released."""
    follow(hosts, "README.md")
    committed(hosts)
    built = hosts.master.path(f"{FILES}/{hosts.wheel.name}")
    assert _contents(built) == _contents(hosts.wheel)


def _contents(path: Path) -> dict[str, bytes]:
    """Return what a wheel installs; its metadata depend on the setuptools that wrote them."""
    with ZipFile(path) as archive:
        names = (name for name in archive.namelist() if ".dist-info/" not in name)
        return {name: archive.read(name) for name in names}


def test_a_master_as_packaged_is_set_up_and_updates_its_minion(hosts: Hosts) -> None:
    """It runs as the user of its package, and so does what root types."""
    master = hosts.master
    if not hosts.typed:
        follow(hosts, "README.md", before="safeupdate.update")
    main = "ps -o user= -p $(systemctl show --property MainPID --value salt-master)"
    assert master.run(["sh", "-c", main]).stdout == "salt\n"
    assert master.run(["stat", "-c", "%U", "/etc/salt/master.d"]).stdout == "salt\n"
    hosts.type(f"salt-pip install --no-deps {FILES}/{hosts.wheel.name}")
    before = _owners(master)
    refused = hosts.refused("salt-run safeupdate.setup")
    assert "This runs as the user salt, who may not write to /srv/salt." in refused
    assert "Nothing was written." in refused
    assert _owners(master) == before
    install = re.search(r"As root, run: (.+?)\. ", refused)
    assert install is not None, refused
    page = (REPO / "docs/topics/howto/install.md").read_text()
    assert f"\n{install[1]}\n" in page
    hosts.type(install[1])
    hosts.type("salt-run safeupdate.setup")
    hosts.type("systemctl restart salt-master")
    hosts.type("salt-run safeupdate.redeliver")
    assert hosts.asked("safeupdate.check") == []
    # Somebody's program that does not become the user, and the user.
    hosts.type("salt-run safeupdate.versions")
    hosts.type("runuser -u salt -- salt-run safeupdate.status")
    to = OLD if hosts.minion.packages()["salt-minion"][0] == NEW else NEW
    took = f"salt-run safeupdate.rollout {MINION} version=\"'{to}'\" allow_downgrade=True soak=0"
    done = json.loads(hosts.type(f"{took} --out json --log-level quiet"))
    assert (done["mode"], done["retcode"]) == ("finished", 0), done
    assert hosts.minion.packages()["salt-minion"] == (to, "install ok installed")
    hosts.type(f"salt-run safeupdate.report {done['rollout']} /var/tmp/rollout.html")
    refused = hosts.refused("salt-run safeupdate.metrics /var/lib/safeupdate.prom")
    assert "This runs as the user salt, who may not write to /var/lib." in refused
    refused = hosts.refused("salt-run safeupdate.update_master \"'3008.3'\"")
    assert "Nothing was changed" in refused
    owners = master.run(["find", RECORDED, "!", "-user", "salt"]).stdout
    assert owners == ""
    assert "Traceback" not in master.run(["cat", "/var/log/salt/master"]).stdout


def _owners(host: Container) -> str:
    """Return what is in the directories that the set-up writes to, and whose it is."""
    return host.run(["ls", "-lR", "/etc/salt", "/srv"]).stdout


@pytest.mark.soak
def test_the_installation(lab: Lab, fresh: Hosts) -> None:
    """
    The wheel of a release on a minion and a master, up to the next one, and back.

    Also the set-up of a master that runs, and what removes all.
    """
    top = lab.run_dir.path / f"release{lab.run_dir.number()}"
    page = Installation(fresh, wheel(archives(lab, top, LATER)))
    with served(fresh.minion, INDEX):
        follow(fresh, "docs/topics/howto/install.md", page.then)
    page.nothing_is_left()
    fresh.type("systemctl restart salt-master")
    assert fresh.asked("test.ping") is True


class Installation:
    """
    What is so after the commands of the page on the installation.

    The hosts have the wheel of the release, and an index with a *later* one.
    """

    def __init__(self, hosts: Hosts, later: Path) -> None:
        self.hosts = hosts
        self.beat = ""
        self.versions = [__version__]
        hosts.take_release()
        index = hosts.minion.path(f"{INDEX}/saltext-safeupdate")
        index.mkdir(parents=True)
        for folder in (index, hosts.master.path(FILES)):
            shutil.copy(later, folder)

    def then(self, command: str, said: str) -> None:
        hosts = self.hosts
        if "safeupdate.setup test=True" in command:
            assert not hosts.master.exists(SET_UP)
            hosts.master.write(STEP, "#!/bin/sh\n")
            self.beat = hosts.beat()
        elif command == "systemctl restart salt-master":
            # The administrator's engine runs, before, with and after us.
            before, self.beat = self.beat, hosts.beat()
            assert self.beat != before
        elif "safeupdate.redeliver" in command:
            assert hosts.master.exists(f"{RECORDED}/account.db")
            # So did the minion what it might before.
            assert hosts.asked("publish.runner test.arg mine")["args"] == ["mine"]
        elif "cp.get_file" in command:
            taken = hosts.minion.path(f"/root/{hosts.wheel.name}")
            assert taken.read_bytes() == hosts.wheel.read_bytes(), "it is the wheel of the release"
        elif "index_url=" in command:
            self.upgraded()
            self.upgrade_master(LATER)
        elif "upgrade=True" in command:
            self.restarted(hosts.pid(), __version__)
            self.upgrade_master(__version__)

    def upgraded(self) -> None:
        """Both versions are told, the running job ends, and the minion restarts by itself."""
        hosts, pid = self.hosts, self.hosts.pid()
        both = {"running": __version__, "installed": LATER}
        assert hosts.asked("safeupdate.status")["extension"] == both
        words = "until [ -e /var/tmp/go ]; do sleep 1; done; echo kept"
        hosts.type(f"salt --async {MINION} cmd.run '{words}'")
        supervisor = hosts.minion.path(SUPERVISOR)
        wait_for(lambda: os.path.lexists(supervisor), "the engine to notice it")
        hosts.minion.write("/var/tmp/go", "")
        self.restarted(pid, LATER)
        # The master has the return of the job.
        returns = ["--include=return.p", "kept", "/var/cache/salt/master/jobs"]
        hosts.master.run(["grep", "-rqsw", *returns])

    def restarted(self, before: str, version: str) -> None:
        """By itself, and with that version; nothing is left of the other one."""
        self.hosts.wait_minion(before)
        assert self.left(self.hosts.minion) == self.whole(version)
        now = {"running": version, "installed": version}
        # The minion before takes jobs until the next one does.
        wait_for(
            lambda: self.hosts.asked("safeupdate.status")["extension"] == now, f"{version} to run"
        )
        self.versions.append(version)

    def upgrade_master(self, version: str) -> None:
        """As the page says it in words: in the same way, then the set-up again, and a restart."""
        hosts = self.hosts
        file = hosts.wheel.name.replace(__version__, version)
        hosts.type(f"salt-pip install --no-deps --upgrade {FILES}/{file}")
        assert self.left(hosts.master) == self.whole(version)
        said = json.loads(hosts.type("salt-run safeupdate.setup --out json"))
        assert (said["result"], said["changes"]) == (True, {}), said
        hosts.type("systemctl restart salt-master")
        hosts.type("salt-run safeupdate.redeliver")
        # The minion before may still take jobs, and say that another version is installed.
        wait_for(lambda: hosts.asked("safeupdate.check") == [], "no problem")

    @staticmethod
    def left(host: Container) -> list[str]:
        return sorted(path.name for path in host.path(EXTRAS).glob("saltext_safeupdate*"))

    @staticmethod
    def whole(version: str) -> list[str]:
        return ["saltext_safeupdate", f"saltext_safeupdate-{version}.dist-info"]

    def nothing_is_left(self) -> None:
        hosts = self.hosts
        assert self.versions == [__version__, LATER, __version__]
        assert [self.left(host) for host in (hosts.minion, hosts.master)] == [[], []]
        # The supervisor of the restart takes it away; the package may be gone before.
        ours = ["/var/lib/salt-safeupdate", "/run/salt-safeupdate", MINION_SET_UP]
        wait_for(
            lambda: not any(hosts.minion.exists(path) for path in ours),
            f"nothing of {ours} to be left",
        )
        assert [path for path in (SET_UP, RECORDED) if hosts.master.exists(path)] == []
        assert [path.name for path in hosts.master.path(SLS).iterdir()] == ["steps"]
        assert hosts.master.exists(STEP)


@pytest.mark.soak
def test_onboarding(fresh: Hosts) -> None:
    """A master that is set up, and a minion that has nothing of ours."""
    page = "docs/topics/howto/install.md"
    others, ours = [], []
    for block in documents.blocks(REPO / page):
        if block.mark == "run" and block.said.endswith("::test_onboarding"):
            ours += block.commands
        elif block.mark == "run":
            others += block.commands
    first = (BUILD, "salt-pip install", "install -d", "salt-run safeupdate.setup")
    for start in first:
        fresh.type(next(each for each in others if each.startswith(start) and "test=" not in each))
    fresh.type("systemctl restart salt-master")
    command, show = ours
    before = fresh.pid()
    said = json.loads(fresh.type(f"{command} soak=1 --out json"))
    assert (said["done"], said["failed"], said["retcode"]) == ([MINION], {}, 0)
    assert fresh.pid() not in ("0", before), "it has restarted"
    kept = json.loads(fresh.type(f"{show} --out json"))
    assert (kept["mode"], kept["done"], kept["under_way"]) == ("finished", [MINION], {})
    again = json.loads(fresh.type(f"{command} --out json"))
    assert (again["waves"], list(again["left_out"])) == ([], [MINION])


@pytest.mark.soak
def test_the_fleet(fresh: Hosts) -> None:
    """Of the page for three hundred minions, what one of them can show."""
    follow(fresh, "README.md", before="safeupdate.update")
    collector = "/var/lib/prometheus/node-exporter"
    fresh.master.run(["mkdir", "-p", collector])
    follow(fresh, "docs/topics/howto/fleet.md")
    committed(fresh)
    metrics = fresh.master.read(f"{collector}/safeupdate.prom")
    assert re.search(r'rollout_minions\{rollout="[^"]+",step="done"\} 1\n', metrics), metrics


@pytest.mark.soak
def test_the_tutorial(fresh: Hosts) -> None:
    follow(fresh, "docs/topics/tutorial/first-update.md")
    committed(fresh)
