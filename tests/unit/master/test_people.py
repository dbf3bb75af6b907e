"""Who has ordered something, as far as a process can tell."""

import os
import pty
import socket

import pytest
import salt.config
import salt.utils.user

from saltext_safeupdate.admin import errors
from saltext_safeupdate.master import people, rollouts
from saltext_safeupdate.master.account import Account, path_of

HOST = socket.gethostname()


@pytest.fixture
def opts(tmp_path):
    """Options of a master that has accepted the key of one minion."""
    keys = tmp_path / "pki" / "minions"
    keys.mkdir(parents=True)
    (keys / "web1").write_text("a key", encoding="ascii")
    made = salt.config.DEFAULT_MASTER_OPTS.copy()
    made.update(
        id="one_master",
        cachedir=str(tmp_path / "cache"),
        pki_dir=str(tmp_path / "pki"),
        root_dir=str(tmp_path),
        __role="master",
    )
    return made


@pytest.fixture
def no_terminal(monkeypatch):
    def none(descriptor):
        raise OSError("not a terminal")

    monkeypatch.setattr(os, "ttyname", none)


@pytest.mark.parametrize(
    ("authenticated", "process", "name"),
    [
        ("alice", "root", "alice"),
        ("UNKNOWN", "root", "root"),
        ("", "sudo_jo", "jo (sudo)"),
        ("sudo_jo", "root", "jo (sudo)"),
        ("a\nb\x1b[2J", "root", "a b\\x1b[2J"),
    ],
)
@pytest.mark.usefixtures("no_terminal")
def test_the_user_is_whom_salt_has_authenticated(monkeypatch, opts, authenticated, process, name):
    monkeypatch.setattr(salt.utils.user, "get_specific_user", lambda: process)
    assert people.told(authenticated, opts) == f"{name} on {HOST}"


@pytest.mark.usefixtures("no_terminal")
def test_a_minion_that_may_call_runners_is_not_taken_for_a_person(opts):
    """Salt says that it is the user of the master, and has its ID for that of the master."""
    told = people.told("root", {**opts, "id": "web1"})
    assert told == f"the minion web1 (peer_run) on {HOST}"


@pytest.mark.usefixtures("no_terminal")
def test_a_master_that_is_called_as_its_minion_is_none(opts):
    Account(path_of(opts)).set_fact(rollouts.OWNER, "web1/0a1b2c3d")
    assert people.told("jo", {**opts, "id": "web1"}) == f"jo on {HOST}"


def test_the_terminal_is_told(monkeypatch, opts):
    ours, theirs = pty.openpty()
    try:
        name, real = os.ttyname(theirs), os.ttyname
        monkeypatch.setattr(os, "ttyname", lambda descriptor: real(theirs))
        assert people.told("jo", opts) == f"jo on {HOST}, {name}"
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_salt_says_of_the_caller_is_found(monkeypatch):
    """Salt sets it in the globals of the function that it calls."""
    wrapped = errors.for_runner(lambda: None)
    assert errors.caller() == ""
    monkeypatch.setitem(wrapped.__globals__, "__user__", "alice")
    assert errors.caller() == "alice"
