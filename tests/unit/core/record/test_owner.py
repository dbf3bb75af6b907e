"""Which minion a database belongs to."""

import multiprocessing

import pytest

from saltext_safeupdate.core.record import owner
from saltext_safeupdate.core.record.store import Store

ONE = {"conf_file": "/etc/salt/minion", "id": "one"}
OTHER = {"conf_file": "/etc/salt2/minion", "id": "other"}


@pytest.fixture
def store(tmp_path):
    return Store(f"{tmp_path}/safeupdate.db")


def _there(*gone):
    return lambda path: path not in gone


def test_the_first_minion_owns_it_and_the_second_is_told(store):
    assert owner.why_not_ours(store, ONE) == ""
    assert not store.exists()
    assert owner.claim(store, ONE, _there()) == ""
    assert owner.claim(store, ONE, _there()) == ""
    for found in (owner.claim(store, OTHER, _there()), owner.why_not_ours(store, OTHER, _there())):
        assert all(word in found for word in ("'one'", "/etc/salt/minion", "/etc/salt2/minion"))
    assert owner.why_not_ours(store, ONE, _there()) == ""


def test_another_minion_id_is_the_same_minion(store):
    owner.claim(store, ONE, _there())
    assert owner.claim(store, {**ONE, "id": "renamed"}, _there()) == ""
    assert "'renamed'" in owner.claim(store, OTHER, _there())


def test_a_minion_that_is_gone_owns_nothing(store):
    owner.claim(store, ONE, _there())
    assert owner.claim(store, OTHER, _there("/etc/salt")) == ""
    assert owner.claim(store, ONE, _there())


@pytest.mark.parametrize("value", ["null", "3", "[]", "{", '["/etc/salt/minion", 3]'])
def test_what_is_no_owner_owns_nothing(store, value):
    with store.transaction() as db:
        db.execute("INSERT INTO facts (name, value) VALUES ('owner', ?)", (value,))
    assert owner.why_not_ours(store, ONE, _there()) == ""
    assert owner.claim(store, ONE, _there()) == ""
    assert owner.claim(store, OTHER, _there())


def _claim(path, opts, said):
    said.put(owner.claim(Store(path), opts, _there()))


def test_of_several_that_start_at_once_one_owns_it(store):
    context = multiprocessing.get_context("fork")
    said = context.Queue()
    minions = [{"conf_file": f"/etc/salt{number}/minion"} for number in range(4)]
    children = [context.Process(target=_claim, args=(store.path, each, said)) for each in minions]
    for child in children:
        child.start()
    found = [said.get(timeout=60) for _ in children]
    for child in children:
        child.join()
    assert found.count("") == 1
