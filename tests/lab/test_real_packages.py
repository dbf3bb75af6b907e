"""Salt's own packages change on hosts where an administrator, or somebody's script, does a lot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import Lab
from devtools.lab.recipes import FAULT_FILE, MINION_PACKAGES, Installed

from .scene import Scene

FAULTY = "3008.3+faulty"
RUN = "new:\n  pkg.latest:\n    - name: salt-minion\n    - refresh: True\n"
DROP_IN = "/etc/systemd/system/salt-minion.service.d/zzz-local.conf"
REMOUNT = "mount -o remount,bind"
OLD, NEW = "3007.15", "3008.3"
UNATTENDED = 'Unattended-Upgrade::Origins-Pattern { "archive=lab"; };\n'
# How hosts got their Salt, which version is on offer, and what an administrator has put there.
HOSTS = {
    "its scripts restart the minion and fail with that": (OLD, f"{NEW}+restarts", {}),
    "needrestart": (
        *(Installed(OLD, more=("needrestart",)), NEW),
        {"/etc/needrestart/conf.d/restart.conf": "$nrconf{restart} = 'a';\n"},
    ),
    "of an older series": ("3006.28", OLD, {}),
    "etckeeper": (Installed(OLD, more=("etckeeper", "git")), NEW, {}),
    "upgraded before": (Installed(OLD, upgraded=True), NEW, {}),
    "hardened": (Installed(OLD, hardened=True), NEW, {}),
    "no script may restart anything": (
        *(OLD, f"{NEW}+restarts"),
        {"/usr/sbin/policy-rc.d": "#!/bin/sh\nexit 101\n"},
    ),
}
SHORT = "needrestart"
# What somebody may set for the unit of a minion.
DROP_INS = {
    "start": "ExecStart=\nExecStart=/usr/bin/salt-minion -c /etc/salt\nRestart=always\n",
    "stop": "KillMode=process\nExecStop=/bin/kill -TERM $MAINPID\n",
    "temporary": "PrivateTmp=yes\n",
}


def units_of_ours(scene: Scene) -> str:
    argv = ["systemctl", "list-units", "--all", "--no-legend", "--plain", "*safeupdate*"]
    return scene.container.run(argv).stdout


def minions(scene: Scene) -> list[str]:
    """Return the main processes of minions: they were started by systemd, or by nobody else."""
    listed = scene.container.run(["ps", "-eo", "ppid,args"]).stdout.splitlines()
    rows = [line.split(maxsplit=1) for line in listed]
    return [args for parent, args in rows if parent == "1" and "bin/salt-minion" in args]


@pytest.fixture
def scene(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> Callable[..., Scene]:
    def make(**config: Any) -> Scene:
        given = {"safeupdate": {"stable_interval": 3, **config}}
        made = begin(Scene(lab, site, offers=[f"salt-minion_{FAULTY}"], config=given))
        assert isinstance(made, Scene)
        return made

    return make


def ended_well(scene: Scene, phase: str = "committed") -> None:
    record = scene.wait_end()
    assert record["phase"] == phase, record["reason"]
    assert scene.leftovers() == []
    assert scene.version() == (FAULTY if phase == "committed" else "3007.15")
    assert scene.answers() == scene.version().partition("+")[0]
    assert len(minions(scene)) == 1, minions(scene)
    assert units_of_ours(scene) == ""


@pytest.mark.parametrize(
    "host", [pytest.param(each, marks=() if each == SHORT else pytest.mark.soak) for each in HOSTS]
)
def test_there_and_back_on_hosts_as_people_have_them(
    lab: Lab, site: Path, begin: Callable[[Any], Any], host: str
) -> None:
    """A state run updates the minion beside a job, and a request takes it back."""
    installed, offered, files = HOSTS[host]
    old = installed if isinstance(installed, str) else installed.version
    offers = [f"salt-minion_{each}" for each in (old, offered)]
    made = begin(Scene(lab, site, installed, offers=offers))
    for path, text in files.items():
        made.container.write(path, text, 0o755)
    made.up()
    job = made.publish("cmd.run", "sleep 60; echo done")
    made.sls("new", RUN)
    assert made.returned(made.publish("state.apply", "new"))["success"]
    for version in (offered, old):
        record = made.wait_end()
        assert record["phase"] == "committed", record["reason"]
        assert (made.version(), made.leftovers()) == (version, [])
        assert made.answers() == version.partition("+")[0]
        verified = made.container.run(["dpkg", "--verify", *MINION_PACKAGES], check=False)
        assert verified.stdout == ""
        assert made.container.service()["UnitFileState"] == "enabled"
        if version == offered:
            made.call("safeupdate.rollback")
    assert made.returned(job)["return"] == "done"


@pytest.mark.soak
@pytest.mark.parametrize("restart", ["handover", "wait"])
def test_unattended_upgrades_install_it_beside_a_job(
    lab: Lab, site: Path, begin: Callable[[Any], Any], restart: str
) -> None:
    installed = Installed(OLD, more=("unattended-upgrades",))
    given = {"safeupdate": {"restart": restart}}
    made = begin(Scene(lab, site, installed, offers=[f"salt-minion_{NEW}"], config=given))
    made.container.write("/etc/apt/apt.conf.d/99lab", UNATTENDED)
    made.up()
    made.enable()
    before = made.pid()
    job = made.publish("cmd.run", "until [ -e /var/tmp/go ]; do sleep 0.1; done; echo done")
    made.master.wait(lambda: made.call("saltutil.find_job", job), 30, "the job to run")
    made.container.run(["apt-get", "update"])
    ran = made.container.run(["unattended-upgrade", "--verbose"], timeout=300)
    assert made.version() == NEW, ran.stdout
    made.container.write("/var/tmp/go", "")
    assert made.returned(job)["return"] == "done"
    made.master.wait(lambda: made.pid() not in ("0", before), 90, "the new minion")
    assert made.answers() == NEW
    assert made.container.run(["dpkg", "--audit"]).stdout == ""
    assert len(minions(made)) == 1, minions(made)
    made.master.wait(lambda: units_of_ours(made) == "", 60, "nothing of ours to be left")


@pytest.mark.parametrize("sets", DROP_INS)
def test_an_administrator_has_set_something_for_the_unit(
    scene: Callable[..., Scene], sets: str
) -> None:
    """No name of a drop-in makes it count more than ours, and ours leaves nothing running."""
    made = scene()
    made.container.write(DROP_IN, f"[Service]\n{DROP_INS[sets]}")
    made.up()
    made.sls("new", RUN)
    assert made.returned(made.publish("state.apply", "new"))["success"]
    ended_well(made)


@pytest.mark.soak
def test_the_minion_is_killed_while_its_packages_change(scene: Callable[..., Scene]) -> None:
    """
    The memory ran out, for example. Nobody waits for what a dead minion cannot send.

    A process of it lives on for up to 5 s. It is ended, since no other one starts meanwhile.
    """
    made = scene(return_timeout=86400)
    made.container.write(
        FAULT_FILE, "systemctl kill --kill-who=main --signal=KILL salt-minion || true\n"
    )
    made.up()
    made.sls("new", RUN)
    made.publish("state.apply", "new")
    made.wait_end()
    ended_well(made)


def test_usr_is_read_only_and_a_hook_of_apt_changes_that(scene: Callable[..., Scene]) -> None:
    """The supervisor installs without apt's hooks: it says so before anything has changed."""
    made = scene()
    hooks = {"Pre": "rw", "Post": "ro"}
    lines = (f'DPkg::{when}-Invoke {{"{REMOUNT},{how} /usr";}};' for when, how in hooks.items())
    made.container.write("/etc/apt/apt.conf.d/99remount", "\n".join(lines))
    made.up()
    for argv in ("mount --bind /usr /usr", f"{REMOUNT},ro /usr"):
        made.container.run(argv.split())
    made.call("safeupdate.update")
    record = made.wait_end()
    assert record["phase"] == "failed"
    assert "/usr is read-only" in record["reason"]
    assert made.version() == "3007.15"
    made.sls("new", RUN)
    assert made.returned(made.publish("state.apply", "new"))["success"]
    ended_well(made)
