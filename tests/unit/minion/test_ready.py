"""What is done once a minion is ready: once, and whatever becomes of it."""

import asyncio
import ctypes
import gc
import importlib
import os
import resource
import sys
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest
from salt.exceptions import SaltClientError

from saltext_safeupdate import hooks, minion, patches
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.minion import ready as starting
from saltext_safeupdate.minion.ready import Ready


def test_it_is_done_once_before_whatever_comes_first():
    done = []
    ready = Ready([lambda: done.append("this"), lambda: done.append("that")])
    job = ready.before(lambda *args, **kwargs: done.append((args, kwargs)) or "job")
    look = ready.before(lambda: done.append("look"))
    assert done == []
    assert job(1, two=2) == "job"
    look()
    assert done == ["this", "that", ((1,), {"two": 2}), "look"]


def test_the_first_job_waits_only_for_what_jobs_need():
    done, told = [], Minion()

    async def tell(minion):
        return "told"

    ready = Ready([lambda: done.append("needed")], [lambda: done.append("other")])
    job = ready.before_job(lambda: done.append("job"))
    asyncio.run(ready.after(tell)(told))
    job()
    assert done == ["needed", "job"]
    told.looks()
    job()
    assert done == ["needed", "job", "other", "job"]


def test_the_first_look_at_the_schedule_waits_for_everything():
    """A minion without a master has nothing else that would call it."""
    done = []
    ready = Ready([lambda: done.append("needed")], [lambda: done.append("other")])
    ready.before_job(lambda: done.append("job"))()
    ready.before(lambda: done.append("look"))()
    assert done == ["needed", "job", "other", "look"]


def test_an_error_is_told_and_the_rest_is_done(monkeypatch, caplog):
    monkeypatch.setattr(patches, "_troubles", {})
    done = []
    ready = Ready([lambda: done.missing, lambda: done.append("that")])
    assert ready.before(lambda: "job")() == "job"
    assert done == ["that"]
    assert "as with plain Salt" in caplog.text


class Manager:
    """What starts processes for Salt, as far as it says whether it still does."""

    _restart_processes = True

    def __init__(self, name="its name"):
        self.name = name
        self.started = []
        self.looks = False

    def add_process(self, *given):
        self.started.append(given)

    async def run(self, asynchronous):
        self.looks = asynchronous


class Minion:
    """A minion, as far as it has a loop: that notes what it is to do later."""

    def __init__(self):
        self.io_loop = self
        self.later = []
        self.process_manager = Manager()

    def create_task(self, coroutine):
        return asyncio.get_running_loop().create_task(coroutine)

    def call_later(self, delay, callback):
        assert delay > 0
        self.later.append(callback)

    def looks(self):
        while self.later:
            self.later.pop()()


def test_it_is_done_just_after_the_master_has_been_told_of_the_start():
    done, told = [], Minion()

    async def tell(minion):
        await asyncio.sleep(0)
        done.append(minion)
        return "told"

    assert asyncio.run(Ready([lambda: done.append("ready")]).after(tell)(told)) == "told"
    assert done == [told]
    told.looks()
    assert done == [told, "ready"]


def test_the_same_with_a_future():
    """As Salt 3006 and 3007 have it."""
    done, future, told = [], Future(), Minion()
    assert Ready([lambda: done.append("ready")]).after(lambda _: future)(told) is future
    assert told.later == []
    future.set_result(None)
    assert done == []
    told.looks()
    assert done == ["ready"]


@pytest.mark.parametrize("waits", [True, False], ids=["coroutine", "future"])
def test_the_master_hears_of_the_start_when_no_earlier_minion_takes_the_jobs(waits):
    """Another master hears at once of a minion that has served."""
    done, told, shared = [], Minion(), [True, True, False]

    async def tell(minion):
        done.append("told")

    def future(minion):
        done.append("told")
        return Future()

    ready = Ready([lambda: done.append("ready")], shares=lambda: shared.pop(0))
    calls = ready.after(tell if waits else future)

    async def start():
        assert await calls(told) is None if waits else calls(told) is None
        while shared:
            told.looks()
            await asyncio.sleep(0)
        shared.append(True)
        again = calls(told)
        if waits:
            await again

    asyncio.run(start())
    assert done == ["ready", "told", "told"]


def test_an_error_of_salt_is_its_own_and_it_is_done_all_the_same():
    done, told = [], Minion()

    async def tell(minion):
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        asyncio.run(Ready([lambda: done.append("ready")]).after(tell)(told))
    told.looks()
    assert done == ["ready"]


def test_with_a_loop_that_cannot_wait_it_is_done_at_once(monkeypatch):
    monkeypatch.setattr(patches, "_troubles", {})
    done = []

    async def tell(minion):
        return "told"

    assert asyncio.run(Ready([lambda: done.append("ready")]).after(tell)(object())) == "told"
    assert done == ["ready"]


def _begin_anew(monkeypatch):
    for name in ("_begun", "_threshold", "_engines", "_meanwhile", "_at_length"):
        monkeypatch.setattr(starting, name, [])
    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    monkeypatch.setattr(processes, "age", lambda pid: 1.0)
    starting.begin()


