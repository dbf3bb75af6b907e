"""What a publication says."""

import pytest
import salt.utils.jid

from saltext_safeupdate.minion import publication


@pytest.mark.parametrize("unique", [False, True])
def test_the_key_of_a_job_is_its_jid(unique):
    jid = salt.utils.jid.gen_jid({"unique_jid": unique})
    assert publication.key({"jid": jid, "fun": "cmd.run"}) == jid
    assert publication.key({"jid": jid, "fun": "test.ping"}) == ""
    web = {"type": "web", "id": "a"}
    assert publication.key({"jid": jid, "fun": "cmd.run", "resource_target": web}) == f"{jid}/web:a"


@pytest.mark.parametrize("jid", ["req", "nocache", "", None, "1", "20260101", "x" * 20])
def test_what_is_no_jid_is_no_key(jid):
    assert publication.key({"jid": jid, "fun": "state.highstate"}) == ""
    assert publication.key({"fun": "state.highstate"}) == ""


QUEUE = {"__kwarg__": True, "queue": True}


@pytest.mark.parametrize(
    ("fun", "arg", "added"),
    [
        ("state.apply", ["x", {"__kwarg__": True, "pillar": {"a": 1}}], [QUEUE]),
        ("state.highstate", [], [QUEUE]),
        ("state.apply", ["x", {"__kwarg__": True, "queue": 2}], []),
        ("state.apply", ["x", "queue=2"], []),
        ("state.apply", ["x", {"__kwarg__": True, "concurrent": True}], []),
        ("state.pkg", ["x", "y", "md5"], []),
        ("deploy.all", [], []),
    ],
)
def test_a_run_that_goes_on_waits_for_others_and_does_not_fail(fun, arg, added):
    data = {"jid": "1", "fun": fun, "arg": arg}
    assert publication.behind_others(data) == {**data, "arg": [*arg, *added]}
    assert data["arg"] is arg


def test_two_minions_know_what_they_have_heard_by_whatever_it_was_published_under():
    data = {"jid": salt.utils.jid.gen_jid({}), "fun": "cmd.run"}
    assert publication.heard({**data, "tgt": "*"}) == data["jid"]
    assert publication.heard({**data, "jid": "mine", "tgt": "*"}) == "mine"
    assert publication.heard({**data, "jid": "req"}) == "", "each start has its startup states"
