"""What is released: source and wheel, and the packages for distributions."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
from collections.abc import Callable
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from devtools import release, venvs
from devtools.command import REPO, Result, ToolError, run
from devtools.lab import rpm_recipes
from devtools.lab.container import Container, Lab
from devtools.lab.recipes import MASTER_PACKAGES, MINION_PACKAGES, PREFIX, Installed
from saltext_safeupdate import __version__
from tests.lab.released import EARLIER, ORIGIN, Repository, archives, package

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
# Have the package of Salt be the one of a master, and no configuration of a minion.
AS_MASTER_RPM = """\
set -e
rpm --erase --nodeps --justdb salt-minion
cd /tmp
printf '%s\\n' 'Name: salt-master' 'Version: 3008.3' 'Release: 1' 'Summary: a master' \\
    'License: none' 'BuildArch: noarch' '%description' 'A master.' '%files' > master.spec
rpmbuild -bb --quiet --define '_rpmdir /tmp/rpms' master.spec
rpm --install /tmp/rpms/noarch/salt-master-*.rpm
rm -r /etc/salt/minion*
mkdir -p /etc/salt/master.d
"""


@pytest.fixture(scope="module")
def released(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with source and wheel, built as a release is."""
    return archives(lab, tmp_path_factory.mktemp("release")).parent


