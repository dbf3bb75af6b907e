"""When an engine rests, and what ends its rest."""

import contextlib
import os
from array import array

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.generations import code
from saltext_safeupdate.core.host import engine_at_rest, locks, processes
from saltext_safeupdate.core.record.typed import Fact
from saltext_safeupdate.minion import kept_returns, rest, unrecorded
from saltext_safeupdate.minion.rest import Rest
from saltext_safeupdate.patches import replaced
from saltext_safeupdate.this_host import Host
from tests.support.this_host import opts

OURS = "safeupdate.start"
WORK = Fact("work", str)


class World:
    """An engine that has nothing to do, of the minion that is this process."""

    def __init__(self, path, monkeypatch):
        (path / "cache").mkdir()
        (path / "code").mkdir()
        (path / "code" / "a.py").touch()
        (path / "status").touch()
        self.path = path
        self.host = Host(opts(path))
        self.host.ledger.anchor()
        self.host.store.set_fact(WORK, "x")
        self.run_dir = self.host.settings.run_dir
        self.lock = locks.Lock(self.run_dir, "engine")
        assert self.lock.try_exclusive()
        monkeypatch.setattr(code, "_noted_files", [str(path / "code" / "a.py")])
        monkeypatch.setattr(code, "_noted_stamps", array("q", [0]))
        monkeypatch.setattr(code, "_folders", lambda _: [str(path / "code")])
        # Its files have times to the nanosecond.
        monkeypatch.setattr(rest, "_TICK", 0.05)
        monkeypatch.setattr(rest, "_INSTALLED", (str(path / "status"),))
        self.now, self.quiet, self.done = 0.0, True, True
        self.asked = []
        self.rest = self.engine()

    def engine(self, *, possible=True):
        return Rest(
            self.host,
            processes.me(),
            lambda: self.quiet,
            self._is_done,
            possible=possible,
            monotonic=lambda: self.now,
        )

    def _is_done(self):
        self.asked.append(self.now)
        return self.done() if callable(self.done) else self.done

    def begins(self, now):
        self.now = float(now)
        return self.rest.begins(self.lock)

    def signs(self):
        return rest.signs(self.host.opts, self.host.settings, self.host.store)

    @property
    def noted(self):
        return engine_at_rest.of(self.run_dir)

    def end_engine(self):
        """Have the process of the engine end, which began its rest."""
        assert not self.begins(0)
        assert self.begins(61)
        self.lock.close()


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path, monkeypatch)
    yield made
    made.lock.close()
    made.host.ledger.close_anchor()


class TestBeginning:
    def test_after_a_minute_with_nothing_to_do(self, world):
        assert [world.begins(at) for at in (0, 30, 59)] == [False] * 3
        assert world.asked == []
        assert world.begins(60)
        assert world.noted.process == processes.me()
        assert world.noted.signs == world.signs()
        assert engine_at_rest.is_looked_after(world.run_dir)

    def test_any_work_makes_it_wait_for_another_minute(self, world):
        assert not world.begins(0)
        world.quiet = False
        assert not world.begins(59)
        world.quiet = True
        assert [world.begins(at) for at in (60, 119)] == [False, False]
        assert world.begins(120)

    def test_not_while_the_database_has_work(self, world):
        world.done = False
        assert [world.begins(at) for at in (0, 60, 119)] == [False] * 3
        assert world.asked == [60.0], "that is not asked in each round"
        assert world.noted is None

    @pytest.mark.parametrize("what", ["note", "return"])
    def test_not_while_the_ledger_lacks_something(self, world, what):
        if what == "note":
            unrecorded.note(world.host.opts)
        else:
            described = {"key": "", "jid": "1", "fun": "x", "master": "m", "retcode": 0}
            assert kept_returns.keep(world.host.opts, b"x", **described)
        assert [world.begins(at) for at in (0, 60)] == [False, False]
        assert world.noted is None

    def test_not_if_something_happens_at_the_last_moment(self, world):
        world.done = lambda: world.host.store.set_fact(WORK, "y") or True
        assert [world.begins(at) for at in (0, 60)] == [False, False]
        assert world.noted is None

    @pytest.mark.parametrize("error", [SafeUpdateError("no database"), OSError("no file")])
    def test_not_if_it_cannot_be_told_and_then_jobs_are_as_fast_as_before(self, world, error):
        def fails():
            raise error

        world.done = fails
        world.begins(0)
        with pytest.raises(type(error)):
            world.begins(60)
        assert world.noted is None
        wal = world.host.settings.database + "-wal"
        world.host.store.set_fact(WORK, "z")
        assert os.path.exists(wal), "a connection is open again"

    def test_not_without_a_lock_or_where_it_is_not_possible(self, world):
        world.rest = world.engine(possible=False)
        assert [world.begins(at) for at in (0, 60)] == [False, False]
        world.rest = world.engine()
        assert [world.rest.begins(None) for world.now in (100, 200)] == [False, False]


class TestSigns:
    @pytest.mark.parametrize(
        "what", ["a job", "note", "return", "waited", "code", "package", "lost", "itself"]
    )
    def test_each_is_seen(self, world, what, monkeypatch):
        world.host.ledger.close_anchor()
        before = world.signs()
        assert world.signs() == before
        if what == "a job":
            described = {"jid": "1", "fun": "test.ping", "master": "m", "call": b"", "owner": ""}
            world.host.ledger.accept("1", **described)
        elif what == "note":
            unrecorded.note(world.host.opts)
        elif what == "return":
            described = {"key": "", "jid": "1", "fun": "x", "master": "m", "retcode": 0}
            assert kept_returns.keep(world.host.opts, b"x", **described)
        elif what == "waited":
            (world.path / "run" / "waited").write_text("a job was new")
        elif what == "code":
            (world.path / "code" / "new").touch()
            os.replace(world.path / "code" / "new", world.path / "code" / "a.py")
        elif what == "package":
            (world.path / "status").write_text("another one")
        elif what == "lost":
            os.unlink(world.host.settings.database)
        else:
            other = world.path / "other"
            other.mkdir()
            (other / "__init__.py").touch()
            monkeypatch.setattr(rest.ourselves, "home", lambda: str(other))
        assert world.signs() != before


