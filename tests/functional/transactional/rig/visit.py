"""
Run Python in the booted system without starting an interpreter: in a fork of this process.

So what is imported here is there at once, as it is in a process of a minion. Whatever the
function starts is a process of its own as usual.
"""

import ctypes
import io
import os
import subprocess
import sys
import tempfile
import traceback

from saltext_safeupdate.core.host import processes

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEWNS = 0x20000


def visit(pid, environment, function):
    """Call *function* where process *pid* lives; return what it printed and its exit status."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _child(pid, environment, function, out, err)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess((function.__name__,), status, *texts)


def _child(pid, environment, function, out, err):
    code = 1
    try:
        _join(pid)
        # The system has a boot of its own. This process may know the one of its host already.
        processes.boot.cache_clear()
        os.environ.clear()
        os.environ.update(environment)
        # This process has chosen a place out of its own environment.
        tempfile.tempdir = None
        nothing = os.open(os.devnull, os.O_RDONLY)
        for number, source in enumerate((nothing, out.fileno(), err.fileno())):
            os.dup2(source, number)
        sys.stdout, sys.stderr = (
            io.TextIOWrapper(io.FileIO(number, "w"), "utf-8", write_through=True)
            for number in (1, 2)
        )
        code = function() or 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001 (a fork must not return into the tests)
        traceback.print_exc()
    finally:
        os._exit(code)


def _join(pid):
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY)
    namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
    if _LIBC.setns(namespace, _NEWNS):
        raise OSError(ctypes.get_errno(), "setns")
    os.fchdir(root)
    os.chroot(".")
    os.chdir("/")
