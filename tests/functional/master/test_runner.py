"""What ``salt-run`` makes of what runner functions refuse: one line, and a failure."""

import gc
import inspect
import os
import sys
import traceback

import pytest
import salt.cli.run
import salt.config
import salt.runner
import salt.utils.args
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.admin import errors
from saltext_safeupdate.core.errors import InputError, SafeUpdateError
from saltext_safeupdate.master import stocktaking
from saltext_safeupdate.runners import safeupdate as runner
from tests.support.unread_bus import unread_bus

# What arrives if somebody types this version.
EATEN = salt.utils.args.yamlify_arg("3007.10")
EVIL = "a name\x1b[2J\r\n\u202eand another line"


@pytest.fixture
def master(tmp_path):
    """The configuration of a master that has never run."""
    (tmp_path / "var" / "cache" / "salt" / "master" / "proc").mkdir(parents=True)
    with unread_bus(tmp_path) as bus:
        (tmp_path / "master").write_text(f"root_dir: {tmp_path}\nuser: root\nsock_dir: {bus}\n")
        yield tmp_path


def salt_run(master, *words):
    """Run the program ``salt-run``, in a process of its own; return its status and its output."""
    out = master / "out"
    # What others have left unclosed is not complained of in the output of this one.
    gc.collect()
    child = os.fork()
    if not child:
        status = 99
        try:
            with out.open("w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
            sys.argv = ["salt-run", "-c", str(master), "--no-color", *words]
            sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
            salt.cli.run.SaltRun().run()
            status = 0
        except SystemExit as err:
            status = err.code if isinstance(err.code, int) else 1
        finally:
            if status == 99:
                traceback.print_exc()
            sys.stdout.flush()
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # From 3008 on, Salt complains of what it does not close itself.
    told = [line for line in out.read_text().splitlines(True) if "] unclosed Runner " not in line]
    return status, "".join(told)


def test_what_is_refused_is_one_line_and_a_failure(master):
    said = {
        ("rollout", "nobody*", EVIL): "There are no targets of the type",
        ("status", "nonsens=1"): "unexpected keyword argument 'nonsens'",
    }
    for (name, *words), why in said.items():
        status, told = salt_run(master, f"safeupdate.{name}", *words)
        assert status == 1, told
        (line,) = told.strip().splitlines()
        assert line.count(why) == 1
        assert line.strip().isprintable()


def test_what_succeeds_is_a_success(master):
    assert salt_run(master, "safeupdate.status") == (0, "There are no rollouts.\n")


FUNCTIONS = {
    name
    for name, each in vars(runner).items()
    if inspect.isfunction(each) and name[0] != "_" and each.__module__ == runner.__name__
}


@pytest.mark.parametrize("name", sorted(FUNCTIONS - {"plan", "rollout", "onboard"}))
def test_every_function_refuses_what_it_does_not_take(name):
    with pytest.raises(errors.RefusedError, match=f"^safeupdate.{name}: .* it takes"):
        getattr(runner, name)(nonsens=1)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("rollout", {"target": "m*", "version": "1", "canarys": 1}, "no setting canarys"),
        ("onboard", {"target": "m*", "canarys": 1}, "no setting canarys"),
        ("onboard", {}, "No minions have been set up in waves yet"),
        ("plan", {"target": "m*", "version": EATEN}, "3007.1, and 3007.10 would have"),
        ("rollout", {"target": "m*", "extension": EATEN}, "3007.1, and 3007.10 would have"),
        ("plan", {"target": "m*", "version": "3008.3", "at": 1200}, "20:00 is the number 1200"),
        ("allow", {"version": EATEN}, "3007.1, and 3007.10 would have"),
        ("rollout", {"plan": "used"}, "There is no plan used"),
        ("pause", {"rollout": "r1"}, "has not run on this master"),
        ("pause", {}, "missing a required argument: 'rollout'"),
        ("status", {"rollout": "nonsense"}, "There is no rollout nonsense"),
        ("versions", {"tgt": "nobody*"}, "No minion with an accepted key matches"),
        ("redeliver", {"timeout": "soon"}, "'timeout' must be"),
        ("update_master", {"version": 3007.1}, "'version'"),
        ("update_master", {"version": "3008.3", "minion": "no1"}, "its key is not accepted"),
        ("setup", {"window": 0}, "'window' must be"),
        ("setup", {"window": float("nan")}, "'window' must be"),
        # Python takes a number for a file that is open already.
        ("setup", {"config_file": 1}, "'config_file' must be the path of a file, not 1"),
        ("status", {"rollout": 20261122}, "'20261122' is no name of a rollout"),
        ("report", {"rollout": f"no{EVIL}", "path": "page.html"}, "is no name of a rollout"),
    ],
)
def test_each_reason_is_told_once(master, monkeypatch, name, given, said):
    opts = salt.config.master_config(str(master / "master"))
    # As 'salt-run' has it in a shell.
    opts.update({"skip_grains": False, "async": False})
    monkeypatch.setattr(runner, "__opts__", opts, raising=False)
    with pytest.raises(errors.RefusedError) as raised:
        getattr(runner, name)(**given)
    told = str(raised.value)
    assert told.isprintable()
    assert told.count(said) == 1


@pytest.fixture
def client(master):
    opts = salt.config.master_config(str(master / "master"))
    return salt.runner.RunnerClient(opts)


def test_an_orchestration_is_told_of_the_failure(client):
    args, given = ["nobody*"], {"version": "3007.15"}
    found = client.cmd("safeupdate.rollout", args, kwarg=given, full_return=True, print_event=False)
    assert "matches no minion with an accepted key" in found["return"]
    assert found["success"] is False


@pytest.mark.parametrize("retcode", [0, 1])
@pytest.mark.parametrize("name", ["check", "versions"])
def test_an_orchestration_is_told_how_a_look_at_the_fleet_ended(client, monkeypatch, name, retcode):
    """Salt calls what is drawn for a person a failure, whatever it says."""
    found = {"at": 0.0, "rows": {}, "retcode": retcode}

    class Stocktaking:
        @staticmethod
        def check(*_, **__):
            return found

        versions = check

    monkeypatch.setattr(stocktaking, "expected", lambda *_: ["a"])
    monkeypatch.setattr(stocktaking, "made", lambda opts: Stocktaking)
    told = client.cmd(f"safeupdate.{name}", full_return=True, print_event=False)
    assert told["return"]["rows"] == {}
    assert told["success"] is not bool(retcode)


@pytest.mark.parametrize(
    "error", [InputError(EVIL), SafeUpdateError(EVIL), CommandExecutionError(EVIL), OSError(EVIL)]
)
def test_every_error_is_one_that_salt_shows_as_it_is(error):
    @errors.for_runner
    def fails():
        raise error

    with pytest.raises(errors.RefusedError) as raised:
        fails()
    assert str(raised.value) == "a name\\x1b[2J \\u202eand another line"
    assert raised.value.__cause__ is error


def test_what_minions_have_said_is_shown_in_visible_characters():
    @errors.for_runner
    def tells(whole):
        return f"{EVIL}\n" if whole else {"changed": [EVIL], EVIL: {"n": (1, None, EVIL)}}

    shown = "a name\\x1b[2J\\r{}\\u202eand another line"
    assert tells(True) == shown.format("\n") + "\n", "a text of ours has lines"
    one = shown.format("\\n")
    assert tells(False) == {"changed": [one], one: {"n": [1, None, one]}}