class TestNextEngine:
    def test_one_that_has_waited_for_it_rests_as_well(self, world):
        world.end_engine()
        assert world.engine().goes_on(locks.Lock(world.run_dir, "engine"))
        assert world.noted is not None

    @pytest.mark.parametrize("why", ["work", "impossible", "another minion", "long ago"])
    def test_otherwise_it_acts(self, world, why, monkeypatch):
        world.end_engine()
        if why == "work":
            world.host.store.set_fact(WORK, "y")
        elif why == "long ago":
            monkeypatch.setattr(rest, "_LONGEST", -1.0)
        engine = world.engine(possible=why != "impossible")
        if why == "another minion":
            engine = Rest(world.host, "other", bool, bool, possible=True)
        with contextlib.closing(locks.Lock(world.run_dir, "engine")) as lock:
            assert not engine.goes_on(lock)
        assert engine.is_over is (why != "another minion")
        assert world.noted is None

    def test_the_first_one_follows_none(self, world):
        assert not world.rest.goes_on(world.lock)
        assert not world.rest.is_over
        assert not world.rest.goes_on(None)


class Process:
    def __init__(self, exitcode, fun=OURS):
        self.exitcode, self.fun, self.closed = exitcode, fun, False

    def close(self):
        self.closed = True


class Manager:
    """Salt's, as far as we know it."""

    def __init__(self, world, exitcode=0, fun=OURS):
        self.opts, self.started, self.fails = world.host.opts, [], None
        self.process = Process(exitcode, fun)
        self._process_map = {42: {"Process": self.process, "args": (self.opts, fun)}}
        self.look = replaced(("self", "pid"), rest.restarting(world.host.settings))(self._start)

    def _start(self, manager, pid):
        if self.fails:
            raise self.fails
        self.started.append(pid)
        del self._process_map[pid]

    def check_children(self):
        for pid in list(self._process_map):
            self.look(self, pid)
        return self.started


class TestMinion:
    def test_it_starts_it_again_when_there_is_work(self, world, caplog):
        world.end_engine()
        manager = Manager(world)
        assert manager.check_children() == []
        (key,) = manager._process_map
        # No process can have that number.
        with pytest.raises(ProcessLookupError):
            os.kill(key, 0)
        assert manager.check_children() == []
        assert not manager.process.closed, "Salt asks whether it is alive"
        world.host.store.set_fact(WORK, "y")
        assert manager.check_children() == [key]
        assert manager.process.closed
        assert caplog.text == ""

    @pytest.mark.parametrize("at_once", [True, False])
    def test_a_fork_that_fails_is_tried_again(self, world, at_once, caplog):
        """Salt would look after no engine any more."""
        world.end_engine()
        manager = Manager(world)
        if not at_once:
            manager.check_children()
        world.host.store.set_fact(WORK, "y")
        manager.fails = BlockingIOError(11, "Resource temporarily unavailable")
        assert manager.check_children() == []
        assert "cannot be started" in caplog.text
        manager.fails = None
        assert len(manager.check_children()) == 1

    @pytest.mark.parametrize("error", [NotADirectoryError(), PermissionError()])
    def test_what_cannot_be_read_is_for_the_engine_to_say(self, world, error, monkeypatch, caplog):
        world.end_engine()

        def fails(self):
            raise error

        monkeypatch.setattr(rest.Database, "stamp", fails)
        assert len(Manager(world).check_children()) == 1
        with contextlib.closing(locks.Lock(world.run_dir, "engine")) as lock:
            assert not world.engine().goes_on(lock)
        assert caplog.text == ""

    def test_it_rests_on_if_that_cannot_be_noted(self, world, monkeypatch, caplog):
        world.end_engine()

        def fails(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(engine_at_rest.os, "pwrite", fails)
        assert Manager(world).check_children() == []
        assert caplog.text == ""

    def test_it_notes_that_it_looks(self, world, monkeypatch):
        world.end_engine()
        manager = Manager(world)
        later = processes.since_boot() + 100
        monkeypatch.setattr(processes, "since_boot", lambda: later)
        assert not engine_at_rest.is_looked_after(world.run_dir)
        manager.check_children()
        assert engine_at_rest.is_looked_after(world.run_dir)

    @pytest.mark.parametrize("why", ["killed", "another engine", "no note", "long ago"])
    def test_any_other_engine_is_salts_business(self, world, why, monkeypatch):
        if why != "no note":
            world.end_engine()
        if why == "long ago":
            monkeypatch.setattr(rest, "_LONGEST", -1.0)
        fun = "other.start" if why == "another engine" else OURS
        manager = Manager(world, exitcode=-9 if why == "killed" else 0, fun=fun)
        assert [pid % (1 << 30) for pid in manager.check_children()] == [42]

    def test_of_several_only_one_is_started(self, world, monkeypatch):
        world.end_engine()
        first, second = Manager(world), Manager(world)
        assert first.check_children() + second.check_children() == []
        world.host.store.set_fact(WORK, "y")
        assert first.check_children()
        living = [Process(None)]
        monkeypatch.setattr(rest.multiprocessing, "active_children", lambda: living)
        assert second.check_children() == []
        living.clear()
        assert second.check_children()
