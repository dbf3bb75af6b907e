"""The artefact cache: what has a name in it is complete and made from what the name says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devtools.cache import Cache, recipe
from devtools.command import REPO


def _write(text: str):
    def build(out: Path, log: Path) -> None:
        (out / "file").write_text(text)

    return build


def _never(out: Path, log: Path) -> None:
    raise AssertionError("was built again")


def test_the_same_key_is_built_once(tmp_path: Path) -> None:
    first = Cache(tmp_path).get("kind", "name", ["a"], _write("one"))
    assert Cache(tmp_path).get("kind", "name", ["a"], _never) == first
    assert (first / "file").read_text() == "one"


def test_a_changed_dependency_is_built_anew_and_the_old_one_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    old = cache.get("kind", "name", ["a"], _write("one"))
    other = cache.get("kind", "name+more", ["a"], _write("other"))
    new = cache.get("kind", "name", ["b"], _write("two"))
    assert (new / "file").read_text() == "two"
    assert not old.exists()
    assert other.exists()


def test_an_old_one_stays_while_another_run_may_use_it(tmp_path: Path) -> None:
    user = Cache(tmp_path)
    old = user.get("kind", "name", ["a"], _write("one"))
    Cache(tmp_path).get("kind", "name", ["b"], _write("two"))
    assert old.exists()


def test_a_failed_build_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path)

    def fail(out: Path, log: Path) -> None:
        (out / "file").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        cache.get("kind", "name", ["a"], fail)
    assert [path for path in (tmp_path / "kind").iterdir() if path.is_dir()] == []
    assert (cache.get("kind", "name", ["a"], _write("whole")) / "file").read_text() == "whole"


def test_a_killed_build_does_not_count(tmp_path: Path) -> None:
    program = (
        "import os, signal; from pathlib import Path; from devtools.cache import Cache\n"
        "def build(out, log):\n"
        "    (out / 'file').write_text('half'); os.kill(os.getpid(), signal.SIGKILL)\n"
        f"Cache(Path({str(tmp_path)!r})).get('kind', 'name', ['a'], build)"
    )
    killed = subprocess.run([sys.executable, "-c", program], cwd=REPO, check=False)
    assert killed.returncode == -9
    made = Cache(tmp_path).get("kind", "name", ["a"], _write("whole"))
    assert [path.name for path in made.parent.iterdir() if path.is_dir()] == [made.name]
    assert (made / "file").read_text() == "whole"


def test_two_runs_build_once(tmp_path: Path) -> None:
    program = (
        "import time; from pathlib import Path; from devtools.cache import Cache\n"
        "def build(out, log):\n"
        "    time.sleep(1); print('built')\n"
        f"Cache(Path({str(tmp_path)!r})).get('kind', 'name', ['a'], build)"
    )
    argv = [sys.executable, "-c", program]
    runs = [subprocess.Popen(argv, cwd=REPO, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert sorted(run.communicate()[0] for run in runs) == ["", "built\n"]
    assert [run.returncode for run in runs] == [0, 0]


def test_a_recipe_is_its_source_and_its_data() -> None:
    assert "def _never" in recipe(_never, ("a", 1))
    assert recipe(("a", 1)) != recipe(("a", 2))
