"""Pre-flight on a real minion: what its masters tell, and all that is wrong at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.experiment import extension_layer, minion_config
from devtools.lab.container import Container, Lab
from devtools.master import Master
from tests.lab.series import series

# A module as a site may have one of its own: it gathers what only Salt can tell.
_LOOK = """
from saltext_safeupdate.admin.status import facts
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.prepare import findings
from saltext_safeupdate.this_host import Host

def master():
    return facts.master_version(__salt__, __pillar__)

def resolved(host, version):
    try:
        return {"targets": host.manager.targets(host.own().names, version)}
    except SafeUpdateError as err:
        return {"unavailable": err}

def look(version):
    host = Host(__opts__)
    told = findings.preflight(findings.Circumstances(
        manager=host.manager,
        own=sorted(host.own().names),
        running=__grains__["saltversion"],
        **resolved(host, str(version)),  # "3008.3" on a command line is a number to Salt
        state_dir=host.settings.state_dir,
        roots=host.roots(),
        master=master(),
        uses=facts.state_uses(__opts__, __salt__),
    ))
    return [each._asdict() for each in told]
"""
_LOCK = """
import fcntl, time
held = open("/var/lib/dpkg/lock-frontend", "w")
fcntl.lockf(held, fcntl.LOCK_EX)
print("held", flush=True)
time.sleep(600)
"""
_TOLD = {"peer_run": {".+": ["safeupdate.master_version"]}}


@pytest.fixture
def minion(lab: Lab, site: Path, make_container: Callable[..., Container]) -> Container:
    layers = [extension_layer(lab, site)]
    container = make_container(
        "3007.15", offers=["salt-minion_3007.15", "salt-minion_3008.3"], extra_layers=layers
    )
    container.write("/etc/salt/minion.d/lab.conf", minion_config())
    container.write("/var/cache/salt/minion/extmods/modules/labpre.py", _LOOK)
    container.up()
    # The masters of these tests change: who asks is salt-call.
    container.run(["systemctl", "stop", "salt-minion"])
    container.run(["apt-get", "update"])
    return container


def ask(container: Container, *words: str) -> Any:
    container.run(["rm", "-f", "/etc/salt/pki/minion/minion_master.pub"])
    argv = ["salt-call", "--out", "json", "--log-level", "quiet", *words]
    return json.loads(container.run(argv, timeout=180).stdout)["local"]


@pytest.mark.soak
@pytest.mark.parametrize("version", series("3006.28"))
def test_what_a_minion_can_learn_of_its_masters_version(
    site: Path, minion: Container, version: str
) -> None:
    for config, told in (
        ({}, None),
        ({"pillar_opts": True}, version),
        (_TOLD, version),
    ):
        with Master(minion.network, version, config=config, pythonpath=site):
            assert ask(minion, "labpre.master") == told, config


def test_every_problem_of_a_minion_is_told_at_once(site: Path, minion: Container) -> None:
    with Master(minion.network, config=_TOLD, pythonpath=site) as master:
        top = master.files / "top.sls"
        top.write_text("base:\n  '*':\n    - site\n")
        (master.files / "site.sls").write_text("a:\n  file.exists:\n    - name: /\n")
        # The lab's repository is one that its administrator trusts without signatures.
        expected = {"signature-policy": False}
        found = ask(minion, "labpre.look", "3008.3")
        assert _codes(found) == expected, found
        assert _codes(ask(minion, "labpre.look", "3009.9")) == {
            **expected,
            "target-unavailable": True,
        }
    with Master(minion.network, "3006.28", config=_TOLD, pythonpath=site) as master:
        (master.files / "top.sls").write_text("base:\n  '*':\n    - site\n")
        (master.files / "site.sls").write_text(
            "editor:\n  alternatives.set:\n    - path: /usr/bin/vi\n"
        )
        minion.small_disk("/var/lib/salt-safeupdate", "2m")
        minion.write("/run/reboot-required", "")
        minion.run(["sh", "-c", "touch -d '+3 days' /var/lib/apt/lists/*Release"])
        file = minion.run(["find", "/srv/repo/pool", "-name", "salt-minion_3007.15_*"]).stdout
        minion.run(["dpkg", "--unpack", file.split()[0]])
        holder = minion.popen(["python3", "-c", _LOCK])
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            found = ask(minion, "labpre.look", "3008.3")
        finally:
            holder.kill()
            holder.wait()
    print("\n".join(f"{each['code']}: {each['problem']}" for each in found))
    assert _codes(found) == {
        "signature-policy": False,
        "master-older": True,
        "module-gone": True,
        "disk-space": True,
        "reboot-pending": False,
        "clock": True,
        "half-done": False,
        "package-manager-busy": False,
    }
    (gone,) = (each["problem"] for each in found if each["code"] == "module-gone")
    assert "alternatives.set" in gone


def _codes(found: list[dict[str, Any]]) -> dict[str, bool]:
    return {each["code"]: each["blocking"] for each in found}
