#!/usr/bin/env python3
"""
Stand in for ``transactional-update`` as its observed contract says, in the version that
``/run/rig/version`` names (6.1.1 without it; ``tool.sh`` tells it): what is exit status, what is
kept, what is dropped and what is printed where. Faults are asked for by files in ``/run/rig``.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fs

RIG = "/run/rig"
PID_FILE = "/run/transactional-update.pid"
# Where other file systems are mounted: what is written below does not count as a change.
MOUNTED = ("home", "var", "run", "tmp", "dev", "proc", "sys", ".snapshots", "etc", "usr/local")
CONFIG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rig.json")
PACKAGE_COMMANDS = ("pkg", "migration", "register", "run")
GENERAL = (
    *("cleanup", "cleanup-snapshots", "cleanup-overlays", "dup", "up", "patch", "initrd"),
    *("grub.cfg", "bootloader", "kdump", "setup-selinux", "setup-kdump", "setup-fips"),
    *("apply", "reboot"),
)


def asked(name):
    return os.path.exists(f"{RIG}/{name}")


def version():
    try:
        with open(f"{RIG}/version", encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        text = "6.1.1"
    return tuple(int(part) for part in text.split("."))


def out(text):
    if not OPTIONS["quiet"]:
        print(text, flush=True)


def fail(text, status=1):
    print(text, file=sys.stderr, flush=True)
    sys.exit(status)


def usage():
    print("Syntax: transactional-update [option...] [general-cmd...] [package-cmd]", flush=True)
    sys.exit(1)


def tell(*argv, check=True):
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if check and done.returncode:
        raise RuntimeError(f"{argv[0]} {argv[1]}: {done.stderr.strip()}")
    return done.stdout


def snapper(*words):
    """Ask the daemon; without one, or if that fails, work without it, as tukit does."""
    try:
        return tell("snapper", *words)
    except RuntimeError as err:
        print(err, file=sys.stderr, flush=True)
        return tell("snapper", "--no-dbus", *words)


def default_number():
    return fs.default_subvolume("/")[1]


def running_number():
    """Return the snapshot that the system runs from: /usr counts after ``apply``."""
    found = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            if fields[4] in ("/", "/usr"):
                found[fields[4]] = int(re.search(r"\.snapshots/(\d+)/snapshot", fields[3])[1])
    return found.get("/usr", found["/"])


def subvolid(number):
    return tell("btrfs", "inspect-internal", "rootid", f"/.snapshots/{number}/snapshot").strip()


def set_default(number):
    tell("btrfs", "subvolume", "set-default", subvolid(number), "/")


def rsync(source, target):
    options = ("--archive", "--inplace", "--xattrs", "--acls", "--delete", "--quiet")
    left_out = ("--exclude=/fstab", f"--exclude=/{fs.SYNCPOINT}")
    tell("rsync", *options, *left_out, f"{source}/", f"{target}/")


class Watch:
    """Says whether anything has happened in a snapshot, whatever is left of it."""

    # Modify, attributes, moved from and to, create, delete; one event, directories only.
    MASK = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200 | 0x80000000 | 0x1000000

    def __init__(self, root):
        self.fd = fs.LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        device = os.stat(root).st_dev
        skip = {f"{root}/{name}" for name in MOUNTED}
        for folder, folders, _ in os.walk(root):
            folders[:] = [
                name
                for name in folders
                if f"{folder}/{name}" not in skip and os.lstat(f"{folder}/{name}").st_dev == device
            ]
            fs.LIBC.inotify_add_watch(self.fd, folder.encode(), self.MASK)

    def seen(self):
        try:
            return bool(os.read(self.fd, 4096))
        except BlockingIOError:
            return False


class Transaction:
    def __init__(self, base):
        self.base = base
        self.nested = fs.is_subvolume(f"/.snapshots/{base}/snapshot/etc") and not os.path.isdir(
            fs.overlay(base)
        )
        try:
            printed = snapper(
                *("create", "--from", str(base), "--read-write", "--print-number"),
                *("--description", f"Snapshot Update of #{base}", "--cleanup-algorithm", "number"),
                *("--userdata", "transactional-update-in-progress=yes"),
            )
            self.number = int(printed)
            self.root = f"/.snapshots/{self.number}/snapshot"
            self.etc = f"{self.root}/etc" if self.nested else fs.overlay(self.number)
            self.create_etc()
        except (RuntimeError, OSError) as err:
            fail(f"ERROR: snapper create failed: {err}")
        self.watch = Watch(self.root)

    def base_etc(self):
        if self.base == running_number():
            return "/etc"
        return f"/.snapshots/{self.base}/snapshot/etc" if self.nested else fs.overlay(self.base)

    def create_etc(self):
        """Copy the /etc of the base, and keep how it was, to synchronise with the live one."""
        if not self.nested:
            for place in (self.etc, f"{self.etc}.syncpoint"):
                os.makedirs(os.path.dirname(place), exist_ok=True)
                tell("cp", "-a", self.base_etc(), place)
            return
        source = f"/.snapshots/{self.base}/snapshot/etc"
        os.rmdir(self.etc)
        tell("btrfs", "-q", "subvolume", "snapshot", source, self.etc)
        syncpoint, running = f"{self.etc}/{fs.SYNCPOINT}", running_number()
        if os.path.isdir(syncpoint):
            os.rmdir(syncpoint)
        if self.base != running and fs.is_subvolume(f"{source}/{fs.SYNCPOINT}"):
            # As --continue does it since 5.0.3: what was edited live meanwhile comes along.
            fs.sync_etc("/etc", self.etc, f"{source}/{fs.SYNCPOINT}")
        tell("btrfs", "-q", "subvolume", "snapshot", "/etc", syncpoint)
        if os.path.isdir(f"{syncpoint}/{fs.SYNCPOINT}"):
            os.rmdir(f"{syncpoint}/{fs.SYNCPOINT}")
        with open(f"{syncpoint}/{fs.PARENT}", "w", encoding="ascii") as file:
            file.write(str(running))

    def discard(self):
        try:
            snapper("delete", str(self.number))
        except RuntimeError as err:
            fail(
                f"ERROR: `snapper --no-dbus delete {self.number}` returned with error code 1: {err}"
            )
        shutil.rmtree(fs.overlay(self.number), ignore_errors=True)

    def freeze(self):
        tell("btrfs", "property", "set", "-ts", self.root, "ro", "true")

    def close(self):
        """Drop it, or make it the default; a failing plugin loses it with exit status 0."""
        if asked("close-fails"):
            self.discard()
            print("ERROR: Plugin finalize-pre failed with 1.", file=sys.stderr, flush=True)
            return
        if OPTIONS["drop"] and not self.watch.seen():
            out("No changes to the root file system - discarding snapshot.")
            self.merge_etc()
            self.discard()
            return
        snapper("modify", "--userdata", "transactional-update-in-progress=", str(self.number))
        self.freeze()
        set_default(self.number)
        with open("/run/reboot-needed", "w", encoding="ascii") as file:
            file.write("reboot\n")
        out(f"New default snapshot is #{self.number} ({self.root}).")

    def merge_etc(self):
        """Copy it over the /etc that it started from. In an overlay, live edits show through."""
        while asked("merge-waits"):
            open(f"{RIG}/merging", "w", encoding="ascii").close()
            time.sleep(0.02)
        if not self.nested:
            fs.sync_etc(self.base_etc(), self.etc, f"{self.etc}.syncpoint")
        rsync(self.etc, self.base_etc())

    def call(self, command):
        """Run *command* in the snapshot; return its exit status, as ``tukit call`` does."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.set_inheritable(writer, False)
            try:
                self.enter()
                if MODERN is False:
                    os.dup2(1, 2)
                os.environ["TRANSACTIONAL_UPDATE"] = "true"
                os.environ["TRANSACTIONAL_UPDATE_ROOT"] = self.root
                os.execvp(command[0], command)
            except OSError as err:
                os.write(writer, str(err.errno).encode())
            os._exit(127)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            problem = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if problem:
            text = f"Calling {command[0]} failed: {os.strerror(int(problem))}"
            print(text, file=sys.stderr if MODERN else sys.stdout, flush=True)
            return int(problem)
        return abs(code)

    def enter(self):
        with open(CONFIG, encoding="utf-8") as file:
            config = json.load(file)
        fs.unshare_mounts()
        root = "/run/transaction"
        os.makedirs(root, exist_ok=True)
        # A mount of the snapshot itself: its /etc is in it, and is no mount of its own.
        fs.mount(self.root, root, flags=fs.BIND)
        if not self.nested:
            fs.mount(self.etc, f"{root}/etc", flags=fs.BIND)
        # Nothing else of /var is visible; what is written there goes to a shadowed directory.
        fs.bind(["/var/cache", "/var/log", "/.snapshots"], root)
        for place in ("run", "tmp", "var/tmp"):
            fs.mount("tmpfs", f"{root}/{place}", "tmpfs")
        fs.bind(["/proc", "/dev", *config["binds"]], root)
        os.chroot(root)
        os.chdir("/")


