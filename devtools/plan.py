"""The lanes of ``./dev test``, short enough that none of them ends long after the others."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from devtools import venvs
from devtools.cache import Cache
from devtools.command import REPO
from devtools.lanes import Lane, LaneResult, Venvs

KINDS = ("unit", "functional", "integration", "lab")
# These tests do not depend on Salt: they run once, without Salt.
ALONE = ("tests/unit/core", "tests/unit/devtools", "tests/unit/fleet")
_OURS = r"saltext_safeupdate(?!\.(?:core|fleet)\b)"
# The last two come with Salt.
_OTHERS = rf"(?:salt|msgpack|zmq)\b|tests\.support\.minion|tests\.unit\.master|{_OURS}"
_SALT = re.compile(rf"^\s*(?:import|from) (?:{_OTHERS})", re.M)
# Places that every run tests on some series only, because of the time. The soak runs them on all.
OLDEST, NEWEST = frozenset(venvs.SERIES[:1]), frozenset(venvs.SERIES[-1:])
OUTER = frozenset((venvs.SERIES[0], venvs.SERIES[-1]))
ONLY = {
    # On the newest, integration/test_ordering and the lab order runs.
    "tests/functional/jobs": OUTER,
    "tests/functional/master": NEWEST,
    "tests/functional/ordering": OLDEST,
    "tests/functional/transactional": NEWEST,
    "tests/integration/test_attacks.py": NEWEST,
    "tests/integration/test_master_user.py": NEWEST,
    "tests/integration/test_masters.py": NEWEST,
    "tests/integration/test_orchestration.py": NEWEST,
    "tests/integration/test_ordering.py": NEWEST,
    "tests/integration/test_rest.py": NEWEST,
    "tests/integration/test_rollout.py": NEWEST,
    "tests/integration/test_set_ups.py": NEWEST,
    "tests/integration/test_starts.py": NEWEST,
    "tests/integration/test_swarm.py": NEWEST,
    # With 3008.3, the syndic is left out.
    "tests/integration/test_syndics.py": OLDEST,
    "tests/integration/test_transactional.py": NEWEST,
    "tests/unit": NEWEST,
}
# Tests that wait most of the time, for daemons and for what these start.
WAITING = ("tests/integration", "tests/functional/jobs")
SHORT, LONG = "not soak", "soak"
# The number of lanes for the tests of a place.
PARTS = {
    "tests/functional/ordering": 2,
    "tests/functional/transactional": 2,
    "tests/lab/test_packages_apt.py": 2,
    "tests/lab/test_packages_rpm.py": 2,
    "tests/lab/test_rpm_host.py": 2,
    "tests/lab/test_update.py": 4,
}
# Seconds that lanes take while others run, for the first run. Later runs use measured times.
USUAL = REPO / "devtools" / "lanes.json"
RECORD = "lanes.json"


class Plan:
    """Makes the lanes of one run. They write only below *tmp*."""

    def __init__(
        self,
        cache: Cache,
        site: Path,
        tmp: Path,
        arguments: Sequence[str] = (),
        *,
        marks: str = SHORT,
    ) -> None:
        self._cache, self._site, self._tmp = cache, site, tmp
        self._arguments, self._marks = list(arguments), marks
        self._venvs = Venvs(site, tmp)
        self._measured = usual() | measured(cache)
        self._number = 0

    def series(self, version: str, paths: Sequence[str]) -> list[Lane]:
        """Return lanes with *paths* (whole kinds are divided) on one Salt series."""
        lanes = []
        for label, group in groups(paths):
            name = f"salt {version} {label}".strip()
            # A named place is run in any case.
            place = "tests/unit" if label == "unit" else group[0]
            busy = not place.startswith(WAITING)
            if not label or version in ONLY.get(place, venvs.SERIES):
                lanes += self._parts(name, version, group, busy=busy)
            elif self._marks == LONG:
                lanes += self._parts(name, version, group, busy=busy, marks="")
        return lanes

    def alone(self) -> Lane:
        """Return the lane with the tests that do not need Salt."""
        needing = [f"--ignore={path}" for path in alone_with_salt()]
        return self._lane("without Salt", venvs.tools(self._cache), ALONE, needing)

    def lab(self, paths: Sequence[str], timeout: int | None = None) -> list[Lane]:
        """Return a lane for each file of system tests; ``tests/lab`` stands for all of them."""
        files = sorted((REPO / "tests/lab").glob("test_*.py")) if paths == ["tests/lab"] else []
        named = [(f.stem.removeprefix("test_"), [str(f.relative_to(REPO))]) for f in files]
        lanes = []
        for label, group in named or [("", list(paths))] if paths else []:
            name = f"lab {label}".strip().replace("_", " ")
            lanes += self._parts(name, venvs.NEWEST, group, busy=False, timeout=timeout)
        return lanes

    def _parts(
        self,
        name: str,
        version: str,
        paths: list[str],
        *,
        busy: bool = True,
        timeout: int | None = None,
        marks: str | None = None,
    ) -> list[Lane]:
        venv = venvs.series(self._cache, version)
        parts = PARTS.get(paths[0], 1) if len(paths) == 1 and not self._chosen() else 1
        if parts == 1:
            return [self._lane(name, venv, paths, busy=busy, timeout=timeout, marks=marks)]
        return [
            self._lane(
                f"{name} {number}/{parts}",
                venv,
                paths,
                ["-p", "devtools.part", "--part", f"{number}/{parts}"],
                busy=busy,
                timeout=timeout,
                marks=marks,
            )
            for number in range(1, parts + 1)
        ]

    def _chosen(self) -> bool:
        """Return whether only some tests are wanted: if divided, some lanes would be empty."""
        return any(word in ("-k", "--deselect") or "::" in word for word in self._arguments)

    def _lane(
        self,
        name: str,
        venv: Path,
        paths: Sequence[str],
        extra: Sequence[str] = (),
        *,
        busy: bool = True,
        timeout: int | None = None,
        marks: str | None = None,
    ) -> Lane:
        self._number += 1
        marks = self._marks if marks is None else marks
        lane = Lane(
            name,
            venv,
            paths,
            self._site,
            self._tmp / f"l{self._number}",
            self._cache.log("test-" + re.sub(r"[^\w.]+", "-", name)),
            self._venvs,
            [*(["-m", marks] if marks else []), *self._arguments, *extra],
            busy=busy,
            seconds=self._seconds(name),
        )
        return lane if timeout is None else replace(lane, timeout=timeout)

    def _seconds(self, name: str) -> float:
        return self._measured.get(name) or Lane.seconds


def groups(paths: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Divide the places of tests on one series into lanes: ``(label, paths)``."""
    found: list[tuple[str, list[str]]] = []
    for path in paths:
        if path == "tests/unit":
            others = [p for p in _children(path) if p not in ALONE]
            found.append(("unit", [*others, *alone_with_salt()]))
        elif path in ("tests/functional", "tests/integration"):
            for child in _children(path):
                label = Path(child).stem.removeprefix("test_")
                found.append((f"{Path(path).name} {label}", [child]))
    whole = {"tests/unit", "tests/functional", "tests/integration"}
    if given := [path for path in paths if path not in whole]:
        found.append(("", given))
    return found


