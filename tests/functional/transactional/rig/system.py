"""Build the image, boot it, run programs in it, and put it back as it was."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from . import fs
from .visit import visit

HERE = Path(__file__).parent
LOADING = HERE.parents[2] / "support/loading.py"
ETC = (
    *("alternatives", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
    *("nsswitch.conf", "passwd", "resolv.conf", "ssl", "os-release", "debian_version"),
)
PACKAGES = {
    **{"btrfs": "btrfs-progs", "snapper": "snapper", "rsync": "rsync", "nsenter": "util-linux"},
    **{"dbus-daemon": "dbus-daemon", "systemctl": "systemd"},
}
SNAPPER = """\
SUBVOLUME="/"
FSTYPE="btrfs"
QGROUP=""
SPACE_LIMIT="0.5"
FREE_LIMIT="0.2"
ALLOW_USERS=""
ALLOW_GROUPS=""
SYNC_ACL="no"
BACKGROUND_COMPARISON="no"
NUMBER_CLEANUP="no"
TIMELINE_CREATE="no"
EMPTY_PRE_POST_CLEANUP="no"
"""
INFO = """\
<?xml version="1.0"?>
<snapshot>
  <type>single</type>
  <num>1</num>
  <date>2026-01-02 03:04:05</date>
  <description>first root filesystem</description>
