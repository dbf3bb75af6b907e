"""``./dev soak`` and ``./dev bench``: long tests and measurements, outside of ``./dev test``."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from devtools import host, plan, progress, rundir, testrun, venvs
from devtools.cache import Cache
from devtools.command import REPO, Result, ToolError, run
from devtools.demo import Pair, prepare
from devtools.experiment import Experiment
from devtools.lab import state
from devtools.lab.container import Lab
from devtools.lanes import Venvs

BENCH_TIMEOUT = 3600
# Long tests print their counts, and the report of pytest has them, also for tests that pass.
COUNTS = ("-o", "junit_logging=system-out")
CODE = ("benchmarks", "src")
FIGURES = REPO / "docs" / "topics" / "explanation" / "figures.md"


def soak(
    chosen: list[Pair], arguments: Sequence[str] = (), *, rounds: int, tests: bool = True
) -> int:
    """
    Run the tests marked ``soak`` in full, then the experiment repeatedly.

    With *arguments* (paths; others go to pytest), run only these tests, and no experiment.
    """
    bad = 0
    if tests and _has_soak_tests():
        os.environ["SAFEUPDATE_SOAK"] = "1"
        bad += testrun.run_tests(
            [*COUNTS, *arguments], marks=plan.LONG, with_lint=False, versions=list(venvs.SERIES)
        )
    if arguments:
        return 1 if bad else 0
    with Lab() as lab:
        site = venvs.extension(lab.cache.cache, lab.run_dir.path / "build")
        prepare(lab, chosen)
        for number in range(1, rounds + 1):
            old, new = chosen[(number - 1) % len(chosen)]
            out = Experiment(lab, old, new, site=site).run()
            wrong = out.verdict()
            told = "; ".join(wrong) or "nothing lost"
            if wrong:
                bad += 1
                log = lab.cache.cache.log(f"soak-round-{number}")
                log.write_text(out.logs)
                told += f"; its logs: {log}"
            progress.say(f"round {number} of {rounds}, {old} -> {new}: {told}")
    print(f"soak: {f'{bad} runs lost something' if bad else 'nothing lost'}, {rounds} rounds")
    return 1 if bad else 0


def _has_soak_tests() -> bool:
    return any("mark.soak" in path.read_text() for path in (REPO / "tests").rglob("test_*.py"))


def bench(versions: list[str], only: Sequence[str] = (), *, record: bool = False) -> int:
    """Run each program in ``benchmarks/`` on each Salt series, with the extension in place.

    *only* names programs; with *record*, the output of this run replaces figures in the docs.
    """
    series = testrun.chosen(versions)
    programs = sorted((REPO / "benchmarks").glob("bench_*.py"))
    if only:
        programs = [program for program in programs if program.stem.removeprefix("bench_") in only]
    if not programs:
        raise ToolError("there is no such benchmarks/bench_*.py to run")
    cache = Cache()
    bad = 0
    told: dict[str, str] = {}
    with rundir.TempRun() as tmp:
        # Programs that a simulated system starts do not see our PYTHONPATH.
        copies = Venvs(venvs.extension(cache, tmp), tmp)
        try:
            for program in programs:
                for version in series:
                    venv = venvs.series(cache, version)
                    plain = tmp / f"plain-{venv.name}"
                    if not plain.exists():
                        # The kernel maps more at once of a file that was just written: a venv of
                        # the cache would seem to take less memory than the one with the extension.
                        venvs.copied(venv, plain)
                    python = (venvs.python(plain), venvs.python(copies(venv)))
                    result = _bench(*python, version, program, tmp)
                    bad += not result.ok
                    told[f"{program.stem}, Salt {version}"] = result.stdout.strip()
        finally:
            # A killed program leaves its machines behind.
            if host.is_root():
                state.clean()
    if record and not bad:
        _record(told, _commit())
    return 1 if bad else 0


def _record(told: Mapping[str, str], code: str) -> None:
    """Put the figures of this *code* into the page, each below its heading. All others stay."""
    head, _, rest = FIGURES.read_text().partition("\n## ")
    known = {title: body.strip() for title, _, body in (p.partition("\n") for p in _parts(rest))}
    measured = f"Measured on {date.today().isoformat()} at {code}, {os.cpu_count()} processors."
    known |= {title: f"{measured}\n\n{text}" for title, text in told.items() if text}
    sections = (f"## {title}\n\n{body}\n" for title, body in sorted(known.items()))
    FIGURES.write_text(f"{head.rstrip()}\n\n" + "\n".join(sections))


def _commit() -> str:
    """Return the commit of the code that is measured, and whether files of it were changed."""
    last = run(["git", "log", "-1", "--abbrev=8", "--format=%h", "--", *CODE], timeout=60, cwd=REPO)
    now = run(["git", "status", "--porcelain", "--", *CODE], timeout=60, cwd=REPO)
    return f"commit {last.stdout.strip()}" + (", changed since" if now.stdout else "")


def _parts(text: str) -> list[str]:
    return text.split("\n## ") if text else []


def _bench(plain: str, ours: str, version: str, program: Path, tmp: Path) -> Result:
    env = dict(os.environ, PYTHONPATH=str(REPO), TMPDIR=str(tmp), PYTHONDONTWRITEBYTECODE="1")
    # A Python without the extension.
    env["PLAIN_PYTHON"] = plain
    argv = [ours, str(program)]
    began = time.monotonic()
    with progress.step(f"{program.stem} on Salt {version}"):
        result = run(argv, timeout=BENCH_TIMEOUT, check=False, env=env, cwd=REPO)
    print(f"## {program.stem}, Salt {version}, {time.monotonic() - began:.0f} s")
    print(result.stdout + (result.stderr if not result.ok else ""), flush=True)
    return result
