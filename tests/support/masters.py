"""A master of saltfactories that can be killed, and what its processes cost."""

import contextlib

import psutil


def kill_all(pid):
    """Kill a process and all that it has forked at once, as a power cut does."""
    root, family = psutil.Process(pid), set()
    # What is suspended forks no more.
    while family != (now := {root, *root.children(recursive=True)}):
        family = now
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.suspend()
    for each in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    return family


@contextlib.contextmanager
def silenced(pid):
    """Have no process of a master do anything meanwhile."""
    parent = psutil.Process(pid)
    suspended = [parent, *parent.children(recursive=True)]
    for each in suspended:
        each.suspend()
    try:
        yield
    finally:
        for each in suspended:
            each.resume()


class Processes:
    """The processes of a running master."""

    def __init__(self, daemon):
        self._daemon = daemon

    def all(self):
        parent = psutil.Process(self._daemon.pid)
        return [parent, *parent.children(recursive=True)]

    def kill(self):
        """Kill all of them; start the daemon again afterwards."""
        psutil.wait_procs(kill_all(self._daemon.pid))
        self._daemon.terminate()