def run_command(command):
    """Open, call and close, each by a process of its own, as the tool does with tukit."""
    interrupted = []
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda number, _: interrupted.append(number))
    transaction = Transaction(OPTIONS["base"] or running_number())
    out(f"Executing `{' '.join(command)}`:")
    tukit = os.fork()
    if tukit == 0:
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(signum, signal.SIG_DFL)
        os._exit(transaction.call(command))
    code = os.waitstatus_to_exitcode(os.waitpid(tukit, 0)[1])
    if interrupted and code < 0:
        # All of it was told to stop: the pipes to its log are gone, so it dies on the next line.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    code = 128 - code if code < 0 else code
    if interrupted and not asked("commits"):
        transaction.discard()
        sys.exit(1)
    if code and MODERN:
        if OPTIONS["keep"]:
            transaction.freeze()
        else:
            transaction.discard()
            if code == 1:
                print(f"Removing snapshot #{transaction.number}...", file=sys.stderr, flush=True)
        sys.exit(code)
    transaction.close()


def apply():
    """Mount /usr and /etc of the default snapshot over those that run."""
    number = default_number()
    with open(CONFIG, encoding="utf-8") as file:
        places = [place for place in json.load(file)["binds"] if place.startswith("/usr/")]
    staging = f"{RIG}/usr"
    os.makedirs(staging, exist_ok=True)
    root = f"/.snapshots/{number}/snapshot"
    fs.mount(f"{root}/usr", staging, flags=fs.BIND)
    for place in places:
        fs.mount(place, staging + place.removeprefix("/usr"), flags=fs.BIND | fs.REC)
    etc = fs.overlay(number) if os.path.isdir(fs.overlay(number)) else f"{root}/etc"
    fs.mount(staging, "/usr", flags=fs.BIND | fs.REC)
    fs.mount(etc, "/etc", flags=fs.BIND)


