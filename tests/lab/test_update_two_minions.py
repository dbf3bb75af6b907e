"""Two minions on one host, from one package: each with its own jobs, and one update for both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from devtools.experiment import MINION, minion_config
from devtools.lab.container import Lab
from tests.lab.scene import SET_UP, Scene

SECOND = "second"
UNIT = "salt-minion2.service"
SERVICE = """\
[Unit]
After=network.target
[Service]
Type=notify
NotifyAccess=all
LimitNOFILE=8192
KillMode=process
ExecStart=/usr/bin/salt-minion -c /etc/salt2
[Install]
WantedBy=multi-user.target
"""
PLACES = {
    "pidfile": "/run/salt-minion2.pid",
    "pki_dir": "/etc/salt2/pki/minion",
    "cachedir": "/var/cache/salt/minion2",
    "sock_dir": "/run/salt/minion2",
    "log_file": "/var/log/salt/minion2",
    "extension_modules": "/var/cache/salt/minion2/extmods",
}


class Two(Scene):
    """A scene with a second minion, whose configuration is in ``/etc/salt2``."""

    # More of its configuration.
    more: Mapping[str, Any] = MappingProxyType({})

    def up(self) -> Two:
        container = self.container
        container.write(
            "/etc/salt2/minion", minion_config({**SET_UP, **PLACES, **self.more, "id": SECOND})
        )
        container.write(f"/etc/systemd/system/{UNIT}", SERVICE)
        super().up()
        container.run(["systemctl", "daemon-reload"])
        container.run(["systemctl", "enable", "--now", UNIT])
        self.master.wait_minion(SECOND, 90)
        return self

    def publish_to_both(self, function: str, *args: Any) -> str:
        return self.master.publish(function, *args, target=f"{MINION},{SECOND}", tgt_type="list")

    def of_second(self, function: str, *args: Any, **kwargs: Any) -> Any:
        return self.master.call(function, *args, minion=SECOND, timeout=120, **kwargs)

    def return_of(self, minion: str, jid: str, timeout: float = 180) -> Any:
        return self.master.wait_return(jid, minion, timeout)["return"]

    def second_pid(self) -> str:
        return self.container.service(UNIT)["MainPID"]

    def second_locked(self, name: str) -> bool:
        """Tell whether somebody holds a lock of the second minion alone."""
        argv = ["sh", "-c", f"flock -n -s /run/salt-safeupdate/minions/*/{name}.lock true"]
        return not self.container.run(argv, check=False).ok


@pytest.fixture
def scene(lab: Lab, site: Path, begin: Callable[[Any], Any]) -> Two:
    made: Two = begin(Two(lab, site, offers=["salt-minion_3007.15", "salt-minion_3008.3"]))
    return made.up()


def test_each_has_its_own_jobs_and_one_update_is_for_both(scene: Two) -> None:
    container, master = scene.container, scene.master
    for call in (scene.call, scene.of_second):
        codes = [each["code"] for each in call("safeupdate.check")]
        assert codes == ["stand-in", "stop-guard"]
    # One publication under one JID runs on both: no ledger is common.
    jid = scene.publish_to_both("cmd.run", "echo ran >> /var/tmp/both; echo $PPID")
    assert len({scene.return_of(minion, jid) for minion in (MINION, SECOND)}) == 2
    assert container.read("/var/tmp/both") == "ran\nran\n"
    # Each knows its own unit.
    noted = {entry["id"]: entry["unit"] for entry in map(json.loads, _registry(scene))}
    assert noted == {MINION: "salt-minion", SECOND: "salt-minion2"}

    # A restart of one leaves the jobs of the other alone, and waits for its own only.
    long = _waiting(scene, MINION, "one")
    first, second = scene.pid(), scene.second_pid()
    scene.of_second("safeupdate.restart")
    master.wait(lambda: scene.second_pid() not in ("0", second), 90, "the second to restart")
    master.wait_minion(SECOND, 90)
    assert scene.pid() == first
    container.write("/var/tmp/one", "")
    assert scene.return_of(MINION, long) == "one"

    # One update waits for the jobs of both, holds new ones of both, and restarts both.
    first, second = scene.pid(), scene.second_pid()
    jobs = {minion: _waiting(scene, minion, minion) for minion in (MINION, SECOND)}
    container.run(["apt-get", "update"])
    plan = scene.call("safeupdate.plan", "3008.3")
    assert [each["code"] for each in plan["findings"] if each["blocking"]] == []
    assert any(SECOND in each["problem"] for each in plan["findings"])
    scene.call("safeupdate.update", "3008.3")
    scene.wait_phase("waiting")
    refused = scene.of_second("safeupdate.update", "3008.3")
    assert "updates the same packages" in str(refused)
    scene.call("safeupdate.update", "3008.3", when="now")
    master.wait(lambda: scene.locked("drain"), 120, "new jobs to be held")
    master.wait(lambda: scene.second_locked("drain"), 30, "those of the second to be held")
    held = scene.publish_to_both("cmd.run", "echo held >> /var/tmp/held; echo held")
    container.write(f"/var/tmp/{MINION}", "")
    assert scene.return_of(MINION, jobs[MINION]) == MINION
    assert scene.version() == "3007.15", "the job of the other still runs"
    container.write(f"/var/tmp/{SECOND}", "")
    assert scene.return_of(SECOND, jobs[SECOND]) == SECOND
    record = scene.wait_end(timeout=400)
    assert record["phase"] == "committed", record
    assert scene.pid() not in ("0", first)
    assert scene.second_pid() not in ("0", second)
    assert [scene.return_of(minion, held) for minion in (MINION, SECOND)] == ["held", "held"]
    assert container.read("/var/tmp/held") == "held\nheld\n"
    for call in (scene.call, scene.of_second):
        assert call("test.version") == "3008.3"
        assert call("safeupdate.status")["undelivered"] == 0
    assert scene.leftovers() == []
    assert not any(scene.second_locked(name) for name in ("jobs", "drain"))


def _waiting(scene: Two, minion: str, flag: str) -> str:
    """Publish a job that runs until its flag is there; return its JID when it runs."""
    command = f"echo > /var/tmp/{flag}.runs; until test -e /var/tmp/{flag}; do sleep 0.1; done; "
    jid = scene.master.publish("cmd.run", f"{command} echo {flag}", target=minion, tgt_type="list")
    path = f"/var/tmp/{flag}.runs"
    scene.master.wait(lambda: scene.container.exists(path), 60, f"the job of {minion}")
    return jid


def _registry(scene: Two) -> list[str]:
    directory = scene.container.path("/var/lib/salt-safeupdate/registry")
    return [path.read_text() for path in directory.glob("*.json")]
