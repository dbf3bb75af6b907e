"""Who has ordered something, as far as a process can tell."""

import os
import pty
import socket

import pytest
import salt.utils.user

from saltext_safeupdate.admin import errors
from saltext_safeupdate.master import people

HOST = socket.gethostname()


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
def test_the_user_is_whom_salt_has_authenticated(monkeypatch, authenticated, process, name):
    monkeypatch.setattr(salt.utils.user, "get_specific_user", lambda: process)
    assert people.told(authenticated) == f"{name} on {HOST}"


def test_the_terminal_is_told(monkeypatch):
    ours, theirs = pty.openpty()
    try:
        name, real = os.ttyname(theirs), os.ttyname
        monkeypatch.setattr(os, "ttyname", lambda descriptor: real(theirs))
        assert people.told("jo") == f"jo on {HOST}, {name}"
    finally:
        os.close(ours)
        os.close(theirs)


def test_what_salt_says_of_the_caller_is_found(monkeypatch):
    """Salt sets it in the globals of the function that it calls."""
    wrapped = errors.for_runner(lambda: None)
    assert errors.caller() == ""
    monkeypatch.setitem(wrapped.__globals__, "__user__", "alice")
    assert errors.caller() == "alice"
