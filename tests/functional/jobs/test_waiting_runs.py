"""State runs with a number as their queue: an update would wait for what waits for it."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import salt.config
import salt.loader
import salt.minion
import salt.payload
import salt.utils.state

from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.jobs.suspension import Suspension, Suspensions
from saltext_safeupdate.minion import patches, publication, queues
from tests.unit.minion.conftest import JID, OTHER_JID, World

RUN = {"fun": "state.single", "arg": ["test.nop", {"__kwarg__": True, "name": "x", "queue": 2}]}


class Site(World):
    """A minion with Salt's own functions, while another state run of it goes on."""

    def __init__(self, path):
        super().__init__(path)
        self.minion.opts = {
            **salt.config.minion_config(None),
            **self.minion.opts,
            "__role": "minion",
            "extension_modules": str(path / "extmods"),
            "grains": {},
            "file_client": "local",
            "module_executors": ["direct_call"],
        }
        self.proc = Path(self.minion.opts["cachedir"], "proc", OTHER_JID)
        self.proc.parent.mkdir(parents=True)

    def run(self, data):
        """Do what the job's process does, with Salt's own code up to its function."""
        opts, returned = self.minion.opts, []
        functions = salt.loader.minion_mods(
            opts,
            utils=salt.loader.utils(opts),
            whitelist=["state", "saltutil", "config", "test"],
        )
        executors = salt.loader.executors(opts, functions)
        minion = SimpleNamespace(
            connected=False, opts=opts, functions=functions, executors=executors
        )

        def target(cls, minion_instance, opts, data, *rest):
            returned.append(
                self.job_process.function(
                    salt.minion.Minion._execute_job_function,
                    minion,
                    *(data["fun"], data["arg"], ["direct_call"], opts, data),
                )
            )

        lock = locks.share(self.settings.run_dir, "jobs")
        self.tickets[id(data)] = self.ticket._replace(lock=lock)
        try:
            self.job_process.target(target, None, self.minion, opts, data)
        finally:
            current.end()
        return returned[0]


@pytest.fixture
def site(tmp_path, monkeypatch):
    made = Site(tmp_path)
    module = salt.utils.state
    (patch,) = (
        row
        for row in patches.patches(made.settings, made.redirected.append)
        if (row.owner, row.name) == (module, "check_prior_running_states")
    )
    monkeypatch.setattr(module, patch.name, patch.replace(getattr(module, patch.name)))
    return made


@pytest.fixture
def other(site):
    """The state run that updates the minion in the end."""
    argv = [sys.executable, "-c", "print(flush=True); input()", "salt"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        noted = {"jid": OTHER_JID, "pid": process.pid, "fun": "state.apply"}
        site.proc.write_bytes(salt.payload.dumps(noted))
        yield process
        process.kill()


def test_an_update_does_not_wait_for_a_run_that_waits_for_it(site, other):
    """They waited for each other until 'jobs_timeout', and nothing was updated."""
    data = site.publish(**RUN)
    drain = locks.acquire(site.settings.run_dir, "drain", "")
    assert site.run(data) == {"__no_return__": True}
    alone = locks.Lock(site.settings.run_dir, "jobs")
    assert alone.try_exclusive(), "the update goes on"
    assert site.states() == {JID: "held"}
    (held,) = queues.listed(site.minion.opts)
    assert (held["fun"], held["arg"]) == (RUN["fun"], RUN["arg"])
    other.kill()
    site.proc.unlink()
    alone.close()
    drain.release()
    # The minion has restarted, and works on its queue.
    Path(queues.find(site.minion.opts, JID)).unlink()
    data = site.publish(queued=True, **held)
    (result,) = site.run(data).values()
    assert (result["result"], result["name"]) == (True, "x")


def test_a_run_that_goes_on_behind_a_restart_waits_for_one_that_began_first(site, other):
    """Salt would answer that the other one is running."""
    arg = ["test.nop", {"__kwarg__": True, "name": "x"}]
    site.publish(fun="state.single", arg=arg)
    assert site.ledger.begin(JID, "gone") == 1
    waits = Suspension(process="gone", until=0.0, timeout=1.0)
    assert Suspensions(site.settings.database).begin(JID, "tag", waits)
    assert site.ledger.put_back(JID, "gone")
    # The engine puts it into the queue, and the minion takes it out.
    assert site.ledger.take(site.ledger.full(JID), "engine")
    call = publication.behind_others(salt.payload.loads(site.ledger.full(JID).call))
    answer = site.run(site.publish(queued=True, **call))
    assert answer["__no_return__"], answer
    assert site.states() == {JID: "held"}
    assert queues.jids(site.minion.opts) == {JID}
    other.kill()
    site.proc.unlink()
    path = queues.find(site.minion.opts, JID)
    queued = queues.read(path)
    Path(path).unlink()
    (result,) = site.run(site.publish(queued=True, **queued)).values()
    assert (result["result"], result["name"]) == (True, "x")
