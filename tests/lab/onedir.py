"""What makes the lab's Salt one of the Salt project's own packages, which no registry has."""

from __future__ import annotations

import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

from devtools import venvs
from devtools.command import run
from devtools.lab.container import SITE_PACKAGES, Lab
from devtools.lab.recipes import PREFIX
from devtools.venvs import pip_env

# Programs are started by a shell, beside which the interpreter is. They are not in "bin".
_PROGRAM = """\
#!/bin/sh
"true" ''''
# shellcheck disable=SC2093
"exec" "$(dirname "$(readlink -f "$0")")/bin/python3" "$0" "$@"
' '''

import sys

from salt.scripts import {function}

if __name__ == "__main__":
    sys.exit({function}())
"""
_FUNCTIONS = {
    "salt-call": "salt_call",
    "salt-minion": "salt_minion",
    "salt-pip": "salt_pip",
}
_OF_MASTERS = {
    "salt": "salt_main",
    "salt-key": "salt_key",
    "salt-master": "salt_master",
    "salt-run": "salt_run",
}
# What these packages are made with. By its mark Salt knows that it is one: pip.install takes
# salt-pip, and of a pip that installs into "extras" relenv makes one that upgrades there. The
# compiler and the TLS that it brings, too, are not needed.
_RELENV = "relenv==0.22.31"
_BOOTSTRAP = (
    f"import pathlib, sys; sys.RELENV = pathlib.Path({PREFIX!r}); import relenv.runtime as r; "
    "sys.meta_path.insert(0, r.RelenvImporter("
    "[each for each in r.importer.wrappers if each.module.startswith('pip.')]))\n"
)
_EXTRAS = "_salt_onedir_extras"
_SET_UP = f"import {_EXTRAS}; {_EXTRAS}.setup({PREFIX + '/lib/python3/site.py'!r})\n"
_LINKS = f"#!/bin/sh\nfor each in salt-call salt-minion; do ln -sf {PREFIX}/$each /usr/bin/; done\n"


def layer(lab: Lab, version: str, *, master: bool = False) -> Path:
    """Return a layer for over the packages of *version*; the packages of others may come later."""
    top = lab.run_dir.path / f"onedir{lab.run_dir.number()}"
    functions = {**_FUNCTIONS, **(_OF_MASTERS if master else {})}
    for program, function in functions.items():
        _write(top, f"{PREFIX}/{program}", _PROGRAM.format(function=function), 0o755)
        link = top / "usr/bin" / program
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"{PREFIX}/{program}")
    _write(top, f"{SITE_PACKAGES}/_relenv.pth", _BOOTSTRAP)
    shutil.copytree(_relenv(lab) / "relenv", top / SITE_PACKAGES.lstrip("/") / "relenv")
    _write(top, f"{SITE_PACKAGES}/{_EXTRAS}.py", _upstream(lab, version))
    _write(top, f"{SITE_PACKAGES}/{_EXTRAS}.pth", _SET_UP)
    # The lab's next package brings links to "bin".
    _write(top, "/usr/local/sbin/onedir-links", _LINKS, 0o755)
    _write(top, "/etc/dpkg/dpkg.cfg.d/onedir", "post-invoke=/usr/local/sbin/onedir-links\n")
    return top


def _relenv(lab: Lab) -> Path:
    def build(out: Path, log: Path) -> None:
        argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
        run([*argv, "-d", str(out), _RELENV], timeout=300, log=log, env=pip_env())
        with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
            wheel.extractall(out)

    return lab.cache.cache.get("beside", "relenv", [_RELENV], build)


def _upstream(lab: Lab, version: str) -> str:
    """Return what the packages have: the module that adds the directory of salt-pip."""
    archive = next(venvs.sdist(lab.cache.cache, version).glob("salt-*.tar.gz"))
    with tarfile.open(archive) as tar:
        file = tar.extractfile(f"salt-{version}/pkg/common/onedir/{_EXTRAS}.py")
        assert file is not None
        return file.read().decode()


def _write(top: Path, path: str, text: str, mode: int = 0o644) -> None:
    target = top / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(mode)
