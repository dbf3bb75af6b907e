"""What runs where as metrics, since when it differs, and the dashboard that draws it."""

import json
import pathlib
import re

from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.fleet import adrift, inventory, metrics
from saltext_safeupdate.fleet.inventory import Record
from saltext_safeupdate.fleet.rollout import Mode
from tests.unit.fleet.world import NEW, NOW, OLD, Host, World

REPO = pathlib.Path(__file__).resolve().parents[3]
DASHBOARD = REPO / "packaging" / "grafana" / "safeupdate.json"
REFERENCE = (REPO / "docs" / "ref" / "metrics.md").read_text(encoding="utf-8")


def record(name: str, running: str = NEW, at: float = NOW, **more: object) -> Record:
    answer = {"running": running, "installed": running, "phase": "idle", **more}
    return inventory.from_answer(name, answer, at)


def of(records: list[Record], *more: str, now: float = NOW) -> dict[str, float]:
    known = {each.minion: each for each in records}
    text = metrics.metrics([], 0, known, [*known, *more], now)
    found = re.findall(r"^salt_safeupdate_([^ ]+) (\S+)$", text, re.M)
    return {name: float(value) for name, value in found}


def test_minions_are_counted_by_version_and_phase_and_the_others_by_why_not() -> None:
    senseless = inventory.from_answer("m5", 7, NOW)
    old = record("m4", at=NOW - 2 * inventory.SILENT)
    found = of(
        [record("m1"), record("m2"), record("m3", OLD, phase="watching"), old, senseless], "m6"
    )
    assert found[f'minions{{version="{NEW}",phase="idle"}}'] == 2
    assert found[f'minions{{version="{OLD}",phase="watching"}}'] == 1
    assert found['minions_unknown{why="silent"}'] == 2
    assert found['minions_unknown{why="senseless"}'] == 1
    assert found["drift_oldest_seconds"] == 0


def test_whose_key_is_gone_is_not_counted() -> None:
    text = metrics.metrics([], 0, {"m1": record("m1")}, [], NOW)
    assert "minions{" not in text


def test_no_minion_makes_more_series_than_one_or_markup_of_them() -> None:
    many = [record(f"m{n}", f'9.{n}"\\') for n in range(200)]
    odd = record("x", phase='a"b')
    found = of([*many, odd, *(record(f"n{n}") for n in range(3))])
    series = [name for name in found if name.startswith("minions{")]
    assert len(series) <= 52
    assert sum(found[name] for name in series) == 204
    assert any('version="other"' in name for name in series)
    assert f'minions{{version="{NEW}",phase="other"}}' in series


def test_the_master_notes_since_when_a_minion_differs_and_the_minion_cannot_say_it() -> None:
    differs = {"installed": NEW, "drifting": 1.0}
    first = adrift.noted(record("m", OLD, NOW, **differs), None)
    assert (first.drifting, adrift.codes(first)) == (NOW, ["not-restarted"])
    later = adrift.noted(record("m", OLD, NOW + 500, **differs), first)
    assert later.drifting == NOW
    assert inventory.from_data(inventory.to_data(later)) == later
    found = of([later], now=NOW + 600)
    assert found["drift_oldest_seconds"] == 600
    assert found['minions_adrift{code="not-restarted"}'] == 1
    well = adrift.noted(record("m", at=NOW + 700), later)
    assert well.drifting == 0
    again = adrift.noted(record("m", intended=OLD, at=NOW + 800), well)
    assert (again.drifting, adrift.codes(again)) == (NOW + 800, ["not-as-intended"])
    # A clock that was set back.
    assert adrift.noted(record("m", OLD, NOW - 9, **differs), first).drifting == NOW - 9


def test_codes_are_those_of_the_check() -> None:
    differs = record("m", OLD, installed=NEW, intended=OLD, extension="1", extension_on_disk="2")
    checked = [each.code for each in inventory.drift(differs, "m", NEW, NOW)]
    assert adrift.codes(differs) == checked == list(adrift.CODES)


def test_all_phases_are_known() -> None:
    phases = {phase.value for phase in Phase}
    found = of([record(f"m{n}", phase=phase) for n, phase in enumerate(sorted(phases))])
    assert not any('"other"' in name for name in found)


def test_every_metric_is_on_its_page_and_the_dashboard_asks_for_no_other() -> None:
    text = metrics.metrics([World([Host("m1")]).rollout], 0, {}, [], NOW)
    names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    assert set(re.findall(r"salt_safeupdate_\w+", REFERENCE)) == names
    asked = set(re.findall(r"salt_safeupdate_\w+", DASHBOARD.read_text(encoding="utf-8")))
    assert asked == names


def test_the_alerts_of_the_page_on_monitoring_ask_for_what_there_is() -> None:
    page = (REPO / "docs/topics/howto/monitor.md").read_text(encoding="utf-8")
    asked = set(re.findall(r"salt_safeupdate_\w+", page))
    assert len(asked) > 3
    assert asked <= set(re.findall(r"salt_safeupdate_\w+", REFERENCE))
    modes = set(re.findall(r'mode="(\w+)"', page))
    assert modes == {"stopped", "running"} & {mode.value for mode in Mode}
    assert set(re.findall(r'phase="(\w+)"', page)) <= {phase.value for phase in Phase}


def test_the_dashboard_has_panels_that_do_not_lie_on_each_other() -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 5
    assert all(panel["title"] and panel["description"] for panel in panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    source = "${source}"
    assert all(panel["datasource"]["uid"] == source for panel in panels)
    assert [each["name"] for each in board["templating"]["list"]] == ["source"]
