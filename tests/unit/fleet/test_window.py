"""Windows on dates and on one day of a month, and days on which all is closed."""

import datetime
import zoneinfo

import pytest

from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.fleet import request, window
from saltext_safeupdate.fleet.rollout import Mode
from tests.unit.fleet.world import Host, World

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = BERLIN) -> float:
    local = datetime.datetime.fromisoformat(text)
    return local.replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("text", "when", "open_", "begins"),
    [
        ("2026-11-25 22:00-04:00", "2026-11-25T23:00", True, "2026-11-25T23:00"),
        ("2026-11-25 22:00-04:00", "2026-11-26T03:59", True, "2026-11-26T03:59"),
        ("2026-11-25 22:00-04:00", "2026-11-26T04:00", False, None),
        ("2026-11-25 22:00-04:00", "2026-11-01T04:00", False, "2026-11-25T22:00"),
        ("2026-11-25,2026-12-02 22:00-23:00", "2026-11-26T04:00", False, "2026-12-02T22:00"),
        ("first sun 02:00-06:00", "2026-11-01T02:00", True, "2026-11-01T02:00"),
        ("first sun 02:00-06:00", "2026-11-08T03:00", False, "2026-12-06T02:00"),
        ("last fri 22:00-04:00", "2026-11-28T03:00", True, "2026-11-28T03:00"),
        ("last fri 22:00-04:00", "2026-11-20T23:00", False, "2026-11-27T22:00"),
        ("second tue 10:00-11:00", "2026-11-10T10:30", True, "2026-11-10T10:30"),
        ("second tue 10:00-11:00", "2026-11-11T10:30", False, "2026-12-08T10:00"),
    ],
)
def test_when_it_is_open_and_begins(text: str, when: str, open_: bool, begins: str | None) -> None:
    found = window.parse(f"{text} {BERLIN}")
    assert window.parse(found.text) == found
    assert found.contains(at(when)) is open_
    assert found.begins(at(when)) == (window.NEVER if begins is None else at(begins))


def test_on_closed_days_nobody_is_started_whatever_the_windows_say() -> None:
    windows = (window.parse(f"22:00-04:00 {BERLIN}"),)
    closed = (
        window.period(f"2026-12-20 - 2026-12-27 {BERLIN}"),
        window.period(f"2026-12-28 {BERLIN}"),
    )
    assert window.is_open(windows, at("2026-12-19T23:00"), closed)
    assert not window.is_open(windows, at("2026-12-20T00:30"), closed), "also in the same night"
    assert not window.is_open((), at("2026-12-24T12:00"), closed)
    assert window.next_begin(windows, at("2026-12-20T12:00"), closed) == at("2026-12-29T00:00")
    assert window.next_begin((), at("2026-12-20T12:00"), closed) == at("2026-12-29T00:00")
    assert window.next_begin(windows, at("2026-12-29T12:00"), closed) == at("2026-12-29T22:00")
    only = (window.parse(f"2026-12-24 02:00-03:00 {BERLIN}"),)
    assert window.next_begin(only, at("2026-12-01T12:00"), closed) == window.NEVER


@pytest.mark.parametrize(
    ("read", "given", "said"),
    [
        (window.parse, "2026-13-01 02:00-03:00", "impossible date 2026-13-01"),
        (window.parse, "2026-11-25 mon 02:00-03:00", "unknown day '2026-11-25'"),
        (window.parse, "fifth sun 02:00-03:00", "unknown day 'fifth'"),
        (window.parse, "first 02:00-03:00", "unknown day 'first'"),
        (window.period, "christmas", "is not understood"),
        (window.period, "2026-12-27 - 2026-12-20", "ends before it begins"),
        (window.period, "2026-02-30", "impossible date 2026-02-30"),
        (window.period, "2026-12-20 Mars/Base", "unknown time zone"),
    ],
)
def test_what_is_refused(read: object, given: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(given)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "now", "begins"),
    [
        # At 01:00 UTC it becomes 03:00 there.
        ("2027-03-28 02:30-03:30 Europe/Berlin", "2027-03-28T00:30", "2027-03-28T01:00"),
        ("2027-03-28 02:10-02:50 Europe/Berlin", "2027-03-28T00:30", ""),
        # At 01:00 UTC it becomes 02:00 there again.
        ("2027-10-31 02:15-02:45 Europe/Berlin", "2027-10-31T00:00", "2027-10-31T00:15"),
        ("2027-10-31 02:15-02:45 Europe/Berlin", "2027-10-31T00:50", "2027-10-31T01:15"),
    ],
)
def test_a_window_begins_when_it_is_open_also_when_clocks_are_changed(
    text: str, now: str, begins: str
) -> None:
    """What is open was called closed for ever, and a rollout stopped."""

    def seconds(told: str) -> float:
        return datetime.datetime.fromisoformat(f"{told}+00:00").timestamp()

    found = window.next_begin([window.parse(text)], seconds(now))
    assert found == (seconds(begins) if begins else window.NEVER)


