import pytest

from saltext_safeupdate.core.transactional import delegate, summary

INSIDE = {"TRANSACTIONAL_UPDATE": "true"}


@pytest.mark.parametrize(
    ("fun", "opts", "data", "expected"),
    [
        ("state.apply", {}, {}, "transactional_update.apply"),
        ("state.highstate", {}, {}, "transactional_update.highstate"),
        ("state.sls", {}, {}, "transactional_update.sls"),
        ("state.single", {}, {}, "transactional_update.single"),
        ("state.show_sls", {}, {}, None),
        ("pkg.install", {}, {}, delegate.CALL),
        ("file.touch", {}, {}, delegate.CALL),
        ("test.ping", {}, {}, None),
        ("transactional_update.sls", {}, {}, None),
        ("pkg.install", {"delegated_modules": ["cmd"]}, {}, None),
        ("pkg.install", {"delegated_modules": []}, {}, None),
        ("cmd.run", {"delegated_modules": "cmd, pkg"}, {}, delegate.CALL),
        ("test.ping", {"delegated_functions": ["test.ping"]}, {}, delegate.CALL),
        ("test.ping", {"add_delegated_modules": ["test"]}, {}, delegate.CALL),
        ("test.ping", {"add_delegated_functions": ["test.ping"]}, {}, delegate.CALL),
        ("test.ping", {}, {"executor_opts": {"add_delegated_modules": ["test"]}}, delegate.CALL),
        (
            "test.ping",
            {},
            {"executor_opts": {"add_delegated_functions": ["test.ping"]}},
            delegate.CALL,
        ),
        # what the configuration adds holds for such a call too
        (
            "test.ping",
            {"add_delegated_modules": ["test"]},
            {"executor_opts": {"add_delegated_modules": ["x"]}},
            delegate.CALL,
        ),
        ("test.ping", {}, {"executor_opts": "odd"}, None),
        (["pkg.install", "test.ping"], {}, {}, None),
        (None, {}, {}, None),
    ],
)
def test_delegate(fun, opts, data, expected):
    assert delegate.delegate(fun, opts, data, {}) == expected
    assert delegate.delegate(fun, opts, data, INSIDE) is None


@pytest.mark.parametrize(
    ("opts", "data", "last"),
    [
        ({}, {}, False),
        ({"module_executors": ["transactional_update", "direct_call"]}, {}, False),
        ({"module_executors": ["safeupdate", "transactional_update"]}, {}, True),
        ({"module_executors": "transactional_update"}, {}, True),
        ({"module_executors": "[transactional_update]"}, {}, True),
        ({"module_executors": "['transactional_update', 'direct_call']"}, {}, False),
        ({"module_executors": "[transactional_update, direct_call]"}, {}, False),
        (
            {"module_executors": ["direct_call"]},
            {"module_executors": ["transactional_update"]},
            True,
        ),
    ],
)
def test_is_last(opts, data, last):
    assert delegate.is_last(opts, data) is last


def job(jid):
    return {"fun": "state.sls", "pid": 1, "jid": str(jid)}


@pytest.mark.parametrize(
    ("queue", "jid", "rounds", "waits", "refused"),
    [
        (False, "5", [[]], 0, False),
        (False, "5", [[job(4)]], 0, True),
        (False, "5", [[job(6)]], 0, True),
        (False, "5", [[job(5)]], 0, False),  # this job itself
        (True, "5", [[job(4)], [job(4)], []], 2, False),
        (True, "5", [[job(6)]], 0, False),  # it waits for us
        (True, None, [[job(4)], []], 1, False),
        (2, "5", [[job(1), job(2)], []], 1, False),
        (1, "5", [[job(1), job(2)]], 0, True),
    ],
)
def test_wait_or_refuse(queue, jid, rounds, waits, refused):
    paused = []
    answers = iter(rounds)
    found = delegate.wait_or_refuse(queue, lambda: next(answers), jid, paused.append)
    assert bool(found) is refused
    assert len(paused) == waits
    if refused:
        assert found[0].startswith('The function "state.sls" is running as PID 1 with jid')


def test_two_queued_runs_do_not_wait_for_each_other():
    first, second = job(1), job(2)
    jobs = [first, second]
    assert delegate.wait_or_refuse(True, lambda: jobs, "1", lambda _: None) is None
    assert delegate.wait_or_refuse(True, lambda: jobs, "2", lambda _: jobs.remove(first)) is None


def run(*chunks):
    return {f"a_|-{n}_|-{n}_|-b": dict(chunk) for n, chunk in enumerate(chunks)}


GOOD, CHANGED = {"result": True, "changes": {}}, {"result": True, "changes": {"a": 1}}
BAD, WOULD = {"result": False, "changes": {}}, {"result": None, "changes": {"a": 1}}


@pytest.mark.parametrize(
    ("found", "test", "result", "changes"),
    [
        (run(GOOD, GOOD), False, True, 0),
        (run(GOOD, CHANGED), False, True, 1),
        (run(CHANGED, BAD), False, False, 0),
        (run(GOOD, WOULD), True, None, 0),
        (run(GOOD), True, True, 0),
        (["conflict"], False, False, 0),
        ("text", False, False, 0),
        ({}, False, False, 0),
    ],
)
def test_summarise(found, test, result, changes):
    got = summary.summarise(found, test=test)
    assert (got["result"], len(got["changes"])) == (result, changes)
    assert got["comment"]


def test_a_report_is_part_of_the_comment():
    found = {**run(GOOD), "t_|-t_|-t_|-report": {"result": True, "changes": {}, "comment": "said"}}
    assert "said" in summary.summarise(found, test=False)["comment"]


def test_without_internals():
    assert summary.without_internals({"a": 1, "__env__": 2}) == {"a": 1}