@pytest.fixture(scope="module")
def sdist(released: Path) -> Path:
    (found,) = released.glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def earlier(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of an earlier release."""
    return archives(lab, tmp_path_factory.mktemp("earlier"), EARLIER)


def test_the_source_is_the_whole_repository(sdist: Path) -> None:
    """What tests and documents the repository does it in the source as well."""
    with tarfile.open(sdist) as archive:
        top = archive.getnames()[0].partition("/")[0]
        for path in release.files(REPO):
            file = archive.extractfile(f"{top}/{path.relative_to(REPO)}")
            assert file is not None
            if path.name not in ("setup.cfg", "MANIFEST.in"):
                assert file.read() == path.read_bytes(), path


def test_an_index_would_take_it(lab: Lab, released: Path) -> None:
    python = venvs.python(venvs.release(lab.cache.cache))
    made = sorted(map(str, released.iterdir()))
    assert len(made) == 2
    run([python, "-m", "twine", "check", "--strict", *made], timeout=120)
    (wheel,) = released.glob("*.whl")
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        told = Parser().parsestr(archive.read(metadata).decode())
        assert any(name.endswith(".sh") for name in archive.namelist())
    assert (told["Version"], told["License-Expression"]) == (__version__, "Apache-2.0")
    assert "Programming Language :: Python :: 3.14" in told.get_all("Classifier")


def test_archives_built_elsewhere_and_later_are_the_same(
    lab: Lab, released: Path, tmp_path: Path
) -> None:
    """Also if the files have other times and permissions, and whoever builds another umask."""
    copy = tmp_path / "repository"
    for path in release.files(REPO):
        target = copy / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
        target.chmod(0o700 if path.stat().st_mode & 0o100 else 0o600)
        os.utime(target, (1_000_000_000, 1_000_000_000))
    before = os.umask(0o077)
    try:
        venv = venvs.release(lab.cache.cache)
        again = release.archives(copy, tmp_path / "source", tmp_path / "dist", ORIGIN, venv).parent
    finally:
        os.umask(before)
    assert _contents(again) == _contents(released)


@pytest.mark.parametrize("kind", ["rpm", pytest.param("deb", marks=pytest.mark.soak)])
def test_a_package_built_again_is_the_same(
    lab: Lab, sdist: Path, tmp_path: Path, kind: str
) -> None:
    """The first may be of an earlier run."""
    first = package(lab, kind, sdist)
    shutil.copy(sdist, tmp_path)
    release.packages(lab.cache, tmp_path, ORIGIN, (kind,))
    assert _contents(tmp_path) == _contents(sdist.parent, sdist) | _contents(first.parent)


def _contents(folder: Path, *only: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in only or folder.iterdir()}


def test_the_checksums_are_signed_and_cover_every_file(
    lab: Lab, released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made"
    shutil.copytree(released, made)
    monkeypatch.setenv("GNUPGHOME", str(tmp_path))
    tmp_path.chmod(0o700)
    batch = ["gpg", "--batch", "--passphrase", "", "--pinentry-mode", "loopback"]
    who = "lab@example.invalid"
    try:
        run([*batch, "--quick-gen-key", who, "default", "sign", "0"], timeout=120)
        release.checksums(made)
        release.sign(made, who)
        checked = run(["sha256sum", "--check", release.CHECKSUMS], timeout=60, cwd=made)
        assert checked.stdout.splitlines() == [
            f"{path.name}: OK" for path in sorted(released.iterdir())
        ]
        signed = ["gpg", "--batch", "--verify", f"{release.CHECKSUMS}.asc", release.CHECKSUMS]
        run(signed, timeout=60, cwd=made)
        (made / release.CHECKSUMS).write_text("others\n")
        assert not run(signed, timeout=60, cwd=made, check=False).ok
    finally:
        run(["gpgconf", "--kill", "all"], timeout=60, check=False)


class Checkout:
    """A git repository with a source that says its version."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.git("init", "--quiet")
        self.write("0.1.0")

    def git(self, *words: str) -> str:
        who = ["-c", "user.name=Jo Doe", "-c", "user.email=jo@example.org"]
        return run(["git", "-C", str(self.path), *who, *words], timeout=60).stdout.strip()

    def write(self, version: str) -> None:
        target = self.path / release.VERSION_FILE
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f'__version__ = "{version}"\n')

    def commit(self) -> str:
        """Commit everything; return how a version names the commit."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", "Change it")
        return f"g{self.git('rev-parse', 'HEAD')[:12]}"

    def version(self) -> str:
        return release.origin_of(self.path).version


def test_the_version_is_that_of_the_tag(lab: Lab, tmp_path: Path) -> None:
    """Without one it says which commit it is, and sorts before the release or after it."""
    it = Checkout(tmp_path)
    it.commit()
    second = it.commit()
    assert it.version() == f"0.1.0.dev2+{second}"
    stray = tmp_path / "stray"
    stray.touch()
    assert it.version() == f"0.1.0.dev2+{second}.dirty"
    stray.unlink()
    it.git("tag", "v0.1.0")
    assert it.version() == "0.1.0"
    third = it.commit()
    assert it.version() == f"0.1.0.post1+{third}"
    it.write("0.2.0")
    fourth = it.commit()
    assert it.version() == f"0.2.0.dev4+{fourth}"


def test_no_release_is_made_of_files_that_are_not_those_of_the_tag(
    lab: Lab, tmp_path: Path
) -> None:
    it = Checkout(tmp_path)
    it.commit()
    it.git("tag", "v0.2.0")
    with pytest.raises(ToolError, match=r"tag v0\.2\.0, but .* says 0\.1\.0"):
        it.version()
    it.write("0.2.0")
    with pytest.raises(ToolError, match="differ from the tag") as refused:
        it.version()
    assert str(release.VERSION_FILE) in str(refused.value)


def test_the_commit_says_when_and_who_unless_the_environment_does(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = Checkout(tmp_path)
    it.commit()
    for name in ORIGIN.environment():
        monkeypatch.delenv(name, raising=False)
    found = release.origin_of(tmp_path)
    moment = int(it.git("log", "-1", "--format=%ct"))
    assert (found.moment, found.name, found.email) == (moment, "Jo Doe", "jo@example.org")
    for name, value in ORIGIN.environment().items():
        monkeypatch.setenv(name, value)
    found = release.origin_of(tmp_path)
    assert found.environment() == ORIGIN.environment()


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
    files = [path for path in release.files(package) if path.is_file()]
    return {str(path.relative_to(package)): path.read_bytes() for path in files}


def _found_by(python: str) -> tuple[str, list[str]]:
    """Return the version that an interpreter finds, and what Salt's loader is pointed to."""
    found = json.loads(run([python, "-I", "-c", FIND], timeout=60).stdout)
    return found["version"], found["points"]


