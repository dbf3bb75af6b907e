"""The engine of the minion goes on, whatever it cannot do."""

import contextlib
import os
import threading

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs.ticker import Ticker
from saltext_safeupdate.minion import engine
from saltext_safeupdate.minion.complaints import Complaints
from saltext_safeupdate.this_host import Host
from tests.support.this_host import opts
from tests.support.waiting import wait_for


@pytest.mark.parametrize("problem", [OSError("no socket"), SafeUpdateError("no database")])
def test_it_lives_on_and_says_why(monkeypatch, tmp_path, caplog, problem):
    ticks, parent = [], os.getpid()

    def tick(self):
        ticks.append(self)
        if len(ticks) == 1:
            raise problem

    monkeypatch.setattr(Ticker, "tick", tick)
    monkeypatch.setattr(engine.os, "getppid", lambda: parent if len(ticks) < 2 else 1)
    given = {**opts(tmp_path), "cachedir": str(tmp_path), "id": "m1", "master": "m"}
    given["safeupdate"]["tick_interval"] = 0.01
    engine.run(given, {"event.send": None}, hooked=True)
    assert len(ticks) == 2
    assert str(problem) in caplog.text


@pytest.mark.parametrize("there", [True, False])
def test_what_a_reboot_has_left_of_a_transaction_goes(monkeypatch, tmp_path, there):
    tool = "/usr/sbin/transactional-update" if there else None
    monkeypatch.setattr(engine.shutil, "which", lambda name: tool)
    left = tmp_path / ("f" * 32)
    left.mkdir()
    ticks, parent = [], os.getpid()
    monkeypatch.setattr(Ticker, "tick", lambda self: ticks.append(left.exists()))
    monkeypatch.setattr(engine.os, "getppid", lambda: parent if len(ticks) < 2 else 1)
    given = {**opts(tmp_path), "cachedir": str(tmp_path), "id": "m1", "master": "m"}
    given["safeupdate"]["tick_interval"] = 0.01
    given["transactional_update"] = {"handover_dir": str(tmp_path)}
    engine.run(given, {"event.send": None}, hooked=True)
    assert ticks == [True, not there], "after the first look at what jobs need"


@pytest.mark.parametrize("several", [False, True])
def test_one_that_waits_for_another_says_so_unless_there_are_several_masters(
    tmp_path, caplog, several
):
    given = {**opts(tmp_path), "cachedir": str(tmp_path), "id": "m1", "multimaster": several}
    host, taken = Host(given), []
    wait = threading.Thread(
        target=lambda: taken.append(engine.alone(host, Complaints(), 0.0)), daemon=True
    )
    with contextlib.closing(locks.acquire(host.settings.run_dir, "engine", "")):
        wait.start()
        wait_for(lambda: several or "List the engine only once" in caplog.text, "it to say so")
        assert taken == []
    wait.join()
    assert ("Another engine" in caplog.text) is not several
    taken[0].close()