def _children(path: str) -> list[str]:
    """Return the places with tests in a directory."""
    found = [
        child
        for child in sorted((REPO / path).iterdir())
        if child.match("test_*.py") or any(child.rglob("test_*.py"))
    ]
    return [str(child.relative_to(REPO)) for child in found]


def alone_with_salt() -> list[str]:
    """Return the test files in these places that need Salt nevertheless."""
    found = sorted(path for place in ALONE for path in (REPO / place).rglob("test_*.py"))
    return [str(path.relative_to(REPO)) for path in found if _SALT.search(path.read_text())]


def usual() -> dict[str, float]:
    """Return the seconds that lanes usually take, by name."""
    found: dict[str, float] = json.loads(USUAL.read_text())
    return found


def measured(cache: Cache) -> dict[str, float]:
    """Return the seconds that lanes took in earlier runs, by name."""
    try:
        found = json.loads((cache.root / RECORD).read_text())
    except (OSError, ValueError):
        return {}
    return {str(name): float(seconds) for name, seconds in found.items()}


def remember(cache: Cache, results: Iterable[LaneResult]) -> None:
    """Store the times of lanes that passed, for the order of the next run."""
    known = measured(cache) | {each.name: round(each.seconds, 1) for each in results if each.ok}
    fresh = cache.root / f".{RECORD}-{os.getpid()}"
    fresh.write_text(json.dumps(known, indent=1))
    fresh.replace(cache.root / RECORD)
