"""The page of a rollout in a real browser: compared by what is where, not by pixels."""

from __future__ import annotations

import base64
import itertools
import re
import zlib
from collections.abc import Iterator

import pytest

from devtools.lab.browser import Browser, Page
from devtools.lab.container import Lab
from saltext_safeupdate.core import times
from saltext_safeupdate.fleet import plan, report
from saltext_safeupdate.fleet.rollout import Rollout, Step, begin
from tests.unit.fleet.world import NEW, NOW, NUMBER, OLD, Host, World

EVIL = "<img src=http://192.0.2.1/x onerror=document.title='owned'>"
LONG = "The new minion did not answer its probe within 300 seconds, so it was rolled back. " * 3
MANY = 5000
# The rows that are drawn, by what they show.
ROWS = "[...document.querySelectorAll('#minions tr[data-name]')]"
NAMES = f"{ROWS}.map(row => row.dataset.name)"
FOCUS = "(e => e.dataset.name || e.id || e.dataset.key || e.type)(document.activeElement)"
LUMINANCE = """
const light = (text) => {
  const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255)
    .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
"""


def many(count: int = MANY) -> Rollout:
    """Return a rollout with minions in every step, some with the longest reasons."""
    world = World([Host("m0000")])
    request = world.rollout.plan.request
    names = tuple(f"m{number:04}" for number in range(count))
    size = count // 5
    waves = tuple(plan.Wave("web", names[at : at + size]) for at in range(0, count, size))
    made = begin(
        plan.Plan(
            id="r1",
            number=NUMBER,
            created=NOW,
            request=request,
            waves=waves,
            left_out={f"left{number}": f"runs {NEW} already" for number in range(3)},
            steps={},
            away=frozenset(),
            unavailable=500,
            failed=100,
        ),
        NOW,
    )
    made.elapsed, made.wave = 3600.0, 3
    for number, minion in enumerate(made.minions.values()):
        minion.step = list(Step)[number % 11] if number % 7 == 0 else Step.DONE
        minion.requests, minion.asked, minion.seconds = 1, number / 2, 60 + number % 90
        minion.version = NEW if minion.step is Step.DONE else OLD
        if minion.step.bad:
            minion.reason = LONG if number % 2 else "no space left on /boot"
        if minion.step is Step.DONE:
            minion.phases = {"installing": 20.0, "watching": 30.0}
    return made


@pytest.fixture(scope="module")
def browser(lab: Lab) -> Iterator[Browser]:
    with Browser(lab) as started:
        yield started


@pytest.fixture(scope="module")
def shared(browser: Browser) -> Page:
    return browser.open(report.page(many(), NOW + 3600))


@pytest.fixture
def page(shared: Page) -> Page:
    """The page of many minions, as if it had just been opened."""
    shared.media()
    shared.resize(1280, 900)
    shared.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    shared.press("Escape")
    shared.evaluate("document.documentElement.className = ''")
    return shared


def shown(page: Page) -> int:
    told = page.evaluate("document.getElementById('shown').textContent")
    found = re.fullmatch(rf"(\d+) of {MANY}", told)
    assert found, told
    return int(found[1])


def steps(rollout: Rollout, *wanted: Step) -> int:
    return rollout.count(*wanted)


# -- search, filters, rows -----------------------------------------------------------------


def test_search_and_filters_choose_among_thousands(page: Page) -> None:
    rollout = many()
    assert shown(page) == MANY
    page.press("/")
    assert page.evaluate(FOCUS) == "search"
    page.write("m012")
    assert shown(page) == 10
    assert sorted(page.evaluate(NAMES)) == [f"m012{digit}" for digit in range(10)]
    page.press("Escape")
    assert shown(page) == MANY
    page.write("/BOOT")
    assert shown(page) == sum("/boot" in minion.reason for minion in rollout.minions.values())
    page.press("Escape")
    page.evaluate("document.querySelector('#steps input[value=rolled_back]').click()")
    assert shown(page) == steps(rollout, Step.ROLLED_BACK)
    assert set(page.evaluate(f"{ROWS}.map(row => row.cells[2].textContent)")) == {"rolled back"}
    page.evaluate("document.querySelector('#steps input[value=failed]').click()")
    assert shown(page) == steps(rollout, Step.ROLLED_BACK, Step.FAILED)
    page.evaluate("wave.value = '2'; wave.dispatchEvent(new Event('input', {bubbles: true}))")
    names = rollout.plan.waves[1].minions
    bad = (Step.ROLLED_BACK, Step.FAILED)
    assert shown(page) == sum(rollout.minions[name].step in bad for name in names)


