"""What is measured of a master can be measured."""

import os
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
SMALL = """
import bench_redelivery as bench
bench.MINIONS, bench.JOBS, bench.SECONDS, bench.MISSED = 20, 10, 2, 0.5
bench.main()
"""


def test_the_cost_of_redelivery_is_printed():
    found = subprocess.run(
        [sys.executable, "-c", SMALL],
        cwd=BENCHMARKS,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert "processor" in found.stdout
    queries = next(line for line in found.stdout.splitlines() if "queries" in line)
    assert "| 0 |" not in queries, queries
