"""A master that does not run as root, as those of upstream's packages, beside root's commands."""

import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import salt.config
import yaml

from devtools import as_packaged
from saltext_safeupdate.admin.setup import master_set_up
from saltext_safeupdate.core.errors import RecordError, SafeUpdateError
from saltext_safeupdate.core.extensions import ourselves
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.fleet.inventory import Record
from saltext_safeupdate.master import own_update
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
        say(json.dumps(work()))

    child = Forked(begin)
    said = child.hear()
    child.kill()
    return json.loads(said)


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


def _refused(work):
    """Return what the error says; *work* raises one."""
    try:
        said = work()
    except SafeUpdateError as err:
        return str(err)
    pytest.fail(f"not refused: {said}")


def _let(said):
    """Run as root the commands that an error shows."""
    shown = re.search(r"As root, run: (.+?)(?:\. |$)", said)
    assert shown is not None, said
    subprocess.run(["sh", "-ec", shown[1]], check=True)


@pytest.fixture
def packaged(cachedir, user, monkeypatch):
    """
    A master as its packages leave it: ``master.d`` is the user's, its configuration is root's.

    Its file roots are not there yet, and the directory for them is root's.
    """
    etc = cachedir / "etc"
    (etc / "master.d").mkdir(parents=True)
    os.chown(etc / "master.d", user.pw_uid, user.pw_gid)
    srv = cachedir / "srv"
    srv.mkdir()
    (etc / "master").write_text(
        f"user: {user.pw_name}\nroot_dir: {cachedir}\nfile_roots: {{base: [{srv}/salt]}}\n"
    )
    # Somebody else may not be allowed to read those of a checkout.
    shutil.copytree(Path(ourselves.home(), "file_roots"), cachedir / "home" / "file_roots")
    monkeypatch.setattr(ourselves, "home", lambda: str(cachedir / "home"))
    _set_up(etc, test=True)
    return etc


def _set_up(etc, opts=None, **given):
    opts = opts or salt.config.master_config(str(etc / "master"))
    return master_set_up.carry_out(
        opts, **{"window": 600, "config_file": None, "test": False, **given}
    )


def test_what_the_set_up_may_not_read_stops_it(user, packaged):
    secret = packaged / "master.d" / "secret.conf"
    secret.write_text("timeout: 7\n")
    secret.chmod(0o600)
    # As Salt's programs do: they read it before they become the user.
    opts = salt.config.master_config(str(packaged / "master"))
    said = _as(user, lambda: _refused(lambda: _set_up(packaged, opts)))
    assert f"the user {user.pw_name}, who may not read {secret}. Nothing was written." in said
    _let(said)
    assert str(secret) not in _as(user, lambda: _refused(lambda: _set_up(packaged)))


def test_a_user_who_may_not_see_the_minions_of_the_host_asks_the_configured_one(user, cachedir):
    etc, registry = cachedir / "etc", cachedir / "registry"
    etc.mkdir()
    registry.mkdir(mode=0o700)
    (etc / "minion").write_text("id: beside\n")
    opts = {"conf_file": str(etc / "master")}
    asked = []

    def ask(opts, minions, *_):
        asked.extend(minions)
        return {minions[0]: {"changes": {}, "findings": []}}

    def update(**given):
        how = {"ask": ask, "registry": str(registry), "accepted": lambda opts: ["beside"]}
        return own_update.update(opts, "3008.3", test=True, **how, **given)["minion"]

    assert "No minion with this extension runs on this host" in _refused(update)
    assert own_update.configured_id(opts) == "beside"
    assert _as(user, update) == "beside"


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


def test_a_set_up_that_lacks_a_right_writes_nothing_and_says_what_root_does(call, cachedir):
    os.chown(cachedir / "master.d", 0, 0)
    before = _files(cachedir)
    for words in ((), ("test",)):
        said = call("setup", *words)
        assert said.startswith("refused: This runs as the user nobody, who may not write to "), said
        for place in ("master.d", "srv"):
            assert str(cachedir / place) in said
        assert _files(cachedir) == before
    _let(said)
    # What was not missing is not given away, and nobody loses a directory.
    assert (cachedir / "srv").stat().st_uid == 0
    assert (cachedir / "master.d").stat().st_uid == 0
    assert len(call("setup")["changes"]) == 3
    assert call("setup")["changes"] == {}


def test_a_set_up_that_ended_half_way_is_completed(call, cachedir):
    _let(call("setup"))
    call("setup")
    (cachedir / "srv/safeupdate/init.sls").unlink()
    (cachedir / "master.d/_safeupdate.conf").unlink()
    done = call("setup")
    assert len(done["changes"]) == 2
    assert "Restart salt-master once" in done["comment"]
    # As an earlier version left it.
    shutil.rmtree(cachedir / "srv/safeupdate")
    _let(call("setup"))
    assert len(call("setup")["changes"]) == 2
    assert call("setup")["changes"] == {}


@pytest.mark.parametrize("function", ["report", "metrics"])
def test_a_file_in_a_directory_of_others_is_not_written(call, cachedir, function):
    (cachedir / "others").mkdir()
    said = call(function, str(cachedir / "others/x.prom"))
    assert f"the user nobody, who may not write to {cachedir}/others." in said
    assert _files(cachedir / "others") == []
    if function == "metrics":
        _let(said)
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
