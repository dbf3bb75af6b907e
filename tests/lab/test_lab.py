"""The lab itself: what the other system tests take for granted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools import processes
from devtools.command import REPO, CommandFailed, ToolError
from devtools.experiment import MINION, SUPPORTED_PAIRS, minion_config
from devtools.lab import state
from devtools.lab.container import Container, Lab, Network
from devtools.lab.recipes import DEBS, MINION_PACKAGES, PREFIX, SALT_PACKAGES, VERSIONS, Installed
from devtools.master import Master
from tests.lab.series import series


def test_systemd_is_the_first_process_and_all_units_are_well(container: Container) -> None:
    assert container.run(["ps", "-o", "comm=", "1"]).stdout.strip() == "systemd"
    assert container.run(["systemctl", "is-system-running"]).stdout.strip() == "running"


def test_the_minion_runs_from_its_own_tree(container: Container) -> None:
    assert container.service()["ActiveState"] == "active"
    assert container.service()["UnitFileState"] == "enabled"
    installed = ("3007.15", "install ok installed")
    assert container.packages() == dict.fromkeys(MINION_PACKAGES, installed)
    assert not container.run(["dpkg", "--audit"]).stdout
    assert not container.run(["dpkg", "--verify", *MINION_PACKAGES], check=False).stdout
    exe = container.run(["readlink", f"/proc/{container.service()['MainPID']}/exe"]).stdout
    assert exe.startswith(PREFIX)


def test_exit_status_streams_and_stdin_of_a_program(container: Container) -> None:
    result = container.run(["sh", "-c", "cat; echo err >&2; exit 3"], check=False, stdin="in")
    assert (result.stdout, result.stderr, result.rc) == ("in", "err\n", 3)
    with pytest.raises(CommandFailed, match="exit status 3"):
        container.run(["sh", "-c", "exit 3"])


def test_a_program_that_takes_too_long_is_ended_inside_too(container: Container) -> None:
    with pytest.raises(CommandFailed, match=r"no end after 0\.5 s"):
        container.run(["sleep", "4711"], timeout=0.5)
    assert container.run(["pgrep", "-f", "^sleep 4711"], check=False).rc == 1


def test_files_can_be_written_before_and_after_boot(
    make_container: Callable[..., Container],
) -> None:
    container = make_container(None)
    container.write("/etc/lab/before", "one", 0o600)
    container.up()
    container.write("/etc/lab/after", "two")
    assert container.run(["cat", "/etc/lab/before", "/etc/lab/after"]).stdout == "onetwo"
    assert container.run(["stat", "-c", "%a", "/etc/lab/before"]).stdout == "600\n"
    assert container.read("/nowhere", "nothing") == "nothing"


def test_the_disk_outlives_a_power_cut_and_memory_does_not(container: Container) -> None:
    container.write("/var/tmp/kept", "kept")
    container.write("/run/gone", "gone")
    before = container.service()["InvocationID"]
    container.power_cut()
    assert container.read("/var/tmp/kept") == "kept"
    assert not container.exists("/run/gone")
    assert container.service()["InvocationID"] != before
    journal = container.run(["journalctl", "--list-boots", "--no-pager"]).stdout
    assert len([line for line in journal.splitlines() if line.strip()[:1] in "-0"]) >= 2


def test_a_power_cut_ends_every_process_at_once(container: Container) -> None:
    sleeper = container.popen(["sleep", "600"])
    began = time.monotonic()
    container.power_cut(boot=False)
    assert sleeper.wait(5) != 0
    assert time.monotonic() - began < 5
    assert not container.is_up
    with pytest.raises(ToolError, match="is not up"):
        container.run(["true"])


def test_an_orderly_reboot_runs_the_stop_jobs(make_container: Callable[..., Container]) -> None:
    container = make_container(None)
    unit = (
        "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\n"
        "ExecStop=/bin/touch /var/tmp/stopped\n[Install]\nWantedBy=multi-user.target\n"
    )
    container.write("/etc/systemd/system/marker.service", unit)
    container.up()
    container.run(["systemctl", "start", "marker"])
    container.reboot()
    assert container.exists("/var/tmp/stopped")


def test_two_containers_have_networks_of_their_own(
    make_container: Callable[..., Container],
) -> None:
    one, two = make_container(None).up(), make_container(None).up()
    listener = one.popen(["python3", "-c", _LISTEN])
    assert listener.stdout is not None
    assert listener.stdout.readline() == "listening\n"
    assert one.run(["python3", "-c", _CONNECT], check=False).rc == 0
    assert two.run(["python3", "-c", _CONNECT], check=False).rc == 1


_LISTEN = (
    "import socket, time; s = socket.create_server(('127.0.0.1', 4506));"
    "print('listening', flush=True); time.sleep(60)"
)
_CONNECT = "import socket; socket.create_connection(('127.0.0.1', 4506), 2)"


def test_containers_can_share_a_network(lab: Lab, make_container: Callable[..., Container]) -> None:
    network = Network(lab)
    one = make_container(None, network=network).up()
    two = make_container(None, network=network).up()
    listener = one.popen(["python3", "-c", _LISTEN])
    assert listener.stdout is not None
    assert listener.stdout.readline() == "listening\n"
    assert two.run(["python3", "-c", _CONNECT], check=False).rc == 0
    for container in (two, one):
        container.down()
    network.close()


def test_a_small_disk_is_full_soon(container: Container) -> None:
    container.small_disk("/srv/small", "1m")
    result = container.run(
        ["dd", "if=/dev/zero", "of=/srv/small/file", "bs=64k", "count=64"], check=False
    )
    assert "No space left on device" in result.stderr


def test_the_repository_offers_what_it_was_told_to(container: Container) -> None:
    container.offer("lab-tool_1.0")
    container.run(["apt-get", "update"])
    container.run(["apt-get", "install", "-y", "lab-tool"])
    assert container.packages("lab-tool")["lab-tool"][0] == "1.0"
    container.offer("lab-tool_1.0", "lab-tool_2.0")
    container.run(["apt-get", "update"])
    container.run(["apt-get", "upgrade", "-y"])
    assert container.packages("lab-tool")["lab-tool"][0] == "2.0"


@pytest.mark.parametrize("name", sorted(DEBS))
def test_every_package_carries_the_control_data_of_its_recipe(lab: Lab, name: str) -> None:
    stanza = lab.cache.stanzas(name)
    assert f"Package: {DEBS[name].package}\nVersion: {DEBS[name].version}\n" in stanza
    assert "SHA256: " in stanza


@pytest.mark.parametrize("version", VERSIONS)
def test_all_packages_of_a_version_are_offered_together(lab: Lab, version: str) -> None:
    lines = lab.cache.stanzas(f"salt-minion_{version}").splitlines()
    assert [line[9:] for line in lines if line.startswith("Package: ")] == list(SALT_PACKAGES)
    assert lines.count(f"Version: {version}") == len(SALT_PACKAGES)
    assert f" salt-common (= {version})" in " ".join(lines)


OLD, NEW = SUPPORTED_PAIRS[-1]
NOBODY_STARTS = "#!/bin/sh\nexit 101\n"
# How the packages came onto the host, who then owns the tree and minion.d, and what offers the next
# version.
HOSTS = {
    "fresh": (Installed(OLD), "salt salt", NEW),
    "oldest": (Installed(SUPPORTED_PAIRS[0][0]), "salt salt", OLD),
    "upgraded": (Installed(OLD, upgraded=True), "salt root", NEW),
    "hardened": (Installed(OLD, hardened=True), "root salt", NEW),
    "needrestart": (Installed(OLD, more=("needrestart",)), "salt salt", NEW),
    "restarts": (Installed(OLD), "salt salt", f"{NEW}+restarts"),
}


@pytest.mark.parametrize("kind", HOSTS)
def test_apt_updates_a_plain_minion(make_container: Callable[..., Container], kind: str) -> None:
    installed, owners, later = HOSTS[kind]
    container = make_container(installed, offers=[f"salt-minion_{later}"])
    container.write("/etc/salt/minion.d/lab.conf", minion_config())
    container.up()
    places = ["stat", "-c", "%U", PREFIX, "/etc/salt/minion.d"]
    assert container.run(places).stdout.split() == owners.split()
    before = container.service()["MainPID"]
    _update(container, later)
    assert container.service()["MainPID"] != before


def test_apt_updates_a_minion_that_runs_as_another_user(
    make_container: Callable[..., Container],
) -> None:
    container = make_container(OLD, offers=[f"salt-minion_{NEW}"])
    container.write("/etc/salt/minion.d/lab.conf", minion_config({"user": "salt"}))
    container.up()
    _update(container, NEW)
    owner = ["stat", "-c", "%U", f"/proc/{container.service()['MainPID']}"]
    assert container.run(owner).stdout == "salt\n"


def test_a_policy_of_the_administrator_keeps_the_minion(
    make_container: Callable[..., Container],
) -> None:
    container = make_container(OLD, offers=[f"salt-minion_{NEW}"])
    container.write("/usr/sbin/policy-rc.d", NOBODY_STARTS, 0o755)
    container.up()
    before = container.service()["MainPID"]
    _update(container, NEW)
    assert container.service()["MainPID"] == before


def _update(container: Container, later: str) -> None:
    """Update a plain minion, and look at what the packages leave behind."""
    container.run(["apt-get", "update"])
    container.run(["apt-get", "install", "-y", "salt-minion"])
    installed = (later, "install ok installed")
    assert container.packages() == dict.fromkeys(MINION_PACKAGES, installed)
    service = container.service()
    assert (service["ActiveState"], service["UnitFileState"]) == ("active", "enabled")
    assert not container.run(["dpkg", "--audit"]).stdout
    assert not container.run(["dpkg", "--verify", *MINION_PACKAGES], check=False).stdout


def test_the_moved_tree_takes_the_old_one_away(container: Container) -> None:
    container.offer("salt-minion_3007.15", "salt-minion_3008.3+moved")
    container.run(["apt-get", "update"])
    container.run(["apt-get", "install", "-y", "salt-minion"], timeout=200)
    assert not container.exists(f"{PREFIX}/lib")
    version = container.run(["salt-minion", "--version"]).stdout
    assert "3008.3" in version
    assert (
        "3008.3"
        in container.run(
            [f"{PREFIX}/bin/python3", "-c", "import salt.version as v; print(v.__version__)"]
        ).stdout
    )


def test_the_broken_package_stays_unconfigured(container: Container) -> None:
    container.offer("salt-minion_3007.15", "salt-minion_3008.3+broken")
    container.run(["apt-get", "update"])
    result = container.run(["apt-get", "install", "-y", "salt-minion"], check=False, timeout=200)
    assert result.rc != 0
    status = container.packages()["salt-minion"]
    assert status == ("3008.3+broken", "install ok half-configured")


@pytest.mark.parametrize("version", series("3006.28"))
def test_the_newest_master_serves_every_minion(
    make_container: Callable[..., Container], make_master: Callable[..., Master], version: str
) -> None:
    container = make_container(version)
    container.write("/etc/salt/minion.d/lab.conf", minion_config())
    master = make_master(container)
    container.up()
    master.wait_minion(MINION)
    assert master.call("test.version", minion=MINION) == version
    jid = master.publish("test.echo", "text", target=MINION)
    master.wait_return(jid, MINION)
    assert master.returns(jid)[MINION]["return"] == "text"


def test_runs_that_begin_and_clean_at_once_leave_each_other_alone() -> None:
    program = (
        "from devtools.lab import state\n"
        "for _ in range(20):\n"
        "    state.clean(); own = state.RunDir(); own.number(); own.forget('x'); own.close()"
    )
    argv = [sys.executable, "-c", program]
    runs = [subprocess.Popen(argv, cwd=REPO, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    assert [(each.communicate(timeout=120)[1], each.returncode) for each in runs] == [("", 0)] * 4


def test_what_a_killed_run_leaves_behind_is_removed_by_the_next() -> None:
    program = (
        "import os, signal; from devtools.lab.container import Lab; lab = Lab();"
        "c = lab.container(None).up(); c.host_popen(['sleep', '600']);"
        "print(lab.run_dir.path, c.leader, c.network.path, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=False
    )
    folder, leader, netns = done.stdout.split()
    assert processes.start_time(int(leader)) is not None
    # Another run may have found it first.
    state.clean()
    assert not Path(folder).exists()
    assert processes.start_time(int(leader)) is None
    assert not processes.sharing_netns(netns)
    assert folder not in Path("/proc/mounts").read_text()
