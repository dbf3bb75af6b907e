"""
Boot a snapshot of the image: ``boot.py CONFIG`` in a mount namespace of its own.

It mounts the default snapshot, everything around it, synchronises /etc as the tool does at
boot, changes its root there, starts the message bus, says "ready" and stays until its standard
input is closed. Others join it with nsenter.
"""

import json
import os
import sys
import uuid

import fs

BUS = """\
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-BUS Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
<listen>unix:path=/run/dbus/system_bus_socket</listen>
<servicedir>/run/rig/services</servicedir>
<auth>EXTERNAL</auth>
<limit name="service_start_timeout">120000</limit>
<policy context="default">
<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
</policy>
</busconfig>
"""
SNAPPERD = """\
[D-BUS Service]
Name=org.opensuse.Snapper
Exec=/usr/sbin/snapperd
User=root
"""


def mount_etc(root, number):
    """Before 5.0 /etc is an overlay, since then a subvolume that is mounted on itself."""
    if os.path.isdir(root + fs.overlay(number)):
        fs.mount(root + fs.overlay(number), f"{root}/etc", flags=fs.BIND)
        return
    fs.mount(f"{root}/etc", f"{root}/etc", flags=fs.BIND)
    syncpoint = f"{root}/etc/{fs.SYNCPOINT}"
    if fs.is_subvolume(syncpoint):
        with open(f"{syncpoint}/{fs.PARENT}", encoding="ascii") as file:
            parent = f"{root}/.snapshots/{file.read().strip()}/snapshot/etc"
        if os.path.isdir(parent):
            fs.sync_etc(parent, f"{root}/etc", syncpoint)
        fs.sh("btrfs", "-q", "subvolume", "delete", syncpoint)


def start_bus():
    """Start the message bus, which starts the real snapperd when it is asked for."""
    os.makedirs("/run/dbus")
    os.makedirs("/run/rig/services")
    for path, text in {
        "/run/rig/bus.conf": BUS,
        "/run/rig/services/org.opensuse.Snapper.service": SNAPPERD,
    }.items():
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
    fs.sh("dbus-daemon", "--config-file=/run/rig/bus.conf", "--fork", "--nopidfile")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        config = json.load(file)
    device, root = config["device"], config["root"]
    subvolid, number = fs.default_subvolume(config["top"])
    os.makedirs(root, exist_ok=True)
    fs.mount(device, root, "btrfs", data=f"subvolid={subvolid}")
    for place in ("var", "home", ".snapshots"):
        fs.mount(device, f"{root}/{place}", "btrfs", data=f"subvol=@/{place}")
    mount_etc(root, number)
    for place in ("run", "tmp"):
        fs.mount("tmpfs", f"{root}/{place}", "tmpfs")
    fs.mount("proc", f"{root}/proc", "proc")
    fs.bind(["/dev", *config["binds"]], root)
    fs.mount(config["programs"], f"{root}/usr/local/sbin", flags=fs.BIND)
    if config["salt_call"]:
        salt_call = f"{config['programs']}/salt-call"
        fs.mount(salt_call, root + config["salt_call"], flags=fs.BIND)
    os.makedirs(f"{root}/run/rig")
    with open(f"{root}/run/rig/boot_id", "w", encoding="ascii") as file:
        file.write(f"{uuid.uuid4()}\n")
    fs.mount(f"{root}/run/rig/boot_id", f"{root}/proc/sys/kernel/random/boot_id", flags=fs.BIND)
    os.chroot(root)
    os.chdir("/")
    if config["bus"]:
        start_bus()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
