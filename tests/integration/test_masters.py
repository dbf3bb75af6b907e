"""
A minion with two masters: jobs of either are held and return to whoever sent them.

The masters keep their jobs elsewhere than masters do by default: the first asks the minions for a
copy of each return, the second has another job cache. They take signed returns only. The minions
give a copy of every return to a returner of their own.
"""

import json
import shutil
from pathlib import Path

import pytest
import salt.utils.event

from devtools import as_packaged
from saltext_safeupdate.core.generations.generation import Probe
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.record.store import Store
from tests.integration.conftest import MASTER, PackagedMaster
from tests.support.masters import silenced
from tests.support.minion import MODULES
from tests.support.waiting import wait_for

BOTH = ("install", "salt-common", "salt-minion")
UPDATE = """
first:
  note.that: []
own:
  pkg.latest:
    - name: salt-minion
"""


@pytest.fixture(scope="module")
def masters(salt_factories, site):
    site.sls("it", UPDATE)
    overrides = {
        "file_roots": {"base": [str(site.roots)]},
        "worker_threads": 3,
        # Salt cuts such job IDs off in its queues.
        "unique_jid": True,
        # Where it is not so, saltfactories starts a program for each time that a minion asks.
        "auto_accept": True,
        "require_minion_sign_messages": True,
        "drop_messages_signature_fail": True,
        # Masters have no default for it, and fail at each return that is signed.
        "signing_algorithm": "PKCS1v15-SHA1",
        "module_dirs": [str(MODULES)],
        **MASTER,
    }
    caches = [{"ext_job_cache": "noted"}, {"master_job_cache": "noted"}]
    here, there = (
        {**cache, "noted_jobs": str(site.path / f"noted{n}")} for n, cache in enumerate(caches)
    )
    # There they note returns.
    shutil.chown(site.path, as_packaged.USER)
    first = salt_factories.salt_master_daemon(
        "master-a", factory_class=PackagedMaster, overrides={**overrides, **here}
    )
    with first.started():
        # Salt's own look at the connection knows one port of all masters.
        at = {"interface": "127.0.0.2", "publish_port": first.config["publish_port"]}
        second = salt_factories.salt_master_daemon(
            "master-b", factory_class=PackagedMaster, overrides={**overrides, **there, **at}
        )
        # Salt wants one key for all masters of a minion.
        for name in ("master.pem", "master.pub"):
            shutil.copy(Path(first.config["pki_dir"], name), second.config["pki_dir"])
        with second.started():
            yield first, second


@pytest.fixture(scope="module")
def guest(masters, make_guest):
    return make_guest(
        masters[0],
        "both",
        master=_addresses(masters),
        master_type="str",
        multiprocessing=True,
        state_queue=True,
        # What waits for a master that says nothing.
        return_retry_timer=3,
        return_retry_timer_max=3,
        return_retry_tries=1,
        **_noting(masters[0]),
    )


def _noting(master):
    """Return the options of a minion that signs, and notes its returns where this master looks."""
    noting = {"noted_jobs": master.config["noted_jobs"], "return": "noted"}
    return {**noting, "minion_sign_messages": True}


def _addresses(masters):
    return [f"{master.config['interface']}:{master.config['ret_port']}" for master in masters]


def test_an_update_for_one_holds_and_returns_the_jobs_of_the_other(masters, guest):
    first, second = masters
    for master in masters:
        wait_for(lambda m=master: guest.run("test.ping", by=m) is True, "a minion")
    locks_dir = str(guest.database.path.parent / "locks")
    # The update waits for this one, and while it waits, new jobs are held.
    guest.begin("probe.wait_for", "go", by=second)
    wait_for(lambda: ("note", "waiting") in guest.journal(), "the long job")
    guest.begin("state.apply", "it", by=first)
    wait_for(lambda: locks.held(locks_dir, "drain"), "the drain")
    held = [
        guest.begin("probe.note", f"held {number}", by=master)
        for number, master in enumerate(masters)
    ]
    assert all(held)
    queue = guest.database.path.parent
    wait_for(lambda: _held(guest, 2), "two held jobs")
    assert BOTH not in guest.journal()
    (queue / "go").touch()
    wait_for(guest.restarted, "the restart")
    for number in range(2):
        wait_for(lambda n=number: ("note", f"held {n}") in guest.journal(), "a held job")
    journal = guest.journal()
    assert journal.index(("note", "first")) < journal.index(BOTH)
    assert max(journal.index(BOTH), journal.index(("minion restarts",))) < min(
        journal.index(("note", f"held {number}")) for number in range(2)
    )
    # Each return is with the master that sent the job.
    for master, functions in zip(
        masters, ({"state.apply", "probe.note"}, {"probe.wait_for", "probe.note"}), strict=True
    ):
        wait_for(lambda m=master, f=functions: f <= _returned(m, guest), "the returns")
        # No other job has come of them.
        assert all("_" in jid for jid in _jids(master))

    # The first cache is written by the minion, whether its master has the return or not.
    ledger = Ledger(str(guest.path / "state" / "safeupdate.db"))
    wait_for(lambda: not ledger.open(), "the masters to have all returns")
    wait_for(lambda: _returns(masters[0], guest, "probe.note") == 2, "the returner to have them")
    _assert_noted_once(masters[0], guest)

    # One that does not arrive goes to the returner all the same, and later to its master only.
    guest.begin("probe.wait_for", "gone", by=second)
    wait_for(lambda: guest.journal().count(("note", "waiting")) == 2, "the second long job")
    with silenced(masters[1].pid):
        (queue / "gone").touch()
        wait_for(lambda: _returns(masters[0], guest, "probe.wait_for") == 2, "the returner")
        assert [job.fun for job in ledger.undelivered()] == ["probe.wait_for"]
    wait_for(lambda: _returns(masters[1], guest, "probe.wait_for") >= 2, "its master")
    wait_for(lambda: not ledger.open(), "the minion to hear of it")
    _assert_noted_once(masters[0], guest)


