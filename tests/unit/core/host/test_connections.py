"""Whether a process has a connection, by what the kernel tells of it."""

import os
import socket
from contextlib import contextmanager
from functools import partial

import pytest

from saltext_safeupdate.core.host import connections
from tests.support.forked import forked

FAMILIES = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]


def connecting(server):
    return partial(socket.create_connection, server.getsockname()[:2])


@contextmanager
def child(work):
    """Run *work* in a process without the sockets of this one."""

    def alone(hear, say):
        for fd in map(int, os.listdir("/proc/self/fd")):
            if _is_socket(fd):
                os.close(fd)
        with work():
            say("there")
            hear()

    with forked(alone) as made:
        assert made.hear() == "there"
        yield made.pid


def _is_socket(fd):
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("family", "address"), FAMILIES)
def test_a_process_that_only_listens_has_none(family, address):
    with child(lambda: socket.create_server((address, 0), family=family)) as pid:
        assert not connections.has_any(pid)


@pytest.mark.parametrize(("family", "address"), FAMILIES)
def test_one_that_has_connected_has_one(family, address):
    with (
        socket.create_server((address, 0), family=family) as server,
        child(connecting(server)) as pid,
    ):
        assert connections.has_any(pid)


@pytest.mark.parametrize(("family", "address"), FAMILIES)
def test_of_some_ports_only_a_connection_to_one_of_them_counts(family, address):
    with (
        socket.create_server((address, 0), family=family) as server,
        child(connecting(server)) as pid,
    ):
        port = server.getsockname()[1]
        assert connections.ports(pid) == {port}
        assert connections.has_any(pid, {1, port})
        assert not connections.has_any(pid, {1, 2})


def test_the_ports_of_one_that_is_gone_are_not_known():
    with child(socket.socket) as pid:
        pass
    assert connections.ports(pid) == frozenset()
    assert connections.has_any(pid, {1})


def test_the_connections_of_others_do_not_count():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()),
        child(lambda: socket.socket(socket.AF_UNIX)) as pid,
    ):
        assert not connections.has_any(pid)


def test_of_one_that_is_gone_it_is_not_known():
    with child(socket.socket) as pid:
        pass
    assert connections.has_any(pid)


def test_without_one_of_the_tables_the_other_one_says_it(monkeypatch):
    monkeypatch.setattr(connections, "_TABLES", ("tcp", "no-such-table"))
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        child(connecting(server)) as pid,
    ):
        assert connections.has_any(pid)
    with child(socket.socket) as pid:
        assert not connections.has_any(pid)
