"""A host with a minion, simulated: its clock, its service, its packages, and its death."""

from __future__ import annotations

import itertools
import pathlib

from saltext_safeupdate.core.errors import (
    CommandError,
    InputError,
    SafeUpdateError,
    VerificationError,
)
from saltext_safeupdate.core.host.service import LastRun, ServiceState
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.packages.choice import choose
from saltext_safeupdate.core.packages.request import Change, File
from saltext_safeupdate.core.record.database import Database
from saltext_safeupdate.core.record.store import Store

UNIT_FILE = "/lib/systemd/system/salt-minion.service"


class Killed(BaseException):
    """The process that acts is gone: nothing after this has an effect."""


class Clock:
    """
    Time that passes only while somebody sleeps; ``each_second`` is called about that often.

    ``now``, the time of day, may be set; ``monotonic`` and what is due are not touched by that.
    """

    def __init__(self, now=1_000_000.0):
        self._offset = now - 5000.0
        self.passed = 0.0
        self._due = []
        self.each_second = lambda: None
        self._second = 0.0

    def __call__(self):
        return self.now

    @property
    def now(self):
        return self.monotonic() + self._offset

    @now.setter
    def now(self, now):
        self._offset = now - self.monotonic()

    def monotonic(self):
        return 5000.0 + self.passed

    def work(self, seconds):
        """Let time pass in which nobody looks."""
        self.passed += seconds

    def sleep(self, seconds):
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self.passed += seconds
        for entry in [entry for entry in self._due if entry[0] <= self.passed]:
            self._due.remove(entry)
            entry[1]()
        if self.passed >= self._second + 1:
            self._second = self.passed
            self.each_second()

    def after(self, seconds, happens):
        """Let something happen while somebody sleeps, *seconds* from now."""
        self._due.append((self.passed + seconds, happens))


class Hasty(Database):
    """Processes die here, and the power does not: nothing has to be forced to the disk."""

    def connection(self, *, durable=True):
        return super().connection(durable=False)

    def _open(self, synchronous):
        return super()._open("OFF")


class HastyLedger(Hasty, Ledger):
    """The ledger of a simulated host."""


class DyingStore(Hasty, Store):
    """Kills its process before or after the n-th write of the record (*n* counts from 1)."""

    def __init__(self, path, *, clock, kill_at=0, when="after"):
        super().__init__(path, clock=clock)
        self.kill_at, self.when = kill_at, when
        self.writes, self.dead = 0, False

    def save(self, update, *others, **fence):
        self.check()
        self.writes += 1
        if self.writes == self.kill_at and self.when == "before":
            self.die()
        saved = super().save(update, *others, **fence)
        if self.writes == self.kill_at:
            self.die()
        return saved

    def die(self):
        self.dead = True
        raise Killed

    def check(self):
        """Raise where the process is dead: what it would do now does not happen."""
        if self.dead:
            raise Killed


class FakeServices:
    """systemd, as far as the update needs it. *report* is what a minion does that comes up."""

    name = "systemd"

    def __init__(self, report=lambda: None, *, active="active", enabled="enabled"):
        self.report = report
        self.active, self.enabled = active, enabled
        self._invocations = itertools.count(1)
        self._pids = itertools.count(101)
        self.pid, self.invocation = 0, ""
        self.file = UNIT_FILE
        self.refuses = False
        self.dies = 0  # so many of the next starts end at once
        self.dies_while = lambda: False  # as do all as long as this holds
        self.last = LastRun()  # what is known of how the last run ended
        self.left = False  # whether nobody is about to start it
        self.hinders = ""  # why it cannot be restarted
        self.needed_by = {}  # units that end with it, by their names
        self.armed = {}  # what is started at every boot and every minute
        self.rests = False  # until the next boot
        self.fails = []  # verbs that fail, each time one entry is used up
        self.calls = []
        self.alive = lambda: None
        if active == "active":
            self.run()

    def run(self):
        self.pid, self.invocation = next(self._pids), str(next(self._invocations))
        self.active = "active"

    def _do(self, verb):
        self.alive()
        self.calls.append(verb)
        if verb in self.fails:
            self.fails.remove(verb)
            raise CommandError(("systemctl",), f"{verb} failed")
        if self.refuses and verb in ("restart", "start", "stop"):
            raise CommandError(("systemctl",), "exit status 1", stderr="Operation refused")

    def _up(self):
        if self.enabled.startswith("masked") or self.file is None:
            raise CommandError(("systemctl",), "exit status 1", stderr="Unit is masked or gone")
        if self.dies or self.dies_while():
            self.dies = max(0, self.dies - 1)
            self.run()
            self.active, self.pid = "failed", 0
            return
        self.run()
        self.report()

    def state(self, unit):
        self.alive()
        return ServiceState(self.active, self.enabled, self.pid, self.invocation)

    def last_run(self, unit):
        self.alive()
        return self.last

    def is_left_stopped(self, unit):
        self.alive()
        return self.left

    def obstacle(self, unit):
        return self.hinders

    def can_start(self, unit):
        return not self.enabled.startswith("masked") and self.file is not None

    def dependents(self, unit):
        return [f"{name}.service" for name, other in self.needed_by.items() if other.pid]

    def goes_down(self):
        return False

    def begin_restart(self, unit):
        self._do("restart")
        self._up()

    def start(self, unit):
        self._do("start")
        self._up()

    def stop(self, unit):
        self._do("stop")
        self.active, self.pid = "inactive", 0
        for other in self.needed_by.values():
            other.active, other.pid = "inactive", 0

    def end(self, unit):
        self.stop(unit)

    def set_enabled(self, unit, enabled):
        self.alive()
        if enabled in ("enabled", "disabled", "masked") and enabled != self.enabled:
            self.calls.append(enabled)
            self.enabled = enabled

    def inhibit(self, unit):
        self._do("inhibit")
        self.refuses = True

    def release(self, unit):
        self._do("release")
        self.refuses = False

    def resume(self, unit):
        pass

    def inhibited(self, unit):
        self.alive()
        return self.refuses

    def unit_file(self, unit):
        self.alive()
        return self.file

    def program(self, unit):
        self.alive()

    def running(self, pattern):
        return {}

    def spawn(self, name, argv):
        self._do("spawn")

    def arm(self, name, argv):
        self._do("arm")
        self.armed[name] = tuple(argv)

    def watchdog(self, name):
        return " ".join(self.armed.get(name, ()))

    def rest(self, name):
        self.alive()
        self.rests = True

    def disarm(self, name):
        self.alive()
        self.armed.pop(name, None)


