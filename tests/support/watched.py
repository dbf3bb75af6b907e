"""A real minion under the supervisor's watch, and a way to its master that can be cut."""

import contextlib
import socket
import threading
import time
from dataclasses import replace

from saltext_safeupdate.core import program
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.host.service import LastRun, ServiceState
from saltext_safeupdate.core.record.parts import Former, Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.supervisor import watch


class Service:
    """An init system that has just started the minion."""

    name = "systemd"

    def __init__(self, minion):
        self._minion = minion

    def state(self, unit):
        return ServiceState("active", "enabled", self._minion.pid, "after")

    def last_run(self, unit):
        return LastRun()

    def program(self, unit):
        return None


@contextlib.contextmanager
def supervised(minion, *, timeout):
    """Be the supervisor of a minion; *timeout* is how long it is watched. Yield the context."""
    settings = replace(minion.settings, watch_timeout=timeout, stable_interval=0.5)
    supervisor = locks.acquire(settings.run_dir, "supervisor", "")
    context = program.context(settings, Service(minion), None)
    try:
        yield context
    finally:
        for lock in (context.locks.jobs, context.locks.drain, context.locks.update, supervisor):
            lock.close()


def judged(context, *, heard):
    """Return what the watch makes of it; *heard* tells whether the one before was."""
    update = Update(
        id=f"u{time.monotonic()}",
        kind="update",
        phase=Phase.WATCHING,
        created=time.time(),
        progress=Progress(master=heard),
        former=Former(pid=1, invocation="before", report=1.0),
    )
    limit = watch.timeout(context, update)
    update = replace(update, watched=watch.until(context, limit))
    return watch.Watch(context, update, patient=False).proves_healthy()


class Way:
    """Passes on connections to a port of this host, unless it is cut."""

    def __init__(self, port):
        self._to = ("127.0.0.1", port)
        self._at = ("127.0.0.1", 0)
        self._open = []
        self.mend()

    @property
    def port(self):
        return self._at[1]

    def mend(self):
        listening = socket.create_server(self._at)
        self._at = listening.getsockname()
        self._open = [listening]
        threading.Thread(target=self._accept, args=(listening,), daemon=True).start()

    def cut(self):
        for each in self._open:
            # Who waits for it goes on.
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listening):
        with contextlib.suppress(OSError):
            while True:
                here = listening.accept()[0]
                there = socket.create_connection(self._to)
                self._open += [here, there]
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source, target):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
