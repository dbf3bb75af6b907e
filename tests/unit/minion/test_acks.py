"""The event with a master's word on a return is sent before the sender goes on."""

import asyncio

import pytest

from saltext_safeupdate.minion import acks


class Pusher:
    def __init__(self):
        self.arrived = []

    async def publish(self, message):
        await asyncio.sleep(0)
        self.arrived.append(message)


class Bus:
    _run_io_loop_sync = False

    def __init__(self):
        self.pusher = Pusher()

    def connect_pull(self):
        return True


async def dropped(self, data, tag, cb=None, timeout=1000):
    # Salt 3007 drops the coroutine. One that nobody awaits is never begun.
    self.sending = self.pusher.publish((tag, data))
    return True


async def awaited(self, data, tag, cb=None, timeout=1000):
    await self.pusher.publish((tag, data))
    return True


@pytest.mark.parametrize("original", [dropped, awaited])
def test_what_is_sent_arrives_once(original):
    bus = Bus()
    publish = bus.pusher.publish
    assert asyncio.run(acks.waiting_for_what_it_sends(original)(bus, 1, "tag")) is True
    assert bus.pusher.arrived == [("tag", 1)]
    assert bus.pusher.publish == publish


def test_a_plain_function_is_left_as_it_is():
    def plain(self, data, tag, cb=None, timeout=1000):
        return True

    assert acks.waiting_for_what_it_sends(plain) is plain
