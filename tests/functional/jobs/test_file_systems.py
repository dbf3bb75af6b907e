"""Locks and ledger on file systems that are full or read-only, each in a mount namespace."""

import ctypes
import os
import time

import pytest

from saltext_safeupdate.core.errors import LockUnavailableError, RecordError
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs.admission import Admission
from saltext_safeupdate.core.jobs.ledger import UNKNOWN, Ledger
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.minion import unrecorded
from tests.support.forked import forked
from tests.support.jids import jid_of

JID = "20260101000000000000"
_CLONE_NEWNS, _MS_RDONLY, _MS_REMOUNT, _PRIVATE = 0x20000, 1, 32, (1 << 18) | (1 << 14)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser mounts")


def _call(what, *arguments):
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, what)(*arguments):
        raise OSError(ctypes.get_errno(), what)


class Place:
    """A directory that is a small file system of its own; only the child process has it."""

    def __init__(self, path):
        self.path = path
        path.mkdir()

    def mount(self, options):
        _call("unshare", _CLONE_NEWNS)
        _call("mount", b"none", b"/", None, _PRIVATE, None)
        _call("mount", b"tmpfs", bytes(self.path), b"tmpfs", 0, f"mode=700,{options}".encode())

    def read_only(self):
        _call("mount", None, bytes(self.path), None, _MS_REMOUNT | _MS_RDONLY, None)

    def writable(self):
        _call("mount", None, bytes(self.path), None, _MS_REMOUNT, None)

    def fill(self):
        with open(self.path / "filler", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path / "small")


@pytest.fixture
def settings(tmp_path, place):
    return Settings(state_dir=str(tmp_path / "state"), run_dir=str(place.path / "run"))


def run(work):
    """Run *work* in a child, which passes on what it asserts."""

    def child(hear, say):
        work()
        say("done")

    with forked(child) as process:
        assert process.hear() == "done"


def admitted(settings):
    """Return whether a job may start, with a share, and what was complained of."""
    told = []
    admission = Admission(settings, Store(settings.database), complain=told.append)
    lock, may_start = admission.share()
    if lock is not None:
        lock.close()
    return may_start, lock is not None, told


@pytest.mark.parametrize("options", ["nr_inodes=1", "nr_inodes=2"])
def test_locks_on_a_full_file_system(place, settings, options):
    def work():
        place.mount(options)
        may_start, has_share, told = admitted(settings)
        assert (may_start, has_share) == (True, False)
        assert "No space left" in str(told[0])

    run(work)


def test_locks_that_were_there_before_it_was_full_go_on_to_work(place, settings):
    def work():
        place.mount("size=64k")
        assert admitted(settings) == (True, True, [])
        place.fill()
        assert admitted(settings) == (True, True, [])

    run(work)


def test_locks_on_a_file_system_that_becomes_read_only(place, settings):
    def work():
        place.mount("size=64k")
        assert admitted(settings) == (True, True, [])
        place.read_only()
        # A share of those that are there; others cannot be made.
        assert admitted(settings) == (True, True, [])
        alone = locks.Lock(settings.run_dir, "jobs")
        assert alone.try_exclusive()
        assert admitted(settings) == (False, False, [])
        with pytest.raises(LockUnavailableError, match="Read-only"):
            locks.acquire(settings.run_dir, "update", "")

    run(work)


@pytest.mark.parametrize("how", ["read_only", "fill"])
def test_a_ledger_that_cannot_be_written_claims_nothing(place, how):
    path = str(place.path / "db")

    def work():
        place.mount("size=400k")
        ledger = Ledger(path)
        ledger.record_from_now()
        assert ledger.problem() == ""
        assert ledger.known(["30260101000000000000"]) == {}
        getattr(place, how)()
        with pytest.raises(RecordError, match="Jobs run as usual"):
            ledger.accept(JID, jid=JID, fun="cmd.run", master="m", call=b"x" * 65536, owner="main")
        if how == "read_only":
            assert "cannot be used" in ledger.problem()
            with pytest.raises(RecordError):
                ledger.known(["30260101000000000000"])

    run(work)


HOUR = 3600.0


@pytest.mark.parametrize("full", [False, True])
def test_a_job_that_could_not_even_be_noted_was_not_missed(place, tmp_path, monkeypatch, full):
    """Many others were, an hour ago. In between, one was missed."""
    opts = {"cachedir": str(place.path)}
    database = str(tmp_path / "db")
    now, up = time.time(), 24 * HOUR
    a_minute_ago = jid_of(now - 60)

    def work():
        place.mount("size=400k")
        before = 2 * HOUR
        Ledger(database, clock=lambda: now - before, uptime=lambda: up - before).record_from_now()
        monkeypatch.setattr(processes, "since_boot", lambda: up - HOUR)
        unrecorded.note(opts)
        (path,) = filter(os.path.exists, unrecorded.paths(opts))
        one = os.path.getsize(path)
        # Up to the end of a page.
        while os.path.getsize(path) + one <= os.sysconf("SC_PAGE_SIZE"):
            unrecorded.note(opts)
        if full:
            place.fill()
            monkeypatch.setattr(processes, "since_boot", lambda: up)
            unrecorded.note(opts)
        ledger = Ledger(database, clock=lambda: now, uptime=lambda: up)
        unrecorded.bring_in(opts, ledger)
        assert ledger.known([a_minute_ago]) == ({a_minute_ago: UNKNOWN} if full else {})

    run(work)


def test_an_engine_that_has_started_on_a_read_only_file_system_writes_when_it_can(place):
    """SQLite keeps the mode of the first connection of a process for all others beside it."""

    def work():
        place.mount("size=2m")
        path = str(place.path / "safeupdate.db")
        described = {"fun": "f", "master": "m", "call": b"", "owner": "o"}

        def killed(hear, say):
            # It leaves its log behind.
            ledger = Ledger(path)
            ledger.anchor()
            ledger.accept("1", jid="1", **described)
            say("written")

        with forked(killed) as process:
            assert process.hear() == "written"
        assert os.path.exists(f"{path}-shm")
        place.read_only()
        ledger = Ledger(path, busy_timeout=0.1)
        with pytest.raises(RecordError):
            ledger.anchor()
        assert "readonly" in ledger.problem()
        with pytest.raises(RecordError):
            ledger.known([JID])
        place.writable()
        assert ledger.accept("2", jid="2", **described) is None
        ledger.anchor()

    run(work)
