"""Our functions and states inside a transaction: asked of the running minion, or refused."""

import functools
import inspect
import json
import pathlib
import re

import pytest
import salt.config
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.admin.status import grain
from saltext_safeupdate.admin.updates import inside, steering
from saltext_safeupdate.core.errors import InputError, SafeUpdateError
from saltext_safeupdate.core.jobs import functions as table
from saltext_safeupdate.core.transactional import inside as core
from saltext_safeupdate.core.transactional.services import GUARD
from saltext_safeupdate.modules import safeupdate as module
from saltext_safeupdate.states import safeupdate as states
from saltext_safeupdate.this_host import Host
from tests.support.this_host import opts

HOW_TO = pathlib.Path(__file__).parents[4] / "docs/topics/howto/microos-3008.md"
FUNCTIONS = sorted(
    name
    for name, found in vars(module).items()
    if inspect.isfunction(found) and found.__module__ == module.__name__ and name[0] != "_"
)
ARGUMENTS = {
    "accepted": [["1"]],
    "forget": ["1"],
    "forget_slot": ["salt"],
    "request": [1, "3008.3"],
    "resume": ["1"],
    "unquarantine": ["1"],
    "withdraw": [1],
}


@pytest.fixture
def transaction(monkeypatch, tmp_path):
    """A process inside; what the running minion is asked for is in the file that is returned."""
    monkeypatch.setenv("TRANSACTIONAL_UPDATE", "true")
    monkeypatch.setenv(core.WISHES, str(tmp_path / "wishes"))
    # Salt's loader for executors needs the whole of them.
    given = {**salt.config.DEFAULT_MINION_OPTS, **opts(tmp_path), "test": False}
    for shell in (module, states):
        monkeypatch.setattr(shell, "__opts__", given, raising=False)
        monkeypatch.setattr(shell, "__salt__", {}, raising=False)
    return tmp_path / "wishes"


