"""``./dev test``: lint, the tests on each Salt series, and the system tests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from devtools import host, lint, plan, progress, rundir, venvs
from devtools.cache import Cache
from devtools.command import REPO, ToolError
from devtools.lab import state
from devtools.lab.artefacts import LabCache
from devtools.lanes import NO_TESTS, Lane, LaneResult
from devtools.plan import KINDS, SHORT, Plan
from devtools.pool import Pool, Runnable

# Seconds for a lane of the long forms: one family takes hours.
LONG_LANE_TIMEOUT = 8 * 3600
SLOWEST = 20


def run_tests(
    arguments: Sequence[str] = (),
    *,
    only: Sequence[str] = (),
    versions: Sequence[str] = (),
    marks: str = SHORT,
    with_lint: bool = True,
) -> int:
    """Run the requested tests; return 0 only if all passed and every lane ran a test."""
    began = time.monotonic()
    paths, arguments = _split(arguments)
    series = chosen(versions)
    kinds = [kind for kind in KINDS if kind in only] if only else list(KINDS)
    venv_paths, lab_paths = _paths(kinds, paths)
    skipped_lab = ""
    if lab_paths and not host.is_root():
        skipped_lab = "system tests (tests/lab) skipped: they boot containers and need root"
        progress.say(skipped_lab)
        lab_paths = []
    if not venv_paths and not lab_paths:
        print(f"test: nothing to run. {skipped_lab}")
        return 1
    cache = Cache()
    if not venv_paths:
        series = []
    with_lint = with_lint and not paths and not only
    with_alone = "tests/unit" in venv_paths
    _build(cache, series, lab=bool(lab_paths), tools=with_lint or with_alone)
    with rundir.TempRun() as tmp:
        with progress.step("building the extension", quiet=True):
            site = venvs.extension(cache, tmp)
        # A selection of tests may leave a lane empty; without a selection, that is a mistake.
        choice = bool(arguments) or marks != SHORT
        made = Plan(cache, site, tmp, arguments, marks=marks)
        lanes: list[Runnable] = [lint.Lint(cache)] if with_lint else []
        lanes += [made.alone()] if with_alone else []
        for version in series:
            lanes += made.series(version, venv_paths)

        def with_containers() -> list[Lane]:
            if lab_paths:
                LabCache(cache).build_all()
            timeout = None if marks == SHORT else LONG_LANE_TIMEOUT
            return made.lab(lab_paths, timeout=timeout)

        try:
            results = Pool(lanes, later=with_containers).run()
        finally:
            if host.is_root():
                state.clean()
    if choice:
        results = [result for result in results if result.rc != NO_TESTS]
    else:
        plan.remember(cache, results)
    return _summary(results, skipped_lab, time.monotonic() - began)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate paths of tests from other arguments for pytest."""
    paths = [arg for arg in arguments if (REPO / arg.partition("::")[0]).exists()]
    return paths, [arg for arg in arguments if arg not in paths]


def chosen(versions: Sequence[str]) -> list[str]:
    """Resolve ``3007`` or ``3007.15`` to a series that we test."""
    if not versions:
        return list(venvs.SERIES)
    chosen = []
    for wanted in versions:
        found = [v for v in venvs.SERIES if v == wanted or v.partition(".")[0] == wanted]
        if not found:
            raise ToolError(f"no Salt {wanted} here; --salt takes {', '.join(venvs.SERIES)}")
        chosen += found
    return chosen


def _paths(kinds: Sequence[str], given: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the paths for the venv lanes and for the lab lane."""
    if given:
        lab = [path for path in given if Path(path).parts[:2] == ("tests", "lab")]
        return [path for path in given if path not in lab], lab
    for kind in kinds:
        if not (REPO / "tests" / kind).is_dir():
            progress.say(f"there is no tests/{kind}")
    there = [kind for kind in kinds if (REPO / "tests" / kind).is_dir()]
    return [f"tests/{k}" for k in there if k != "lab"], ["tests/lab"] if "lab" in there else []


def _build(cache: Cache, series: Sequence[str], *, lab: bool, tools: bool) -> None:
    """Build what is missing before any test runs, two things at a time.

    With *lab*, the lab's own artefacts are built later, while other tests run.
    """
    host.ensure_venv_module()
    with ThreadPoolExecutor(max_workers=2) as pool:
        jobs: list[Future[object]] = []
        if lab:
            host.ensure_lab_programs()
            jobs.append(pool.submit(LabCache(cache).rootfs))
        if tools:
            jobs.append(pool.submit(venvs.tools, cache))
        needed = dict.fromkeys([venvs.NEWEST, *series])
        jobs += [pool.submit(venvs.series, cache, version) for version in needed]
        for job in jobs:
            job.result()


def build_everything(cache: Cache) -> None:
    """Fill the cache with everything that ``./dev test`` and ``./dev demo`` need."""
    _build(cache, venvs.SERIES, lab=host.is_root(), tools=True)
    if host.is_root():
        LabCache(cache).build_all()


def _summary(results: list[LaneResult], skipped: str, seconds: float) -> int:
    bad = [result for result in results if not result.ok]
    for result in bad:
        print(f"\n######## {result.name}: {result.reason}; log: {result.log}\n{result.end}")
    if told := [each for result in results for each in result.told]:
        print("\n######## what was counted")
        for test, text in told:
            print(f"{test}\n    " + text.replace("\n", "\n    "))
    print(f"\n######## the slowest {SLOWEST} tests")
    slowest = sorted(
        ((took, test, each.name) for each in results for took, test in each.durations), reverse=True
    )
    for took, test, lane in slowest[:SLOWEST]:
        print(f"{took:7.1f} s  {test}  ({lane})")
    print("\n######## summary")
    width = max((len(result.name) for result in results), default=0)
    for result in sorted(results, key=lambda result: result.name):
        cost = f"{result.seconds:5.0f} s, {result.processor:4.0f} s of a processor"
        print(f"{result.name:<{width}} {cost}  {result.reason}  {result.closing}")
    if skipped:
        print(skipped)
    passed, failed, left = (
        sum(getattr(result, key) for result in results) for key in ("passed", "failed", "skipped")
    )
    word = "FAILED" if bad or not results else "PASSED"
    spent = sum(result.processor for result in results)
    print(f"{len(results)} runs, {seconds:.0f} s, {spent:.0f} s of a processor")
    # Programs that run this look for such a line.
    print(f"{word}: {passed} passed, {failed} failed, {left} skipped", flush=True)
    return 1 if word == "FAILED" else 0