def change(words):
    """What zypper, dracut and the like would do: leave a trace in the snapshot."""
    transaction = Transaction(OPTIONS["base"] or running_number())
    with open(f"{transaction.root}/data/changes", "a", encoding="utf-8") as file:
        file.write(" ".join(words) + "\n")
    transaction.close()


def rollback(words):
    current = default_number()
    target = words[0] if words else str(running_number())
    if target == "last":
        target = "1"
    if not target.isdigit() or not os.path.isdir(f"/.snapshots/{target}/snapshot"):
        fail(f"ERROR: Snapshot '{target}' does not exist.")
    if int(target) == current:
        print("Active snapshot is already default snapshot.", flush=True)
        sys.exit(1)
    set_default(int(target))


def reboot():
    if asked("reboot-fails"):
        print("rebootmgrctl: command not found", file=sys.stderr)
        return
    if not os.path.isdir(RIG):
        # It is in a whole system.
        tell("systemctl", "reboot")
        return
    with open(f"{RIG}/rebooted", "a", encoding="ascii") as file:
        file.write("reboot\n")


def parse(argv):
    words = list(argv)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--continue":
            number = words[0] if words and words[0].isdigit() else None
            OPTIONS["base"] = int(words.pop(0)) if number else default_number()
        elif word == "--keep" and version() >= (5, 1):
            OPTIONS["keep"] = True
        elif word in ("--drop-if-no-change", "--quiet"):
            OPTIONS["drop" if word.startswith("--drop") else "quiet"] = True
        elif word not in ("--non-interactive", "--no-selfupdate"):
            usage()
    return words


def lock():
    if os.environ.get("TRANSACTIONAL_UPDATE"):
        fail("Cannot call transactional-update from within transactional-update environment!")
    try:
        with open(PID_FILE, encoding="ascii") as file:
            os.kill(int(file.read()), 0)
    except (OSError, ValueError):
        pass
    else:
        fail("Couldn't get lock, is another instance already running?")
    if asked("tukit-busy"):
        fail("ERROR: Another instance of tukit is already running.")
    with open(PID_FILE, "w", encoding="ascii") as file:
        file.write(str(os.getpid()))


def main():
    words = parse(sys.argv[1:])
    with open("/var/log/rig-argv", "a", encoding="utf-8") as file:
        file.write(json.dumps(sys.argv[1:]) + "\n")
    if not words:
        words = ["dup"]
    elif words[0] != "rollback" and words[0] not in (*GENERAL, *PACKAGE_COMMANDS):
        usage()
    lock()
    try:
        base = OPTIONS["base"]
        if base and not os.path.isdir(f"/.snapshots/{base}/snapshot"):
            fail(f"ERROR: Base snapshot '{base}' does not exist.")
        if words[0] == "run":
            run_command(words[1:])
        elif words[0] == "rollback":
            rollback(words[1:])
        elif words[0] == "reboot":
            reboot()
        elif words[0] == "apply":
            apply()
        elif not words[0].startswith("cleanup"):
            change(words)
    finally:
        os.unlink(PID_FILE)


OPTIONS = {"base": None, "drop": False, "keep": False, "quiet": False}
MODERN = version() >= (5, 5)

if __name__ == "__main__":
    main()
