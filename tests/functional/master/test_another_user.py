"""A master that does not run as root, as those of upstream's packages, beside root's commands."""

import os
import pwd
import stat
import tempfile
from pathlib import Path

import pytest
import salt.config

from saltext_safeupdate.core.errors import RecordError
from saltext_safeupdate.core.host import locks
from saltext_safeupdate.fleet.inventory import Record
from saltext_safeupdate.master.account import Account
from saltext_safeupdate.master.store import Store
from tests.support.forked import Forked

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
