"""Real minions: startup states over several starts, and minions whose locks do not work."""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import salt.payload
import salt.utils.jid
import yaml

from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.minion import queues
from tests.support.fleet import free_ports
from tests.support.locking import is_free
from tests.support.minion import MODULES
from tests.support.real_minion import SHELL
from tests.support.waiting import wait_for

from .masterless import Masterless, scheduled

as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="a directory of another user is made by the superuser"
)


@pytest.fixture
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("m")


@pytest.fixture
def make(place):
    made = []

    def masterless(**options):
        made.append(Masterless(place, **options))
        return made[-1]

    yield masterless
    for each in made:
        each.kill()


def test_startup_states_run_at_each_of_three_starts_and_held_jobs_once(make, place):
    """
    Jobs are processes at first and at last, and threads in between. Their returns go to a returner
    and to nobody else: each once, and that of an interrupted job from the engine.
    """
    cache = place / "returned"
    minion = make(
        **{"return": "noted", "pub_ret": False, "noted_jobs": str(cache)},
        module_dirs=[str(MODULES)],
    )
    ledger = Ledger(minion.settings.database)
    jid = salt.utils.jid.gen_jid({"unique_jid": True})
    minion.start()
    minion.wait_for("startup", 1)
    minion.queue(jid, "queued")
    minion.wait_for("queued", 1)
    wait_for(lambda: [job.state for job in ledger.find(jid)] == [State.DELIVERED], "the job's end")
    broken = salt.utils.jid.gen_jid({"unique_jid": True})
    queues.put(minion.opts, {"jid": broken, "fun": "test.sleep", "arg": [600], "ret": ""})
    # Before its function has begun, it would run again.
    wait_for(lambda: _begun(ledger, broken), "a job")
    minion.kill()
    # While jobs are held, also over another start.
    drain = locks.acquire(minion.settings.run_dir, "drain", "")
    held = salt.utils.jid.gen_jid({"unique_jid": True})
    minion.queue(held, "held")
    for starts in (1, 2):
        minion.start(multiprocessing=False)
        wait_for(lambda n=starts: minion.log().count("job req is held") >= n, "a hold", 240)
        if starts == 1:
            minion.kill()
    assert minion.queued() == {"req", held}
    assert (minion.notes("startup"), minion.notes("held")) == (1, 0)
    drain.close()
    minion.wait_for("held", 1)
    minion.wait_for("startup", 2)
    minion.kill()
    minion.start()
    minion.wait_for("startup", 3)
    assert (minion.notes("queued"), minion.notes("held")) == (1, 1)
    # Nothing of them is open.
    wait_for(lambda: ledger.open() == [], "an end")
    assert minion.queued() == set()
    wait_for(lambda: broken in _returned(cache), "what became of the job that was interrupted")
    returned = _returned(cache)
    assert [returned.count(each) for each in (jid, broken, held)] == [1, 1, 1]


def _begun(ledger, jid):
    return [(job.state, job.has_begun) for job in ledger.find(jid)] == [(State.RUNNING, True)]


def _returned(cache):
    """Return the JIDs of the returns that the returner of the minion got."""
    return [jid for _, jid, _ in map(json.loads, cache.read_text().splitlines())]


@pytest.mark.parametrize("again", [False, True], ids=["at the start", "started again"])
def test_an_engine_that_is_forked_during_the_job_of_a_thread_keeps_no_lock(make, place, again):
    """The thread has the open file in the main process, so the engine gets it, too."""
    minion, goes_on = make(), place / "goes-on"
    waits = f"while ! test -e {goes_on}; do sleep 0.1; done; {minion.noting('long')}"
    job = {"jid": salt.utils.jid.gen_jid({}), "fun": "cmd.run", "ret": ""}
    queues.put(minion.opts, {**job, "arg": [waits, *SHELL]})
    minion.start(multiprocessing=False)
    ledger, store = Ledger(minion.settings.database), Store(minion.settings.database)
    wait_for(lambda: _begun(ledger, job["jid"]), "the job")
    wait_for(lambda: Generations(store).report() is not None, "its engine")
    main = processes.pid(Generations(store).serving().process)
    # Until its program is executed, a child looks like an engine.
    wait_for(lambda: set(_children(main)) - set(_engines(main)), "the program of the job")
    engines = _engines(main)
    if again:
        for engine in engines:
            os.kill(engine, signal.SIGKILL)
        wait_for(lambda: set(_engines(main)) - set(engines), "the next one")
        wait_for(lambda: locks.held(minion.settings.run_dir, "engine"), "its work")
    assert not is_free(minion.settings.run_dir, "jobs"), "the job has a share"
    goes_on.touch()
    minion.wait_for("long", 1)
    wait_for(lambda: is_free(minion.settings.run_dir, "jobs"), "an end of all shares")


def _engines(main):
    """Return the children of a minion, except programs that its jobs have started."""
    return [child for child in _children(main) if _program(child) == _program(main)]