def wishes(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def documented():
    """Return what the how-to says of each function."""
    return dict(re.findall(r"^\| `safeupdate\.(\w+)` \| (\w+)", HOW_TO.read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_function_is_asked_for_or_refused(transaction, name):
    call = getattr(module, name)
    if table.is_asked_after_transaction(f"safeupdate.{name}"):
        assert "when the transaction is closed" in call()["comment"]
        assert [wish["action"] for wish in wishes(transaction)] == [f"safeupdate.{name}"]
    else:
        with pytest.raises(CommandExecutionError, match="Call it outside"):
            call(*ARGUMENTS.get(name, ()))
        assert wishes(transaction) == []


def test_the_how_to_says_of_each_function_what_it_does_inside():
    asked = [name for name in FUNCTIONS if table.is_asked_after_transaction(f"safeupdate.{name}")]
    said = documented()
    assert [name for name, what in said.items() if name in FUNCTIONS and what == "passed"] == asked
    assert {"enabled", "updated", "restarted"} <= set(said)


@pytest.mark.parametrize("call", [module.restart, module.update, lambda: states.mod_watch("x")])
def test_without_anybody_to_ask_it_is_an_error(transaction, monkeypatch, call):
    monkeypatch.delenv(core.WISHES)
    states.__salt__["safeupdate.restart"] = module.restart
    try:
        said = str(call()["comment"])
    except CommandExecutionError as err:
        said = str(err)
    assert "Nobody is there who would do this" in said


def test_nothing_is_told_of_the_running_minion(transaction, tmp_path):
    with pytest.raises(InputError, match="hides the database"):
        Host({})
    found = grain.grain(opts(tmp_path))
    assert found["phase"] == "unknown"
    assert "hides the database" in found["reason"]


def test_the_set_up_goes_into_the_snapshot_and_the_rest_is_asked_for(
    transaction, monkeypatch, tmp_path
):
    ran, config = [], tmp_path / "minion.d" / "_safeupdate.conf"
    config.parent.mkdir()
    made = functools.partial(
        inside.snapshot, run=lambda argv, **_: ran.append(argv), units=str(tmp_path / "units")
    )
    monkeypatch.setattr(inside, "snapshot", made)
    states.__salt__["safeupdate.restart"] = module.restart
    ret = states.enabled("x", str(config))
    drop_in = tmp_path / "units/salt-minion.service.d/50-safeupdate-guard.conf"
    written = {
        str(config),
        str(tmp_path.with_name(f"{tmp_path.name}-safeupdate") / "minion"),
        str(drop_in),
    }
    assert (ret["result"], set(ret["changes"])) == (True, written)
    assert str(tmp_path / "state/stop_guard.sh") in drop_in.read_text()
    assert not (tmp_path / "state").exists()
    assert [wish["action"] for wish in wishes(transaction)] == [GUARD, "safeupdate.restart"]
    # The program, which cannot be seen from here, is looked after each time.
    assert states.enabled("x", str(config))["changes"] == {}
    assert wishes(transaction)[2:] == [{"action": GUARD}]


def test_the_set_up_writes_nothing_if_nobody_would_do_the_rest(transaction, monkeypatch, tmp_path):
    monkeypatch.delenv(core.WISHES)
    ret = states.enabled("x", str(tmp_path / "safeupdate.conf"))
    assert ret["result"] is False
    assert "Nothing was done" in ret["comment"]
    assert list(tmp_path.iterdir()) == []


LOW = {"state": "safeupdate", "__id__": "up", "name": "up", "fun": "updated"}


@pytest.mark.parametrize(("test", "result"), [(False, True), (True, None)])
def test_an_update_is_asked_for_under_the_states_own_id(transaction, monkeypatch, test, result):
    monkeypatch.setattr(states, "__low__", LOW, raising=False)
    states.__opts__["test"] = test
    ret = states.updated("up", "3008.3")
    assert (ret["result"], ret["changes"]) == (result, {})
    (wish,) = wishes(transaction)
    assert wish == {
        "action": "safeupdate.update",
        "state": "safeupdate_|-up_|-up_|-updated",
        "version": "3008.3",
        "allow_downgrade": False,
        "test": test,
    }


def test_a_source_is_asked_for_too_so_that_no_package_comes_in_its_place(transaction, monkeypatch):
    monkeypatch.setattr(states, "__low__", LOW, raising=False)
    states.updated("up", "3008.3", source="salt://builds")
    module.update("3008.3", source="salt://builds")
    assert [wish["source"] for wish in wishes(transaction)] == ["salt://builds"] * 2


class TestTheRunningMinion:
    @pytest.fixture
    def asked(self):
        return []

    @pytest.fixture
    def ran(self):
        return []

    @pytest.fixture
    def minion(self, asked, ran, tmp_path, monkeypatch):
        def answering(name):
            return lambda *args, **kwargs: asked.append((name, args, kwargs)) or {"comment": name}

        monkeypatch.setattr(steering, "restart_after_run", lambda reason: False)
        functions = {name: answering(name) for name in ("safeupdate.restart", "safeupdate.update")}
        functions["safeupdate.plan"] = lambda *args, **kwargs: {
            "changes": {"salt": {"old": "1", "new": "2"}},
            "findings": [],
        }
        given = opts(tmp_path)
        return inside.RunningMinion(given, functions, run=lambda argv, **_: ran.append(argv))

    def test_it_restarts(self, minion, asked):
        minion({"action": "safeupdate.restart", "reason": "mine"})
        assert asked == [("safeupdate.restart", (), {"reason": "mine, in a transaction"})]

    def test_it_updates_for_a_function(self, minion, asked):
        minion({"action": "safeupdate.update", "version": "2", "when": "now", "refresh": False})
        wanted = {"when": "now", "allow_downgrade": False, "refresh": False}
        assert asked == [("safeupdate.update", ("2",), wanted)]

    @pytest.mark.parametrize("of", [{}, {"state": "x"}])
    def test_it_is_told_the_source(self, minion, asked, of):
        minion({"action": "safeupdate.update", "version": "1", "source": "salt://builds", **of})
        ((_, _, given),) = asked
        assert given["source"] == "salt://builds"

    def test_it_updates_for_a_state_as_the_state_does_outside(self, minion, asked):
        wish = {"action": "safeupdate.update", "version": "2", "state": "tag", "test": True}
        assert minion(wish)["result"] is None
        assert asked == []
        assert minion({**wish, "test": False})["comment"] == "safeupdate.update"
        assert asked == [("safeupdate.update", ("2",), {"allow_downgrade": False})]

    def test_what_fails_is_our_error(self, monkeypatch):
        def refuse(**_):
            raise CommandExecutionError("an update is under way")

        monkeypatch.setattr(steering, "restart_after_run", lambda reason: False)
        minion = inside.RunningMinion({}, {"safeupdate.restart": refuse})
        with pytest.raises(SafeUpdateError, match="an update is under way"):
            minion({"action": "safeupdate.restart", "reason": "mine"})

    @pytest.mark.parametrize("action", ["safeupdate.cancel", "safeupdate.no_such"])
    def test_it_does_nothing_that_the_table_does_not_name(self, minion, action):
        with pytest.raises(SafeUpdateError, match="cannot be requested"):
            minion({"action": action})

    @pytest.mark.parametrize(("live", "calls"), [(True, 2), (False, 1)])
    def test_it_places_the_program_of_the_stop_guard(self, minion, ran, tmp_path, live, calls):
        program = str(tmp_path / "state/stop_guard.sh")
        assert minion({"action": GUARD, "live": live}) == {"changed": [program]}
        assert ran == [("systemctl", "daemon-reload")] * calls
