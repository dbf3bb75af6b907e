#!/usr/bin/env python3
"""
Stand in for ``transactional-update`` as its observed contract says, in the version that
``/run/rig/version`` names (6.1.1 without it): what is exit status, what is kept, what is
dropped and what is printed where. Faults are asked for by files in ``/run/rig``.
"""

import ctypes
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys

RIG = "/run/rig"
PID_FILE = "/run/transactional-update.pid"
SHADOWED = ("home",)
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
    return text, tuple(int(part) for part in text.split("."))


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


def default_number():
    return int(tell("btrfs", "subvolume", "get-default", "/").split("/")[-2])


def running_number():
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            if fields[4] == "/":
                number = int(fields[3].split("/")[-2])
    return number


def subvolid(number):
    text = tell("btrfs", "subvolume", "show", f"/.snapshots/{number}/snapshot")
    return re.search(r"Subvolume ID:\s*(\d+)", text)[1]


def set_default(number):
    tell("btrfs", "subvolume", "set-default", subvolid(number), "/")


def store(number):
    return f"/var/lib/overlay/{number}/etc"


def manifest(root):
    """Everything that counts as a change of the root file system."""
    found = {}
    skip = {f"{root}/{name}" for name in (*SHADOWED, "etc")}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if f"{folder}/{name}" not in skip]
        for name in folders + files:
            info = os.lstat(f"{folder}/{name}")
            found[f"{folder}/{name}"] = (info.st_mode, info.st_size, info.st_mtime_ns)
    return found


class Transaction:
    def __init__(self, base):
        self.base = base
        try:
            printed = tell(
                *("snapper", "--no-dbus", "create", "--from", str(base), "--read-write"),
                *("--print-number", "--description", f"Snapshot Update of #{base}"),
                *("--cleanup-algorithm", "number"),
                *("--userdata", "transactional-update-in-progress=yes"),
            )
            self.number = int(printed)
            os.makedirs(os.path.dirname(store(self.number)), exist_ok=True)
            shutil.rmtree(store(self.number), ignore_errors=True)
            tell("cp", "-a", self.live_etc(), store(self.number))
        except (RuntimeError, OSError) as err:
            fail(f"ERROR: snapper create failed: {err}")
        self.root = f"/.snapshots/{self.number}/snapshot"
        self.before = manifest(self.root)

    def live_etc(self):
        return "/etc" if self.base == running_number() else store(self.base)

    def changed(self):
        return manifest(self.root) != self.before

    def discard(self):
        shutil.rmtree(store(self.number), ignore_errors=True)
        tell("snapper", "--no-dbus", "delete", str(self.number))

    def freeze(self):
        tell("btrfs", "property", "set", "-ts", self.root, "ro", "true")

    def close(self):
        """Drop it, or make it the default; a failing plugin loses it with exit status 0."""
        if asked("close-fails"):
            self.discard()
            print("ERROR: Plugin finalize-pre failed with 1.", file=sys.stderr, flush=True)
            return
        if OPTIONS["drop"] and not self.changed():
            out("No changes to the root file system - discarding snapshot.")
            tell("rsync", "-a", "--delete", store(self.number) + "/", self.live_etc() + "/")
            self.discard()
            return
        self.freeze()
        tell(
            "snapper",
            "--no-dbus",
            "modify",
            "--userdata",
            "transactional-update-in-progress=",
            str(self.number),
        )
        set_default(self.number)
        out(f"New default snapshot is #{self.number} ({self.root}).")

    def run(self, command):
        """Run *command* in the snapshot; return its wait status, or an errno as a string."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.set_inheritable(writer, False)
            try:
                for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    signal.signal(signum, signal.SIG_DFL)
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
        status = os.waitpid(pid, 0)[1]
        return problem, status

    def enter(self):
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import boot

        with open(CONFIG, encoding="utf-8") as file:
            config = json.load(file)
        if ctypes.CDLL(None, use_errno=True).unshare(0x00020000):
            raise OSError(ctypes.get_errno(), "unshare")
        boot.sh("mount", "--make-rprivate", "/")
        root = "/run/transaction"
        os.makedirs(root, exist_ok=True)
        boot.sh("mount", "-o", f"subvolid={subvolid(self.number)}", config["device"], root)
        boot.bind(["/var", "/.snapshots"], root)
        for place in ("run", "tmp", "var/tmp"):
            boot.sh("mount", "-t", "tmpfs", "tmpfs", f"{root}/{place}")
        boot.bind(["/proc", "/dev", *config["binds"]], root)
        boot.sh("mount", "--bind", store(self.number), f"{root}/etc")
        os.chroot(root)
        os.chdir("/")


def run_command(command):
    interrupted = []
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda number, _: interrupted.append(number))
    transaction = Transaction(OPTIONS["base"] or running_number())
    out(f"Executing `{' '.join(command)}`:")
    problem, status = transaction.run(command)
    code = os.waitstatus_to_exitcode(status)
    if problem:
        text = f"Calling {command[0]} failed: {os.strerror(int(problem))}"
        print(text, file=sys.stderr if MODERN else sys.stdout, flush=True)
        code = int(problem) if MODERN else errno.ENOENT
    if interrupted:
        transaction.discard()
        sys.exit(1)
    if code and MODERN:
        if OPTIONS["keep"]:
            transaction.freeze()
        else:
            transaction.discard()
            if abs(code) == 1:
                print(f"Removing snapshot #{transaction.number}...", file=sys.stderr, flush=True)
        sys.exit(abs(code))
    transaction.close()


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
    with open(f"{RIG}/rebooted", "a", encoding="ascii") as file:
        file.write("reboot\n")


def parse(argv):
    words = list(argv)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--version":
            print(f"transactional-update {version()[0]}")
            sys.exit(0)
        elif word == "--continue":
            number = words[0] if words and words[0].isdigit() else None
            OPTIONS["base"] = int(words.pop(0)) if number else default_number()
        elif word == "--keep" and version()[1] >= (5, 1):
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
        elif words[0] not in ("apply", "cleanup", "cleanup-snapshots", "cleanup-overlays"):
            change(words)
    finally:
        os.unlink(PID_FILE)


OPTIONS = {"base": None, "drop": False, "keep": False, "quiet": False}
MODERN = version()[1] >= (5, 5)

if __name__ == "__main__":
    main()
