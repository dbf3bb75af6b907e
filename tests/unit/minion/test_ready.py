"""What is done once a minion is ready: once, and whatever becomes of it."""

import asyncio
import gc
import os
import signal
from concurrent.futures import Future

import pytest

from saltext_safeupdate import patches
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


def test_an_error_is_told_and_the_rest_is_done(monkeypatch, caplog):
    monkeypatch.setattr(patches, "_troubles", {})
    done = []
    ready = Ready([lambda: done.missing, lambda: done.append("that")])
    assert ready.before(lambda: "job")() == "job"
    assert done == ["that"]
    assert "as with plain Salt" in caplog.text


class Minion:
    """A minion, as far as it has a loop: that notes what it is to do later."""

    def __init__(self):
        self.io_loop = self
        self.later = []

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


@pytest.fixture
def main():
    """
    A main process that has begun to start, with a child.

    The child says what the end of the pipe tells it: twice, and between them it is told to go on.
    """
    said, says = os.pipe()
    go, goes = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(said)
        usual = gc.get_threshold()
        starting.begin()
        starting.begin()
        os.write(says, f"main {gc.get_threshold() == usual}\n".encode())
        if not os.fork():
            os.close(goes)
            os.write(says, f"child {gc.get_threshold() == usual} {starting.wait(0)}\n".encode())
            os.write(says, f"child {starting.wait(60)}\n".encode())
            os._exit(0)
        os.close(says)
        if os.read(go, 1):
            starting.end()
            os._exit(int(gc.get_threshold() != usual or not starting.wait(0)))
        signal.pause()
    os.close(says)
    os.close(go)
    with os.fdopen(said) as lines:
        yield pid, lines, goes
    os.close(goes)


def test_an_engine_waits_until_its_minion_is_ready(main):
    pid, lines, goes = main
    assert sorted(lines.readline() for _ in range(2)) == ["child True False\n", "main False\n"]
    os.write(goes, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    assert lines.readline() == "child True\n"


def test_the_engine_of_a_minion_that_has_died_waits_no_longer(main):
    pid, lines, _ = main
    assert len([lines.readline() for _ in range(2)]) == 2
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert lines.readline() == "child True\n"


def test_without_a_start_nobody_waits():
    assert starting.wait(0)
