"""
Nobody's restart fails while packages change, and none of them does anything to the processes.

Each request is made as scriptlets and people make it, of a real systemd, to a unit that is stopped
or running, also one with settings of an administrator that a stop would act on.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.lab.container import Container

UNIT = "daemon"
PLACE = f"/run/systemd/system/{UNIT}.service.d"
_DAEMON = """\
[Unit]
Description=a daemon of the lab
{unit}
[Service]
Type=notify
NotifyAccess=all
KillMode=mixed
ExecStart=/usr/bin/python3 /opt/daemon.py
{service}
[Install]
WantedBy=multi-user.target
"""
# Its child stands for a job. What it keeps in /tmp may be for itself alone.
_PROGRAM = """\
import os, pathlib, socket, subprocess, time
subprocess.Popen(["sleep", "4711"])
pathlib.Path("/tmp/of-daemon").write_text("kept")
with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bus:
    bus.connect(os.environ["NOTIFY_SOCKET"])
    bus.send(b"READY=1")
time.sleep(4711)
"""
_INIT_SCRIPT = """\
#!/bin/sh
### BEGIN INIT INFO
# Provides: daemon
# Required-Start: $remote_fs
# Required-Stop: $remote_fs
# Default-Start: 2 3 4 5
# Default-Stop: 0 1 6
# Short-Description: a daemon of the lab
### END INIT INFO
. /lib/lsb/init-functions
exit 1
"""
_ASK = """\
import sys
from saltext_safeupdate.core.host import command
from saltext_safeupdate.core.host.systemd import Systemd
getattr(Systemd(command.run), sys.argv[1])(sys.argv[2])
"""
_JOB = ("org.freedesktop.systemd1.Manager", "RestartUnit", "ss", f"{UNIT}.service", "replace")
_BUS = ("busctl", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1")
WAYS = {
    "systemctl": ("systemctl", "restart", UNIT),
    "by its path": ("/bin/systemctl", "restart", f"{UNIT}.service"),
    "without waiting": ("systemctl", "--no-block", "restart", UNIT),
    "try-restart": ("systemctl", "try-restart", UNIT),
    "reload-or-restart": ("systemctl", "reload-or-restart", UNIT),
    "service": ("service", UNIT, "restart"),
    "invoke-rc.d": ("invoke-rc.d", UNIT, "restart"),
    "the init script": (f"/etc/init.d/{UNIT}", "restart"),
    "deb-systemd-invoke": ("deb-systemd-invoke", "restart", f"{UNIT}.service"),
    "D-Bus": (*_BUS, *_JOB),
    "stop": ("systemctl", "stop", UNIT),
    "start": ("systemctl", "start", UNIT),
    "set -e": ("sh", "-ec", f"systemctl stop {UNIT}; systemctl restart {UNIT}"),
}  # fmt: skip
# Settings that a stop or a start would act on.
SETTINGS = {
    "as packaged": ("", ""),
    "temporary files of its own": ("", "PrivateTmp=yes"),
    "a runtime directory": ("", "RuntimeDirectory=daemon"),
    "programs around it": (
        "",
        "ExecStartPre=/bin/false\nExecStopPost=/bin/rm -rf /tmp/of-daemon\n"
        "ExecStop=/bin/kill -KILL $MAINPID",
    ),
    "it restarts by itself": ("StartLimitBurst=1", "Restart=always\nRestartSec=0"),
    "another user": ("", "User=daemon"),
    "a watchdog": ("", "WatchdogSec=1000"),
    "a condition that has changed": ("ConditionPathExists=!/run/changed", ""),
}


class Daemon:
    """A unit of systemd, and what somebody asks of it."""

    def __init__(self, container: Container) -> None:
        self.container = container

    def inhibitor(self, method: str) -> None:
        argv = ["python3", "-c", _ASK, method, UNIT]
        self.container.run(argv, env={"PYTHONPATH": "/srv/site"})

    def processes(self) -> list[str]:
        group = f"/sys/fs/cgroup/system.slice/{UNIT}.service/cgroup.procs"
        return sorted(self.container.run(["cat", group], check=False).stdout.split())

    def pid(self) -> str:
        return self.container.service(f"{UNIT}.service")["MainPID"]

    def state(self) -> str:
        return self.container.service(f"{UNIT}.service")["ActiveState"]

    def kept(self) -> str:
        """Return what its file in /tmp says, as it sees it."""
        path = f"/proc/{self.processes()[0]}/root/tmp/of-daemon"
        return self.container.run(["cat", path], check=False).stdout


@pytest.fixture
def begun(make_container: Callable[..., Container], site: Path) -> Callable[..., Daemon]:
    def begin(unit: str = "", service: str = "", *, start: bool = True) -> Daemon:
        container = make_container(None, binds={"/srv/site": str(site)})
        # The administrator's part comes later than the start that it would prevent.
        text = _DAEMON.format(unit=unit, service="")
        container.write(f"/etc/systemd/system/{UNIT}.service", text)
        container.write("/opt/daemon.py", _PROGRAM)
        container.write(f"/etc/init.d/{UNIT}", _INIT_SCRIPT, 0o755)
        early = "" if "ExecStartPre" in service else f"[Service]\n{service}\n"
        override = f"/etc/systemd/system/{UNIT}.service.d/override.conf"
        container.write(override, early)
        container.up()
        container.run(["systemctl", "enable", *(["--now"] if start else []), UNIT])
        container.write(override, f"[Service]\n{service}\n")
        container.write("/run/changed", "")
        container.run(["systemctl", "daemon-reload"])
        return Daemon(container)

    return begin


@pytest.mark.parametrize("settings", list(SETTINGS))
def test_nobodys_request_fails_or_does_anything(
    begun: Callable[..., Daemon], settings: str
) -> None:
    daemon = begun(*SETTINGS[settings])
    before, pid = daemon.processes(), daemon.pid()
    assert len(before) == 2
    daemon.inhibitor("inhibit")
    for way, argv in WAYS.items():
        asked = daemon.container.run(list(argv), check=False)
        assert asked.ok, f"{way}: {asked}"
        assert set(before) <= set(daemon.processes()), way
    daemon.container.run(["systemctl", "stop", UNIT])
    daemon.inhibitor("release")
    assert (daemon.pid(), daemon.processes(), daemon.state()) == (pid, before, "active")
    if "ExecStopPost" not in SETTINGS[settings][1]:
        assert daemon.kept() == "kept"
    assert not daemon.container.exists(PLACE)
    if settings not in ("programs around it", "a condition that has changed"):
        daemon.container.run(["systemctl", "restart", UNIT])
        assert daemon.state() == "active"
    assert not set(daemon.processes()) & set(before) or daemon.processes() == before


def test_a_unit_that_was_stopped_stays_so(begun: Callable[..., Daemon]) -> None:
    daemon = begun(start=False)
    daemon.inhibitor("inhibit")
    for way, argv in WAYS.items():
        assert daemon.container.run(list(argv), check=False).ok, way
    assert daemon.state() == "active"
    daemon.inhibitor("release")
    assert daemon.state() == "inactive"
    daemon.container.run(["systemctl", "start", UNIT])
    command = daemon.container.run(["cat", f"/proc/{daemon.pid()}/cmdline"]).stdout
    assert command.startswith("/usr/bin/python3")


def test_the_system_goes_down_meanwhile(begun: Callable[..., Daemon]) -> None:
    daemon = begun()
    daemon.inhibitor("inhibit")
    daemon.container.run(["systemctl", "restart", UNIT])
    daemon.container.reboot(timeout=60)
    assert daemon.state() == "active"
    assert not daemon.container.exists(PLACE)


@pytest.mark.parametrize("purged", [True, False], ids=["purged", "its init script is left"])
def test_its_package_is_removed(begun: Callable[..., Daemon], *, purged: bool) -> None:
    daemon = begun()
    before = daemon.processes()
    daemon.inhibitor("inhibit")
    daemon.container.run(["systemctl", "disable", "--now", UNIT])
    units = "/etc/systemd/system"
    gone = [f"{units}/{UNIT}.service", f"{units}/{UNIT}.service.d/override.conf"]
    daemon.container.run(["rm", *gone, *([f"/etc/init.d/{UNIT}"] if purged else [])])
    daemon.container.run(["systemctl", "daemon-reload"])
    assert daemon.processes() == before
    daemon.inhibitor("release")
    # systemd makes a unit of an init script.
    assert daemon.state() == ("inactive" if purged else "active")
    daemon.container.run(["systemctl", "stop", UNIT], check=False)
    assert before[0] not in daemon.processes()


def test_it_dies_meanwhile(begun: Callable[..., Daemon]) -> None:
    daemon = begun()
    daemon.inhibitor("inhibit")
    daemon.container.run(["kill", "-KILL", daemon.pid()])
    assert daemon.container.run(["systemctl", "restart", UNIT], check=False).ok
    daemon.inhibitor("release")
    assert daemon.state() == "inactive"
    daemon.container.run(["systemctl", "start", UNIT])
    assert daemon.state() == "active"
