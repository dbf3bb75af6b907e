"""Times by ISO 8601, in the zone that somebody asks for."""

import time

import pytest

from saltext_safeupdate.core import times
from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.fleet import summary, text
from tests.unit.fleet.world import Host, World

AT = 1795377600.0


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        ("UTC", "2026-11-22T20:00:00+00:00"),
        ("Europe/Berlin", "2026-11-22T21:00:00+01:00"),
        ("Asia/Kolkata", "2026-11-23T01:30:00+05:30"),
    ],
)
def test_a_time_is_told_by_iso_in_each_zone(zone: str, told: str) -> None:
    assert times.iso(AT, zone) == told
    shown = times.in_zone(f"begun {text.moment(AT)} by jo", zone)
    assert shown == f"begun {text.moment(AT) if zone == 'UTC' else told.replace('T', ' ')} by jo"


def test_local_is_the_zone_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert times.iso(AT, "local") == "2026-11-22T15:00:00-05:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("zone", ["Mars", "../etc/passwd", "", None, 3])
def test_what_is_no_zone_is_refused(zone: object) -> None:
    with pytest.raises(InputError, match="no time zone"):
        times.in_zone("", zone)


@pytest.mark.parametrize("zone", ["local", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("day", ["2026-99-22", "9999-12-31", "0001-01-01", "0000-01-01"])
@pytest.mark.parametrize("hour", ["00:00:01", "23:59:59", "99:99:99"])
def test_what_looks_like_a_time_and_is_none_fails_nothing(zone: str, day: str, hour: str) -> None:
    """A minion may have any reason for what it does."""
    assert times.in_zone(f"m1: {day} {hour} UTC", zone).startswith("m1: ")
    if day == "2026-99-22":
        assert times.in_zone(f"{day} {hour} UTC", zone) == f"{day} {hour} UTC"


@pytest.mark.parametrize("at", [0, 0.0, None, 1e30, -1e30, float("inf"), float("nan")])
def test_no_time_and_a_number_that_is_none_are_null(at: object) -> None:
    """What is read from a disk fails no answer."""
    assert times.beside({"at": at}, ("at",), "Europe/Berlin")["times"] == {"at": None}


def test_a_status_has_its_times_by_iso() -> None:
    world = World([Host("m1")])
    told = summary.summary(world.rollout, world.now)
    assert told["times"].keys() == set(summary.TIMES)
    assert told["times"]["began"] == times.iso(world.rollout.began)
    assert told["times"]["window_begins"] is None
    found = times.beside({"history": [[AT, "begun"]]}, (), "Europe/Berlin")
    assert found["times"] == {"history": ["2026-11-22T21:00:00+01:00"]}
