"""One simulated host for the tests of the transaction and of the supervisor."""

import contextlib
import os
import pathlib
import shutil

import pytest

from saltext_safeupdate.core.errors import CommandError, InputError
from saltext_safeupdate.core.extensions import supervisor_copy
from saltext_safeupdate.core.generations.activation import ByRestart
from saltext_safeupdate.core.generations.generation import Report
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import copy_names, linked_copy, locks, processes
from saltext_safeupdate.core.host.command import Result
from saltext_safeupdate.core.host.locks import Lock
from saltext_safeupdate.core.host.reach import Address
from saltext_safeupdate.core.jobs.ledger import State
from saltext_safeupdate.core.prepare import resolution
from saltext_safeupdate.core.prepare.resolution import Resolved, Resolver
from saltext_safeupdate.core.prepare.revisions import Revisions
from saltext_safeupdate.core.record import kept
from saltext_safeupdate.core.record.parts import Code
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.core.supervisor import asking
from saltext_safeupdate.core.supervisor.adoption import adopt
from saltext_safeupdate.core.supervisor.context import Context, Locks, Outcome
from saltext_safeupdate.core.supervisor.initiator import Initiator, Installation, RunningJobs
from saltext_safeupdate.core.supervisor.quiet_transaction import QuietTransaction
from saltext_safeupdate.core.supervisor.supervisor import Supervisor
from tests.support.simulated import (
    Clock,
    DyingStore,
    FakePackages,
    FakeServices,
    HastyLedger,
    Killed,
)

OLD, NEW = (
    {"salt": "3006.28", "salt-minion": "3006.28"},
    {"salt": "3007.15", "salt-minion": "3007.15"},
)


