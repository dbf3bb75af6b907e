"""A master that does not run as root, as those of upstream's packages, beside root's commands."""

import json
import os
import pwd
import shlex
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import salt.config
import yaml

from devtools import as_packaged
from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.fleet.inventory import Record
from saltext_safeupdate.master.account import Account
from saltext_safeupdate.master.store import Store
from tests.support.forked import Forked

# Calls one of the runner functions, and prints what it returns or why it refuses.
CALL = """
import json, sys
import salt.config
from saltext_safeupdate.admin.setup import master_set_up
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.master import own_update, policies, reports
from saltext_safeupdate.master.store import Store

opts, arg = salt.config.master_config(sys.argv[1]), sys.argv[3:]
try:
    print(json.dumps({
        "setup": lambda: master_set_up.carry_out(opts, window=9, config_file=None, test=bool(arg)),
        "report": lambda: reports.write_report(Store(opts), "r", *arg),
        "metrics": lambda: reports.write_metrics(Store(opts), *arg),
        "update_master": lambda: own_update.update(opts, "3008.3", registry=arg[0]),
        "policy": lambda: policies.step(opts, apply=True),
    }[sys.argv[2]]()))
except SafeUpdateError as err:
    print(json.dumps(f"refused: {err}"))
"""
JIDS = ["20260101120000000000", "20260101120000000001"]


@pytest.fixture
def user():
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    return pwd.getpwnam("nobody")


@pytest.fixture
def cachedir(user, tmp_path):
    # Somebody else may not be allowed to read the code: what it needs is loaded here.
    _publish(Account(str(tmp_path / "account.db")), JIDS[0])
    # Directories of pytest are closed to others.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chown(place, user.pw_uid, user.pw_gid)
        yield Path(place)


@pytest.fixture
def path(cachedir):
    return str(cachedir / "safeupdate" / "account.db")


def _publish(account, jid):
    account.published(jid, b"load", ["m1"])
    return " ".join([*(job.jid for job in account.since(0)), str(account.fact("asked"))]).strip()


def _as(user, work):
    """Return what *work* returns in a process of that user."""

    def begin(hear, say):
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        say(work())

    child = Forked(begin)
    said = child.hear()
    child.kill()
    return said


def _assert_owned(user, directory):
    """Everything there is the user's, and nobody else's to look into."""
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for each in (directory, *directory.rglob("*")):
        info = each.stat()
        assert (info.st_uid, info.st_gid) == (user.pw_uid, user.pw_gid), each
        assert each.is_dir() or stat.S_IMODE(info.st_mode) == 0o600, each


def test_root_takes_nothing_away_from_the_master(user, cachedir, path):
    assert _as(user, lambda: _publish(Account(path), JIDS[0])) == JIDS[0]
    # Where no other process has the database open, this one makes its companions anew.
    account = Account(path)
    account.set_fact("asked", "by root")
    assert [job.jid for job in account.since(0)] == JIDS[:1]
    assert _as(user, lambda: _publish(Account(path), JIDS[1])) == f"{' '.join(JIDS)} by root"
    _assert_owned(user, cachedir / "safeupdate")


def test_what_root_makes_before_the_master_does_is_the_masters(user, cachedir, path):
    opts = {**salt.config.DEFAULT_MASTER_OPTS, "cachedir": str(cachedir)}
    store = Store({**opts, "extension_modules": str(cachedir)})
    account = Account(path)
    account.set_fact("asked", "by root")
    store.set_records([Record(minion="m1", seen=1.0)])
    locks.Lock(str(cachedir / "safeupdate"), "engine").close()
    _assert_owned(user, cachedir / "safeupdate")

    def work():
        store.set_records([Record(minion="m2", seen=1.0)])
        store.quarantine("3008.3", "it is broken")
        said = [_publish(account, JIDS[0]), *sorted(store.records()), *store.quarantined()]
        return " ".join(said)

    assert _as(user, work) == f"{JIDS[0]} by root m1 m2 3008.3"
    assert set(store.records()) == {"m1", "m2"}
    _assert_owned(user, cachedir / "safeupdate")


