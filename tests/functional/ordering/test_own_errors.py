"""Errors of this extension: they fail nothing that plain Salt does, and no result says too much."""

import pytest
import salt.state

from saltext_safeupdate import patches
from saltext_safeupdate.ordering import calling, loaders, package_calls, results
from tests.support.minion import Minion, hooked

OWN = {"pkg.latest": [{"name": "salt-minion"}]}
NOTE = {"note.that": [{"result": True}]}


def fails(*_, **__):
    raise RuntimeError("of ours")


@pytest.fixture
def told(monkeypatch):
    """There is an error of ours, and it is told."""
    monkeypatch.setattr(patches, "_troubles", {})
    yield
    assert "RuntimeError: of ours" in patches.troubles().values()


@pytest.fixture
def comment_of(minion, monkeypatch, told):
    """Have a function of the results fail; return what a state that is deferred says then."""

    def run(name):
        monkeypatch.setattr(results, name, fails)
        found = minion.apply({"own": OWN, "other": NOTE})
        assert (found["own"]["result"], found["own"]["changes"]) == (False, {})
        assert found["other"]["result"] is True
        return found["own"]["comment"]

    return run


def test_a_state_that_cannot_be_deferred_says_so_and_changes_nothing(minion, comment_of):
    assert "could not be deferred" in comment_of("predicted_changes")
    assert minion.journal("install") == []
    assert minion.record() is None


def test_an_end_of_a_run_that_fails_is_no_success(comment_of):
    assert "It is not known whether" in comment_of("settle")


@pytest.mark.usefixtures("told")
def test_a_state_is_what_salt_says_it_is(minion, monkeypatch):
    monkeypatch.setattr(calling.Calling, "_after_plain_call", fails)
    changed = {"note.that": [{"changes": True}]}
    found = minion.apply({"changed": changed, "other": NOTE}, test=True)
    assert [found[name]["result"] for name in ("changed", "other")] == [None, True]


@pytest.mark.usefixtures("told")
def test_a_function_whose_handler_fails_does_what_salts_does(minion, monkeypatch):
    monkeypatch.setattr(package_calls, "requested", fails)
    assert minion.call("pkg.install", "vim", refresh=False) == {"vim": {"old": "1", "new": "2"}}
    assert minion.journal("install") == [("install", "vim")]


@pytest.mark.usefixtures("told")
def test_a_module_that_gets_no_handlers_is_loaded(minion, monkeypatch):
    # What finds the handlers asks for the attributes of the functions.
    monkeypatch.setattr(loaders, "_handlers", type("Odd", (dict,), {"items": fails})(a=1))
    assert minion.call("pkg.install", "vim", refresh=False) == {"vim": {"old": "1", "new": "2"}}


@pytest.mark.parametrize("plainly", [True, False], ids=["plainly", "in full"])
def test_what_a_newer_salt_gives_a_state_arrives_there(tmp_path, monkeypatch, plainly):
    plain, seen = salt.state.State.call, []

    def newer(self, low, chunks=None, running=None, retries=1, more=None):
        seen.append((low["__id__"], more))
        return plain(self, low, chunks, running, retries)

    monkeypatch.setattr(salt.state.State, "call", newer)
    with hooked(Minion(tmp_path)) as minion:
        state = salt.state.State(minion.opts)
        low = {"state": "note", "fun": "that", "name": "one", "__id__": "one", "__sls__": "it"}
        low |= {"__env__": "base", "order": 1, "result": True}
        low |= {} if plainly else {"safeupdate_rerun": False}
        assert state.call(low, {}, {})["result"] is True
        assert state.call(low, {}, {}, more=5)["result"] is True
        assert state.call(low, {}, {}, 1, 6)["result"] is True
    assert seen == [("one", None), ("one", 5), ("one", 6)]
