"""``./dev test``: lint, the tests on each Salt series, and the system tests."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from devtools import host, lint, progress, rundir, venvs
from devtools.cache import Cache
from devtools.command import REPO, ToolError, check_stopping
from devtools.lab import state
from devtools.lab.artefacts import LabCache
from devtools.lanes import NO_TESTS, Lane, LaneResult, tail

KINDS = ("unit", "functional", "integration", "lab")
LAB_TEST_TIMEOUT = 900
# Seconds for a lane of the long forms: those of one family take hours together.
LONG_LANE_TIMEOUT = 8 * 3600
MARKS = "not soak"
# The families of system tests that take longest come first: short ones fill the end better.
LONGEST = ("engine", "jobs", "update")


def run_tests(
    arguments: Sequence[str] = (),
    *,
    only: Sequence[str] = (),
    versions: Sequence[str] = (),
    marks: str = MARKS,
    with_lint: bool = True,
) -> int:
    """Run what was asked for; 0 only if everything passed and every lane ran a test."""
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
    _build(cache, series, lab=bool(lab_paths), tools=with_lint)
    wrong_lint: list[str] = []
    with rundir.TempRun() as tmp:
        with progress.step("building the extension", quiet=True):
            site = venvs.extension(cache, tmp)
        # A choice of tests may leave a lane without any; without one, that would be a mistake.
        choice = bool(arguments) or marks != MARKS
        arguments = ["-m", marks, *arguments]

        lab = deque(_lab_lanes(cache, lab_paths, site, tmp, arguments))
        if marks != MARKS:
            lab = deque(replace(lane, timeout=LONG_LANE_TIMEOUT) for lane in lab)

        def system() -> list[LaneResult]:
            """Take system tests as long as there are any."""
            results = []
            with contextlib.suppress(IndexError):
                while True:
                    results.append(_guarded(lab.popleft()))
            return results

        def series_first() -> list[LaneResult]:
            if with_lint:
                wrong_lint.extend(lint.lint(cache))
            lanes = [_series_lane(cache, v, venv_paths, site, tmp, arguments) for v in series]
            return [*map(_guarded, lanes), *system()]

        try:
            results = _side_by_side([series_first, system])
        finally:
            if host.is_root():
                state.clean()
    if choice:
        results = [result for result in results if result.rc != NO_TESTS]
    return _summary(results, wrong_lint, with_lint, skipped_lab, time.monotonic() - began)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Tell paths of tests from other arguments for pytest."""
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
    """Build what is missing before any test runs, two things at a time."""
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
    if lab:
        LabCache(cache).build_all()


def build_everything(cache: Cache) -> None:
    """Fill the cache with all that ``./dev test`` and ``./dev demo`` need."""
    _build(cache, venvs.SERIES, lab=host.is_root(), tools=True)


def _series_lane(
    cache: Cache, version: str, paths: list[str], site: Path, tmp: Path, arguments: list[str]
) -> Lane:
    short = version.partition(".")[0][-1]
    log = cache.log(f"test-{version}")
    venv = venvs.series(cache, version)
    return Lane(f"salt {version}", venv, paths, site, tmp / f"s{short}", log, arguments)


def _lab_lanes(
    cache: Cache, paths: list[str], site: Path, tmp: Path, arguments: list[str]
) -> list[Lane]:
    """Return a lane for each family of system tests; ``tests/lab`` stands for all of them."""
    if paths == ["tests/lab"]:
        families: dict[str, list[str]] = {}
        for path in sorted((REPO / "tests" / "lab").glob("test_*.py")):
            families.setdefault(path.stem.split("_")[1], []).append(str(path.relative_to(REPO)))
        families = dict(sorted(families.items(), key=lambda family: family[0] not in LONGEST))
    else:
        families = {"": paths} if paths else {}
    return [
        Lane(
            f"lab {family}".strip(),
            venvs.series(cache, venvs.NEWEST),
            files,
            site,
            tmp / f"l{number}",
            cache.log(f"test-lab-{family}".rstrip("-")),
            arguments,
            per_test_timeout=LAB_TEST_TIMEOUT,
        )
        for number, (family, files) in enumerate(families.items())
    ]


def _guarded(lane: Lane) -> LaneResult:
    check_stopping()
    try:
        return lane.run()
    except ToolError as err:
        progress.say(f"{lane.name}: {err}")
        return LaneResult(lane.name, -1, 0.0, closing=str(err).splitlines()[0], log=lane.log)


def _side_by_side(lanes: Sequence[Callable[[], list[LaneResult]]]) -> list[LaneResult]:
    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        running = [pool.submit(lane) for lane in lanes]
        return [result for lane in running for result in lane.result()]


def _summary(
    results: list[LaneResult], wrong_lint: list[str], linted: bool, skipped: str, seconds: float
) -> int:
    bad = [result for result in results if not result.ok]
    for result in bad:
        print(f"\n######## {result.name}: {result.reason}; end of {result.log}\n{tail(result.log)}")
    print("\n######## summary")
    if linted:
        print(f"{'lint':<14} {'FAILED: ' + ', '.join(wrong_lint) if wrong_lint else 'ok'}")
    for result in results:
        print(f"{result.name:<14} {result.reason:<22} {result.closing}")
    if skipped:
        print(skipped)
    passed, failed, left = (
        sum(getattr(result, key) for result in results) for key in ("passed", "failed", "skipped")
    )
    word = "FAILED" if bad or wrong_lint or not results else "PASSED"
    counts = f"{passed} passed, {failed} failed, {left} skipped"
    print(f"{word}: {counts} in {len(results)} runs, {seconds:.0f} s", flush=True)
    return 0 if word == "PASSED" else 1