def _program(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except FileNotFoundError:
        return ""


@as_root
def test_a_minion_that_may_write_nothing_of_ours_works_as_plain_salt(make, place, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    shutil.chown(closed, 65534, 65534)
    minion = make(
        may_write=False,
        safeupdate={"state_dir": str(closed / "state"), "run_dir": str(closed / "run")},
        schedule=scheduled(place),
    )
    minion.start()
    minion.wait_for("startup", 1)
    minion.queue(salt.utils.jid.gen_jid({}), "queued")
    minion.wait_for("queued", 1)
    wait_for(lambda: minion.notes("scheduled") >= 3, "the schedule")
    assert list(closed.iterdir()) == []
    # The main process and the engine say so, each once a minute, and nothing fails.
    told = minion.log().count("cannot be used") + minion.log().count("cannot be made")
    assert 1 <= told <= 4, minion.log()
    assert "Traceback" not in minion.log()


@as_root
def test_the_engine_does_its_work_without_locks(make, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    shutil.chown(closed, 65534, 65534)
    minion = make(may_write=False, safeupdate={"run_dir": str(closed / "run")})
    ledger = Ledger(minion.settings.database)
    gone = {"jid": "20260101000000000000", "fun": "cmd.run", "arg": [minion.noting("again")]}
    gone["arg"].append({"__kwarg__": True, "python_shell": True})
    call = salt.payload.dumps({**gone, "ret": ""})
    # Accepted by a minion that died before it began.
    ledger.accept(
        gone["jid"], jid=gone["jid"], fun="cmd.run", master="salt", call=call, owner="x:1:1"
    )
    minion.start()
    minion.wait_for("again", 1)
    wait_for(lambda: ledger.open() == [], "its end")


def test_a_minion_that_reaches_no_master_has_its_engine_which_is_started_again(make):
    """The engine is put off until a master has been told of the start, which none is here."""
    minion = make(
        master="127.0.0.1", master_type="str", file_client="remote", master_port=free_ports(1)[0]
    )
    minion.start()
    store = Store(minion.settings.database)
    wait_for(lambda: store.exists() and Generations(store).report() is not None, "its engine")
    main = processes.pid(Generations(store).serving().process)
    [engine] = _children(main)
    os.kill(engine, signal.SIGKILL)
    wait_for(lambda: set(_children(main)) - {engine}, "the next one")


def test_a_minion_that_cannot_find_its_master_has_its_engine(make):
    """It sleeps for ever, and nothing else runs in its main process meanwhile."""
    minion = make(master="master.invalid", master_type="str", file_client="remote", retry_dns=600)
    minion.start()
    store = Store(minion.settings.database)
    wait_for(lambda: store.exists() and Generations(store).report() is not None, "its engine")


def _children(pid):
    """Return the processes that a process has begun."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(each) for task in tasks for each in (task / "children").read_text().split()]


@pytest.mark.parametrize("then", ["a crash", "a clone", "an old state"])
def test_a_state_run_continues_after_a_crash_only(make, place, then):
    """
    It does not on a clone, nor if the host is set back by more than a day: it may have returned.
    """
    minion, seen, go = make(), place / "hardware", place / "go"
    state_dir, boot = minion.settings.state_dir, place / "boot"
    seen.write_text("the same")
    boot.write_text("first")
    minion.prelude = (
        "import os; from saltext_safeupdate.core.jobs import copied\n"
        f"copied.HARDWARE, copied.OF_HOST = {str(seen)!r}, os.stat(copied.NAMESPACE).st_ino\n"
        f"copied.processes.boot = lambda: open({str(boot)!r}).read()\n"
    )
    states = {
        "first": {"cmd.run": [{"name": minion.noting("first")}]},
        "long": {"cmd.run": [{"name": f"{minion.noting('long')}; test -e {go} || sleep 600"}]},
        "last": {"cmd.run": [{"name": minion.noting("last")}]},
    }
    minion.start()
    minion.wait_for("startup", 1)
    (place / "srv" / "run.sls").write_text(yaml.safe_dump(states, sort_keys=False))
    jid = salt.utils.jid.gen_jid({"unique_jid": True})
    queues.put(minion.opts, {"jid": jid, "fun": "state.apply", "arg": ["run"], "ret": ""})
    minion.wait_for("long", 1)
    minion.kill()
    shutil.copytree(state_dir, place / "old")
    seen.write_text("another" if then == "a clone" else "the same")
    go.touch()
    minion.start()
    own = [salt.utils.jid.gen_jid({"unique_jid": True}) for _ in range(2)]
    minion.queue(own[0], "own")
    minion.wait_for("own", 1)
    ledger = Ledger(minion.settings.database)
    if then == "a clone":
        assert f"is a copy of another one: its jobs ({jid} state.apply)" in minion.log()
        assert ledger.outcome(jid)[0] is State.DELIVERED
        assert minion.notes("last") == 0
    else:
        minion.wait_for("last", 1)
        wait_for(lambda: ledger.outcome(jid)[0] is State.DELIVERED, "its return")
    if then == "an old state":
        minion.kill()
        shutil.rmtree(state_dir)
        shutil.copytree(place / "old", state_dir)
        with ledger.transaction() as db:
            db.execute("UPDATE jobs SET changed = changed - 2 * 86400")
        boot.write_text("second")
        minion.start()
        minion.queue(own[1], "own")
        minion.wait_for("own", 2)
        wait_for(lambda: ledger.outcome(jid)[0] is State.FINISHED, "its report")
        assert b"was set back" in ledger.full(ledger.find(jid)[0].key).payload
        assert minion.notes("last") == 1
    assert minion.notes("first") == 1
