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


def test_what_a_run_writes_into_a_queue_is_for_nobody_else_to_look_into(opts, tmp_path):
    """It has the pillar that the run was called with."""
    queue_lock.may_vanish()
    queue_lock.keep_private()
    before = os.umask(0o022)
    try:
        with salt.utils.state.acquire_queue_lock(opts):
            (tmp_path / "queued").touch()
        (tmp_path / "other").touch()
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in ("queued", "other")}
    assert modes == {"queued": 0o600, "other": 0o644}
