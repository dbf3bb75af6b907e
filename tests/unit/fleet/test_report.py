"""The page of a rollout: complete in itself, and markup for nobody."""

import base64
import hashlib
import html.parser
import json
import re

from saltext_safeupdate.core import times
from saltext_safeupdate.fleet import report
from tests.unit.fleet.world import Host, World


class Page(html.parser.HTMLParser):
    """The elements of a page with their attributes, and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and data.strip():
            self.texts.append((self.elements[-1][0], data))


def made(count: int = 12) -> World:
    return World([Host(f"m{number:04}") for number in range(count)], soak=0).run(3600)


def parsed(text: str) -> tuple[Page, dict]:
    page = Page(text)
    (told,) = [data for tag, data in page.texts if tag == "script" and data.startswith("{")]
    return page, json.loads(told)


def test_it_holds_all_and_needs_nothing_else() -> None:
    world = made()
    page, told = parsed(report.page(world.rollout, world.now))
    assert told == json.loads(json.dumps(report.data(world.rollout, world.now)))
    assert len(told["minions"]) == 12
    for _, attributes in page.elements:
        assert not {"src", "href", "srcset", "action"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on") or name == "style"]


def test_its_policy_allows_its_own_parts_and_nothing_else() -> None:
    world = made(2)
    page, _ = parsed(report.page(world.rollout, world.now))
    (policy,) = [a["content"] for tag, a in page.elements if "http-equiv" in a]
    assert policy.startswith("default-src 'none';")
    for kind, name in (("style", "style-src"), ("script", "script-src")):
        (text,) = [data for tag, data in page.texts if tag == kind and not data.startswith("{")]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name} 'sha256-{digest}';" in policy


def test_what_minions_say_is_no_markup() -> None:
    world = made(3)
    evil = "</script><script>alert(1)</script><!--@SCRIPT@ @DATA@"
    minion = world.rollout.minions["m0001"]
    minion.reason, minion.version = evil, evil
    text = report.page(world.rollout, world.now)
    page, told = parsed(text)
    assert [tag for tag, _ in page.elements].count("script") == 2
    assert told["minions"][1]["reason"] == evil
    assert "innerHTML" not in text
    assert not re.search(r"insertAdjacent|document\.write|eval\(", text)


def test_its_times_are_in_the_zone_that_is_asked_for() -> None:
    world = made(2)
    _, told = parsed(report.page(world.rollout, world.now, "Asia/Kolkata"))
    shown = told["summary"]["times"]
    assert shown["began"] == times.iso(world.rollout.began, "Asia/Kolkata")
    assert shown["looked"].endswith("+05:30")
    assert len(shown["history"]) == len(told["history"])
    assert all(at.endswith("+05:30") for at in shown["history"])