def test_only_the_rows_in_sight_exist_and_each_can_be_reached(page: Page) -> None:
    assert page.evaluate(f"{ROWS}.length") < 200
    heights = set(page.evaluate(f"{ROWS}.map(row => row.getBoundingClientRect().height)"))
    assert heights == {28}, "their height is known without drawing them"
    every = page.evaluate("document.getElementById('rows').scrollHeight")
    seen: list[str] = []
    for at in (0, every // 2, every):
        page.evaluate(f"document.getElementById('rows').scrollTop = {at}")
        page.drawn()
        view = "document.getElementById('rows').getBoundingClientRect()"
        inside = page.evaluate(
            f"(view => {ROWS}.filter(row => (r => r.top >= view.top && r.bottom <= view.bottom)"
            f"(row.getBoundingClientRect())).map(row => row.dataset.name))({view})"
        )
        assert len(inside) > 5
        seen += inside
    assert len(set(seen)) == len(seen)
    page.evaluate("document.querySelector('[data-key=minion]').click()")
    page.evaluate(f"document.getElementById('rows').scrollTop = {every}")
    page.drawn()
    assert page.evaluate(NAMES)[-1] == f"m{MANY - 1:04}"


def test_problems_come_first_and_reasons_are_gathered(page: Page) -> None:
    rollout = many()
    first = page.evaluate(NAMES)[0]
    assert rollout.minions[first].step.bad
    reasons = page.evaluate("[...document.querySelectorAll('#reasons li')].map(i => i.textContent)")
    assert len(reasons) == 2
    count = sum(minion.reason.startswith("no space") for minion in rollout.minions.values())
    assert f"{count} ×no space left on /boot" in reasons
    page.evaluate("[...document.querySelectorAll('#reasons button')].at(-1).click()")
    assert shown(page) in (count, steps(rollout, *(s for s in Step if s.bad)) - count)


def test_who_is_held_or_away_is_a_problem_as_in_the_status(browser: Browser) -> None:
    hosts = [Host("m0"), Host("m1", held="ask Jo"), Host("m2", away=((NOW + 1, NOW + 10**6),))]
    world = World(hosts, canaries=1, sample=0, soak=10**5, max_unavailable=2).run(1200)
    page = browser.open(report.page(world.rollout, world.now))
    reasons = page.evaluate("[...document.querySelectorAll('#reasons li')].map(i => i.textContent)")
    assert sorted(reasons) == ["1 ×ask Jo", "1 ×does not answer"]
    page.press("/")
    page.write("does not answer")
    assert page.evaluate(NAMES) == ["m2"]
    # What has no rows says nothing.
    for empty in ("durations", "left"):
        height = f"document.getElementById('{empty}').closest('section').getBoundingClientRect()"
        assert page.evaluate(f"{height}.height") == 0


def test_nothing_of_the_head_is_cut_or_squeezed(page: Page) -> None:
    page.evaluate("search.value = search.placeholder")
    assert page.evaluate("search.scrollWidth <= search.clientWidth"), "the hint fits in"
    page.evaluate("search.value = ''")
    page.resize(420, 900)
    top = "(id => document.getElementById(id).getBoundingClientRect())"
    assert page.evaluate(f"{top}('lead').top >= {top}('title').bottom")
    assert page.evaluate(f"{top}('lead').width > 300")


# -- without a mouse -----------------------------------------------------------------------


def test_the_keyboard_reaches_everything_in_the_order_of_the_page(page: Page) -> None:
    page.evaluate("document.getElementById('theme').focus()")
    seen = [page.evaluate(FOCUS)]
    while page.evaluate("document.activeElement !== document.body"):
        page.press("Tab")
        seen.append(page.evaluate(FOCUS))
        assert len(seen) < 60, seen
    wanted = ["theme", "search", "checkbox", "wave", "rows", "minion", "reason", "history"]
    places = [seen.index(each) for each in wanted]
    assert places == sorted(places), seen
    outlined = page.evaluate(
        "(e => { e.focus(); return getComputedStyle(e).outlineStyle })"
        "(document.getElementById('search'))"
    )
    assert outlined == "solid", "one sees where one is"


def test_arrows_go_through_the_rows_and_enter_sorts(page: Page) -> None:
    page.evaluate("document.getElementById('rows').focus()")
    page.press("ArrowDown")
    first = page.evaluate(NAMES)[0]
    assert page.evaluate(FOCUS) == first
    told = page.evaluate("document.getElementById('told').textContent")
    assert told.startswith(f"{first}: ")
    assert many().minions[first].reason in told, "the reason is there as a whole"
    page.press(*["ArrowDown"] * 60)
    there = page.evaluate(FOCUS)
    inside = (
        "((row, view, head) => row.top >= head.bottom - 1 && row.bottom <= view.bottom + 1)"
        "(document.activeElement.getBoundingClientRect(),"
        " document.getElementById('rows').getBoundingClientRect(),"
        " document.querySelector('#minions thead th').getBoundingClientRect())"
    )
    assert page.evaluate(inside), "the row with the focus is in sight"
    page.press(*["ArrowUp"] * 59)
    assert page.evaluate(inside), "and not below the head of the table"
    page.press("ArrowUp")
    assert page.evaluate(FOCUS) == first != there
    page.evaluate("document.querySelector('[data-key=minion]').focus()")
    page.press("Enter")
    up = page.evaluate(NAMES)[:5]
    assert up == sorted(up)
    page.press("Enter")
    assert page.evaluate(NAMES)[:5] == [f"m{MANY - 1 - number:04}" for number in range(5)]
    assert page.evaluate("document.querySelector('[aria-sort]').ariaSort") == "descending"


# -- light, dark, paper, small -------------------------------------------------------------


def contrasts(page: Page) -> dict[str, float]:
    """Return the contrast of texts with the page, by what they are."""
    return page.evaluate(
        "(() => {"
        + LUMINANCE
        + """
        const ground = light(getComputedStyle(document.body).backgroundColor);
        const found = {};
        const probe = document.querySelector("#minions th").appendChild(
          document.createElement("span"));
        for (const name of ["t-bad", "t-work", "t-done", "t-wait", "t-away"]) {
          probe.className = name;
          found[name] = getComputedStyle(probe).color;
        }
        probe.remove();
        for (const name of ["body", "#lead", "dt", "#filter", "legend"]) {
          found[name] = getComputedStyle(document.querySelector(name)).color;
        }
        for (const [name, colour] of Object.entries(found)) {
          const text = light(colour);
          found[name] = (Math.max(text, ground) + 0.05) / (Math.min(text, ground) + 0.05);
        }
        return found;
        })()"""
    )


def is_light(page: Page) -> bool:
    return bool(
        page.evaluate(
            "(() => {" + LUMINANCE + "return light(getComputedStyle(document.body)"
            ".backgroundColor) > 0.5 })()"
        )
    )


def test_it_can_be_read_in_light_and_in_dark(page: Page) -> None:
    for scheme in ("light", "dark"):
        page.media(scheme=scheme)
        assert is_light(page) == (scheme == "light")
        assert min(contrasts(page).values()) >= 4.5, (scheme, contrasts(page))
        page.evaluate("document.getElementById('theme').click()")
        assert is_light(page) != (scheme == "light"), "the button overrules the system"
        assert min(contrasts(page).values()) >= 4.5
        page.evaluate("document.getElementById('theme').click()")
        page.evaluate("document.documentElement.className = ''")


def test_on_paper_there_is_every_row_dark_on_light(browser: Browser) -> None:
    page = browser.open(report.page(many(300), NOW))
    page.media(kind="print", scheme="dark")
    assert is_light(page)
    assert min(contrasts(page).values()) >= 4.5
    for hidden in ("#filter", "#theme"):
        look = f"getComputedStyle(document.querySelector('{hidden}')).display"
        assert page.evaluate(look) == "none"
    page.media()
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {ROWS}.length }}, 0)")
    paper = base64.b64decode(page.call("Page.printToPDF", {})["data"])
    assert page.evaluate("window.printed") == 300
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) > 4
    page.drawn()
    assert page.evaluate(f"{ROWS}.length") < 200, "and it is as before afterwards"


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_lies_over_something_else_or_beyond_the_edge(page: Page, width: int) -> None:
    page.resize(width, 900)
    page.drawn()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    parts = page.evaluate(
        "[...document.querySelectorAll('header, main > section')].map(e => {"
        " const r = e.getBoundingClientRect(); return [r.top, r.bottom, r.left, r.right] })"
    )
    assert len(parts) == 8
    for (_, above, *_), (below, *_) in itertools.pairwise(parts):
        assert above <= below
    assert all(left >= 0 and right <= width for _, _, left, right in parts)


