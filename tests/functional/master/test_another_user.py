"""A master that does not run as root, as those of upstream's packages, beside root's commands."""

import os
import pwd
import stat
import tempfile
from pathlib import Path

import pytest

from saltext_safeupdate.master.account import Account
from tests.support.forked import Forked

JIDS = ["20260101120000000000", "20260101120000000001"]


@pytest.fixture
def user():
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    return pwd.getpwnam("nobody")


@pytest.fixture
def path(user, tmp_path):
    # Somebody else may not be allowed to read the code: what it needs is loaded here.
    _publish(Account(str(tmp_path / "account.db")), JIDS[0])
    # Directories of pytest are closed to others.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chown(place, user.pw_uid, user.pw_gid)
        yield str(Path(place, "safeupdate", "account.db"))


def _publish(account, jid):
    account.published(jid, b"load", ["m1"])
    return " ".join([*(job.jid for job in account.since(0)), str(account.fact("asked"))]).strip()


def _as_master(user, path, jid):
    """Publish a job as the master does, in a process of its user; return what it reads."""

    def work(hear, say):
        os.setgroups([])
        os.setgid(user.pw_gid)
        os.setuid(user.pw_uid)
        say(_publish(Account(path), jid))

    with_user = Forked(work)
    said = with_user.hear()
    with_user.kill()
    return said


def test_root_takes_nothing_away_from_the_master(user, path):
    assert _as_master(user, path, JIDS[0]) == JIDS[0]
    # Where no other process has the database open, this one makes its companions anew.
    account = Account(path)
    account.set_fact("asked", "by root")
    assert [job.jid for job in account.since(0)] == JIDS[:1]
    assert _as_master(user, path, JIDS[1]) == f"{' '.join(JIDS)} by root"
    for file in Path(path).parent.iterdir():
        info = file.stat()
        assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (user.pw_uid, 0o600), file
