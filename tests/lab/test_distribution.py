"""What is released: source and wheel, and the packages for distributions."""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from collections.abc import Callable, Iterator
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from devtools import venvs
from devtools.command import REPO, run
from devtools.lab import rpm_recipes
from devtools.lab.container import Container, Lab
from devtools.lab.recipes import PREFIX
from saltext_safeupdate import __version__

# Not of the repository, or made from it.
NOT_RELEASED = (
    ".*",
    "*.egg-info",
    "__pycache__",
    "_build",
    "build",
    "dist",
    "*.rst",
    "changelog.md",
)
FIND = """
import json, saltext_safeupdate
from importlib.metadata import entry_points
print(json.dumps({
    "version": saltext_safeupdate.__version__,
    "file": saltext_safeupdate.__file__,
    "points": [point.load().__name__ for point in entry_points(group="salt.loader")],
}))
"""
HOME = "/usr/share/saltext-safeupdate"


def _files(top: Path) -> Iterator[Path]:
    for path in sorted(top.iterdir()):
        if any(path.match(pattern) for pattern in NOT_RELEASED):
            continue
        if path.is_dir():
            yield from _files(path)
        else:
            yield path


@pytest.fixture(scope="module")
def released(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with source and wheel, built as the release page says."""
    top = tmp_path_factory.mktemp("release")
    for path in _files(REPO):
        target = top / "source" / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(path.stat().st_mode)
    python = venvs.python(venvs.release(lab.cache.cache))
    argv = [python, "-m", "build", "--no-isolation", "--outdir", str(top / "dist")]
    run([*argv, str(top / "source")], timeout=300)
    return top / "dist"


@pytest.fixture(scope="module")
def sdist(released: Path) -> Path:
    (found,) = released.glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def contents() -> str:
    """What the packages are made from, in short."""
    digest = hashlib.sha256()
    for path in _files(REPO):
        name = str(path.relative_to(REPO))
        if "/" not in name or name.startswith(("src/", "packaging/")):
            digest.update(f"{name}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def test_the_source_is_the_whole_repository(sdist: Path) -> None:
    """What tests and documents the repository does it in the source as well."""
    with tarfile.open(sdist) as archive:
        top = archive.getnames()[0].partition("/")[0]
        for path in _files(REPO):
            file = archive.extractfile(f"{top}/{path.relative_to(REPO)}")
            assert file is not None
            if path.name not in ("setup.cfg", "MANIFEST.in"):
                assert file.read() == path.read_bytes(), path


def test_an_index_would_take_it(lab: Lab, released: Path) -> None:
    python = venvs.python(venvs.release(lab.cache.cache))
    files = sorted(map(str, released.iterdir()))
    assert len(files) == 2
    run([python, "-m", "twine", "check", "--strict", *files], timeout=120)
    (wheel,) = released.glob("*.whl")
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        told = Parser().parsestr(archive.read(metadata).decode())
        assert any(name.endswith(".sh") for name in archive.namelist())
    assert (told["Version"], told["License-Expression"]) == (__version__, "Apache-2.0")
    assert "Programming Language :: Python :: 3.14" in told.get_all("Classifier")


@pytest.mark.soak
def test_the_source_installs_into_a_clean_environment(
    lab: Lab, site: Path, sdist: Path, tmp_path: Path
) -> None:
    """It installs the files that all other tests run with; Salt is left to the other tests."""
    python = str(tmp_path / "venv/bin/python3")
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")], timeout=300)
    argv = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-compile", "--no-deps"]
    argv += ["--find-links", str(venvs.release(lab.cache.cache) / "wheels")]
    # The machine's own configuration of pip does not take part.
    env = {"PIP_CONFIG_FILE": "/dev/null", "PATH": "/usr/bin:/bin"}
    run([*argv, str(sdist)], timeout=600, env=env)
    assert _found_by(python) == (__version__, ["saltext_safeupdate"])
    (place,) = tmp_path.glob("venv/lib/python3*/site-packages")
    package = "saltext_safeupdate"
    assert _code(place / package) == _code(site / package)


def _code(package: Path) -> dict[str, bytes]:
    files = [path for path in _files(package) if path.is_file()]
    return {str(path.relative_to(package)): path.read_bytes() for path in files}


def _found_by(python: str) -> tuple[str, list[str]]:
    """Return the version that an interpreter finds, and what Salt's loader is pointed to."""
    found = json.loads(run([python, "-I", "-c", FIND], timeout=60).stdout)
    return found["version"], found["points"]


@pytest.mark.soak
def test_the_debian_package(
    lab: Lab, sdist: Path, contents: str, make_container: Callable[..., Container]
) -> None:
    """Salt's own Python finds it, removing it leaves nothing, and what is used stays."""
    package = lab.cache.own_deb(sdist, contents)
    container = make_container("3007.15", binds={"/srv/own": str(package.parent)}).up()
    before = _tree(container)
    container.run(["apt-get", "install", "--yes", f"/srv/own/{package.name}"])
    _found(container, f"{PREFIX}/bin/python3")
    owned = container.run(["dpkg", "-L", "saltext-safeupdate"]).stdout
    assert f"{PREFIX}/lib/python3.14/site-packages/saltext-safeupdate.pth" in owned
    said = container.run(["salt-call", "--local", "--out", "json", "safeupdate.status"])
    assert json.loads(said.stdout)["local"]["installed"] == {"salt-minion": "3007.15"}

    container.write("/etc/salt/minion.d/safeupdate.conf", "engines: [{safeupdate: {}}]\n")
    refused = container.run(["dpkg", "--remove", "saltext-safeupdate"], check=False)
    assert "/etc/salt/minion.d/safeupdate.conf" in refused.stderr
    _found(container, f"{PREFIX}/bin/python3")
    container.run(["rm", "/etc/salt/minion.d/safeupdate.conf"])
    container.run(["dpkg", "--purge", "saltext-safeupdate"])
    assert _tree(container) == before


def test_the_rpm(
    lab: Lab, sdist: Path, contents: str, make_container: Callable[..., Container]
) -> None:
    """Salt's own Python finds it, removing it leaves nothing, and what is used stays."""
    package = lab.cache.own_rpm(sdist, contents)
    version = rpm_recipes.VERSIONS[1]
    layers = [lab.cache.rpm_host(version), lab.cache.rpm_tools()]
    binds = {"/srv/own": str(package.parent)}
    container = make_container(None, extra_layers=layers, binds=binds).up()
    before = _tree(container)
    container.run(["rpm", "--install", f"/srv/own/{package.name}"])
    _found(container, f"{PREFIX}/bin/python3")

    container.write("/etc/salt/minion.d/safeupdate.conf", "engines: [{safeupdate: {}}]\n")
    refused = container.run(["rpm", "--erase", "saltext-safeupdate"], check=False)
    assert "/etc/salt/minion.d/safeupdate.conf" in refused.stderr
    _found(container, f"{PREFIX}/bin/python3")
    container.run(["rm", "/etc/salt/minion.d/safeupdate.conf"])
    container.run(["rpm", "--erase", "saltext-safeupdate"])
    assert _tree(container) == before


def _found(container: Container, python: str) -> None:
    found = json.loads(container.run([python, "-I", "-c", FIND]).stdout)
    assert found == {
        "version": __version__,
        "file": f"{HOME}/saltext_safeupdate/__init__.py",
        "points": ["saltext_safeupdate"],
    }


def _tree(container: Container) -> list[str]:
    """Return the names below the directories that the package puts something into."""
    places = [PREFIX, "/usr/lib/python3", "/usr/share", "/usr/lib/venv-salt-minion"]
    there = [place for place in places if container.exists(place)]
    found = container.run(["find", *there, "-not", "-name", "*.pyc"]).stdout.splitlines()
    # A system with rpms has the directory of the licences anyway.
    return sorted(set(found) - {"/usr/share/licenses"})