def test_what_is_not_the_masters_is_said(user, cachedir, path):
    """As after a change of 'user': Salt gives its new user what is in there, and not this."""
    (cachedir / "safeupdate").mkdir(mode=0o700)

    def work():
        account = Account(path)
        try:
            account.published(JIDS[0], b"load", ["m1"])
        except RecordError as err:
            return str(err)
        return "it was written"

    said = _as(user, work)
    assert f"{path} cannot be made: Permission denied" in said
    assert "check the permissions and the file system of its directory" in said


@pytest.fixture
def call(cachedir):
    """Call a function of the runner as the user, on a master as the packages set it up."""
    (cachedir / "master").write_text(
        yaml.safe_dump(
            {
                "root_dir": str(cachedir),
                "cachedir": str(cachedir / "cache"),
                "user": as_packaged.USER,
                "file_roots": {"base": [str(cachedir / "srv")]},
            }
        )
    )
    (cachedir / "srv").mkdir()
    as_packaged.give(cachedir / "master.d", cachedir / "cache")

    def run(*words):
        program = [sys.executable, "-c", CALL, str(cachedir / "master"), *words]
        done = subprocess.run(
            as_packaged.as_user(program), stdout=subprocess.PIPE, check=True, timeout=120
        )
        return json.loads(done.stdout)

    return run


def _files(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def _do_as_told(said):
    """Run, as root, the commands that the message has."""
    commands = said.partition("As root, run: ")[2].partition(". ")[0].split("; ")
    for command in commands:
        subprocess.run(shlex.split(command), check=True)


def test_a_set_up_that_lacks_a_right_writes_nothing_and_says_what_root_does(call, cachedir):
    os.chown(cachedir / "master.d", 0, 0)
    before = _files(cachedir)
    for words in ((), ("test",)):
        said = call("setup", *words)
        assert said.startswith("refused: This runs as the user nobody, who may not write to "), said
        for place in ("master.d", "srv"):
            assert str(cachedir / place) in said
        assert _files(cachedir) == before
    _do_as_told(said)
    # What was not missing is not given away.
    assert (cachedir / "srv").stat().st_uid == 0
    assert len(call("setup")["changes"]) == 3
    assert call("setup")["changes"] == {}


def test_a_set_up_that_ended_half_way_is_completed(call, cachedir):
    _do_as_told(call("setup"))
    call("setup")
    (cachedir / "srv/safeupdate/init.sls").unlink()
    (cachedir / "master.d/safeupdate.conf").unlink()
    done = call("setup")
    assert len(done["changes"]) == 2
    assert "Restart salt-master once" in done["comment"]


@pytest.mark.parametrize("function", ["report", "metrics"])
def test_a_file_in_a_directory_of_others_is_not_written(call, cachedir, function):
    (cachedir / "others").mkdir()
    said = call(function, str(cachedir / "others/x.prom"))
    assert f"the user nobody, who may not write to {cachedir}/others." in said
    assert _files(cachedir / "others") == []
    if function == "metrics":
        _do_as_told(said)
        assert call(function, str(cachedir / "others/x.prom")) == f"{cachedir}/others/x.prom"
    else:
        # A report is for once: no directory is given away for it.
        assert "Give a path in a directory where that user may write" in said


def test_a_lock_that_the_user_may_not_open_is_said(call, cachedir):
    policy = cachedir / "safeupdate/policy.yml"
    policy.parent.mkdir()
    policy.write_text("groups: [{name: all, target: '*', version: '3008.3'}]\n")
    (cachedir / "cache/safeupdate").mkdir(mode=0o700)
    said = call("policy")
    assert "See that the user nobody may write to the 'cachedir' of the master" in said


def test_minions_of_the_host_that_the_user_may_not_see_have_to_be_named(call, cachedir):
    said = call("update_master", str(cachedir / "gone"))
    assert "The user nobody of this process may not read" in said
    assert "Name the minion of this host with 'minion'" in said
