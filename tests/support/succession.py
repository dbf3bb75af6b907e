"""Two main processes of one minion, of which one is handed over to the other, without Salt."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import types
import unittest.mock

import salt.transport.base
import salt.utils.event

from saltext_safeupdate.core.generations.generation import Report, Standing
from saltext_safeupdate.core.generations.meeting import Meeting, Step
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import connections, processes
from saltext_safeupdate.core.host.reach import Address
from saltext_safeupdate.core.record import kept
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.minion import handing_over, own_bus, succession
from saltext_safeupdate.minion.complaints import Complaints
from tests.support.guarded import have_guard
from tests.support.simulated import Clock, Hasty

# Processes that are there, and one that is not.
EARLIER, NEXT = processes.me(), processes.identity(1)
DEAD = f"{EARLIER}0"
# The main process of the unit, whose child the first minion is.
PARENT = 4_000_001
JID = "20260101000000000001"


def short_directory():
    """Return a directory, removed at the end of its block, for paths that sockets may have."""
    return tempfile.TemporaryDirectory(prefix="s-", dir="/tmp")


def paths(opts):
    """Return where Salt itself has the event sockets of a minion with these opts."""
    opts = {**opts, "ipc_mode": "ipc"}
    event = salt.utils.event.SaltEvent("minion", opts["sock_dir"], opts=opts, listen=False)
    if hasattr(event, "puburi"):  # 3006
        return [event.puburi, event.pulluri]
    with unittest.mock.patch.object(salt.transport.base, "publish_server") as made:
        salt.transport.base.ipc_publish_server("minion", event.opts)
    return [made.call_args.kwargs[name] for name in ("pub_path", "pull_path")]


def bind(opts):
    """Put new files in the place of the sockets, as a minion that starts does."""
    for path in paths(opts):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with open(path, "w", encoding="ascii"):
            pass


class HastyStore(Hasty, Store):
    """Nothing of it has to outlive a power cut."""


class Manager:
    """The processes that Salt starts again when they end: the engines."""

    def __init__(self):
        self.did = []

    def stop_restarting(self):
        self.did.append("no more restarts")

    def send_signal_to_processes(self, signum):
        self.did.append(f"signal {int(signum)}")

    def kill_children(self):
        self.did.append("killed")


class Channel:
    """What the minion hears its master by."""

    def __init__(self):
        self.heard_by = "the minion"

    def on_recv(self, callback):
        self.heard_by = callback


class Part:
    """The part of a minion that is for one master."""

    def __init__(self, process, master, opts):
        self.opts = {**opts, "master": master}
        self.connected = self.ready = True
        self.process_manager, self.pub_channel = Manager(), Channel()
        self.periodic = {"beacons", "schedule", "ping", "state_queue", "process_queue", "cleanup"}
        self._process = process

    def remove_periodic_callback(self, name):
        self.periodic.discard(name)

    def _invoke_execution(self, data):
        self._process.hears(data, self)


class Process:
    """A main process of the minion."""

    def __init__(self, world, me, parent, masters=("m",), **opts):
        self.world, self.me, self._parent = world, me, parent
        opts = {**world.opts, **opts}
        self.parts = [Part(self, master, opts) for master in masters]
        self.started, self.ended, self.handled = [], [], []
        self.succession = succession.Succession(
            world.settings,
            world.store,
            world.complaints,
            monotonic=world.clock.monotonic,
            clock=world.clock,
            end=self.ended.append,
        )

    def hears(self, data, part=None):
        """Get a job that was published; start it, if it is this one's to start."""
        with self.at_work():
            if self.succession.is_mine(part or self.parts[0], data):
                self.started.append(data["jid"])

    def told(self, package):
        """Get an event from the bus, as each part of the minion does."""
        with self.at_work():
            for part in self.parts:
                self.succession.told(lambda _, package: self.handled.append(package), part, package)

    def looks(self):
        with self.at_work():
            return [self.succession.look(part) for part in self.parts][-1]

    def looks_for(self, seconds):
        """Look once a second."""
        # To open the database takes longer than a look.
        kept.begin()
        try:
            for _ in range(seconds):
                self.world.clock.work(1)
                self.looks()
        finally:
            kept.end()

    def looks_until(self, condition):
        for _ in range(150):
            if condition():
                return
            self.looks_for(1)
        raise AssertionError("it did not happen")

    @property
    def standing(self):
        found = self.world.generations.of(self.me)
        return None if found is None else found.standing

    @property
    def listens(self):
        """Whether it still takes jobs."""
        heard = [part.pub_channel.heard_by for part in self.parts]
        # A master may wait for each that has subscribed and does not read.
        assert set(heard) == {"the minion"}, "it reads what its masters publish as long as it lives"
        return self.standing not in (Standing.LEAVING, Standing.GONE)

    @contextlib.contextmanager
    def at_work(self):
        self.world.works = self
        yield
        self.world.works = None

    @property
    def parent(self):
        return self._parent

    def loses_its_parent(self):
        self._parent = 1


