"""What happens when the hooks are put into a process."""

import functools
import importlib
import inspect
import logging
import os
import pathlib

import pytest
import salt.minion

from saltext_safeupdate import factory, hooks
from saltext_safeupdate.admin.status import check
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.core.prepare import known
from saltext_safeupdate.core.record import owner
from saltext_safeupdate.engines import safeupdate as engine
from saltext_safeupdate.executors import safeupdate as executor
from saltext_safeupdate.minion import engine as minion_engine
from saltext_safeupdate.minion import patches as minion_patches
from saltext_safeupdate.this_host import Host
from tests.support.forked import forked

# Seen here, because Salt starts programs when it is imported.
ROWS = {row.place: row for row in hooks._table(Host({"safeupdate": {}}))}


@pytest.fixture
def opts(tmp_path, monkeypatch):
    """The opts of a minion that is set up for the hooks, in a process that has none yet."""
    monkeypatch.setattr(hooks, "_installed", {})
    monkeypatch.setattr(hooks, "_stood_down", [])
    monkeypatch.setattr(hooks, "_foreign", [])
    return {
        "__role": "minion",
        "engines": [{"safeupdate": {}}],
        "safeupdate": {"state_dir": str(tmp_path / "state"), "run_dir": str(tmp_path / "run")},
    }


def _replaceable():
    return {place: vars(row.owner).get(row.name) for place, row in ROWS.items()}


def test_a_configuration_that_is_not_valid_is_logged_once_and_the_hooks_are_there(opts):
    opts["safeupdate"]["nonsense"] = 1

    def install(hear, say):
        said = []
        hooks.log.addHandler(handler := logging.Handler())
        handler.emit = lambda record: said.append(record.getMessage())
        hooks.log.setLevel(logging.ERROR)
        assert hooks.install(opts)
        assert hooks.install(opts)
        say(str(len(said)))
        say(said[0])

    # The hooks stay in the process that they are put into.
    with forked(install) as child:
        assert child.hear() == "1"
        said = child.hear()
        assert "'safeupdate:nonsense' does not exist" in said
        assert said.endswith("The default applies until that is corrected.")
        assert child.wait() == 0


def test_everything_of_the_table_is_replaced_in_this_salt(opts):
    before = _replaceable()

    def install(hear, say):
        assert hooks.install(opts)
        for place, own in _replaceable().items():
            if own is before[place]:
                say(place)

    with forked(install) as child:
        left = set(iter(child.hear, ""))
        assert child.wait() == 0
    assert left == {place for place in before if _only_called(place)}


def _only_called(place):
    """Tell whether a function of Salt is one that is needed and stays as it is."""
    if place.endswith(".fire_event_async"):
        return not inspect.iscoroutinefunction(vars(ROWS[place].owner)["fire_event_async"])
    return ROWS[place].replace is hooks.patches.unchanged


@pytest.mark.parametrize("place", sorted(ROWS))
def test_without_a_function_of_the_table_salt_is_left_as_it_is_and_jobs_run(
    opts, monkeypatch, caplog, place
):
    row = ROWS[place]
    monkeypatch.delattr(row.owner, row.name)
    before = _replaceable()
    monkeypatch.setattr(current, "_local", type(current._local)())
    drain = locks.acquire(opts["safeupdate"]["run_dir"], "drain", "")
    for jid in ("1", "2"):
        data = {"fun": "state.apply", "jid": jid}
        assert executor.execute(opts, data, lambda: None, [], {}) is None
    drain.close()
    assert current.get() is None
    assert _replaceable() == before
    assert f"{place} is not there" in hooks.stood_down()
    assert hooks.installed_by() == 0
    assert len([record for record in caplog.records if record.name == hooks.log.name]) == 1
    # Updates come to their end, and returns that wait are sent.
    monkeypatch.setattr(engine, "__opts__", opts, raising=False)
    assert engine.__virtual__() == "safeupdate"
    assert _started(engine, monkeypatch) == {"hooked": False, "late": False}


@pytest.mark.parametrize("place", sorted(ROWS))
def test_a_function_that_takes_more_than_now(monkeypatch, place):
    """Another patch release: what is new and may be left out is passed on, if it is given."""
    row = ROWS[place]
    function = vars(row.owner)[row.name]

    def newer(*args, **kwargs):
        return args, kwargs

    kind = type(function) if isinstance(function, classmethod) else lambda plain: plain
    monkeypatch.setattr(row.owner, row.name, kind(newer))
    told = inspect.signature(hooks.patches._told(getattr(function, "__func__", function)))
    newer.__signature__ = _with_more(told, inspect.Parameter.empty)
    assert hooks.patches.differences([row])
    newer.__signature__ = _with_more(told, None)
    assert hooks.patches.differences([row]) == []
    replacement = row.replace(newer)
    passes_on = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    assert replacement is newer or replacement.__code__.co_flags & passes_on == passes_on


