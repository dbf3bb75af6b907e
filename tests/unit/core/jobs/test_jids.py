import pytest
import salt.utils.jid

from saltext_safeupdate.core.jobs import jids


@pytest.mark.parametrize("unique", [False, True])
def test_salts_own_jids_tell_their_time_in_utc_wherever_we_are(monkeypatch, unique):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    jid = salt.utils.jid.gen_jid({"unique_jid": unique})
    assert jids.is_jid(jid)
    again = salt.utils.jid.gen_jid({"unique_jid": unique})
    assert 0 <= jids.made_at(again) - jids.made_at(jid) < 60
    assert jids.made_at("20260101000000500000") == 1_767_225_600.5


@pytest.mark.parametrize(
    "text", ["", "req", "1", "2026010100000000000", "20260101000000000000_", "\u0662" * 20]
)
def test_what_is_no_jid(text):
    assert not jids.is_jid(text)
    assert jids.made_at(text) is None


def test_twenty_digits_that_are_no_time():
    assert jids.is_jid("99999999999999999999")
    assert jids.made_at("99999999999999999999") is None