@pytest.fixture(autouse=True)
def _collects_garbage_as_usual():
    usual = gc.get_threshold()
    yield
    gc.set_threshold(*usual)


def test_a_start_that_takes_long_is_not_waited_for(monkeypatch):
    """Whatever is imported then is on the disk now, and may be another version later."""
    done = []

    async def minion():
        monkeypatch.setattr(starting, "_PATIENCE", 0)
        _begin_anew(monkeypatch)
        Ready([lambda: done.append("ready")])
        while not done:
            await asyncio.sleep(0)

    asyncio.run(minion())
    assert done == ["ready"]


def test_nothing_is_done_for_a_minion_that_ends_while_it_tells_its_master(begun):
    told = Minion()

    async def tell(minion):
        await asyncio.sleep(0)

    telling = Ready([]).after(tell)(told)
    telling.send(None)
    telling.close()
    assert told.later == []


@pytest.fixture
def begun(monkeypatch):
    """A main process that has begun to start, without what it registers for its children."""
    _begin_anew(monkeypatch)
    with suppress(ImportError):
        # That of Salt 3006, which an earlier test may have left.
        ioloop = importlib.import_module("salt.ext.tornado.ioloop")
        ioloop.IOLoop.clear_current()


def _engine(name="safeupdate.start"):
    return ("Engine", [{}, name, None, None, [], None], {}, name)


async def _add(started, *engines, manager=None):
    """Have engines added, as a minion does in its loop; return what was started at once."""
    for each in engines:
        starting.engine_later(lambda _, *given: started.append(given), manager or Manager(), *each)
    return list(started)


def test_a_start_collects_less_garbage_until_it_is_ready(begun):
    less = gc.get_threshold()
    starting.end()
    assert less[0] > gc.get_threshold()[0]
    assert less[1:] == gc.get_threshold()[1:]


