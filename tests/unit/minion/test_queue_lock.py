"""A state run has the lock of Salt's queues when the next minion removes it."""

import os

import pytest
import salt.utils.state

from saltext_safeupdate.minion import queue_lock


@pytest.fixture
def opts(tmp_path, monkeypatch):
    # It is put back after the test.
    monkeypatch.setattr(salt.utils.state, "acquire_queue_lock", salt.utils.state.acquire_queue_lock)
    return {"cachedir": str(tmp_path), "master": "m", "id": "m1"}


def test_salt_itself_fails_the_run(opts):
    with pytest.raises(FileNotFoundError), salt.utils.state.acquire_queue_lock(opts):
        os.remove(salt.utils.state.queue_lock_path(opts))


def test_the_run_goes_on(opts):
    queue_lock.may_vanish()
    with salt.utils.state.acquire_queue_lock(opts):
        os.remove(salt.utils.state.queue_lock_path(opts))


def test_what_fails_in_it_fails(opts):
    queue_lock.may_vanish()

    def fail():
        with salt.utils.state.acquire_queue_lock(opts):
            os.remove(salt.utils.state.queue_lock_path(opts))
            raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        fail()


def test_a_lock_that_stays_is_given_back(opts):
    queue_lock.may_vanish()
    with salt.utils.state.acquire_queue_lock(opts):
        assert os.path.exists(salt.utils.state.queue_lock_path(opts))
    assert not os.path.exists(salt.utils.state.queue_lock_path(opts))
