"""The same in Redis: what is kept of the fleet does not depend on the back end of the cache."""

from __future__ import annotations

import importlib
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest
import salt.cache

from devtools import redis as server
from devtools.cache import Cache
from saltext_safeupdate.core.errors import CacheError, RecordError
from saltext_safeupdate.fleet import controller
from saltext_safeupdate.master.store import ROLLOUTS, Store
from tests.functional.master.test_store import NAMES, begun, damage, opts_of, record
from tests.support.waiting import wait_for


class Redis:
    """A server on a socket of its own, which can be killed and started again."""

    def __init__(self, place: pathlib.Path, path: pathlib.Path) -> None:
        self.socket = path / "redis.sock"
        self._command, self._env = server.command(place, self.socket)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.socket.unlink(missing_ok=True)
        env = {**os.environ, **self._env}
        self._process = subprocess.Popen(self._command, env=env, stdout=subprocess.DEVNULL)
        wait_for(self.socket.exists, "Redis listens")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    place = server.installed(Cache())
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place / "site"))
        importlib.invalidate_caches()
        found = Redis(place, tmp_path_factory.mktemp("redis"))
        found.start()
        yield found
        found.kill()
        for name in [name for name in sys.modules if name.partition(".")[0] == "redis"]:
            del sys.modules[name]


@pytest.fixture
def opts(redis: Redis, tmp_path: pathlib.Path) -> dict[str, object]:
    return {
        **opts_of(tmp_path),
        "cache": "redis",
        "cache.redis.unix_socket_path": str(redis.socket),
    }


def test_everything_comes_back_as_it_was(opts: dict[str, object], tmp_path: pathlib.Path) -> None:
    store = Store(opts, page=7)
    store.set_records(map(record, NAMES))
    assert Store(opts).records() == {name: record(name) for name in NAMES}
    assert store.forget(["app", "nobody"]) == ["app"]
    found = begun(store)
    for now in range(10, 60, 5):
        controller.advance(found, [], float(now))
        store.save_rollout(found)
        assert Store(opts).rollout(found.plan.id) == found
    assert (store.rollouts(), store.plans()) == ([found.plan.id], [found.plan.id])
    store.quarantine("3008.2", "two canaries")
    assert Store(opts).quarantined() == {"3008.2": "two canaries"}
    assert store.allow("3008.2")
    damage(opts, ROLLOUTS, f"{found.plan.id}.head", "foreign")
    with pytest.raises(RecordError, match=r"salt-run cache\.flush"):
        Store(opts).rollout(found.plan.id)
    store.remove_rollouts([found.plan.id])
    assert (store.rollouts(), store.plans()) == ([], [])
    assert not list(tmp_path.rglob("*.p"))


def test_redis_that_is_down_is_an_error_until_it_is_back(
    redis: Redis, opts: dict[str, object]
) -> None:
    store = Store(opts)
    found = begun(store, "down")
    redis.kill()
    calls = (
        store.records,
        store.rollouts,
        store.quarantined,
        lambda: store.rollout("down"),
        lambda: store.save_rollout(found),
        lambda: store.set_records([record("app")]),
        lambda: store.forget("app"),
    )
    for call in calls:
        with pytest.raises(CacheError, match=r"cache: redis.*Nothing was started"):
            call()
    redis.start()
    # It came back without what it had.
    assert store.rollouts() == []
    store.set_records([record("app")])
    assert store.record("app") == record("app")
    assert salt.cache.Cache(opts).contains("safeupdate/minions")