@pytest.mark.parametrize("last", ["9999-12-30", "9999-12-31"])
@pytest.mark.parametrize("windows", [(), (window.parse("22:00-04:00"),)])
def test_a_closed_period_may_last_for_ever(last: str, windows: tuple[window.Window, ...]) -> None:
    """The engine of the master ended by it again and again, and published nothing any more."""
    closed = [window.period(f"2026-06-01 - {last}")]
    # 2026-05-28, and 2027-01-15.
    assert window.next_begin(windows, 1_780_000_000.0, closed) < window.NEVER
    assert window.next_begin(windows, 1_800_000_000.0, closed) == window.NEVER
    assert not window.is_open(windows, 1_800_000_000.0, closed)


def test_a_date_that_yaml_has_read_is_one() -> None:
    given = {"groups": "*", "version": "3008.3", "closed": datetime.date(2026, 12, 24)}
    asked = request.from_mapping(given)
    assert asked.closed == (window.period("2026-12-24"),)
    assert request.from_mapping(request.to_mapping(asked)) == asked


def test_a_rollout_whose_last_window_is_over_says_so_and_stands() -> None:
    """It would wait for ever, and say that it runs."""
    # The world begins on 2026-05-28 at 20:26 UTC.
    hosts = [Host(f"m{number}", takes=1200.0) for number in range(6)]
    world = World(hosts, canaries=0, max_unavailable=1, soak=0, windows=["2026-05-28 20:00-21:30"])
    world.run(7 * 86400.0, watch=World.check)
    assert world.rollout.mode is Mode.STOPPED
    assert world.rollout.why.startswith("no window opens any more, so nobody else can begin")
    steps = set(world.steps().values())
    assert steps == {"done", "waiting"}


def test_a_rollout_starts_nobody_on_closed_days_and_goes_on_after_them() -> None:
    hosts = [Host(f"m{number}") for number in range(6)]
    closed = "2026-05-28 - 2026-05-29"
    world = World(hosts, canaries=0, max_unavailable=2, soak=0, closed=closed)
    world.run(86400.0)
    assert not any(host.taken for host in hosts)
    world.run(2 * 86400.0, watch=World.check)
    assert world.rollout.mode is Mode.FINISHED


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-11-25 22:00 Europe/Berlin", 1795640400),
        ("2026-11-25 21:00", 1795640400),
        ("2026-11-25T21:00:00Z", 1795640400),
        # There twice: the first one, in summer time.
        ("2026-10-25 02:30 Europe/Berlin", 1792888200),
    ],
)
def test_a_moment_is_what_the_wall_clock_of_its_zone_says(text: str, at: int) -> None:
    assert window.moment(text) == at
    wanted = request.from_mapping({"groups": "*", "version": "1.0", "at": text})
    assert wanted.at == at
    assert request.from_mapping(request.to_mapping(wanted)) == wanted


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("22:00", "not understood"),
        ("2026-11-25", "not understood"),
        ("2026-11-31 22:00", "impossible date"),
        ("2026-11-25 25:00", "impossible time"),
        ("2026-11-25 24:00", "impossible time"),
        ("2026-11-25 22:00 Europe/Berlim", "unknown time zone"),
        ("2026-03-29 02:30 Europe/Berlin", "clocks are put forward"),
        # No date can be reckoned from these in each zone.
        ("0001-01-01 00:00 Europe/Berlin", "no time at which updates could start"),
        ("9999-12-31 23:30 America/New_York", "no time at which updates could start"),
    ],
)
def test_a_moment_that_is_none(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        window.moment(text)
    with pytest.raises(InputError, match=why):
        request.from_mapping({"groups": "*", "version": "1.0", "at": text})


@pytest.mark.parametrize(
    ("text", "begin"),
    [
        ("2026-10-25 01:00-02:30 Europe/Berlin", "2026-10-24"),
        ("sat 22:00-02:30 Europe/Berlin", "2026-10-24"),
        ("02:15-02:45 Europe/Berlin", "2026-10-24"),
        ("02:15-02:45 Europe/Berlin", "2026-03-28"),
        ("first sun 01:30-02:00 America/New_York", "2026-10-31"),
        ("00:00-00:30 America/Sao_Paulo", "2018-11-03"),
        ("23:30-00:30 America/Sao_Paulo", "2018-02-17"),
    ],
)
def test_when_it_begins_is_when_it_is_open_next_also_if_clocks_are_changed(
    text: str, begin: str
) -> None:
    found = window.parse(text)
    first = int(datetime.datetime.fromisoformat(f"{begin}T00:00+00:00").timestamp())
    following = None
    for at in range(first + 2 * 86400, first, -60):
        following = at if found.contains(at) else following
        assert following is None or found.begins(at) == following, at
