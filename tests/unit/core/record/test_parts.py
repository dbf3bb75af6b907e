"""The parts of a record: what is on disk, and what comes back."""

import json
from dataclasses import fields

import pytest

from saltext_safeupdate.core.host.servers import Server
from saltext_safeupdate.core.record import parts
from saltext_safeupdate.core.record.parts import (
    Boot,
    Code,
    Former,
    Owed,
    Progress,
    Request,
    Staged,
    Watched,
    WayBack,
)
from saltext_safeupdate.core.record.update import Update

FILES = (("salt", "1", "/p", "digest"),)
SERVERS = (
    Server(
        unit="m",
        program="salt-master",
        host="127.0.0.1",
        port=4506,
        greets=True,
        engine="/e",
        keys="/k",
    ),
)
# Each field has another value than its default.
FULL = {
    "request": Request(
        version="1",
        when="now",
        allow_downgrade=True,
        back=True,
        extension=True,
        source="/srv/builds",
        serial=5,
    ),
    "owed": Owed(jid="1", reason="why", processes={"1": "a"}),
    "processes": {"2": "b"},
    "code": Code(own=("salt",), roots=("/opt",), extension="/c", servers=SERVERS),
    "staged": Staged(
        files=FILES, snapshot={"number": 2, "ident": 3}, extensions="/e", version_locked=("salt",)
    ),
    "way_back": WayBack(
        files=FILES,
        snapshot={"number": 1, "ident": 2},
        paths=("/etc",),
        kept=("/etc/salt/master",),
        backup="/k",
        missing="no",
    ),
    "progress": Progress(
        supervisors=1,
        unfinished=("salt",),
        steps=("a",),
        master=True,
        restarted=1.5,
        returned=2.5,
        others={"/etc/x": "1"},
        servers={"salt-master": "2"},
        dependents=("monitoring",),
        delay=7.0,
        silent=True,
        beside=("5",),
        proven=3.5,
        completed=True,
        again=("salt-minion",),
    ),
    "former": Former(
        pid=5, invocation="i", report=1.0, process="5", took=2.0, hooked=False, noted="b:7"
    ),
    "boot": Boot(awaits=("b", "waiting_for_boot"), booted=3.0, reboot="asked for", left=True),
    "watched": Watched(boot="b", until=9.0),
}


def written(**values):
    """Return what a record is on disk."""
    return json.loads(json.dumps(parts.encode(Update(id="u1", kind="update", **values))))


def read(extra):
    return Update(id="u1", kind="update", **parts.decode(extra))


def test_every_field_comes_back():
    for name, value in FULL.items():
        for each in fields(value) if name != "processes" else ():
            assert getattr(value, each.name) != getattr(type(value)(), each.name), each.name
    found = read(written(**FULL))
    assert found == Update(id="u1", kind="update", **FULL)
    assert found.request.serial == 5, "two requests may differ in it and be equal"
    assert set(written(**FULL)) == set(FULL)


def test_what_has_its_default_is_not_written():
    assert written() == {}
    assert written(code=Code(), processes={}) == {}
    assert read({}) == Update(id="u1", kind="update")


@pytest.mark.parametrize("name", parts.OPTIONAL)
def test_that_it_is_there_says_something(name):
    assert getattr(read({}), name) is None
    part = parts.OPTIONAL[name]()
    assert getattr(read(written(**{name: part})), name) == part


@pytest.mark.parametrize("name", sorted({*parts.PARTS, *parts.OPTIONAL}))
def test_a_field_that_is_not_known_is_kept(name):
    extra = {**written(**FULL), "newer": {"a": 1}}
    extra[name]["newer"] = [name]
    found = read(extra)
    assert found.unknown == {"newer": {"a": 1}, name: {"newer": [name]}}
    assert json.loads(json.dumps(parts.encode(found))) == extra


def test_a_field_that_is_not_known_is_kept_although_the_part_is_empty():
    assert written(unknown={"code": {"newer": 1}}) == {"code": {"newer": 1}}


def test_what_is_not_known_of_a_part_goes_with_it():
    found = read({"owed": {"reason": "why", "newer": 1}})
    left = parts.encode(Update(id="u1", kind="update", unknown=found.unknown))
    assert left == {}, "nothing is owed any more"


@pytest.mark.parametrize(
    "extra",
    [
        {"code": []},
        {"code": {"own": "salt"}},
        {"progress": {"others": {"/a": 1}}},
        {"staged": {"files": [["salt", "1", "/p"]]}},
        {"way_back": {"snapshot": {"number": 1}}},
        {"progress": {"supervisors": True}},
        {"progress": {"silent": 1}},
        {"progress": {"delay": True}},
        {"request": None},
        {"request": {"version": 3008}},
        {"request": {"serial": "5"}},
        {"owed": {"processes": []}},
        {"processes": ["1"]},
    ],
)
def test_what_is_not_valid_is_an_error(extra):
    with pytest.raises(TypeError):
        parts.decode(extra)
