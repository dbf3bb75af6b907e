"""A minion with two masters: jobs of either are held and return to whoever sent them."""

import shutil
from pathlib import Path

import pytest
import salt.payload

from saltext_safeupdate.core.host import locks
from tests.integration.conftest import LOGS
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
        # Job IDs that Salt cuts off in its queues, and returns that are signed.
        "unique_jid": True,
        "require_minion_sign_messages": True,
        **LOGS,
    }
    first = salt_factories.salt_master_daemon("master-a", overrides=overrides)
    with first.started():
        second = salt_factories.salt_master_daemon(
            "master-b", overrides=overrides, defaults={"interface": "127.0.0.1"}
        )
        # Salt wants one key for all masters of a minion.
        for name in ("master.pem", "master.pub"):
            shutil.copy(Path(first.config["pki_dir"], name), second.config["pki_dir"])
        with second.started():
            yield first, second


@pytest.fixture(scope="module")
def guest(masters, make_guest):
    addresses = [f"127.0.0.1:{master.config['ret_port']}" for master in masters]
    return make_guest(
        masters[0],
        "both",
        master=addresses,
        master_type="str",
        multiprocessing=True,
        minion_sign_messages=True,
    )


def test_an_update_for_one_holds_and_returns_the_jobs_of_the_other(masters, guest):
    first, second = (master.salt_cli(timeout=120) for master in masters)
    for master in (first, second):
        wait_for(lambda m=master: m.run("test.ping", minion_tgt=guest.id).data is True, "a minion")
    locks_dir = str(guest.database.path.parent / "locks")
    # The update waits for this one, and while it waits, new jobs are held.
    second.run("probe.wait_for", "go", "--async", minion_tgt=guest.id)
    wait_for(lambda: ("note", "waiting") in guest.journal(), "the long job")
    first.run("state.apply", "it", "--async", minion_tgt=guest.id)
    wait_for(lambda: locks.held(locks_dir, "drain"), "the drain")
    held = [
        master.run("probe.note", f"held {number}", "--async", minion_tgt=guest.id)
        for number, master in enumerate((first, second))
    ]
    assert all(job.returncode == 0 for job in held)
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


def _held(guest, number):
    queues = Path(guest.daemon.config["cachedir"]).rglob("job_queue/queued_*.p")
    return len(list(queues)) >= number


def _jids(master):
    """Return the job IDs in the job cache of this master."""
    return [path.read_text() for path in Path(master.config["cachedir"], "jobs").glob("*/*/jid")]


def _returned(master, guest):
    """Return the functions that the minion has answered to this master, by its job cache."""
    jobs = Path(master.config["cachedir"], "jobs").glob("*/*/.load.p")
    return {
        salt.payload.loads(job.read_bytes())["fun"]
        for job in jobs
        if (job.parent / guest.id / "return.p").exists()
    }
