"""
Mount the root of a transactional system: ``python3 -m tests.lab.snapshots LOWERS DIRECTORY``.

It runs in a mount namespace of its own, before systemd is started on ``DIRECTORY/root``. At the
first time it makes a btrfs in the layout of MicroOS, of the layers LOWERS, on the block device that
``DIRECTORY/device`` names. It mounts the default snapshot and whatever lies around it, and
synchronises /etc as the tool does at boot.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.functional.transactional.rig import system
from tests.functional.transactional.rig.system import sh

sys.path.insert(0, str(system.HERE))
import boot
import fs

# Subvolumes of their own, which are in no snapshot; a transaction sees the live ones of some.
APART = ("home", "opt", "root", "srv", "var")
SEEN = ("/opt", "/root")
# The tool's stand-in; snapper is the real one, with what a plugin of a newer one does.
PROGRAMS = {
    "usr/sbin/transactional-update": "tool.sh",
    "usr/sbin/snapper": "snapper.sh",
    "usr/local/sbin/tool.py": "tool.py",
    "usr/local/sbin/fs.py": "fs.py",
}
# As on SUSE, the database of the packages is in the snapshot.
PACKAGES = "usr/lib/sysimage/rpm"


def make(home: Path, lowers: str, device: str) -> None:
    """Make the file system: its first snapshot has what the layers have."""
    sh("mkfs.btrfs", "-q", "-m", "single", "-d", "single", device)
    fs.mount(device, str(home / "top"), "btrfs")
    top = home / "top/@"
    top.mkdir()
    for name in (*APART, ".snapshots"):
        sh("btrfs", "-q", "subvolume", "create", str(top / name))
    first = top / ".snapshots/1"
    first.mkdir()
    (first / "info.xml").write_text(system.INFO)
    root = first / "snapshot"
    for place in (root, root / "etc"):
        sh("btrfs", "-q", "subvolume", "create", str(place))
    fill(home, lowers, root)
    sh("btrfs", "property", "set", "-ts", str(root), "ro", "true")
    ident = sh("btrfs", "inspect-internal", "rootid", str(root)).strip()
    sh("btrfs", "subvolume", "set-default", ident, str(home / "top"))


def fill(home: Path, lowers: str, root: Path) -> None:
    merged = home / "root"
    sh("mount", "-t", "overlay", "overlay", "-o", f"ro,lowerdir={home}/up:{lowers}", str(merged))
    sh("cp", "-a", "--", f"{merged}/.", str(root))
    sh("umount", str(merged))
    shutil.move(root / "var/lib/rpm", root / PACKAGES)
    for name in APART:
        apart = home / "top/@" / name
        sh("cp", "-a", "--", f"{root / name}/.", str(apart))
        shutil.rmtree(root / name)
        (root / name).mkdir()
    for place in ("var/cache", "var/lib", "var/log", "var/tmp", ".snapshots", "data"):
        (root / place).mkdir(parents=True, exist_ok=True)
    for name, text in {
        "etc/snapper/configs/root": system.SNAPPER,
        "etc/default/snapper": 'SNAPPER_CONFIGS="root"\n',
        "etc/rpm/macros": f"%_dbpath /{PACKAGES}\n",
        "usr/local/sbin/rig.json": json.dumps({"binds": SEEN}),
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, source in PROGRAMS.items():
        shutil.copy(system.HERE / source, root / name)
        (root / name).chmod(0o755)


def main(lowers: str, directory: str) -> None:
    home = Path(directory)
    device, root = (home / "device").read_text(), str(home / "root")
    if (home / "top").exists():
        fs.mount(device, str(home / "top"), "btrfs", data="subvolid=5")
    else:
        (home / "top").mkdir()
        make(home, lowers, device)
    ident, number = fs.default_subvolume(str(home / "top"))
    fs.mount(device, root, "btrfs", data=f"subvolid={ident}")
    for name in (*APART, ".snapshots"):
        fs.mount(device, f"{root}/{name}", "btrfs", data=f"subvol=@/{name}")
    boot.mount_etc(root, number)


if __name__ == "__main__":
    main(*sys.argv[1:])
