import linecache
import sys
import traceback

import pytest
import salt.transport.base

from saltext_safeupdate.minion import stacks


@pytest.fixture(autouse=True)
def _salt_as_it_is(monkeypatch):
    monkeypatch.setattr(salt.transport.base, "traceback", traceback)
    monkeypatch.setattr(linecache, "cache", {})


def _connection():
    return salt.transport.base.Transport()


def test_a_connection_reads_no_source_code():
    _connection()
    assert linecache.cache, "Salt does not format the stack of a connection any more"
    stacks.leave_out_sources()
    assert not linecache.cache
    _connection()
    assert not linecache.cache


def test_the_stack_of_a_connection_names_the_same_functions_as_without_us():
    def places(trace):
        return [line for line in trace.splitlines() if line.startswith("  File ")]

    traces = []
    for prepare in (lambda: None, stacks.leave_out_sources):
        prepare()
        traces.append(_connection()._trace)
    assert places(traces[0]) == places(traces[1])
    assert places(traces[1])[-1].endswith("in _connection")


def test_the_warning_of_an_unclosed_connection_tells_where_it_was_made():
    stacks.leave_out_sources()
    connection = _connection()
    connection.connect()
    with pytest.warns(salt.transport.base.TransportWarning, match="in _connection"):
        connection.__del__()
    connection._closing = True


def test_all_else_of_the_module_is_pythons():
    stacks.leave_out_sources()
    ours = salt.transport.base.traceback
    assert ours.format_exc is traceback.format_exc
    frame = sys._getframe()
    assert ours.format_stack(frame) == traceback.format_stack(frame)


def test_a_salt_that_formats_no_stack_is_left_as_it_is(monkeypatch):
    monkeypatch.delattr(salt.transport.base, "traceback")
    stacks.leave_out_sources()
    assert not hasattr(salt.transport.base, "traceback")