class FakePackages:
    """
    A package manager with its database in memory. *repairs* is what a repair changes.

    ``offers`` are the versions on offer, newest first; ``secures`` is whether the installed
    packages can be copied; ``installs`` is called before anything is installed.
    """

    name = "fake"
    snapshots = None

    def __init__(self, **versions):
        self.versions = versions
        self.offers = {}
        self.secures = True
        self.takes_to_secure = 0
        self.installs = lambda files: None
        self.locked = set()
        self.half_done = []
        self.write_ahead = True
        self.marks = ()
        self.at_work = lambda: False
        self.repairs = lambda: None
        self.repaired = 0

    def installed(self, packages):
        return {name: self.versions[name] for name in packages if name in self.versions}

    def running(self, packages):
        return self.installed(packages)

    def unfinished(self, packages):
        return [name for name in self.half_done if name in packages]

    def repair(self, packages):
        self.repaired += 1
        self.repairs()

    def busy(self):
        return self.at_work()

    def candidates(self, packages):
        return {name: list(self.offers.get(name, ())) for name in sorted(packages)}

    def targets(self, packages, version):
        offers = self.candidates(packages)
        if version is not None:
            return choose(version, offers, self.installed(packages))
        if not all(offers.values()):
            raise InputError("not every package is on offer")
        return {name: offered[0] for name, offered in offers.items()}

    def refresh(self):
        pass

    def download(self, targets, directory):
        return [self._file(name, version, directory) for name, version in targets.items()]

    def secure(self, packages, directory):
        if not self.secures:
            raise SafeUpdateError("no copy can be had")
        return [self._file(name, self.versions[name], directory) for name in packages]

    def verify(self, files):
        for file in files:
            if pathlib.Path(file.path).read_text() != file.sha256:
                raise VerificationError(f"{file.path} is not the file that was recorded")

    def install(self, files):
        self.installs(files)
        self.half_done = []
        self.versions.update({file.package: file.version for file in files})

    def version_locked(self, packages):
        return self.locked & set(packages)

    def lock_versions(self, packages, locked):
        self.locked = self.locked | set(packages) if locked else self.locked - set(packages)

    def signature_policy(self):
        return None

    def needs(self, what):
        return len(what)

    def needs_to_secure(self, packages):
        return self.takes_to_secure

    @staticmethod
    def _file(name, version, directory):
        path = pathlib.Path(directory, f"{name}_{version}")
        path.write_text(f"{name} {version}")
        return File(name, version, str(path), f"{name} {version}")

    def owners(self, paths):
        return set(self.versions)

    def unowned(self, paths):
        return set(paths)

    def siblings(self, packages):
        return set(packages)

    def simulate(self, request):
        newest = {name: offered[0] for name, offered in self.offers.items()}
        return {
            name: Change(self.versions.get(name, ""), version or newest.get(name, ""))
            for name, version in request.targets
        }

    def stamp(self):
        return (hash(tuple(sorted(self.versions.items()))),)

    def without(self, packages, directory):
        return None


class FakeSnapshots:
    """The snapshots of a transactional system, each with its packages; *now* runs."""

    place = "/.snapshots"

    def __init__(self, versions):
        self.contents = {1: versions}
        self.now = self.next = 1
        self.alive = lambda: None
        self.reboots = 0
        self.gone = set()

    @staticmethod
    def _named(number):
        return {"number": number, "ident": 256 + number}

    @property
    def pending(self):
        return self.now != self.next

    def running(self):
        return self._named(self.now)

    def default(self):
        return self._named(self.next)

    def exists(self, snapshot):
        return snapshot["number"] in self.contents

    def add(self, base, versions):
        """Make a snapshot, which the next boot starts."""
        self.next = max(self.contents) + 1
        self.contents[self.next] = {**self.contents[base], **versions}

    def install(self, paths, **kwargs):
        self.alive()
        self.add(self.now, dict(pathlib.Path(path).read_text().split() for path in paths))

    def go_back(self, snapshot):
        self.alive()
        if snapshot["number"] in self.gone:
            raise CommandError(("snapper",), "the snapshot is gone")
        self.next = snapshot["number"]

    def reboot(self):
        self.reboots += 1
        return "reboot requested"


class FakeTransactional(FakePackages):
    """The package manager of such a system: what is installed is what the next boot starts."""

    def __init__(self, **versions):
        self.snapshots = FakeSnapshots(versions)
        super().__init__(**versions)

    @property
    def versions(self):
        return self.snapshots.contents[self.snapshots.next]

    @versions.setter
    def versions(self, versions):
        """The snapshots have them."""

    def running(self, packages):
        now = self.snapshots.contents[self.snapshots.now]
        return {name: now[name] for name in packages if name in now}
