"""A master of saltfactories that can be killed, and what its processes cost."""

import contextlib

import psutil


class Processes:
    """The processes of a running master."""

    def __init__(self, daemon):
        self._daemon = daemon

    def all(self):
        parent = psutil.Process(self._daemon.pid)
        return [parent, *parent.children(recursive=True)]

    def kill(self):
        """Kill all of them at once, as a power cut does; start the daemon again afterwards."""
        found = self.all()
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(found)
        self._daemon.terminate()