def _with_more(signature, default):
    """Return the signature of a function that takes one more, by name."""
    more = inspect.Parameter("more", inspect.Parameter.KEYWORD_ONLY, default=default)
    listed = sorted([*signature.parameters.values(), more], key=lambda each: each.kind)
    return signature.replace(parameters=listed)


@pytest.mark.parametrize("place", sorted(ROWS))
@pytest.mark.parametrize("told", [True, False])
def test_what_another_extension_has_wrapped_before_is_known(monkeypatch, place, told):
    row = ROWS[place]
    function = vars(row.owner)[row.name]
    plain = getattr(function, "__func__", function)

    def theirs(*args, **kwargs):
        return plain(*args, **kwargs)

    if told:
        functools.update_wrapper(theirs, plain)
    kind = type(function) if isinstance(function, classmethod) else lambda plain: plain
    monkeypatch.setattr(row.owner, row.name, kind(theirs))
    assert hooks.patches.differences([row]) == []


def test_if_ours_cannot_be_loaded_salt_is_left_as_it_is(opts, monkeypatch, caplog):
    """Whatever is wrong: half an upgrade of this extension may fail in any way."""
    before = _replaceable()

    def fails(*_, **__):
        raise RuntimeError("half of it is there")

    monkeypatch.setattr(hooks.patches, "_troubles", {})
    monkeypatch.setattr(minion_patches, "patches", fails)
    for _ in range(2):
        assert executor.execute(opts, {"fun": "state.apply", "jid": "1"}, print, [], {}) is None
    assert _replaceable() == before
    assert "half of it is there" in hooks.stood_down()
    assert caplog.text.count("Traceback") == 1


def test_without_a_place_for_the_hooks_salt_is_left_as_it_is(opts, monkeypatch):
    monkeypatch.delattr(salt.minion, "Minion")
    assert not hooks.install(opts)
    assert "Minion" in hooks.stood_down()


def test_a_minion_that_is_not_set_up_for_them_gets_none_and_nothing_is_said(opts, monkeypatch):
    assert not hooks.install({**opts, "engines": []})
    assert hooks.stood_down() == ""
    monkeypatch.setattr(engine, "__opts__", {**opts, "__role": "master"}, raising=False)
    assert engine.__virtual__()[0] is False


def test_the_main_process_and_its_jobs_know_who_put_them_in(opts, monkeypatch):
    monkeypatch.setattr(hooks.patches, "apply", lambda table: None)
    assert hooks.install(opts)
    assert hooks.installed_by() > 0
    assert hooks.stood_down() == ""
    monkeypatch.setattr(engine, "__opts__", opts, raising=False)
    # The engine is a child of the main process; here it is the first that has them.
    assert _started(engine, monkeypatch) == {"hooked": False, "late": True}
    monkeypatch.setattr(hooks, "_installed", {"pid": os.getppid()})
    assert _started(engine, monkeypatch) == {"hooked": True, "late": False}
    assert minion_engine.has_master({**opts, "master_type": "str"}, hooked=True)
    assert not minion_engine.has_master({**opts, "master_type": "str"}, hooked=False)
    assert not minion_engine.has_master({**opts, "master_type": "disable"}, hooked=True)


def _started(engine, monkeypatch):
    """Return what the engine tells its loop of the hooks."""
    told = []

    def run(opts, functions, *, hooked, late, returners, table):
        assert table or not hooked
        told.append({"hooked": hooked, "late": late})

    monkeypatch.setattr(minion_engine, "run", run)
    monkeypatch.setattr(engine, "__salt__", {}, raising=False)
    engine.start()
    return told[0]


def test_a_minion_with_the_places_of_another_one_leaves_salt_as_it_is(
    opts, monkeypatch, caplog, tmp_path
):
    """Or a job that is published to both would be known to the second, and never run there."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "minion").touch()
    first, second = (
        {**opts, "conf_file": f"{tmp_path}/{name}/minion"} for name in ("one", "other")
    )
    owner.claim(Host(first).store, first)
    before = _replaceable()
    for _ in range(2):
        assert executor.execute(second, {"fun": "cmd.run", "jid": "1"}, print, [], {}) is None
    assert not hooks.install(second)
    assert _replaceable() == before
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == [
        hooks.log.name
    ]
    monkeypatch.setattr(engine, "__opts__", second, raising=False)
    available, reason = engine.__virtual__()
    assert not available
    assert f"{tmp_path}/one/minion" in reason
    with pytest.raises(SafeUpdateError, match="Nothing was changed"):
        factory.initiator(Host(second))
    assert [each.code for each in check._owner(Host(second))] == ["shared-state"]
    assert not list(check._owner(Host(first)))


def test_the_table_that_is_written_down_says_of_this_salt_what_it_is():
    """What is read from sources before an update agrees with what the hooks find afterwards."""
    rows = [row.row for row in ROWS.values()]
    assert {row.place for row in rows} == set(ROWS)

    def source(module):
        return pathlib.Path(importlib.import_module(module).__file__).read_text(encoding="utf-8")

    assert known.differences(rows, source) == []
