"""One pytest run in a venv: its environment, its log, and how it ended."""

from __future__ import annotations

import os
import re
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from devtools import progress, rundir, venvs
from devtools.command import REPO, run

NO_TESTS = 5
TAIL_LINES = 120


@dataclass(frozen=True)
class LaneResult:
    """How a lane ended; the counts come from pytest's own report."""

    name: str
    rc: int
    seconds: float
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    closing: str = ""
    log: Path | None = None

    @property
    def ok(self) -> bool:
        return self.rc == 0 and self.passed > 0 and self.failed == 0

    @property
    def reason(self) -> str:
        if self.ok:
            return "ok"
        if self.failed:
            return f"FAILED ({self.failed})"
        if self.rc == NO_TESTS or (self.rc == 0 and not self.passed):
            return "FAILED (ran no test)"
        return f"FAILED (pytest ended with {self.rc})"


@dataclass(frozen=True)
class Lane:
    """What to run: *paths* of tests with the packages of *venv* and the extension in *site*."""

    name: str
    venv: Path
    paths: Sequence[str]
    site: Path
    tmp: Path
    log: Path
    arguments: Sequence[str] = ()
    per_test_timeout: int = 300
    timeout: int = 2700

    def run(self) -> LaneResult:
        """Run pytest to its end; never raises for failing tests."""
        self.tmp.mkdir()
        venv = venvs.with_extension(self.venv, self.site, self.tmp / "v")
        report = self.tmp / "report.xml"
        argv = [venvs.python(venv), "-m", "pytest", "-v", "-p", "no:cacheprovider"]
        argv += [f"--basetemp={self.tmp / 't'}", f"--junitxml={report}"]
        argv += [f"--timeout={self.per_test_timeout}", *self.arguments, *self.paths]
        self.log.unlink(missing_ok=True)
        began = time.monotonic()
        with progress.step(f"tests, {self.name}", log=self.log):
            env = self._environment(venv)
            done = run(argv, timeout=self.timeout, check=False, log=self.log, env=env, cwd=REPO)
        rundir.sweep(self.tmp)
        return self._result(done.rc, report, time.monotonic() - began)

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

    def _result(self, rc: int, report: Path, seconds: float) -> LaneResult:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        closings = re.findall(r"^=+ .*\b(?:passed|failed|error|no tests ran)\b.*$", text, re.M)
        counts = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
        if report.exists():
            for suite in ElementTree.parse(report).iter("testsuite"):
                for key in counts:
                    counts[key] += int(suite.get(key, 0))
        failed = counts["failures"] + counts["errors"]
        return LaneResult(
            self.name,
            rc,
            seconds,
            passed=counts["tests"] - failed - counts["skipped"],
            failed=failed,
            skipped=counts["skipped"],
            closing=closings[-1] if closings else "(no closing line of pytest)",
            log=self.log,
        )


def tail(log: Path | None) -> str:
    """Return the end of a lane's log, from the first failure's details where there are any."""
    if log is None or not log.exists():
        return "(no log)"
    text = log.read_text(errors="replace")
    lines = text.splitlines()
    return "\n".join(lines[-TAIL_LINES:])
