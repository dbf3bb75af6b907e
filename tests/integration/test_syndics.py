"""A master of masters, a master with a syndic below it, and its minion: all of them real."""

import contextlib

import pytest
import salt.client
import salt.exceptions
import salt.version

from devtools import as_packaged
from tests.integration.conftest import minion_options
from tests.support.fleet import Daemon, Guest, Master
from tests.support.waiting import LONGEST, wait_for

SALT = str(salt.version.__version__)
OLD, NEW = (f"{SALT}-{build}" for build in (1, 2))
INSTALLED = {"salt-minion": OLD, "salt-common": OLD}
AVAILABLE = {
    "salt-common": {version: {} for version in (OLD, NEW)},
    "salt-minion": {version: {"salt-common": version} for version in (OLD, NEW)},
}
# A syndic of 3008.3 gets no answer to what it sends to its master here, with plain Salt as well.
FORWARDS = not SALT.startswith("3008")
WANTED = {"version": NEW, "canaries": 0, "soak": 0, "jitter": 0, "stage": False}


class Syndic(Daemon):
    """The syndic of a master, which it reads the configuration of."""

    def __init__(self, master, above):
        home = master.home
        places = {name: str(home / f"sy{name}") for name in ("pki", "cache", "sock", "log", "pid")}
        mine = {
            "id": "below",
            "pki_dir": places["pki"],
            "cachedir": places["cache"],
            "sock_dir": places["sock"],
            "log_file": places["log"],
            "pidfile": places["pid"],
            "acceptance_wait_time": 1,
            # Else it would listen to where its own master publishes.
            "publish_port": above.ports["publish_port"],
        }
        super().__init__("salt-minion", home, mine)
        self.program = "salt-syndic"

    def _as_user(self, argv):
        # It becomes the user of its master.
        return as_packaged.as_user(argv)


class Scene:
    def __init__(self, path):
        self.home = path
        # What the upper master has published.
        self.jids = []
        self.above = Master(path / "above", order_masters=True)
        upward = {
            "syndic_master": "127.0.0.1",
            "syndic_master_port": self.above.ports["ret_port"],
            "syndic_log_file": str(path / "below" / "syndic.log"),
            "syndic_pidfile": str(path / "below" / "syndic.pid"),
        }
        self.below = Master(path / "below", **upward)
        self.syndic = Syndic(self.below, self.above)
        home = path / "m1"
        options = minion_options(home, Guest.database_of(home), multiprocessing=False)
        options["safeupdate"] |= {"watch_timeout": 120, "restart_timeout": 120}
        options |= {"enable_fqdns_grains": False}
        self.guest = Guest("m1", home, self.below, options, INSTALLED, AVAILABLE)
        self.all = (self.above, self.below, self.syndic, self.guest)

    def start(self):
        self.above.start()
        self.below.start()
        wait_for(self.above.reachable, "the master of masters")
        wait_for(self.below.reachable, "the master below")
        self.guest.start()
        wait_for(lambda: self.below.ping(["m1"]), "the minion, by its master")
        if FORWARDS:
            self.syndic.start()
            wait_for(self.forwarded, "the minion, by the syndic")
        return self

    def forwarded(self):
        """Tell whether what the upper master publishes comes to the minion, and back."""
        # A busy master may not take it in time: whoever waits asks again.
        with (
            contextlib.suppress(salt.exceptions.SaltClientError),
            salt.client.LocalClient(mopts=self.above.opts) as client,
        ):
            sent = client.pub(["m1"], "test.ping", tgt_type="list", timeout=LONGEST)
            self.jids.append(sent["jid"])
            return any("m1" in client.get_cache_returns(jid) for jid in self.jids)
        return False

    def stop(self):
        for daemon in reversed(self.all):
            daemon.kill()


@pytest.fixture
def scene(tmp_path_factory):
    made = Scene(tmp_path_factory.mktemp("syndics"))
    try:
        yield made.start()
    finally:
        made.stop()


def test_minions_below_a_syndic_are_updated_from_the_master_of_their_syndic(scene):
    where = "begin it on the master of their syndic"
    # The upper master reaches the minion by jobs, and drives no rollout there: it has the key of
    # the syndic only, which is no minion that is away.
    for target in ("m1", "*"):
        said = str(scene.above.runner("rollout", target, background=True, **WANTED))
        assert where in said, said
        assert "Nothing was started" in said, said
    assert ("it is a syndic" in said) is FORWARDS
    assert scene.above.runner("status") == {}
    assert scene.guest.phase() == ""

    begun = scene.below.runner("rollout", "*", background=True, **WANTED)
    assert begun.get("rollout"), begun
    name = begun["rollout"]
    status = {}

    def ended():
        status.update(scene.below.runner("status", name, rows=True))
        return status["mode"] in ("finished", "stopped")

    wait_for(ended, "the rollout on the master of the syndic")
    assert (status["mode"], status["exit_status"]) == ("finished", 0), status
    assert [row["minion"] for row in status["rows"]] == ["m1"]
    assert scene.guest.database.installed == dict.fromkeys(INSTALLED, NEW)
    assert scene.guest.phase() == "committed"
    if FORWARDS:
        wait_for(scene.forwarded, "the minion, by the syndic")
