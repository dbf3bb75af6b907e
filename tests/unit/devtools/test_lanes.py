"""What a lane knows of its tests from the report of pytest."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from devtools import longrun
from devtools.lanes import told

TESTS = """
def test_counts():
    print("40 jobs, 0 lost")

def test_says_nothing():
    pass

def test_fails():
    print("40 jobs, 1 lost")
    assert False
"""


@pytest.mark.usefixtures("real_process")
def test_what_a_long_test_counts_is_known_if_it_passes(tmp_path: Path) -> None:
    (tmp_path / "test_of_counts.py").write_text(TESTS)
    report = tmp_path / "report.xml"
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *longrun.COUNTS]
    done = subprocess.run(
        [*argv, f"--rootdir={tmp_path}", f"--junitxml={report}", "test_of_counts.py"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    cases = ElementTree.parse(report).iter("testcase")
    assert told(cases) == (("test_of_counts::test_counts", "40 jobs, 0 lost"),)