def test_the_bar_shows_how_many_are_how_far(page: Page) -> None:
    """What is drawn, in a picture of it: each kind has the colour and the width that it needs."""
    counts = many().count
    parts = page.evaluate(
        "[...document.querySelectorAll('#bar span')].map(e => { const r = "
        "e.getBoundingClientRect(); return [e.title, r.left, r.width, r.top + r.height / 2,"
        " getComputedStyle(e).backgroundColor] })"
    )
    assert parts[0][0].endswith(" done"), "from the left, as in the terminal"
    whole = sum(width for _, _, width, *_ in parts)
    for title, left, width, middle, colour in parts:
        count, _, words = title.partition(" ")
        assert int(count) == counts(Step(words.replace(" ", "_")))
        assert width == pytest.approx(max(whole * int(count) / MANY, 2), rel=0.2, abs=2)
        clip = {"x": int(left + width / 2), "y": int(middle), "width": 1, "height": 1, "scale": 1}
        taken = page.call("Page.captureScreenshot", {"clip": clip, "format": "png"})
        wanted = [int(part) for part in re.findall(r"\d+", colour)[:3]]
        assert pixel(base64.b64decode(taken["data"])) == wanted, title
    assert len({colour for *_, colour in parts}) == 4


def pixel(png: bytes) -> list[int]:
    """Return red, green and blue of a picture of one pixel."""
    assert png[16:24] == b"\0\0\0\1\0\0\0\1"
    at, data = 8, b""
    while at < len(png):
        size, kind = int.from_bytes(png[at : at + 4], "big"), png[at + 4 : at + 8]
        if kind == b"IDAT":
            data += png[at + 8 : at + 8 + size]
        at += size + 12
    return list(zlib.decompress(data)[1:4])


