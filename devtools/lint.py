"""``./dev lint``: formatting, style and types."""

from __future__ import annotations

import time
from pathlib import Path

from devtools import progress, venvs
from devtools.cache import Cache
from devtools.command import REPO, run
from devtools.lanes import LaneResult

LINT_TIMEOUT = 600
CONCISE = ("--output-format", "concise")


def commands(cache_dir: Path) -> list[tuple[str, list[str]]]:
    """Return the checks as module arguments for the tools' Python."""
    ruff_cache = f"--cache-dir={cache_dir / 'ruff'}"
    mypy = ["mypy", f"--cache-dir={cache_dir / 'mypy'}"]
    checks = [
        ("ruff check", ["ruff", "check", *CONCISE, ruff_cache, "."]),
        ("ruff format", ["ruff", "format", "--check", *CONCISE, ruff_cache, "."]),
        (
            "mypy devtools",
            [*mypy, "--config-file=", "--strict", "--ignore-missing-imports", "-p", "devtools"],
        ),
    ]
    checks.append(("mypy", mypy))
    checks.append(("prose", ["devtools.prose"]))
    # No database of vulnerabilities can be asked here; what is installed has to fit together.
    checks.append(("dependencies", ["pip", "check"]))
    html, trees = str(cache_dir / "docs"), str(cache_dir / "doctrees")
    sphinx = ["sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", trees, "docs", html]
    checks.append(("docs", sphinx))
    return checks


class Lint:
    """The checks as a lane next to the lanes of the tests."""

    name = "lint"
    busy = True
    seconds = 100.0

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def run(self) -> LaneResult:
        began = time.monotonic()
        failed = lint(self._cache)
        seconds = time.monotonic() - began
        return LaneResult(
            self.name, len(failed), seconds, closing=", ".join(failed), has_tests=False
        )


def lint(cache: Cache) -> list[str]:
    """Run all checks and print what they found; return the names of those that failed."""
    python = venvs.python(venvs.tools(cache))
    failed = []
    for name, arguments in commands(cache.root / "lint"):
        with progress.step(f"lint: {name}", quiet=True):
            result = run([python, "-m", *arguments], timeout=LINT_TIMEOUT, check=False, cwd=REPO)
        if not result.ok:
            failed.append(name)
            print(f"---- {name} ----\n{(result.stdout + result.stderr).rstrip()}", flush=True)
    progress.say(f"lint: {'FAILED: ' + ', '.join(failed) if failed else 'ok'}")
    return failed
