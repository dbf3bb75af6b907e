"""Two minions of one host: a master publishes one job under one JID to both."""

import pytest
import salt.payload

from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs.admission import Admission
from saltext_safeupdate.minion.complaints import Complaints
from saltext_safeupdate.minion.intake import Intake
from saltext_safeupdate.minion.job_process import JobProcess
from saltext_safeupdate.minion.returns import Returns
from saltext_safeupdate.minion.succession import Succession
from saltext_safeupdate.this_host import Host, enabled
from tests.support.state_runs import no_runs

from .conftest import JID, World


class OneOfTwo(World):
    """The minion of this configuration, with the settings that its host gives it."""

    def __init__(self, path, config):
        super().__init__(path / config)
        opts = {"conf_file": f"/etc/{config}/minion", "root_dir": str(path)}
        self.settings = Host(opts).settings
        complaints = Complaints()
        made = Host(opts)
        admission = Admission(made.settings, made.store, complain=complaints.tell)
        succession = Succession(made.settings, made.store, complaints)
        self.intake = Intake(
            made.settings, complaints, self.tickets, admission, succession, no_runs()
        )
        redirect = self.redirected.append
        self.job_process = JobProcess(self.settings, complaints, self.tickets, admission, redirect)
        self.returns = Returns(self.settings, complaints)
        self.ledger = made.ledger


@pytest.fixture
def both(tmp_path):
    return OneOfTwo(tmp_path, "salt2"), OneOfTwo(tmp_path, "venv-salt-minion")


def test_both_run_what_is_published_to_both(both):
    assert [world.publish("20260101000000000001") is not None for world in both] == [True, True]
    # And each of them once.
    assert [world.publish("20260101000000000001") for world in both] == [None, None]


def test_the_returns_of_both_wait_for_a_master_that_is_away(both):
    for number, world in enumerate(both):
        # So Salt says that no master has answered.
        world.minion.acknowledge = ""
        world.run(world.publish(), f"return of {number}")
    assert [world.states() for world in both] == [{JID: "finished"}, {JID: "finished"}]
    for number, world in enumerate(both):
        assert salt.payload.loads(world.ledger.full(JID).payload)["return"] == f"return of {number}"
    # It has one of them.
    both[0].ledger.delivered(JID)
    assert [world.states() for world in both] == [{JID: "delivered"}, {JID: "finished"}]


def test_what_holds_the_jobs_of_one_holds_none_of_the_other(both):
    one, other = both
    held = locks.acquire(one.settings.run_dir, "drain", "held")
    assert one.publish() is None
    assert other.publish() is not None
    held.close()
    assert one.states() == {JID: "held"}
    assert other.states() == {JID: "accepted"}


def test_a_job_of_one_does_not_keep_the_other_from_restarting(both):
    one, other = both
    lock = locks.Lock(one.settings.run_dir, "jobs")
    assert lock.try_shared()
    assert locks.Lock(other.settings.run_dir, "jobs").try_exclusive()


def test_a_proxy_has_no_part_in_it():
    """Its jobs do not pass the hooks of the intake, and its engine would be the minion's."""
    opts = {"engines": [{"safeupdate": {}}], "module_executors": ["safeupdate", "direct_call"]}
    assert enabled({**opts, "conf_file": "/etc/salt/minion"})
    assert not enabled({**opts, "conf_file": "/etc/salt/proxy"})
    assert not enabled({**opts, "proxy": {"proxytype": "dummy"}})