# -- what minions say ----------------------------------------------------------------------


def test_names_and_reasons_are_text_and_nothing_is_asked_of_a_network(browser: Browser) -> None:
    rollout = many(10)
    evil = rollout.minions.pop("m0000")
    evil.step, evil.reason, evil.version = Step.FAILED, EVIL, EVIL
    object.__setattr__(
        rollout,
        "plan",
        plan.Plan(
            **{
                **{key: getattr(rollout.plan, key) for key in vars(rollout.plan)},
                "waves": (plan.Wave(EVIL, (EVIL, *rollout.minions)),),
                "left_out": {EVIL: EVIL},
            }
        ),
    )
    rollout.minions = {EVIL: evil, **rollout.minions}
    rollout.why, rollout.wave = EVIL, 0
    evil.phases = {EVIL: 1.0}
    rollout.note(NOW, EVIL)
    page = browser.open(report.page(rollout, NOW))
    assert page.evaluate("document.title") == "Rollout r1: running"
    assert page.evaluate("document.images.length + document.links.length") == 0
    assert page.evaluate(NAMES)[0] == EVIL
    assert page.evaluate(f"{ROWS}[0].cells[6].textContent") == EVIL
    for place in ("#lead", "#waves", "#reasons", "#left", "#history", "#wave"):
        assert EVIL in page.evaluate(f"document.querySelector('{place}').textContent"), place
    assert [e["request"]["url"] for e in page.events("Network.requestWillBeSent")] == [
        page.evaluate("location.href")
    ]
    assert page.events("Log.entryAdded") == []
    assert page.events("Runtime.exceptionThrown") == []
    # Even a script that got in could ask nobody.
    refused = page.evaluate("fetch('http://192.0.2.1/').then(() => 0, error => String(error))")
    assert "TypeError" in refused
    assert any(
        "Content Security Policy" in e["entry"]["text"] for e in page.events("Log.entryAdded")
    )


def test_times_are_those_of_the_zone_that_is_asked_for(browser: Browser) -> None:
    world = World([Host("m1")]).run(600)
    for zone, ends in (("UTC", " UTC"), ("Asia/Kolkata", "+05:30")):
        page = browser.open(report.page(world.rollout, world.now, zone))
        began = times.iso(world.rollout.began, zone).replace("T", " ").replace("+00:00", " UTC")
        assert f"begun {began}, as of " in page.evaluate("lead.textContent")
        first = page.evaluate("document.querySelector('#history li').textContent")
        assert first.startswith(f"{began}  began")
        assert began.endswith(ends)
    assert page.events("Runtime.exceptionThrown") == []
