"""
Boot a snapshot of the image: ``boot.py CONFIG`` in a mount namespace of its own.

It mounts the default snapshot read-only, everything around it, changes its root there,
says "ready" and stays until its standard input is closed. Others join it with nsenter.
"""

import json
import os
import subprocess
import sys
import uuid


def sh(*argv):
    subprocess.run(argv, check=True, capture_output=True)


def bind(places, root):
    for place in places:
        target = root + place
        if not os.path.isdir(target):
            os.makedirs(target)
        sh("mount", "--rbind", place, target)


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        config = json.load(file)
    device, root = config["device"], config["root"]
    shown = subprocess.run(
        ("btrfs", "subvolume", "get-default", config["top"]),
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    subvolid, number = shown[1], shown[-1].split("/")[-2]
    os.makedirs(root, exist_ok=True)
    sh("mount", "-o", f"subvolid={subvolid}", device, root)
    for place in ("var", "home", ".snapshots"):
        sh("mount", "-o", f"subvol=@/{place}", device, f"{root}/{place}")
    sh("mount", "--bind", f"{root}/var/lib/overlay/{number}/etc", f"{root}/etc")
    for place in ("run", "tmp"):
        sh("mount", "-t", "tmpfs", "tmpfs", f"{root}/{place}")
    sh("mount", "-t", "proc", "proc", f"{root}/proc")
    bind(["/dev", *config["binds"]], root)
    sh("mount", "--bind", config["programs"], f"{root}/usr/local/sbin")
    os.makedirs(f"{root}/run/rig")
    with open(f"{root}/run/rig/boot_id", "w", encoding="ascii") as file:
        file.write(f"{uuid.uuid4()}\n")
    sh("mount", "--bind", f"{root}/run/rig/boot_id", f"{root}/proc/sys/kernel/random/boot_id")
    os.chroot(root)
    os.chdir("/")
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
