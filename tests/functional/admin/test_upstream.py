"""The programs of the page on what we found in Salt, with the real Salt of each series."""

import os
import re
import subprocess
import sys

import pytest
import salt.version

from tests.support import documents

PAGE = documents.REPO / "docs" / "contributing" / "upstream.md"
PROGRAMS = [block for block in documents.blocks(PAGE) if block.language == "python"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda block: f"line {block.line}")
def test_what_the_page_says_of_salt_is_so(program, tmp_path):
    """If it is not so any more, the workaround may go, or Salt has changed again."""
    (affected,) = re.findall(r"^# affected: (.+)$", program.text, re.M)
    expected = salt.version.__version__ in affected.split(", ")
    done = subprocess.run(
        [sys.executable, "-c", program.text],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    last = done.stdout.splitlines()[-1:]
    assert last == ["reproduced" if expected else "not reproduced"], done.stderr[-2000:]