@pytest.mark.soak
def test_after_a_switch_the_present_master_has_what_was_the_others(masters, make_guest):
    guest = make_guest(
        masters[0],
        "switching",
        master=_addresses(masters),
        master_type="failover",
        # Without an interval 3006 and 3007 look at the connection all the time.
        master_alive_interval=3600,
        publish_port=masters[0].config["publish_port"],
        # What waits for a master that is gone.
        auth_timeout=3,
        return_retry_timer=1,
        return_retry_timer_max=1,
        return_retry_tries=1,
        **_noting(masters[0]),
    )
    first, second = masters
    wait_for(lambda: guest.run("test.ping") is True, "the minion")
    locks_dir = str(guest.path / "locks")
    store = Store(str(guest.path / "state" / "safeupdate.db"))
    # The main process notes it when it next looks into its queue.
    wait_for(lambda: _noted(store) == (("127.0.0.1", True),), "its master")

    supervisor = locks.acquire(locks_dir, "supervisor", "")
    _prove(store, "20260101000000000001")
    guest.begin("probe.wait_for", "go")
    wait_for(lambda: ("note", "waiting") in guest.journal(), "the long job")
    drain = locks.acquire(locks_dir, "drain", "")
    guest.begin("probe.note", "held")
    wait_for(lambda: _held(guest, 1), "a held job")

    first.terminate()
    # What that look fires.
    with salt.utils.event.get_event("minion", opts=guest.daemon.config) as bus:
        bus.fire_event({"master": "127.0.0.1"}, "__master_disconnected")
    wait_for(lambda: _noted(store) == (("127.0.0.2", True),), "the other master")
    (guest.path / "go").touch()
    drain.close()
    wait_for(lambda: ("note", "held") in guest.journal(), "the held job")
    _prove(store, "20260101000000000002")
    supervisor.close()
    wait_for(
        lambda: {"probe.wait_for", "probe.note"} <= _returned(masters[1], guest), "the returns"
    )
    assert guest.run("test.ping", by=second) is True
    wait_for(lambda: _returns(masters[0], guest, "probe.note") == 1, "the returner to have it")
    _assert_noted_once(masters[0], guest)


def _noted(store):
    """Return the masters that the minion has, by its own record."""
    serving = Generations(store).serving()
    return serving and serving.masters


def _prove(store, jid):
    """Ask for a job as the supervisor does; its master has the return."""
    ledger = Ledger(store.path)
    generations = Generations(store)
    probe = Probe(jid=jid, fun="test.echo", arg=("here",))
    generations.ask(generations.serving().process, probe)
    wait_for(lambda: ledger.outcome(jid) == (State.DELIVERED, 0), "the probe")


def _held(guest, number):
    queues = Path(guest.daemon.config["cachedir"]).rglob("job_queue/queued_*.p")
    return len(list(queues)) >= number


def _cached(master):
    path = Path(master.config["noted_jobs"])
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _jids(master):
    """Return the job IDs in the job cache of this master."""
    return {jid for _, jid, _ in _cached(master)}


def _all_returned(master, guest):
    """Return job IDs and functions that the minion has answered to this master, by its cache."""
    return [
        (jid, value["fun"])
        for kind, jid, value in _cached(master)
        if kind == "return" and value["id"] == guest.id
    ]


def _returned(master, guest):
    return {fun for _, fun in _all_returned(master, guest)}


def _returns(master, guest, function):
    return [fun for _, fun in _all_returned(master, guest)].count(function)


def _assert_noted_once(master, guest):
    """No return has been given to the returner twice: this master's cache is the returner's."""
    noted = _all_returned(master, guest)
    assert sorted(set(noted)) == sorted(noted)