</snapshot>
"""


def sh(*argv, **kwargs):
    return subprocess.run(argv, check=True, capture_output=True, text=True, **kwargs).stdout


class System:
    """
    A transactional system in a loop image. ``boot()`` it, then ``run()`` in it.

    If it is *thrifty*, each ``salt-call`` in it begins with what earlier ones found.
    """

    def __init__(self, home: Path, size: str = "1G", *, bus: bool = True, thrifty: bool = False):
        self.home = home
        self._bus = bus
        self.thrifty = thrifty
        self.top = home / "top"
        self.top.mkdir(parents=True)
        self._size = size
        self._init: subprocess.Popen | None = None
        prefixes = {sys.prefix, sys.base_prefix, str(HERE.parents[3])}
        outside_usr = [place for place in prefixes if not place.startswith("/usr")]
        # /usr itself is part of the snapshot; what lies in it is that of this host.
        inside_usr = [str(path) for path in Path("/usr").iterdir() if path.is_dir()]
        self.binds = [*sorted(inside_usr), *sorted(outside_usr)]
        self._build()

    def _build(self) -> None:
        image = self.home / "image"
        sh("truncate", "-s", self._size, str(image))
        sh("mkfs.btrfs", "-q", "-m", "single", "-d", "single", str(image))
        sh("mount", "-o", "loop,noatime", str(image), str(self.top))
        self.device = sh("findmnt", "-no", "SOURCE", str(self.top)).strip().split("[")[0]
        (self.top / "@").mkdir()
        for name in ("var", ".snapshots", "home"):
            sh("btrfs", "-q", "subvolume", "create", str(self.top / "@" / name))
        first = self.top / "@/.snapshots/1"
        first.mkdir()
        (first / "info.xml").write_text(INFO)
        sh("btrfs", "-q", "subvolume", "create", str(first / "snapshot"))
        self._fill(first / "snapshot")
        self._programs()
        self.first = sh("btrfs", "inspect-internal", "rootid", str(first / "snapshot")).strip()
        sh("btrfs", "property", "set", "-ts", str(first / "snapshot"), "ro", "true")
        self._default(self.first)

    def _fill(self, root: Path) -> None:
        places = ["dev", "home", "proc", "run", "sys", "tmp", ".snapshots", "data"]
        var = [f"var/{name}" for name in ("cache", "lib", "log", "spool", "tmp")]
        for place in (*places, *var, *self.binds):
            (root / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
        (root / "var/run").symlink_to("/run")
        # apt, which this host may have, finds inside that it has installed nothing.
        (root / "var/lib/dpkg").mkdir()
        (root / "var/lib/dpkg/status").touch()
        for link in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink(f"/{link}"):
                (root / link).symlink_to(f"usr/{link}")
        etc = self.home / "etc"
        sh("btrfs", "-q", "subvolume", "create", str(root / "etc"))
        for place in (etc, *(self.top / "@" / name for name in (*var, "var/lib/overlay"))):
            place.mkdir(parents=True)
        (self.top / "@/var/run").symlink_to("/run")
        for name in ETC:
            if os.path.lexists(f"/etc/{name}"):
                sh("cp", "-a", f"/etc/{name}", str(etc / name))
        for name, text in {
            "snapper/configs/root": SNAPPER,
            "default/snapper": 'SNAPPER_CONFIGS="root"\n',
            # As on SUSE, the database of the packages is in the snapshot.
            "rpm/macros": "%_dbpath /data/rpm\n",
        }.items():
            (etc / name).parent.mkdir(parents=True)
            (etc / name).write_text(text)
        self.etc = root / "etc"

    def _programs(self) -> None:
        self.programs = self.home / "programs"
        self.programs.mkdir()
        for name, source, options in (
            ("transactional-update", "tool.sh", " -IS"),
            ("tool.py", "tool.py", " -IS"),
            ("systemctl", "systemctl.py", " -IS"),
            ("snapper", "snapper.sh", ""),
            ("boot.py", "boot.py", ""),
            ("fs.py", "fs.py", ""),
            ("salt-call", "salt_call.py", ""),
            ("loading.py", LOADING, ""),
        ):
            text = (HERE / source).read_text()
            text = text.replace("/usr/bin/env python3", f"{sys.executable}{options}", 1)
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)
        config = {
            "device": self.device,
            "top": str(self.top),
            "root": str(self.home / "root"),
            "binds": self.binds,
            "programs": str(self.programs),
            "bus": self._bus,
            "salt_call": str(Path(sys.executable).parent / "salt-call") if self.thrifty else None,
        }
        (self.programs / "rig.json").write_text(json.dumps(config))

    def _default(self, subvolid: str) -> None:
        sh("btrfs", "subvolume", "set-default", subvolid, str(self.top))

    def boot(self) -> None:
        """Start the default snapshot; whatever ran before is gone."""
        self.halt()
        boot = self.programs / "boot.py"
        self._init = subprocess.Popen(
            (
                "unshare",
                "--mount",
                "--propagation",
                "private",
                sys.executable,
                "-ES",
                str(boot),
                str(self.programs / "rig.json"),
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._init.stdout.readline() == "ready\n"

    def halt(self) -> None:
        """Stop everything that runs in the system, and it."""
        if self._init is None:
            return
        mine = [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._runs(pid)
        ]
        for pid in mine:
            if pid != self._init.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._init.communicate()
        self._init = None

    def _runs(self, pid: int) -> bool:
        """Tell whether a process has a snapshot of this image as its root."""
        try:
            if os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
                return False
            with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as file:
                fields = [line.split() for line in file]
        except OSError:
            return False
        return any(
            found[4] == "/" and ".snapshots/" in found[3] and self.device in found
            for found in fields
        )

    def reset(self) -> None:
        """Go back to snapshot 1 as it was, and boot it."""
        self.halt()
        self._default(self.first)
        for path in (self.top / "@/.snapshots").iterdir():
            if path.name != "1":
                if (path / "snapshot").exists():
                    fs.delete_nested(str(path / "snapshot"))
                    sh("btrfs", "-q", "subvolume", "delete", str(path / "snapshot"))
                shutil.rmtree(path)
        for path in (self.top / "@/var/lib/overlay").iterdir():
            shutil.rmtree(path)
        sh("rsync", "-aAX", "--delete", f"{self.home}/etc/", f"{self.etc}/")
        for name in ("cache/salt-safeupdate", "lib/salt-safeupdate", "log", "fill"):
            shutil.rmtree(self.top / "@/var" / name, ignore_errors=True)
        (self.top / "@/var/log").mkdir()
        self.boot()

    def close(self) -> None:
        self.halt()
        sh("umount", str(self.top))

    def argv(self, *argv: str) -> tuple[str, ...]:
        """Return how to start *argv* in the booted system."""
        pid = self._init.pid
        return ("nsenter", f"--target={pid}", "--mount", "--root", "--wd", "--", *argv)

    def environment(self) -> dict[str, str]:
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return {"PATH": path, "HOME": "/", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}

    def start(self, *argv: str, **kwargs) -> subprocess.Popen:
        return subprocess.Popen(
            self.argv(*argv),
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **kwargs,
        )

    def run(self, *argv: str, timeout: float = 300) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.argv(*argv),
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def visit(self, function: Callable[[], int | None]) -> subprocess.CompletedProcess:
        """Call a function in the booted system, in a fork of this process."""
        return visit(self._init.pid, self.environment(), function)

    def ok(self, *argv: str) -> str:
        done = self.run(*argv)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    # Files of the running system, seen from outside.
    def path(self, name: str) -> Path:
        return Path(f"/proc/{self._init.pid}/root") / name.lstrip("/")

    def fault(self, name: str, text: str = "") -> None:
        self.path(f"/run/rig/{name}").write_text(text)

    def version(self, text: str) -> None:
        """Let the tool be another one; before 5.0, /etc is an overlay."""
        overlay = self.top / "@/var/lib/overlay/1/etc"
        if int(text.partition(".")[0]) < 5 and not overlay.exists():
            overlay.parent.mkdir(parents=True)
            sh("cp", "-a", str(self.etc), str(overlay))
            self.boot()
        self.fault("version", text)

    def default(self) -> int:
        return fs.default_subvolume(str(self.top))[1]

    def numbers(self) -> list[int]:
        return sorted(
            int(path.name) for path in (self.top / "@/.snapshots").iterdir() if path.name.isdigit()
        )

    def etc_of(self, number: int) -> Path:
        """The /etc of a snapshot, seen from outside."""
        overlay = self.top / f"@{fs.overlay(number)}"
        return overlay if overlay.exists() else self.in_snapshot(number, "/etc")

    def in_snapshot(self, number: int, name: str) -> Path:
        return self.top / f"@/.snapshots/{number}/snapshot" / name.lstrip("/")

    def tool_argv(self) -> list[list[str]]:
        """The command lines that the tool was called with."""
        return [
            json.loads(line) for line in self.path("/var/log/rig-argv").read_text().splitlines()
        ]
