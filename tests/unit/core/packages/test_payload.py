"""Files out of packages, with the real tools."""

import subprocess

import pytest

from saltext_safeupdate.core.host import command
from saltext_safeupdate.core.packages import payload

CONTROL = """\
Package: salt
Version: 3009.1
Architecture: all
Maintainer: nobody <nobody@example.com>
Description: x
"""
PATTERNS = ["*/site-packages/salt/minion.py", "*/site-packages/salt/gone.py"]
TREE = "opt/it's salt/lib/site-packages/salt"


@pytest.mark.usefixtures("real_process")
def test_named_files_come_out_of_a_package_of_debian_and_no_others(tmp_path):
    tree = tmp_path / "tree"
    (tree / TREE).mkdir(parents=True)
    for name in ("minion.py", "state.py"):
        (tree / TREE / name).write_text(name)
    (tree / "DEBIAN").mkdir()
    (tree / "DEBIAN" / "control").write_text(CONTROL)
    package, into = tmp_path / "it's.deb", tmp_path / "in to"
    into.mkdir()
    subprocess.run(["dpkg-deb", "--build", "-Zgzip", tree, package], check=True, timeout=60)
    payload.unpack([str(package)], PATTERNS, str(into), command.run)
    found = [path for path in into.rglob("*") if path.is_file()]
    assert [(path.name, path.read_text()) for path in found] == [("minion.py", "minion.py")]


@pytest.mark.usefixtures("real_process")
@pytest.mark.parametrize("name", ["x.deb", "x.rpm"])
def test_what_is_no_package_leaves_nothing(tmp_path, name):
    (tmp_path / name).write_text("salt 2")
    into = tmp_path / "into"
    into.mkdir()
    payload.unpack([str(tmp_path / name)], PATTERNS, str(into), command.run)
    assert list(into.iterdir()) == []
