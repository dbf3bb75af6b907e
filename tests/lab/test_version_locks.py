"""Runs that take a lock off a package of Salt, change it, and lock it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.lab.container import Lab
from devtools.lab.rpm_recipes import OFFERED, UPSTREAM
from tests.lab import engine, rpm
from tests.lab.engine import QUICK, EngineScene
from tests.lab.rpm import RpmScene

DNF_LOCKS = "/etc/dnf/plugins/versionlock.list"
# Salt looks for this package before it asks dnf; what it contains is on the host already.
PLUGIN = "python3-dnf-plugin-versionlock"
SPEC = f"""
Name: {PLUGIN}
Version: 1
Release: 1
Summary: made for a test
License: none
BuildArch: noarch
%description
%files
"""
# By front end: the commands that take the lock off, and set it.
COMMANDS = {
    "apt": ("apt-mark unhold salt-minion", "apt-mark hold salt-minion"),
    "dnf": ("dnf -y versionlock delete salt-minion", "dnf -y versionlock add salt-minion"),
    "zypper": ("zypper -n removelock salt-minion", "zypper -n addlock salt-minion"),
}
INSTALLED = """
minion:
  pkg.installed:
    - name: salt-minion
    - version: {new}
    - refresh: True
"""
STATES = f"""
released:
  pkg.unheld:
    - name: salt-minion
{INSTALLED}
locked:
  pkg.held:
    - name: salt-minion
"""
BY_COMMANDS = f"""
released:
  cmd.run:
    - name: {{off}}
{INSTALLED}
locked:
  cmd.run:
    - name: {{on}}
"""
# Both runs leave the new version and its lock.
RUNS = {
    "states": STATES,
    "latest": STATES.replace("pkg.installed", "pkg.latest").replace("    - version: {new}\n", ""),
    "commands": BY_COMMANDS,
}


class Host:
    """A host whose minion is locked to its version."""

    def __init__(self, lab: Lab, site: Path, begin: Callable[[Any], Any], front_end: str) -> None:
        self.front_end, self.new = front_end, engine.NEW
        if front_end == "apt":
            offers = [f"salt-minion_{each}" for each in (engine.OLD, engine.NEW)]
            self.scene = begin(EngineScene(lab, site, engine.OLD, offers=offers, config=QUICK))
        else:
            self.new = rpm.NEW
            self.scene = begin(
                RpmScene(
                    lab,
                    site,
                    engine.OLD,
                    front_end=front_end,
                    offers=OFFERED[UPSTREAM],
                    config=QUICK,
                )
            )
        self.scene.up()
        if front_end == "dnf":
            self.scene.container.write("/var/tmp/plugin.spec", SPEC)
            for argv in (
                [
                    "rpmbuild",
                    "-bb",
                    "--quiet",
                    "--define",
                    "_rpmdir /var/tmp",
                    "/var/tmp/plugin.spec",
                ],
                ["rpm", "--install", "--nodeps", f"/var/tmp/noarch/{PLUGIN}-1-1.noarch.rpm"],
            ):
                self.scene.container.run(argv)
        self.scene.container.run(COMMANDS[front_end][1].split())
        assert self.locked(engine.OLD)

    def run(self, text: str) -> dict[str, Any]:
        """Apply an SLS; return the results of its states, by their IDs."""
        off, on = COMMANDS[self.front_end]
        self.scene.sls("locks", text.format(new=self.new, off=off, on=on))
        ran = self.scene.returned(self.scene.publish("state.apply", "locks"))["return"]
        return {each["__id__"]: each for each in ran.values()}

    def locked(self, version: str) -> bool:
        """Tell whether the minion is locked; with dnf, the lock has to name this version."""
        if self.front_end == "apt":
            return self.scene.dpkg_status().startswith("hold")
        if self.scene.manager("version_locked", ["salt-minion"]) != ["salt-minion"]:
            return False
        if self.front_end != "dnf":
            return True
        return [
            line
            for line in self.scene.container.read(DNF_LOCKS).splitlines()
            if line.startswith("salt-minion-")
        ] == [f"salt-minion-0:{rpm.installed(version)}.*"]


def _hosts(short: str) -> list[Any]:
    return [
        pytest.param(
            *(front_end, run),
            marks=() if (front_end, run) == ("apt", short) else pytest.mark.soak,
        )
        for front_end in COMMANDS
        for run in RUNS
    ]


@pytest.mark.parametrize(("front_end", "run"), _hosts("states"))
def test_the_new_version_is_installed_and_locked(
    lab: Lab, site: Path, begin: Callable[[Any], Any], front_end: str, run: str
) -> None:
    """
    The lock is taken off before the deferred change, and set after it.

    ========== ===================================================
    states     ``pkg.unheld``, ``pkg.installed``, ``pkg.held``
    latest     the same with ``pkg.latest``
    commands   of the package manager, which run at their position
    ========== ===================================================

    The same run once more changes no package.
    """
    host = Host(lab, site, begin, front_end)
    ran = host.run(RUNS[run])
    assert {name: each["result"] for name, each in ran.items()} == dict.fromkeys(ran, True), ran
    assert ran["minion"]["changes"]["salt-minion"]["new"].startswith(engine.NEW)
    record = host.scene.wait_end()
    assert record["phase"] == "committed", record
    assert host.scene.version() == host.new
    assert host.locked(engine.NEW)
    again = host.run(RUNS[run])
    assert {name: each["result"] for name, each in again.items()} == dict.fromkeys(ran, True), again
    assert again["minion"]["changes"] == {}
    assert host.scene.record()["id"] == record["id"]
    assert host.scene.version() == host.new
    assert host.locked(engine.NEW)


@pytest.mark.soak
@pytest.mark.parametrize("front_end", COMMANDS)
def test_a_lock_that_nobody_takes_off_counts_as_without_the_extension(
    lab: Lab, site: Path, begin: Callable[[Any], Any], front_end: str
) -> None:
    """Salt's module for apt takes it off for a moment; the other ones keep the version."""
    host = Host(lab, site, begin, front_end)
    ran = host.run(INSTALLED)["minion"]
    if front_end == "apt":
        assert ran["result"] is True, ran
        assert host.scene.wait_end()["phase"] == "committed"
        assert host.scene.version() == host.new
        assert host.locked(engine.NEW)
        return
    assert ran["result"] is False, ran
    assert ran["changes"] == {}, ran
    assert not host.scene.record() or host.scene.wait_end()["phase"] == "failed"
    assert host.scene.version() == rpm.OLD
    assert host.locked(engine.OLD)