class Host:
    """A minion of version OLD whose service runs, and the processes that act on it."""

    def __init__(self, directory):
        self.settings = Settings(
            state_dir=str(directory / "state"),
            run_dir=str(directory / "run"),
            registry_dir=str(directory / "registry"),
            jobs_timeout=60.0,
            return_timeout=60.0,
            restart_timeout=30.0,
            watch_timeout=30.0,
            stable_interval=3.0,
            steps_dir=str(directory / "steps"),
        )
        self.root = directory / "opt" / "salt"
        (self.root / "modules").mkdir(parents=True)
        (self.root / "modules" / "test.py").write_text("old")
        self.clock = Clock()
        self.store = DyingStore(self.settings.database, clock=self.clock)
        # As the engine of a minion does: else each look would empty the write-ahead log.
        self.store.anchor()
        self.ledger = HastyLedger(self.settings.database, clock=self.clock)
        self.packages = FakePackages(**OLD)
        self.services = FakeServices(self.report)
        self.reports = True
        self.master = False  # whether the minion that comes up has one
        self.generations = Generations(self.store)
        self.reported(version="3006.28")
        self.redirected = []
        self.commands, self.failing = [], set()
        self.launched = 0
        self.launches = True
        self.reachable = True  # whether this host reaches its master
        self.engine = True  # whether the engine of the minion runs
        self.obstacle = ""  # why the stop guard would have a restart wait for jobs
        self.share = 1.0  # of all time, what the host has for its minion
        self._asked = 0.0
        self.open = []

    def steps(self, *names):
        """Have these upgrade steps on disk."""
        for name in names:
            path = pathlib.Path(self.settings.steps_dir, name)
            path.parent.mkdir(exist_ok=True)
            path.touch(0o755)

    def report(self):
        """What the engine of a minion that comes up does."""
        if self.reports:
            self.clock.work(1)
            masters = (Address("master", 4506),) if self.master else ()
            self.reported(version="new", master=self.master, masters=masters)

    def reported(self, **said):
        """Have reported the engine of the minion that runs; what it said is changed by *said*."""
        report = Report(**{"at": self.clock(), "boot": processes.boot(), **said})
        self.generations.reports(f"main:{self.services.invocation}", report)

    def reported_with(self, **said):
        """Have said something else what has reported last."""
        self.reported(**{**vars(self.generations.report()), **said})

    @property
    def asked(self):
        """What the supervisor has asked of the minion that reported last; None: nothing."""
        serving = self.generations.serving()
        return None if serving is None else serving.probe

    @property
    def asked_sls(self):
        """Whether that is to run an SLS."""
        return self.asked is not None and self.asked.fun == "state.apply"

    def waited(self, pid):
        """Return how long the minion has waited for the host since this was asked last."""
        passed, self._asked = self.clock.passed - self._asked, self.clock.passed
        return passed * (1 - self.share)

    def answer(self, retcode=0, *, delivered=True, refused=False):
        """Do the job that the supervisor has asked for, as a minion does."""
        wanted = self.asked
        if wanted and self.ledger.outcome(wanted.jid) is None:
            jid, fun = wanted.jid, wanted.fun
            described = {"fun": fun, "master": "m", "call": b"", "owner": ""}
            self.ledger.accept(jid, jid=jid, **described)
            self.ledger.begin(jid, "")
            self.ledger.finish(jid, b"x", retcode)
            if delivered:
                self.ledger.delivered(jid)
            if refused:
                self.generations.refuse(self.generations.serving().process, jid)

    def answering(self, **kwargs):
        """Have every job answered, a second after it was asked for."""
        self.clock.each_second = lambda: self.answer(**kwargs)

    def command(self, argv, *, timeout, **kwargs):
        """Run a program, which succeeds unless it is said to fail."""
        self.commands.append(tuple(argv))
        if argv[0] in self.failing:
            raise CommandError(argv, "exit status 1", stderr="made to fail")
        return Result(argv=tuple(argv), returncode=0, stdout="", stderr="")

    def lock(self, name):
        lock = Lock(self.settings.run_dir, name)
        self.open.append(lock)
        return lock

    def job(self):
        """Return the hold of a job that runs."""
        lock = self.lock("jobs")
        assert lock.try_shared()
        return lock

    # -- processes -------------------------------------------------------------

    def launch(self):
        """Start a supervisor, as far as others can see: it takes its locks, and waits."""
        self.launched += 1
        self.services.alive()
        if self.launches:
            self.waiting = [self.lock("supervisor"), self.lock("drain")]
            assert self.waiting[0].try_exclusive()
            if self.store.latest().kind == "update":
                assert self.waiting[1].try_exclusive()

    def end_supervisor(self):
        for lock in self.waiting:
            lock.close()

    def initiator(self, **kwargs):
        """Return what begins an update; parts of the installation and the jobs may be named."""
        installation = {"own": ("salt", "salt-minion"), "roots": (str(self.root),)}
        for key in ("own", "roots", "backup_paths"):
            installation |= {key: kwargs.pop(key)} if key in kwargs else {}
        jobs = {key: kwargs.pop(key) for key in ("names", "pids") if key in kwargs}
        return Initiator(
            **{
                "settings": self.settings,
                "store": self.store,
                "services": self.services,
                "inhibitor": self.services,
                "launch": self.launch,
                "manager": self.packages,
                "installation": Installation(**installation),
                "jobs": RunningJobs(**jobs),
                "clock": self.clock,
                "monotonic": self.clock.monotonic,
                "sleep": self.clock.sleep,
                "obstacle_to_handover": lambda: self.obstacle,
                **kwargs,
            }
        )

    def transaction(self, **kwargs):
        redirect = kwargs.pop("redirect", self.redirected.append)
        return QuietTransaction(by=self.initiator(**kwargs), redirect=redirect)

    def request_restart(self, *, jid="", reason="", **kwargs):
        return asking.restart(self.initiator(**kwargs), jid=jid, reason=reason)

    def request_update(self, wanted, *, serial=0, jid="", reason="", targets=None, **kwargs):
        """Ask for an update as somebody does who has resolved it."""
        resolved = Resolved(
            request=wanted, installed=dict(OLD), targets=dict(NEW if targets is None else targets)
        )
        initiator = self.initiator(**kwargs)
        return asking.update(initiator, resolved.with_serial(serial), jid=jid, reason=reason)

    def cancel(self, **kwargs):
        return asking.cancel(self.initiator(**kwargs))

    def adopt(self, before, *, base=None, jid="", reason="", **kwargs):
        return adopt(self.initiator(**kwargs), before, base=base, jid=jid, reason=reason)

    def context(self, taken, **kwargs):
        """Return what a supervisor acts with; *taken* are its locks."""

        def outcome(jid):
            found = self.ledger.outcome(jid)
            refused = self.generations.is_refused(jid)
            return found and Outcome(
                found[0].ended,
                found[0] is State.DELIVERED,
                found[1],
                refused,
                found[0] is State.HELD,
            )

        return Context(
            **{
                "settings": self.settings,
                "store": self.store,
                "services": self.services,
                "inhibitor": self.services,
                "watchdogs": self.services,
                "manager": self.packages,
                "locks": Locks(*taken),
                "outcome": outcome,
                "undelivered": lambda jid: any(row.jid == jid for row in self.ledger.undelivered()),
                "command": self.command,
                "clock": self.clock,
                "monotonic": self.clock.monotonic,
                "sleep": self.clock.sleep,
                "waited": self.waited,
                "engine_runs": lambda: self.engine,
                "reaches": lambda addresses: self.reachable,
                "seen": lambda pid: f"Process {pid} was there. ",
                "obstacle_to_handover": lambda: self.obstacle,
                **kwargs,
            }
        )

    def supervise(self, store=None, **kwargs):
        """Run a supervisor until it ends or is killed; its locks are given back either way."""
        taken = [self.lock(name) for name in ("jobs", "drain", "packages", "update")]
        # It looks a thousand times in the time that a test simulates: to open takes longer.
        kept.begin()
        try:
            Supervisor(self.context(taken, store=store or self.store, **kwargs)).run()
        finally:
            kept.end()
            for lock in taken:
                lock.close()

    def dying(self, kill_at, when):
        """Return a store whose process dies at a write, and with it all that it would do."""
        store = DyingStore(self.settings.database, clock=self.clock, kill_at=kill_at, when=when)
        self.services.alive = store.check
        return store

    def kill_then_recover(self, kill_at, when):
        """
        Let a supervisor die at a write of the record, and the next one go on to the end.

        Return whether it died: it may have ended before that write.
        """
        store = self.dying(kill_at, when)
        try:
            self.supervise(store)
        except Killed:
            assert store.dead
        else:
            assert store.writes < kill_at
        self.all_die()
        self.supervise()
        self.assert_at_peace()
        return store.dead

    def all_die(self):
        """No process of the update is left; the kernel has given back what they held."""
        for lock in self.open:
            lock.close()
        self.open.clear()
        self.services.alive = lambda: None

    # -- facts -----------------------------------------------------------------

    def keep_tree(self, owner="u1"):
        """Keep the old code readable for an update, as it does before it installs."""
        return linked_copy.make([str(self.root)], owner)

    def record(self, phase, **changes):
        """Write a record in a phase, as an earlier process left it."""
        update = Update(
            **{
                "id": "u1",
                "kind": "update",
                "phase": phase,
                "jid": "2026",
                "pid": os.getpid(),
                "created": self.clock(),
                "versions_from": dict(OLD),
                "code": Code(own=tuple(sorted(OLD)), roots=(str(self.root),)),
                "unit": {
                    "active": "active",
                    "enabled": "enabled",
                    "file": self.services.file,
                },
                **changes,
            }
        )
        return self.store.save(update)

    def ask(self, version=None, **kwargs):
        """
        Write down that somebody has asked for an update.

        Without *resolved* it is as the first versions did: the supervisor chooses the targets.
        """
        self.packages.offers = {name: [NEW[name], OLD[name]] for name in OLD}
        resolved = kwargs.pop("resolved", True)
        request = resolution.request(version, **kwargs)
        targets = {}
        if resolved:
            with contextlib.suppress(InputError):
                targets = self.resolver().resolve(request).targets
        return self.record(Phase.REQUESTED, jid="", request=request, versions_to=targets)

    def resolver(self):
        revisions = Revisions(self.settings.state_dir, self.store, ByRestart(self.packages))
        return Resolver(
            installer=self.packages,
            own=sorted(OLD),
            store=self.store,
            revisions=revisions,
            staged={},
            steps_dir=self.settings.steps_dir,
        )

    def secured(self):
        """Secure the old packages; return the way back that the record has of them."""
        revisions = Revisions(self.settings.state_dir, self.store, ByRestart(self.packages))
        return revisions.secure("u1", sorted(OLD))

    def tear(self):
        """Put a file of another version in place of one, as rpm does before it tells."""
        self.packages.write_ahead = False
        path = self.root / "modules" / "test.py"
        path.unlink()
        path.write_text("another version")

    def fix(self, files):
        """Put the file of the old version back, and what rpm left behind away."""
        copy = copy_names.of([str(self.root)], self.last.id)[str(self.root)]
        shutil.rmtree(self.root)
        shutil.copytree(copy, self.root)

    def torn(self):
        return (self.root / "modules" / "test.py").read_text() == "another version"

    def kept(self):
        """Return the directories of secured packages that are there."""
        root = os.path.join(self.settings.state_dir, "revisions")
        return sorted(os.listdir(root)) if os.path.isdir(root) else []

    @property
    def last(self):
        return self.store.latest()

    def phases(self, update_id="u1"):
        return [row.phase for row in self.store.history(update_id)]

    def restarts(self):
        return [call for call in self.services.calls if call in ("restart", "start", "stop")]

    def assert_at_peace(self):
        """Nothing is under way, nothing holds anybody back, and nothing was left behind."""
        assert self.last.phase.final, self.last
        assert not self.services.refuses
        assert self.services.armed == {}
        assert os.listdir(self.root.parent) == ["salt"]
        held = [name for name in locks.NAMES if locks.held(self.settings.run_dir, name)]
        assert held == []


@pytest.fixture
def small_copy(monkeypatch):
    """Have the copy of a supervisor, which nobody runs here, be of three files and not of 200."""
    names = {"__init__.py", "core/__init__.py", "core/launch.py"}
    monkeypatch.setattr(supervisor_copy, "_names", lambda: names)


@pytest.fixture
def make_host(tmp_path, small_copy):
    """Make simulated hosts, each in a directory of its own."""
    made = []

    def make():
        made.append(Host(tmp_path / str(len(made))))
        return made[-1]

    yield make
    for host in made:
        host.all_die()


@pytest.fixture
def host(tmp_path, small_copy):
    host = Host(tmp_path)
    yield host
    host.all_die()
