"""Masters that can be killed or silenced, with all that they have forked."""

import contextlib

import psutil


def family_of(pid):
    """Return a process and all that it has forked."""
    root = psutil.Process(pid)
    return {root, *root.children(recursive=True)}


def kill_all(pid):
    """Kill a process and all that it has forked at once, as a power cut does."""
    family = set()
    # What is suspended forks no more.
    while family != (now := family_of(pid)):
        family = now
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.suspend()
    for each in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    return family


@contextlib.contextmanager
def silenced(pid, named=""):
    """Have no process of a master, or none whose words have *named*, do anything meanwhile."""
    suspended = [each for each in family_of(pid) if not named or named in " ".join(_words(each))]
    assert suspended
    for each in suspended:
        # A child that has just done its work may have ended.
        with contextlib.suppress(psutil.NoSuchProcess):
            each.suspend()
    try:
        yield
    finally:
        for each in suspended:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.resume()


def _words(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def kill(daemon):
    """Kill all of a master of saltfactories; start it again afterwards."""
    psutil.wait_procs(kill_all(daemon.pid))
    daemon.terminate()
