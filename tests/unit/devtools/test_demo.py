"""What ``./dev demo`` shows: a picture for one screen, and a page that stands alone."""

import re

import pytest

from devtools import page, picture
from devtools.__main__ import parser
from devtools.observe import Moment
from devtools.outcome import Job, Outcome, state_names

OLD, NEW = "3006.28", "3007.15"


def outcome(*, extension, seconds=100, odd=""):
    """Return what an experiment saw: everything came back, or nothing after the update."""
    out = Outcome(OLD, NEW, extension, 1000.0)
    labels = [*(f"long-{number}{odd}" for number in range(1, 6)), "highstate", "follow-up-unpack"]
    for number, label in enumerate(labels):
        job = Job(label, "cmd.run", str(number), 1000.0 + number / 10)
        job.started = job.ended = 1
        if extension:
            job.returned, job.cached = 1000.0 + seconds - 10, True
        out.jobs.append(job)
    for second in range(0, seconds, 2):
        ping = Job("ping", "test.ping", f"p{second}", 1000.0 + second)
        if extension or second < 30:
            ping.returned, ping.cached = ping.published + (8 if 30 < second < 40 else 0.1), True
        out.pings.append(ping)
    out.states = dict.fromkeys(state_names(), True) if extension else {}
    out.timeline = [Moment(1030.0, "dpkg: upgrade salt-minion"), Moment(1040.0, "dpkg: status")]
    out.service_before = {"ActiveState": "active"}
    out.service_after = {"ActiveState": "active" if extension else "failed"}
    out.running_after = NEW if extension else ""
    return out


@pytest.mark.parametrize("seconds", [1, 9, 60, 100, 900, 5000])
def test_the_picture_fits_a_screen(seconds):
    both = [outcome(extension=extension, seconds=seconds) for extension in (False, True)]
    # Below it: where the page is, and the verdict.
    lines = picture.picture(both).splitlines()
    assert len(lines) <= 22
    assert max(map(len, lines)) <= 80


def test_the_picture_says_what_was_lost():
    text = picture.picture([outcome(extension=False), outcome(extension=True)])
    rows = {row[:18].strip(): row[18:] for row in text.splitlines()[2:9]}
    assert rows["highstate"].split() == ["LOST", "returned,", "20", "of", "20", "states"]
    assert rows["long jobs"].split() == ["5", "of", "5", "LOST", "5", "of", "5", "returned"]
    assert rows["service"].split() == ["active,", "then", "FAILED", "active"]
    assert rows["version running"].split() == ["NO", "ANSWER", NEW]
    plain, ours = text.split("with the extension")
    assert "XXX" in plain.split("plain Salt")[-1]
    assert "X" not in ours.removesuffix(picture.LEGEND)
    assert "~" in ours


def test_one_of_the_two_has_a_picture_as_well():
    assert "returned, 20 of 20" in picture.picture([outcome(extension=True)])


def test_the_page_stands_alone_and_takes_names_as_text():
    odd = "<img src=x onerror=alert(1)>\"'&"
    text = page.page([outcome(extension=False, odd=odd), outcome(extension=True, odd=odd)])
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;&quot;" in text
    assert re.findall(r"https?:|<link|<script|@import|url\(", text) == []
    assert text.count("<section>") == 2
    for tag in ("div", "table", "pre"):
        assert text.count(f"<{tag}") == text.count(f"</{tag}>")


def test_what_was_lost_is_on_the_page():
    text = page.page([outcome(extension=False), outcome(extension=True)])
    plain, ours = text.split("<section>")[1:]
    assert 'class="lost"' in plain
    assert "highstate: its return was lost" in plain
    assert 'class="lost"' not in ours
    assert "things wrong" in ours


def test_the_timeline_is_asked_for():
    assert parser().parse_args(["demo"]).timeline is False
    assert parser().parse_args(["demo", "--timeline"]).timeline is True
