"""Mounts, subvolumes, and the tool's own synchronisation of /etc."""

import ctypes
import os
import shutil
import stat
import subprocess

LIBC = ctypes.CDLL(None, use_errno=True)
BIND, REC, PRIVATE = 0x1000, 0x4000, 0x40000
CLONE_NEWNS = 0x20000
SYNCPOINT = "etc.syncpoint"
# In the syncpoint: the number of the snapshot whose /etc it was.
PARENT = "transactional-update.comparewith"


def sh(*argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def _checked(result, what):
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def mount(source, target, kind=None, flags=0, data=None):
    words = [word and word.encode() for word in (source, target, kind)]
    _checked(LIBC.mount(*words, flags, data and data.encode()), target)


def unshare_mounts():
    _checked(LIBC.unshare(CLONE_NEWNS), "unshare")
    mount("none", "/", flags=REC | PRIVATE)


def bind(places, root, source=""):
    for place in places:
        target = root + place
        if not os.path.isdir(target):
            os.makedirs(target)
        mount(source + place, target, flags=BIND | REC)


def is_subvolume(path):
    return os.path.isdir(path) and os.stat(path).st_ino == 256


def default_subvolume(top):
    """Return the id and the number of the snapshot that boots next."""
    words = sh("btrfs", "subvolume", "get-default", top).split()
    return words[1], int(words[-1].split("/")[-2])


def overlay(number):
    """Where the /etc of a snapshot lies before 5.0."""
    return f"/var/lib/overlay/{number}/etc"


def _entries(root):
    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != SYNCPOINT]
        for name in folders + files:
            path = f"{folder}/{name}"
            info = os.lstat(path)
            size = 0 if stat.S_ISDIR(info.st_mode) else info.st_size
            found[os.path.relpath(path, root)] = (
                *(info.st_mode, info.st_uid, info.st_gid, int(info.st_mtime), size),
                {name: os.getxattr(path, name, follow_symlinks=False) for name in _xattrs(path)},
            )
    found.pop(PARENT, None)
    return found


def _xattrs(path):
    return os.listxattr(path, follow_symlinks=False)


def sync_etc(parent, current, syncpoint):
    """Bring what changed in *parent* since *syncpoint* to *current*, unless it changed there."""
    then, old, new = _entries(syncpoint), _entries(parent), _entries(current)
    for path in sorted(then.keys() | old.keys()):
        if old.get(path) == then.get(path) or new.get(path) != then.get(path):
            continue
        target = f"{current}/{path}"
        if path not in old or (path in new and stat.S_IFMT(old[path][0] ^ new[path][0])):
            _remove(target)
        if path in old:
            sh("cp", "-a", "--no-target-directory", f"{parent}/{path}", target)


def _remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def delete_nested(snapshot):
    """Delete the subvolumes in a snapshot, as snapper's plugin does it before the snapshot."""
    nested = [
        path for path in (f"{snapshot}/etc/{SYNCPOINT}", f"{snapshot}/etc") if is_subvolume(path)
    ]
    if nested:
        sh("btrfs", "property", "set", "-ts", snapshot, "ro", "false")
        sh("btrfs", "-q", "subvolume", "delete", *nested)
