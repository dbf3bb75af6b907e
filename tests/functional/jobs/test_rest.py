"""Salt's own manager of processes, with engines that rest and are started again."""

import os
import signal

import pytest
import salt.utils.process

from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.record.typed import Fact
from saltext_safeupdate.minion import rest
from saltext_safeupdate.minion.rest import Rest
from saltext_safeupdate.patches import replaced
from saltext_safeupdate.this_host import Host
from tests.support.this_host import opts
from tests.support.waiting import wait_for

ROUNDS = 8
WORK = Fact("work", str)


def _engine(opts, fun):
    """Rest at once."""
    host = Host(opts)
    lock = locks.Lock(host.settings.run_dir, "engine")
    lock.exclusive()
    minion = processes.identity(os.getppid())
    now = iter((0.0, 100.0))
    is_so = [lambda: True] * 2
    engine = Rest(host, minion, *is_so, possible=True, monotonic=lambda: next(now))
    assert not engine.begins(lock)
    assert engine.begins(lock)


@pytest.fixture
def site(tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    given = opts(tmp_path)
    host = Host(given)
    host.store.set_fact(WORK, "first")
    manager = salt.utils.process.ProcessManager
    handler = rest.restarting(host.settings)
    wrapped = replaced(("self", "pid"), handler)(manager.restart_process)
    monkeypatch.setattr(manager, "restart_process", wrapped)
    made = manager(name="ours")
    yield host, made
    made.terminate()


def _wait(manager):
    """Wait until its processes have ended."""
    wait_for(
        lambda: not any(each["Process"].is_alive() for each in manager._process_map.values()),
        "the end of the engine",
    )


def test_nothing_is_left_of_many_rests(site):
    host, manager = site
    manager.add_process(_engine, args=(host.opts, "safeupdate.start"))
    opened, pids = [], set()
    for number in range(ROUNDS):
        _wait(manager)
        pids |= set(manager._process_map)
        for _ in range(3):
            manager.check_children()
        (key,) = manager._process_map
        assert key > 1 << 22, "it rests"
        assert processes.descendants(os.getpid()) == []
        opened.append(len(os.listdir("/proc/self/fd")))
        host.store.set_fact(WORK, str(number))
        manager.check_children()
    assert len(pids) == ROUNDS
    assert opened[-1] <= opened[0], "no file stays open"


def test_an_engine_that_is_killed_is_started_at_once(site):
    host, manager = site
    manager.add_process(_engine, args=(host.opts, "safeupdate.start"))
    lock = locks.acquire(host.settings.run_dir, "engine", "")
    _wait_for_end(manager, signal.SIGKILL)
    before = set(manager._process_map)
    manager.check_children()
    assert before.isdisjoint(manager._process_map)
    # The engine has inherited its file.
    lock.release()
    lock.close()
    _wait(manager)


def _wait_for_end(manager, number):
    for pid in manager._process_map:
        os.kill(pid, number)
    _wait(manager)


def test_the_end_of_a_minion_whose_engine_rests(site):
    host, manager = site
    manager.add_process(_engine, args=(host.opts, "safeupdate.start"))
    _wait(manager)
    manager.check_children()
    manager.stop_restarting()
    manager.send_signal_to_processes(signal.SIGTERM)
    manager.kill_children()
    assert manager._process_map == {}
