"""Every test is in exactly one lane of those that it belongs to."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from devtools import lanes, plan, testrun, venvs
from devtools.cache import Cache
from devtools.command import REPO
from devtools.lanes import LaneResult

KINDS = ["tests/unit", "tests/functional", "tests/integration"]


@pytest.fixture
def made(monkeypatch, tmp_path):
    monkeypatch.setattr(venvs, "series", lambda cache, version: Path(version))
    monkeypatch.setattr(venvs, "tools", lambda cache: Path("tools"))
    return plan.Plan(Cache(tmp_path), tmp_path / "site", tmp_path)


def files(lanes):
    """Return each file with tests, as often as there are lanes with all of it."""
    found = []
    for lane in lanes:
        left_out = {word.partition("=")[2] for word in lane.arguments if "--ignore=" in word}
        part = next((word for word in lane.arguments if re.fullmatch(r"\d+/\d+", word)), "1/1")
        if not part.startswith("1/"):
            continue
        for path in lane.paths:
            there = REPO / path
            tests = [there] if there.is_file() else there.rglob("test_*.py")
            found += [name for t in tests if (name := str(t.relative_to(REPO))) not in left_out]
    return sorted(found)


def test_all_tests_are_in_lanes_once(made):
    others = [made.alone(), *made.lab(["tests/lab"])]
    series = [made.series(version, KINDS) for version in venvs.SERIES]
    lanes = [*others, *itertools.chain(*series)]
    there = {str(path.relative_to(REPO)) for path in (REPO / "tests").rglob("test_*.py")}
    assert set(files(lanes)) == there
    for each in series:
        found = files([*others, *each])
        assert len(set(found)) == len(found)
    assert len({lane.name for lane in lanes}) == len({lane.log for lane in lanes}) == len(lanes)
    assert len({lane.tmp for lane in lanes}) == len(lanes)


@pytest.mark.parametrize("version", venvs.SERIES)
def test_what_a_run_leaves_out_of_a_series_the_soak_has_whole(made, tmp_path, version):
    whole = sorted(set(itertools.chain(*(files(made.series(v, KINDS)) for v in venvs.SERIES))))
    left_out = set(whole) - set(files(made.series(version, KINDS)))
    places = [place for place, series in plan.ONLY.items() if version not in series]
    assert all(name.startswith(tuple(places)) for name in left_out)
    assert all(any(name.startswith(place) for name in left_out) for place in places)
    soak = plan.Plan(Cache(tmp_path), tmp_path / "site", tmp_path, marks=plan.LONG)
    lanes = soak.series(version, KINDS)
    assert files(lanes) == whole
    assert set(files([one for one in lanes if "-m" not in one.arguments])) == left_out


def test_every_place_that_series_leave_out_exists(made):
    assert all((REPO / place).exists() for place in plan.ONLY)
    assert all(series <= set(venvs.SERIES) for series in plan.ONLY.values())
    # Whoever names one means it.
    (lane,) = made.series("3006.28", ["tests/integration/test_swarm.py"])
    assert lane.paths == ["tests/integration/test_swarm.py"]


def test_what_waits_most_of_the_time_takes_no_turn_of_those_that_compute(made):
    lanes = made.series(venvs.NEWEST, KINDS)
    waiting = {lane.paths[0] for lane in lanes if not lane.busy}
    assert "tests/functional/jobs" in waiting
    assert {path for path in waiting if "integration" not in path} == {"tests/functional/jobs"}
    assert not any(lane.busy for lane in lanes if "integration" in lane.name)


@pytest.mark.usefixtures("real_process")
def test_what_one_series_alone_runs_has_nothing_to_do_with_salt(made):
    program = """
import sys
sys.modules["salt"] = None
import importlib, pkgutil
import saltext_safeupdate.core as core
for found in pkgutil.walk_packages(core.__path__, "saltext_safeupdate.core."):
    if not found.name.endswith("launch"):
        importlib.import_module(found.name)
"""
    lane = made.alone()
    assert lane.venv == Path("tools")
    assert "tests/unit/core/prepare/test_removed_modules.py" not in files([lane])
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.usefixtures("real_process")
def test_parts_are_the_whole(tmp_path, parts):
    (tmp_path / "test_it.py").write_text("".join(f"def test_{n}(): pass\n" for n in range(7)))
    seen = []
    for number in range(1, parts + 1):
        argv = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
        argv += ["-p", "devtools.part", "--part", f"{number}/{parts}", str(tmp_path)]
        argv += ["--rootdir", str(tmp_path), "-c", "/dev/null"]
        # What is installed beside pytest takes longer to load than all of this.
        env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        done = subprocess.run(argv, cwd=REPO, env=env, capture_output=True, text=True, check=True)
        seen += re.findall(r"::(test_\d)", done.stdout)
    assert sorted(seen) == [f"test_{n}" for n in range(7)]


def test_what_was_measured_decides_the_order_of_the_next_run(made, tmp_path):
    cache = Cache(tmp_path)
    plan.remember(cache, [LaneResult("lab engine", 0, 77.0, passed=1)])
    plan.remember(cache, [LaneResult("lab engine", 1, 3.0, failed=1)])
    assert plan.measured(cache) == {"lab engine": 77.0}
    (cache.root / plan.RECORD).write_text("{")
    assert plan.measured(cache) == {}


def test_the_first_run_knows_what_each_lane_usually_takes(made):
    lanes = [made.alone(), *made.lab(["tests/lab"])]
    lanes += itertools.chain(*(made.series(version, KINDS) for version in venvs.SERIES))
    known = plan.usual()
    assert set(known) == {lane.name for lane in lanes}, "see what .../lanes.json of the cache has"
    assert [lane.seconds for lane in lanes] == [known[lane.name] for lane in lanes]


@pytest.mark.parametrize(
    ("results", "line"),
    [
        ([LaneResult("a", 0, 1.0, passed=3, skipped=2)], "PASSED: 3 passed, 0 failed, 2 skipped"),
        ([LaneResult("a", 1, 1.0, passed=3, failed=1)], "FAILED: 3 passed, 1 failed, 0 skipped"),
        ([LaneResult("lint", 1, 1.0, has_tests=False)], "FAILED: 0 passed, 0 failed, 0 skipped"),
        ([LaneResult("a", 5, 1.0)], "FAILED: 0 passed, 0 failed, 0 skipped"),
        ([], "FAILED: 0 passed, 0 failed, 0 skipped"),
    ],
)
def test_the_last_line_is_for_programs(capsys, results, line):
    status = testrun._summary(results, "", 1.0)
    assert capsys.readouterr().out.splitlines()[-1] == line
    assert status == int(line.startswith("FAILED"))


def test_the_slowest_twenty_are_told(capsys):
    durations = tuple((float(n), f"test_{n}") for n in range(30))
    testrun._summary([LaneResult("a", 0, 1.0, passed=30, durations=durations)], "", 1.0)
    told = re.findall(r"s  (test_\d+)  \(a\)", capsys.readouterr().out)
    assert told == [f"test_{n}" for n in range(29, 9, -1)]


def test_what_is_shown_of_a_log_is_its_first_failure_and_its_end():
    text = "\n".join(
        [*(f"line {n}" for n in range(500)), "______ test_it ______", *map(str, range(500)), "end"]
    )
    shown = lanes.excerpt(text).splitlines()
    assert shown[0] == "______ test_it ______"
    assert shown[-1] == "end"
    assert "[...]" in shown
    assert len(shown) == lanes.FIRST_LINES + lanes.TAIL_LINES + 1
    assert lanes.excerpt("short\n") == "short\n"
