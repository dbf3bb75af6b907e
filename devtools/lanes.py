"""One pytest run in a venv: its environment, its log, and how it ended."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools import cost, progress, rundir, venvs
from devtools.command import REPO, run

NO_TESTS = 5
# Lines of a log that are shown: of its first failure, and of its end.
FIRST_LINES, TAIL_LINES = 100, 80
_FAILURE = re.compile(r"_{3,} .* _{3,}")
# The line that pytest writes above the output of a test in its report.
_PRINTED = re.compile(r"^-+ Captured .* -+$", re.M)
# Importing these takes longer than many a test; only what uses them has them.
PLUGINS = {
    "hypothesis": ("hypothesispytest",),
    "salt_factories": (
        *("salt-factories", "salt-factories-event-listener", "salt-factories-factories"),
        *("salt-factories-loader-mock", "salt-factories-log-server", "salt-factories-markers"),
        "salt-factories-sysinfo",
    ),
}


@dataclass(frozen=True)
class LaneResult:
    """How a lane ended; the counts come from pytest's own report."""

    name: str
    rc: int
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    processor: float = 0.0
    closing: str = ""
    log: Path | None = None
    end: str = ""
    durations: tuple[tuple[float, str], ...] = ()
    told: tuple[tuple[str, str], ...] = ()
    has_tests: bool = True

    @property
    def ok(self) -> bool:
        return self.rc == 0 and self.failed == 0 and (self.passed > 0 or not self.has_tests)

    @property
    def reason(self) -> str:
        if self.ok:
            return "ok"
        if self.failed:
            return f"FAILED ({self.failed})"
        if not self.has_tests:
            return "FAILED"
        if self.rc == NO_TESTS or (self.rc == 0 and not self.passed):
            return "FAILED (ran no test)"
        return f"FAILED (pytest ended with {self.rc})"


class Venvs:
    """The cached venvs with the extension added, made when first asked for."""

    def __init__(self, site: Path, tmp: Path) -> None:
        self._site, self._tmp = site, tmp
        self._locks: defaultdict[Path, threading.Lock] = defaultdict(threading.Lock)
        self._made: dict[Path, Path] = {}

    def __call__(self, venv: Path) -> Path:
        with self._locks[venv]:
            if venv not in self._made:
                where = self._tmp / f"v{len(self._locks)}"
                self._made[venv] = venvs.with_extension(venv, self._site, where)
            return self._made[venv]


@dataclass(frozen=True)
class Lane:
    """
    What to run: *paths* of tests with the packages of *venv* and the extension in *site*.

    *busy* lanes compute all the time, others wait most of it. *seconds* is what it usually takes.
    """

    name: str
    venv: Path
    paths: Sequence[str]
    site: Path
    tmp: Path
    log: Path
    venvs: Venvs
    arguments: Sequence[str] = ()
    busy: bool = True
    seconds: float = 60.0
    # Only a test that hangs takes that long, however busy the machine is.
    per_test_timeout: int = 2400
    timeout: int = 5000

    def run(self) -> LaneResult:
        """Run pytest to its end; never raises for failing tests."""
        self.tmp.mkdir()
        venv = self.venvs(self.venv)
        report = self.tmp / "report.xml"
        argv = [
            venvs.python(venv),
            "-m",
            "pytest",
            "-v",
            "-p",
            "no:cacheprovider",
            "-p",
            "devtools.cost",
        ]
        argv += [f"--basetemp={self.tmp / 't'}", f"--junitxml={report}"]
        argv += [word for plugin in self._unused() for word in ("-p", f"no:{plugin}")]
        argv += [f"--timeout={self.per_test_timeout}", *self.arguments, *self.paths]
        # Another run may have a lane of this name: only the log that is complete is put in place.
        log = self.tmp / "log"
        began = time.monotonic()
        with progress.step(f"tests, {self.name}", log=log):
            env = self._environment(venv)
            done = run(argv, timeout=self.timeout, check=False, log=log, env=env, cwd=REPO)
        result = self._result(done.rc, report, log, time.monotonic() - began)
        if log.exists():
            shutil.move(log, self.log)
        rundir.remove(self.tmp)
        return result

    def _unused(self) -> list[str]:
        """Return the plugins that no test here asks for."""
        text = "".join(path.read_text() for path in _files(self.paths))
        return [name for word, names in PLUGINS.items() if word not in text for name in names]

    def _environment(self, venv: Path) -> dict[str, str]:
        drop = ("PYTHON", "PYTEST", "SALT", "VIRTUAL_ENV")
        env = {key: value for key, value in os.environ.items() if not key.startswith(drop)}
        return env | {
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": str(self.tmp),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.tmp / "hypothesis"),
            "SAFEUPDATE_SITE": str(self.site),
            "PATH": f"{venv / 'bin'}:{env.get('PATH', '/usr/bin:/bin')}",
        }

    def _result(self, rc: int, report: Path, log: Path, seconds: float) -> LaneResult:
        text = log.read_text(errors="replace") if log.exists() else ""
        closings = re.findall(r"^=+ .*\b(?:passed|failed|error|no tests ran)\b.*$", text, re.M)
        durations: tuple[tuple[float, str], ...] = ()
        printed: tuple[tuple[str, str], ...] = ()
        counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        if report.exists():
            # Our own pytest has written it.
            tree = ElementTree.parse(report)  # noqa: S314
            for suite in tree.iter("testsuite"):
                for key in counts:
                    counts[key] += int(suite.get(key, 0))
            durations = tuple(
                (float(case.get("time", 0)), _test(case)) for case in tree.iter("testcase")
            )
            printed = told(tree.iter("testcase"))
        failed = counts["failures"] + counts["errors"]
        return LaneResult(
            self.name,
            rc,
            seconds,
            passed=counts["tests"] - failed - counts["skipped"],
            failed=failed,
            skipped=counts["skipped"],
            processor=cost.total(text),
            closing=closings[-1] if closings else "(no closing line of pytest)",
            log=self.log,
            end=excerpt(text),
            durations=durations,
            told=printed,
        )


def _files(paths: Sequence[str]) -> list[Path]:
    """Return the files of tests, and what they share, at these paths."""
    named = [REPO / path.partition("::")[0] for path in paths]
    found = [file for path in named for file in ([path] if path.is_file() else path.rglob("*.py"))]
    shared = {path.parent / "conftest.py" for path in found}
    return [*found, *(path for path in shared if path.exists())]


def _test(case: ElementTree.Element) -> str:
    return f"{str(case.get('classname', '')).removeprefix('tests.')}::{case.get('name')}"


def told(cases: Iterable[ElementTree.Element]) -> tuple[tuple[str, str], ...]:
    """Return the tests of a report that passed and printed something, with that: their counts."""
    passed = (case for case in cases if case.find("failure") is None and case.find("error") is None)
    printed = ((_test(case), case.findtext("system-out") or "") for case in passed)
    return tuple((test, text) for test, out in printed if (text := _PRINTED.sub("", out).strip()))


def excerpt(text: str) -> str:
    """Return the details of the first failure in a log, and its end."""
    lines = text.splitlines()
    if len(lines) <= FIRST_LINES + TAIL_LINES:
        return text or "(no log)"
    found = [number for number, line in enumerate(lines) if _FAILURE.fullmatch(line)]
    first = found[0] if found else len(lines)
    last = max(first + FIRST_LINES, len(lines) - TAIL_LINES)
    parts = [lines[first : first + FIRST_LINES], lines[last:]]
    return "\n[...]\n".join("\n".join(part) for part in parts if part)
