from unittest.mock import Mock

import pytest

from saltext_safeupdate.executors import transactional_update as executor

CHAIN = {"module_executors": ["safeupdate", "transactional_update", "direct_call"]}


@pytest.fixture
def salt(monkeypatch):
    functions = {
        name: Mock(return_value="inside")
        for name in ("transactional_update.call", "transactional_update.sls")
    }
    monkeypatch.setattr(executor, "__salt__", functions, raising=False)
    monkeypatch.delenv("TRANSACTIONAL_UPDATE", raising=False)
    return functions


def test_delegated_functions_run_inside(salt):
    func = Mock()
    found = executor.execute(CHAIN, {"fun": "pkg.install"}, func, ["emacs"], {"a": 1})
    assert found == "inside"
    salt["transactional_update.call"].assert_called_once_with("pkg.install", "emacs", a=1)
    assert func.call_count == 0


def test_state_runs_run_inside(salt):
    executor.execute(CHAIN, {"fun": "state.sls"}, Mock(), ["a"], {"__pub_jid": "7"})
    salt["transactional_update.sls"].assert_called_once_with("a", __pub_jid="7")


def test_the_rest_is_left_to_the_next_executor(salt):
    func = Mock()
    assert executor.execute(CHAIN, {"fun": "test.ping"}, func, [], {}) is None
    assert func.call_count == 0


def test_the_last_executor_calls_by_itself(salt):
    func = Mock(return_value=5)
    opts = {"module_executors": ["transactional_update"]}
    assert executor.execute(opts, {"fun": "test.ping"}, func, [1], {"a": 2}) == 5
    func.assert_called_once_with(1, a=2)


def test_a_result_of_none_does_not_run_it_again_outside(salt):
    salt["transactional_update.call"].return_value = None
    assert executor.execute(CHAIN, {"fun": "pkg.install"}, Mock(), [], {}) == {}


def test_no_recursion_inside(salt, monkeypatch):
    monkeypatch.setenv("TRANSACTIONAL_UPDATE", "true")
    assert executor.execute(CHAIN, {"fun": "state.sls"}, Mock(), ["a"], {}) is None
    assert salt["transactional_update.sls"].call_count == 0


def test_it_is_there_if_its_program_is(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(executor, "_PLACES", "")
    assert executor.__virtual__()[0] is False
    program = tmp_path / "transactional-update"
    program.write_text("")
    assert executor.__virtual__()[0] is False
    program.chmod(0o755)
    assert executor.__virtual__() == "transactional_update"


def test_its_program_is_looked_for_in_the_usual_places_too(monkeypatch, tmp_path):
    monkeypatch.delenv("PATH", raising=False)
    monkeypatch.setattr(executor, "_PLACES", str(tmp_path))
    (tmp_path / "transactional-update").touch(0o755)
    assert executor.__virtual__() == "transactional_update"
