"""
Run a program of a build so that it can only compute and print.

It has a user that nothing belongs to, a file system that is read-only, no socket and no key of the
kernel, no sight of other processes to end, and limits. None of its processes is left when it has
ended. It is run as root, by an interpreter that is not of the build, with the command as its
arguments.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pwd
import random
import resource
import signal
import struct
import sys
from typing import NoReturn

# No distribution and no systemd gives a user one of these IDs.
_USERS = range(60706, 61184)
_VARIABLES = ("PATH", "LC_ALL", "TMPDIR")
_LIMITS = {
    resource.RLIMIT_AS: 4 << 30,
    resource.RLIMIT_CORE: 0,
    resource.RLIMIT_CPU: 600,
    # Also of its output, which is a file.
    resource.RLIMIT_FSIZE: 64 << 20,
    resource.RLIMIT_NOFILE: 256,
    resource.RLIMIT_NPROC: 64,
}
# From the headers of the kernel: new namespaces for mounts, IPC, processes and the network.
_ALONE = 0x00020000 | 0x08000000 | 0x20000000 | 0x40000000
_SYS_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_READ_ONLY, _NO_SUID, _NO_DEV, _PRIVATE = 1, 2, 4, 1 << 18
_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 1, 22, 38
# The name of each machine in a filter, and the system calls that would reach others: socket(2),
# and the three for the keys that root's session has. io_uring could open a socket, too.
_REFUSED = {
    "x86_64": (0xC000003E, (41, 248, 249, 250)),
    "aarch64": (0xC00000B7, (198, 217, 218, 219)),
}
_IO_URING_SETUP, _X32 = 425, 1 << 30
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_libc = ctypes.CDLL(None)


def main(argv: list[str]) -> int:
    user = _nobody()
    # If the memory runs short, this is to end and nothing else.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # A container may be without the right to do this. Then the user and the limits remain.
    is_alone = _libc.unshare(_ALONE) == 0
    if is_alone:
        _make_read_only()
    child = os.fork()
    if not child:
        _become(user, argv)
    status = None
    try:
        status = os.waitpid(child, 0)[1]
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if not is_alone:
            _end_all(user)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _nobody() -> int:
    """Return the ID of a user without a name. A directory of users may take long to answer."""
    while True:
        user = random.choice(_USERS)  # noqa: S311
        try:
            pwd.getpwuid(user)
        except KeyError:
            return user


def _make_read_only() -> None:
    """Make each file system read-only here, and hide the sockets of daemons, if Linux can."""
    flags = (ctypes.c_uint64 * 4)(_READ_ONLY, 0, _PRIVATE, 0)
    size = ctypes.sizeof(flags)
    words = (_AT_FDCWD, b"/", _AT_RECURSIVE, ctypes.byref(flags), ctypes.c_size_t(size))
    if _libc.syscall(_SYS_MOUNT_SETATTR, *words) == 0:
        with_size = b"size=16m,nr_inodes=1k,mode=1777"
        if _libc.mount(b"tmpfs", b"/run", b"tmpfs", _NO_SUID | _NO_DEV, with_size) == 0:
            # Modules may insist on a directory for temporary files when they are imported.
            os.environ["TMPDIR"] = "/run"


def _become(user: int, argv: list[str]) -> NoReturn:
    """Run the command as the user, in this process."""
    try:
        os.chdir("/")
        for kind, most in _LIMITS.items():
            hard = resource.getrlimit(kind)[1]
            limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (limit, limit))
        _give_up(user)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _refuse_calls()
        # Proxies may have passwords, and root's own directory is closed to it.
        given = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
        os.execve(argv[0], argv, {**given, "HOME": "/"})  # noqa: S606 (no shell)
    except (OSError, ValueError) as err:
        print(f"{argv[0]} cannot be run without rights: {err}", file=sys.stderr)
    os._exit(126)


def _give_up(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def _refuse_calls() -> None:
    """Refuse the system calls that would reach others, on machines whose numbers are known."""
    machine = os.uname().machine
    if machine not in _REFUSED or ctypes.sizeof(ctypes.c_void_p) != 8:
        return
    audited, numbers = _REFUSED[machine]
    refused = [(_EQUAL, number) for number in (*numbers, _IO_URING_SETUP)]
    if machine == "x86_64":
        # The same calls have other numbers there.
        refused.append((_AT_LEAST, _X32))
    # Calls as of another machine, such as 32 bits, would have other numbers, too.
    lines = [(_LOAD, 0, 0, 4), (_EQUAL, 0, len(refused) + 2, audited), (_LOAD, 0, 0, 0)]
    for place, (test, number) in enumerate(refused):
        lines.append((test, len(refused) - place, 0, number))
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    packed = b"".join(struct.pack("HBBI", *line) for line in lines)
    program = ctypes.create_string_buffer(packed, len(packed))
    told = struct.pack("HP", len(lines), ctypes.addressof(program))
    _libc.prctl(_PR_SET_SECCOMP, 2, told, 0, 0)


def _end_all(user: int) -> None:
    """End what the command has left; in a namespace, its first process took all others along."""
    ender = os.fork()
    if ender:
        os.waitpid(ender, 0)
        return
    with contextlib.suppress(OSError):
        _give_up(user)
        os.kill(-1, signal.SIGKILL)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
