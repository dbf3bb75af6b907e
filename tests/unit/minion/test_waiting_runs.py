"""A state run that waits for another one: when it goes back to the queue, and when not."""

from contextlib import nullcontext

import pytest
import salt.payload
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.core.host import drained, locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.record.parts import Progress
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.minion import queues
from saltext_safeupdate.minion.waiting_runs import GoesBack, WaitingRuns
from tests.support.state_runs import no_runs

from .conftest import JID, OTHER_JID

OTHERS = [{"jid": OTHER_JID, "pid": 1, "fun": "state.apply"}]


@pytest.fixture
def look(world):
    """Return a function that looks once at what the job waits for."""
    process = world.job_process
    runs = WaitingRuns(world.settings, process._complaints, process._admission, no_runs())

    def look(jid=JID, found=OTHERS, **opts):
        given = {**world.minion.opts, **opts}
        return runs.prior(lambda opts, jid, active: active, given, jid, found)

    return look


@pytest.fixture
def waits(world):
    """A state run whose function only waits."""
    world.publish(fun="state.apply", arg=["x", {"__kwarg__": True, "queue": 2}])
    current.begin(current.Job(jid=JID, lock=None, key=JID, may_go_back=True))
    return current.get()


@pytest.mark.usefixtures("waits", "drain")
def test_it_goes_back_while_an_update_holds_jobs(world, look):
    with pytest.raises(GoesBack):
        look()
    (job,) = queues.listed(world.minion.opts)
    assert job["arg"] == salt.payload.loads(world.ledger.full(JID).call)["arg"]


@pytest.mark.usefixtures("waits", "drain")
def test_what_waits_for_nothing_more_begins(world, look):
    assert look(found=[]) == []
    assert queues.listed(world.minion.opts) == []


@pytest.mark.usefixtures("waits")
@pytest.mark.parametrize("by", ["nobody", "an administrator"])
def test_without_an_update_it_waits(world, look, by):
    if by != "nobody":
        drained.begin(world.settings.run_dir, 600, "")
    assert look() == OTHERS


@pytest.mark.usefixtures("drain")
def test_a_run_inside_a_job_that_has_begun_waits(look, waits):
    assert look(jid="another") == OTHERS
    waits.may_go_back = False
    assert look() == OTHERS


@pytest.mark.usefixtures("waits", "drain")
def test_what_cannot_be_put_into_the_queue_waits(world, look, tmp_path, caplog):
    (tmp_path / "full").write_text("")
    assert look(cachedir=str(tmp_path / "full")) == OTHERS
    assert "still waits" in caplog.text


@pytest.mark.usefixtures("drain")
def test_salt_call_says_why_it_does_not_wait(look):
    assert look(fun="state.apply") == OTHERS, "no job of ours"
    current.begin(current.Job(jid="", lock=None))
    with pytest.raises(CommandExecutionError, match="Nothing was done"):
        look(fun="state.apply")
    assert look(fun="deploy.all") == OTHERS, "it may have begun"


@pytest.mark.parametrize(
    ("phase", "beside", "refused"),
    [(Phase.WAITING, ("1",), True), (Phase.WAITING, (), False), (Phase.WATCHING, ("1",), False)],
)
def test_salt_call_does_not_wait_for_a_run_that_waits_for_it(world, look, phase, beside, refused):
    """It reads the code that an update beside jobs is about to change."""
    share = locks.share(world.settings.run_dir, "packages")
    current.begin(current.Job(jid="", lock=None, packages=share))
    progress = Progress(beside=beside)
    Store(world.settings.database).save(
        Update(id="u1", kind="update", phase=phase, created=1.0, progress=progress)
    )
    with pytest.raises(CommandExecutionError) if refused else nullcontext():
        assert look(fun="state.apply") == OTHERS
    current.end()
