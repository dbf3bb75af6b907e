import pytest
from salt.exceptions import CommandExecutionError

from saltext_safeupdate import hooks
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.jobs import current
from saltext_safeupdate.executors import safeupdate as executor
from saltext_safeupdate.this_host import enabled


@pytest.fixture
def opts(tmp_path, monkeypatch):
    installed = []
    monkeypatch.setattr(hooks, "install", lambda opts: installed.append(opts) or True)
    monkeypatch.setattr(current, "_local", type(current._local)())
    yield {"safeupdate": {"run_dir": str(tmp_path / "run")}, "installed": installed}
    current.end()


def _execute(opts, fun, jid="5"):
    return executor.execute(opts, {"fun": fun, "jid": jid}, lambda: None, [], {})


def test_a_job_gets_its_share_of_the_lock_and_goes_on_to_the_next_executor(opts):
    assert _execute(opts, "state.apply") is None
    assert opts["installed"] == [opts]
    assert current.get().jid == "5"
    run_dir = opts["safeupdate"]["run_dir"]
    assert not locks.Lock(run_dir, "jobs").try_exclusive()


@pytest.mark.parametrize("place", ["install", "adopt"])
def test_an_error_of_ours_keeps_no_job_from_running(opts, monkeypatch, caplog, place):
    def fails(_):
        raise RuntimeError("ours")

    monkeypatch.setattr(hooks, place, fails)
    assert _execute(opts, "state.apply") is None
    assert "the job runs as with plain Salt" in caplog.text


@pytest.mark.parametrize(
    ("configured", "given", "runs"),
    [
        (["safeupdate", "direct_call"], None, False),
        (["safeupdate"], None, True),
        ("safeupdate", None, True),
        ("[splay, 'safeupdate']", None, True),
        (["safeupdate", "direct_call"], ["safeupdate"], True),
        (["safeupdate"], ["safeupdate", "direct_call"], False),
        (["safeupdate", "sudo"], None, False),
    ],
)
@pytest.mark.parametrize("fails", [True, False])
def test_no_job_is_left_out_where_no_executor_follows(
    opts, monkeypatch, configured, given, runs, fails
):
    """Salt would return nothing, and a success."""
    monkeypatch.setattr(hooks, "adopt", lambda func: 1 / (not fails))
    opts["module_executors"] = configured
    data = {"fun": "test.echo", "jid": "5"} | ({"module_executors": given} if given else {})
    found = executor.execute(opts, data, lambda text: text, ["done"], {})
    assert found == ("done" if runs else None)


def test_a_job_that_was_taken_in_keeps_its_share(opts):
    _execute(opts, "test.echo", "1")
    job = current.get()
    _execute(opts, "test.echo", "2")
    assert current.get() is job


@pytest.mark.parametrize(
    ("fun", "installs"),
    [
        ("test.ping", False),
        ("grains.items", False),
        ("safeupdate.check", True),
        ("pkg.list_pkgs", True),
    ],
)
def test_what_only_looks_elsewhere_gets_no_hooks(opts, fun, installs):
    _execute(opts, fun)
    assert bool(opts["installed"]) is installs


@pytest.mark.parametrize(
    "fun",
    [
        "test.ping",
        "grains.items",
        "safeupdate.status",
        "safeupdate.revisions",
        "safeupdate.cancel",
        "saltutil.find_job",
        "safeupdate.wait",
        "sys.doc",
    ],
)
def test_looking_is_free_while_jobs_are_held(opts, fun):
    drain = locks.acquire(opts["safeupdate"]["run_dir"], "drain", "")
    assert _execute(opts, fun) is None
    assert current.get() is None
    drain.close()


def test_everything_else_is_refused_while_jobs_are_held(opts):
    drain = locks.acquire(opts["safeupdate"]["run_dir"], "drain", "")
    with pytest.raises(CommandExecutionError, match=r"no new job may start.*safeupdate\.status"):
        _execute(opts, "state.apply")
    drain.close()


def test_without_locks_a_function_runs_and_the_log_says_so_once(opts, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    opts["safeupdate"] = {"run_dir": str(tmp_path / "file"), "state_dir": str(tmp_path / "state")}
    for _ in range(2):
        assert _execute(opts, "state.apply") is None
    assert current.get().lock is None
    assert caplog.text.count("cannot be used") == 1


def test_a_configuration_that_is_not_valid_fails_no_job(opts):
    opts["safeupdate"]["nonsense"] = 1
    assert _execute(opts, "state.apply") is None
    assert current.get().jid == "5"


def test_inside_a_transaction_everything_stands_down(monkeypatch, tmp_path):
    monkeypatch.setenv("TRANSACTIONAL_UPDATE", "true")
    opts = {
        "__role": "minion",
        "engines": [{"safeupdate": {}}],
        "safeupdate": {"run_dir": str(tmp_path / "run"), "state_dir": str(tmp_path / "state")},
    }
    assert not enabled(opts)
    monkeypatch.setenv("TRANSACTIONAL_UPDATE", "")
    assert enabled(opts)
    monkeypatch.delenv("TRANSACTIONAL_UPDATE")
    assert enabled(opts)