class World:
    """
    A host with a minion that may be handed over.

    *sockets* is a directory with a short path, and *patch* a MonkeyPatch.
    """

    def __init__(self, path, sockets, patch, masters=("m",), restart="handover", **opts):
        self.works = None
        have_guard(patch, path)
        self.clock = Clock()
        self.settings = Settings(
            state_dir=str(path / "state"), run_dir=str(path / "run"), restart=restart
        )
        (path / "run").mkdir()
        self.opts = {
            "id": "m1",
            "hash_type": "sha256",
            "sock_dir": str(sockets),
            "pidfile": "/run/salt-minion.pid",
            "cachedir": str(path / "cache"),
            **opts,
        }
        self.store = HastyStore(self.settings.database)
        self.complaints = Complaints(clock=self.clock)
        self.generations = Generations(self.store)
        self.children, self.handlers = [], {}
        # The process that listens on the sockets; 0: none does.
        self.listener = os.getpid()
        # What each minion of Salt's own program has loaded.
        self.scripts = types.ModuleType("salt.scripts")
        self.scripts.os = os
        patch.setitem(sys.modules, "salt.scripts", self.scripts)
        patch.setattr(processes, "me", lambda: self.works.me if self.works else EARLIER)
        patch.setattr(os, "getppid", lambda: self.works.parent)
        patch.setattr(succession.multiprocessing, "active_children", lambda: self.children)
        patch.setattr(signal, "signal", self.handlers.__setitem__)
        patch.setattr(own_bus, "listener", self._listening)
        # Whether the next one may have heard of a job.
        self.connected = True
        patch.setattr(connections, "has_any", lambda pid, ports: self.connected)
        self.meeting = Meeting(self.settings.run_dir, PARENT)
        bind(self.opts)
        self.earlier = Process(self, EARLIER, PARENT, masters)
        self.next = Process(self, NEXT, PARENT + 1, masters)

    # -- what the guard does ---------------------------------------------------

    def asks(self):
        """Ask the earlier one; return what it says to that, None if it cannot be asked."""
        self.earlier.looks()
        if not self.meeting.go(Step.OPEN, Step.ASKED):
            return None
        self.earlier.looks()
        return next(step for step in Step if self.meeting.is_at(step))

    def hands_over(self):
        """Have the processes of the earlier one moved out of the unit, and its parent ended."""
        assert self.asks() is Step.TAKEN
        assert self.meeting.go(Step.TAKEN, Step.MOVED)
        self.earlier.loses_its_parent()
        self.earlier.looks()

    # -- what the next minion does ---------------------------------------------

    def binds(self):
        bind(self.opts)
        self.listener = int(NEXT.split(":")[1])

    def dies(self, patch):
        """Have the next one die, and leave its sockets."""
        self.listener, alive = 0, processes.alive
        patch.setattr(processes, "alive", lambda process: process != NEXT and alive(process))

    def announces(self):
        with self.next.at_work():
            handing_over.announce(self.settings, self.store)

    def reports(self, *connected, without=(), wants=("m", "n")):
        """
        Have the next one say that its engine works, and which masters it has.

        *wants* are those of its configuration; none: it is to have none.
        """
        addresses = tuple(Address(each, 4506) for each in wants)
        self.generations.reports(NEXT, Report(at=1.0, master=bool(wants), masters=addresses))
        masters = [(master, True) for master in connected] + [(each, False) for each in without]
        self.generations.notes_masters(NEXT, tuple(masters))

    def overlaps(self):
        """Come to where both take jobs."""
        self.hands_over()
        self.binds()
        self.announces()
        assert self.standings() == (Standing.OVERLAPPING, Standing.STARTING)

    def _listening(self, opts):
        assert opts["sock_dir"] == self.opts["sock_dir"], "it asks under their common names"
        return self.listener

    def standings(self):
        return self.earlier.standing, self.next.standing


def job(number=1, **more):
    """Return a job as a master publishes it; those of ``test.ping`` are in no ledger."""
    fun = "test.ping" if number % 2 else "cmd.run"
    return {"jid": f"{int(JID) + number}", "fun": fun, "arg": [], **more}
