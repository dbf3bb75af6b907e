"""The table of what takes the place of functions of Salt in the minion."""

import contextlib
import inspect

import pytest
import salt.minion
import salt.utils.event
import salt.utils.minion
import salt.utils.network
import salt.utils.process
import salt.utils.schedule
import salt.utils.state
from salt.exceptions import CommandExecutionError

from saltext_safeupdate import patches
from saltext_safeupdate.core.generations.generation import Standing
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs import current, functions
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.minion import patches as minion_patches
from saltext_safeupdate.minion import proc_files, queues
from saltext_safeupdate.minion.returns import without_payload

from .conftest import JID


@pytest.fixture
def settings(tmp_path):
    return Settings(state_dir=str(tmp_path / "state"), run_dir=str(tmp_path / "run"))


@pytest.fixture
def salts_own():
    """Put back what is replaced in Salt."""
    places = (
        salt.minion.Minion,
        salt.utils.schedule.Schedule,
        salt.utils.event.SaltEvent,
        salt.utils.process.ProcessManager,
        salt.utils.state,
        salt.utils.minion,
        salt.utils.network,
    )
    before = [dict(vars(place)) for place in places]
    yield dict(zip(places, before, strict=True))
    salt.minion.log.removeFilter(without_payload)
    for place, names in zip(places, before, strict=True):
        for name, value in vars(place).copy().items():
            if names.get(name) is not value:
                setattr(place, name, names[name])


def _table(settings, **kwargs):
    return minion_patches.patches(settings, lambda copies: None, **kwargs)


def test_this_salt_is_known(settings):
    assert patches.differences(_table(settings)) == []


@pytest.mark.usefixtures("salts_own")
def test_a_replacement_looks_like_what_it_replaces(settings):
    table = _table(settings)
    before = {row.place: vars(row.owner)[row.name] for row in table}
    patches.apply(table)
    for row in table:
        own, now = before[row.place], vars(row.owner)[row.name]
        assert type(now) is type(own)
        assert inspect.signature(getattr(row.owner, row.name)) == inspect.signature(
            getattr(own, "__func__", own)
        ) or isinstance(own, classmethod)
        assert getattr(row.owner, row.name).__name__ == row.name
    assert patches.differences(table) == []


def _minion(tmp_path):
    minion = object.__new__(salt.minion.Minion)
    minion.opts = {
        "id": "m1",
        "master": "m",
        "cachedir": str(tmp_path / "cache"),
        "multiprocessing": True,
    }
    return minion