@pytest.mark.soak
def test_the_debian_package(
    lab: Lab, sdist: Path, make_container: Callable[..., Container]
) -> None:
    """Salt's own Python finds it, removing it leaves nothing, and what is used stays."""
    own = package(lab, "deb", sdist)
    container = make_container("3007.15", binds={"/srv/own": str(own.parent)}).up()
    before = _tree(container)
    container.run(["apt-get", "install", "--yes", f"/srv/own/{own.name}"])
    _found(container, f"{PREFIX}/bin/python3")
    owned = container.run(["dpkg", "-L", "saltext-safeupdate"]).stdout
    assert f"{PREFIX}/lib/python3.14/site-packages/saltext-safeupdate.pth" in owned
    said = container.run(["salt-call", "--local", "--out", "json", "safeupdate.status"])
    installed = json.loads(said.stdout)["local"]["installed"]
    assert installed == dict.fromkeys(MINION_PACKAGES, "3007.15")

    container.write("/etc/salt/minion.d/safeupdate.conf", "engines: [{safeupdate: {}}]\n")
    refused = container.run(["dpkg", "--remove", "saltext-safeupdate"], check=False)
    assert "/etc/salt/minion.d/safeupdate.conf" in refused.stderr
    _found(container, f"{PREFIX}/bin/python3")
    container.run(["rm", "/etc/salt/minion.d/safeupdate.conf"])
    container.run(["dpkg", "--purge", "saltext-safeupdate"])
    assert _tree(container) == before

    installed = Installed("3007.15", MASTER_PACKAGES)
    master = make_container(installed, binds={"/srv/own": str(own.parent)}).up()
    before = _tree(master)
    master.run(["apt-get", "install", "--yes", f"/srv/own/{own.name}"])
    argv = ["dpkg", "--remove", "saltext-safeupdate"]
    _goes_from_a_master(master, lambda check: master.run(argv, check=check))
    assert _tree(master) == before


@pytest.mark.parametrize("front_end", ["dnf", "zypper"])
def test_the_rpm(
    lab: Lab,
    sdist: Path,
    earlier: Path,
    make_container: Callable[..., Container],
    front_end: str,
) -> None:
    """
    An update replaces the earlier one, and removing it leaves nothing.

    Salt's own Python finds each, and what is used stays.
    """
    version = rpm_recipes.VERSIONS[1]
    layers = [lab.cache.rpm_host(version), lab.cache.rpm_tools()]
    container = make_container(None, extra_layers=layers).up()
    repository = Repository(container, front_end)
    before = _tree(container)
    repository.install(package(lab, "rpm", earlier))
    _found(container, f"{PREFIX}/bin/python3", EARLIER)
    repository.upgrade(package(lab, "rpm", sdist))
    _found(container, f"{PREFIX}/bin/python3")

    container.write("/etc/salt/minion.d/safeupdate.conf", "engines: [{safeupdate: {}}]\n")
    refused = repository.remove(check=False)
    assert "/etc/salt/minion.d/safeupdate.conf" in refused.stdout + refused.stderr
    _found(container, f"{PREFIX}/bin/python3")
    container.run(["rm", "/etc/salt/minion.d/safeupdate.conf"])
    repository.remove()
    assert _tree(container) == before

    if front_end == "dnf":
        # One of them is enough: the scripts are the package's.
        return
    container.run(["sh", "-c", AS_MASTER_RPM])
    repository.install(package(lab, "rpm", sdist))
    assert not container.run(["rpm", "--query", "salt-minion"], check=False).ok
    _goes_from_a_master(container, lambda check: repository.remove(check=check))
    assert _tree(container) == before


def _goes_from_a_master(container: Container, remove: Callable[[bool], Result]) -> None:
    """A host that is only a master uses it, and it stays as long as the configuration names it."""
    _found(container, f"{PREFIX}/bin/python3")
    container.write("/etc/salt/master.d/safeupdate.conf", "engines: [{safeupdate_redeliver: {}}]\n")
    refused = remove(False)
    assert not refused.ok
    assert "/etc/salt/master.d/safeupdate.conf" in refused.stdout + refused.stderr
    _found(container, f"{PREFIX}/bin/python3")
    container.run(["rm", "/etc/salt/master.d/safeupdate.conf"])
    remove(True)


def _found(container: Container, python: str, version: str = __version__) -> None:
    found = json.loads(container.run([python, "-I", "-c", FIND]).stdout)
    assert found == {
        "version": version,
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
