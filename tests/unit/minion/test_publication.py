"""What a publication says."""

from saltext_safeupdate.minion import publication


def test_keys():
    assert publication.key({"jid": "1", "fun": "cmd.run"}) == "1"
    assert publication.key({"jid": "1", "fun": "test.ping"}) == ""
    assert publication.key({"fun": "cmd.run"}) == ""