def test_memory_that_only_the_start_needed_is_given_back():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    size, count = 1_000, 30_000
    blocks = [bytes(size) for _ in range(count)]
    # The C library returns by itself only what is at the end of its heap.
    kept = [*blocks[:: count // 30], blocks[-1]]
    blocks.clear()
    before = resident()
    starting.give_back()
    assert before - resident() > size * count / 2
    assert kept


def _cannot_be_loaded(name):
    raise OSError("no dynamic loading")


@pytest.mark.parametrize("load", [lambda name: object(), _cannot_be_loaded])
def test_a_c_library_that_keeps_its_memory_is_let_be(monkeypatch, load):
    monkeypatch.setattr(ctypes, "CDLL", load)
    starting.give_back()


def test_what_is_put_off_goes_by_no_clock_that_is_set(monkeypatch):
    """The loop of Salt 3006 goes by the time of day. A loop of asyncio stays as it is."""

    class Loop:
        def time(self):
            return 1_000_000.0

        def call_later(self, delay, callback):
            pass

    kept = Loop()
    monkeypatch.setattr(starting, "_loop", lambda: kept)
    _begin_anew(monkeypatch)
    assert "time" in vars(kept)
    of_asyncio = asyncio.new_event_loop()
    monkeypatch.setattr(starting, "_loop", lambda: of_asyncio)
    _begin_anew(monkeypatch)
    assert "time" not in vars(of_asyncio)
    of_asyncio.close()


def test_our_engines_are_started_once_the_minion_is_ready(begun):
    """With several masters there is one for each."""
    started = []
    assert asyncio.run(_add(started, _engine(), _engine())) == []
    starting.end()
    starting.start_engines()
    assert started == [_engine(), _engine()]
    starting.start_engines()
    assert len(started) == 2


def test_whatever_else_is_started_is_started_at_once(begun):
    others = [_engine("logstash.start"), ("function", (), {}, "one"), ("function",)]
    whole = [(*each, None, None, None)[:4] for each in others]
    assert asyncio.run(_add([], *others)) == whole


def test_an_engine_of_a_minion_that_is_ready_is_started_at_once(begun):
    starting.end()
    assert asyncio.run(_add([], _engine())) == [_engine()]


def test_an_engine_that_nothing_could_start_later_is_started_at_once(begun, monkeypatch):
    monkeypatch.setattr(starting, "_loop", lambda: None)
    assert asyncio.run(_add([], _engine())) == [_engine()]


def test_a_minion_that_reaches_no_master_has_its_engine_all_the_same(begun, monkeypatch):
    monkeypatch.setattr(starting, "_PATIENCE", 0)
    started = []

    async def minion():
        assert await _add(started, _engine()) == []
        while not started:
            await asyncio.sleep(0)

    asyncio.run(minion())
    starting.start_engines()
    assert started == [_engine()]


def test_a_minion_that_cannot_find_its_master_has_its_engine_before_it_sleeps(begun):
    started = []

    def found(name):
        if name == "gone":
            raise SaltClientError(name)
        return [name, len(started)]

    asyncio.run(_add(started, _engine()))
    find = starting.or_wait_on(found)
    assert find("master") == ["master", 0]
    with pytest.raises(SaltClientError, match="gone"):
        find("gone")
    assert started == [_engine()]


def test_a_minion_that_ends_starts_no_engine(begun):
    started, manager = [], Manager()
    asyncio.run(_add(started, _engine(), manager=manager))
    manager._restart_processes = False
    starting.start_engines()
    assert started == []


async def _told(minion):
    """Have a minion tell its master of its start, and do what comes first after that."""

    async def tell(minion):
        return "told"

    assert await Ready([]).after(tell)(minion) == "told"
    await asyncio.sleep(0)


def test_an_engine_that_salt_has_ended_before_there_was_a_master_is_started_again(begun):
    """With 'master_type: failover', if no name of a master was found at first."""
    minion, first = Minion(), []
    before = minion.process_manager

    async def start():
        await _add(first, _engine(), manager=before)
        starting.start_engines()
        before._restart_processes = False
        await _told(minion)

    asyncio.run(start())
    again = minion.process_manager
    assert again is not before
    assert (again.name, again.looks) == (before.name, True)
    assert again.started == first == [_engine()]


def test_the_engine_of_a_minion_that_has_had_a_master_stays_ended(begun):
    """It is about to end, or is handed over, and may get another master all the same."""
    minion, first = Minion(), []

    async def start():
        await _add(first, _engine(), manager=minion.process_manager)
        starting.start_engines()
        await _told(minion)
        minion.process_manager._restart_processes = False
        await _told(minion)

    asyncio.run(start())
    assert first == [_engine()]
    assert minion.process_manager.started == []


@pytest.mark.parametrize("age", [9.5, None], ids=["old", "unknown"])
def test_an_engine_that_salt_would_not_look_after_later_is_started_at_once(age, begun, monkeypatch):
    """On a slow host, or if it died while the minion had no master."""
    monkeypatch.setattr(processes, "age", lambda pid: age)
    assert asyncio.run(_add([], _engine())) == [_engine()]


def test_what_need_not_keep_the_master_waiting_is_done_while_the_minion_waits_for_it(begun):
    done = []

    async def minion():
        starting.meanwhile(lambda: done.append("copy"))
        assert done == []
        while not done:
            await asyncio.sleep(0.01)

    asyncio.run(minion())
    starting.catch_up()
    assert done == ["copy"]


def test_it_is_done_at_the_latest_before_the_minion_is_ready(begun):
    done = []

    async def minion():
        starting.meanwhile(lambda: done.append("copy"))
        Ready([lambda: done.append("ready")]).before(lambda: done.append("job"))()

    asyncio.run(minion())
    assert done == ["copy", "ready", "job"]


def test_what_is_put_off_is_done_if_the_wait_is_long(begun, monkeypatch):
    """The engine is forked after it."""
    monkeypatch.setattr(starting, "_PATIENCE", 0)
    done = []

    async def minion():
        Ready([lambda: done.append("read")])
        starting.meanwhile(lambda: done.append("copy"))
        await _add(done, _engine())
        assert done == []
        while len(done) < 3:
            await asyncio.sleep(0)

    asyncio.run(minion())
    assert done == ["copy", "read", _engine()]


def test_it_is_done_at_once_by_what_has_no_loop(begun):
    done = []
    starting.meanwhile(lambda: done.append("copy"))
    assert done == ["copy"]


def test_an_error_in_it_is_told_and_keeps_nothing_from_being_done(begun, monkeypatch, caplog):
    monkeypatch.setattr(patches, "_troubles", {})
    done = []
    starting.meanwhile(lambda: done.missing)
    starting.meanwhile(lambda: done.append("copy"))
    assert done == ["copy"]
    assert "as with plain Salt" in caplog.text


def test_a_child_that_is_forked_meanwhile_goes_on_as_usual():
    said, says = os.pipe()
    pid = os.fork()
    if not pid:
        usual = gc.get_threshold()
        starting.begin()
        starting.begin()
        started, done = [], []

        async def minion():
            await _add(started, _engine())
            # No child may begin without it.
            starting.meanwhile(lambda: done.append("copy"))

        asyncio.run(minion())
        child = os.fork()
        starting.start_engines()
        who = "main" if child else "child"
        os.write(says, f"{who} {gc.get_threshold() == usual} {len(started)} {done}\n".encode())
        if child:
            os.waitpid(child, 0)
        os._exit(0)
    os.close(says)
    with os.fdopen(said) as lines:
        assert sorted(lines) == ["child True 0 ['copy']\n", "main False 1 ['copy']\n"]
    assert os.waitpid(pid, 0)[1] == 0


def test_the_work_of_the_executor_is_in_memory_before_any_job(monkeypatch):
    """A job may replace this package. Then the next one would mix two versions of it."""
    monkeypatch.delitem(sys.modules, "saltext_safeupdate.minion.executor", raising=False)
    monkeypatch.delattr(minion, "executor", raising=False)
    hooks._import_for_jobs()
    assert "saltext_safeupdate.minion.executor" in sys.modules