@pytest.mark.usefixtures("salts_own")
def test_a_job_that_salt_starts_passes_the_intake(settings, tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(
        salt.minion.Minion, "_invoke_execution", lambda self, data: started.append(data)
    )
    table = [row for row in _table(settings) if row.name == "_invoke_execution"]
    # Its stand-in takes the same parameters.
    patches.apply(table)
    minion = _minion(tmp_path)
    for _ in range(2):
        minion._invoke_execution({"jid": JID, "fun": "cmd.run", "arg": []})
    assert [data["jid"] for data in started] == [JID], "it is known"


@pytest.mark.usefixtures("salts_own")
def test_a_job_that_is_held_does_not_start_by_an_error_of_ours(settings, tmp_path, monkeypatch):
    """It would run now and later. Before it is held, it runs as with plain Salt."""

    def fails(*_):
        raise RuntimeError("ours")

    started, queued = [], []
    minion_class = salt.minion.Minion
    monkeypatch.setattr(minion_class, "_invoke_execution", lambda self, data: started.append(data))
    monkeypatch.setattr(minion_class, "_queue_job", lambda self, data: queued.append(data))
    names = ("_invoke_execution", "_queue_job")
    patches.apply([row for row in _table(settings) if row.name in names])
    monkeypatch.setattr(patches, "_troubles", {})
    monkeypatch.setattr(queues, "find", fails)
    drain = locks.acquire(settings.run_dir, "drain", "")
    minion = _minion(tmp_path)
    minion._invoke_execution({"jid": JID, "fun": "cmd.run", "arg": []})
    assert (len(started), len(queued)) == (0, 1)
    monkeypatch.setattr(functions, "starts_at_once", fails)
    minion._invoke_execution({"jid": JID[:-1] + "9", "fun": "cmd.run", "arg": []})
    assert (len(started), len(queued)) == (1, 1)
    drain.close()
    assert set(patches.troubles().values()) == {"RuntimeError: ours"}


@pytest.mark.parametrize("hands_over", [False, True])
def test_only_one_that_may_be_handed_over_looks_at_events(settings, salts_own, hands_over):
    minion = salt.minion.Minion
    patches.apply(_table(settings, hands_over=hands_over))
    plain = vars(minion)["handle_event"] is salts_own[minion]["handle_event"]
    assert plain is not hands_over


def test_no_salt_call_looks_at_events_though_its_minion_follows_another_one(settings, salts_own):
    Generations(Store(settings.database)).begins(processes.me())
    Generations(Store(settings.database)).stands(processes.me(), Standing.OVERLAPPING)
    minion = salt.minion.Minion
    assert _replaces_events(settings)
    patches.apply(_table(settings, hands_over=True, serves=False))
    assert vars(minion)["handle_event"] is salts_own[minion]["handle_event"]


def _replaces_events(settings, **kwargs):
    (row,) = [row for row in _table(settings, **kwargs) if row.name == "handle_event"]
    return row.replace is not patches.unchanged


@pytest.mark.usefixtures("salts_own")
def test_what_a_salt_call_asks_of_other_runs_builds_nothing(settings, monkeypatch):
    """Only if there is a run to wait for, what looks after jobs has to say something to that."""
    built = []
    monkeypatch.setattr(patches.Later, "parts", lambda self: built.append(self) or _Waits())
    monkeypatch.setattr(salt.utils.minion, "running", lambda opts: [opts])
    prior = {"none": [], "one": ["one"]}
    monkeypatch.setattr(
        salt.utils.state,
        "check_prior_running_states",
        lambda opts, jid, active_jobs: prior[jid],
    )
    patches.apply(_table(settings, serves=False))
    assert salt.utils.minion.running({}) == [{}]
    assert salt.utils.state.check_prior_running_states({}, "none", []) == []
    assert built == []
    assert salt.utils.state.check_prior_running_states({}, "one", []) == ["one", "waits"]
    assert len(built) == 1


class _Waits:
    """Says something to the runs that Salt has found."""

    @staticmethod
    def prior(original, *known):
        return [*original(*known), "waits"]


@pytest.mark.usefixtures("salts_own")
def test_the_schedule_rests_while_jobs_are_held(settings, monkeypatch):
    looked = []
    schedule = salt.utils.schedule.Schedule
    monkeypatch.setattr(
        schedule, "eval", lambda self, now=None: looked.append([now, *self._get_schedule()])
    )
    monkeypatch.setattr(
        schedule, "_run_job", lambda self, func, data, jid=None: looked.append(func)
    )
    patches.apply([row for row in _table(settings) if row.owner is schedule])
    one = object.__new__(schedule)
    one.opts = {"schedule": {"backup": {}, "__mine_interval": {}}}
    one.eval(1)
    one._run_job("f", {})
    assert looked == [[1, "backup", "__mine_interval"], "f"]
    drain = locks.acquire(settings.run_dir, "drain", "")
    one.eval(2)
    drain.close()
    jobs = locks.Lock(settings.run_dir, "jobs")
    assert jobs.try_exclusive(), "the scheduled job has given its share up"
    one._run_job("g", {})
    jobs.close()
    assert looked[2:] == [[2, "__mine_interval"]]


def test_a_run_that_cannot_go_on_is_not_run_by_salt_alone(settings):
    """An error of ours is contained everywhere else: Salt's function is called all the same."""
    current.begin(current.Job(jid=JID, lock=None, key=JID, lost=True))
    called = []

    def _execute_job_function(self, function_name, function_args, executors, opts, data):
        called.append(function_name)

    (row,) = [row for row in _table(settings) if row.name == "_execute_job_function"]
    try:
        with pytest.raises(CommandExecutionError, match="its record is gone"):
            row.replace(_execute_job_function)(None, "state.apply", [], [], {}, {})
    finally:
        current.end()
    assert called == []


@pytest.mark.parametrize(("times", "fails"), [(0, False), (3, False), (1000, True)])
def test_a_job_that_ends_while_a_minion_starts_does_not_fail_the_start(times, fails):
    """Salt lists the files of jobs, and one is gone when it is read."""
    asked = []

    def clean_proc_dir(opts):
        asked.append(opts)
        if len(asked) <= times:
            raise FileNotFoundError(2, "No such file or directory", "20260101000000000001")

    cleaning = patches.replaced(("opts",), proc_files.cleaned)(clean_proc_dir)
    with pytest.raises(FileNotFoundError) if fails else contextlib.nullcontext():
        cleaning({"cachedir": "/c"})
    assert len(asked) == (50 if fails else times + 1)
    assert asked[-1] == {"cachedir": "/c"}
