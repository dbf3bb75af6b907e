"""
``./dev release``: wheel, source archive, deb and rpm.

They have the same bytes whenever and wherever they are built from one commit with one set of tools.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from devtools import host, progress, rundir, venvs
from devtools.cache import Cache
from devtools.command import REPO, ToolError, run
from devtools.lab.artefacts import LabCache

CHECKSUMS = "SHA256SUMS"
PACKAGES = ("deb", "rpm")
BUILD_TIMEOUT = 600
# Files that are not part of the repository, or are made from it.
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
VERSION_FILE = Path("src/saltext_safeupdate/__init__.py")
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.M)


@dataclass(frozen=True)
class Origin:
    """The origin of a release: its version, its time in epoch seconds, and its builder."""

    version: str
    moment: int
    name: str
    email: str

    def environment(self) -> dict[str, str]:
        """Return this as variables for the programs that build packages."""
        return {
            "SOURCE_DATE_EPOCH": str(self.moment),
            "DEBFULLNAME": self.name,
            "DEBEMAIL": self.email,
        }


def release(out: Path, key: str = "") -> int:
    """Build everything into a directory of its own below *out*; *key* signs the checksums."""
    if not host.is_root():
        raise ToolError(
            "the deb and the rpm are built in the lab, which needs root. Nothing was built; run it "
            "as root or with sudo, or build without the lab as docs/contributing/release.md says"
        )
    origin = origin_of(REPO)
    final = out.absolute() / f"saltext-safeupdate-{origin.version}"
    if final.exists():
        raise ToolError(f"{final} is there already. It is left as it is; remove it to build again")
    if key:
        # Before anything is built, so that a missing key is noticed at once.
        run(["gpg", "--batch", "--list-secret-keys", key], timeout=60)
    host.ensure_lab_programs()
    cache = Cache()
    with rundir.TempRun() as tmp:
        made = tmp / "made"
        with progress.step(f"building wheel and source archive of {origin.version}"):
            archives(REPO, tmp / "source", made, origin, venvs.release(cache))
        packages(LabCache(cache), made, origin)
        checksums(made)
        if key:
            sign(made, key)
        out.mkdir(parents=True, exist_ok=True)
        # The result is complete, or not there.
        fresh = final.with_name(f".new-{final.name}")
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.copytree(made, fresh)
        fresh.rename(final)
    signed = f"signed by {key}" if key else "not signed: no key was given"
    progress.say(f"{final}\n{(final / CHECKSUMS).read_text()}{signed}")
    return 0


# -- origin ----------------------------------------------------------------------------


def origin_of(repo: Path) -> Origin:
    """
    Return the origin of a release of this checkout, from the commit and its tag.

    SOURCE_DATE_EPOCH, DEBFULLNAME and DEBEMAIL override time and name. An unpacked source archive
    has no commit: then they are required, and the version is the one that its source says.
    """
    version = written_version(repo)
    told = {name: os.environ.get(name, "") for name in Origin("", 0, "", "").environment()}
    if (repo / ".git").exists():
        version = _version_by_tag(repo, version)
        of_commit = _git(repo, "log", "-1", "--format=%ct%n%cn%n%ce").splitlines()
        told = {name: told[name] or found for name, found in zip(told, of_commit, strict=True)}
    elif missing := [name for name, value in told.items() if not value]:
        raise ToolError(f"there is no git repository here; set {', '.join(missing)}")
    moment, name, email = told.values()
    return Origin(version, int(moment), name, email)


def written_version(repo: Path) -> str:
    """Return the version in the source."""
    found = _VERSION.search((repo / VERSION_FILE).read_text(encoding="utf-8"))
    if found is None:
        raise ToolError(f"{VERSION_FILE} has no __version__")
    return found[1]


def _version_by_tag(repo: Path, written: str) -> str:
    """
    Return the version of the commit.

    That is the written one if there is a tag ``v<version>``. Otherwise it is a development version
    with the commit in it: before the written one or, if that is released already, after it.
    """
    changed = _git(repo, "status", "--porcelain").splitlines()
    tags = _git(repo, "tag", "--points-at", "HEAD", "--list", "v*").split()
    if tags:
        if tags != [f"v{written}"]:
            raise ToolError(
                f"the commit has the tag {', '.join(tags)}, but {VERSION_FILE} says {written}. "
                "Nothing was built; make both the same"
            )
        if changed:
            raise ToolError(
                "the files differ from the tag. Nothing was built; commit or remove:\n"
                + "\n".join(changed)
            )
        return written
    commit = _git(repo, "rev-parse", "HEAD")[:12]
    local = f"g{commit}.dirty" if changed else f"g{commit}"
    if _git(repo, "tag", "--merged", "HEAD", "--list", f"v{written}").strip():
        since = _git(repo, "rev-list", "--count", f"v{written}..HEAD").strip()
        return f"{written}.post{since}+{local}"
    return f"{written}.dev{_git(repo, 'rev-list', '--count', 'HEAD').strip()}+{local}"


def _git(repo: Path, *words: str) -> str:
    return run(["git", "-C", str(repo), *words], timeout=60).stdout


# -- building --------------------------------------------------------------------------


def files(top: Path) -> Iterator[Path]:
    """Return every file of the repository that is released."""
    for path in sorted(top.iterdir()):
        if any(path.match(pattern) for pattern in NOT_RELEASED):
            continue
        if path.is_dir():
            yield from files(path)
        else:
            yield path


def archives(repo: Path, scratch: Path, out: Path, origin: Origin, venv: Path) -> Path:
    """
    Build the source archive and, from that, the wheel into *out*; return the source archive.

    *scratch* is a directory for the copy that they are built from; it must not exist.
    """
    _copy(repo, scratch, origin.version)
    python = venvs.python(venv)
    env = {**os.environ, **origin.environment(), "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    argv = [python, "-m", "build", "--no-isolation", "--outdir", str(out), str(scratch)]
    with _usual_umask():
        run(argv, timeout=BUILD_TIMEOUT, env=env)
    (sdist,) = out.glob("*.tar.gz")
    _same_bytes(sdist, origin.moment)
    made = sorted(map(str, out.iterdir()))
    run([python, "-m", "twine", "check", "--strict", *made], timeout=120)
    return sdist


def packages(lab: LabCache, out: Path, origin: Origin, kinds: tuple[str, ...] = PACKAGES) -> None:
    """Build packages from the source archive in *out*, into the same directory."""
    (sdist,) = out.glob("*.tar.gz")
    for kind in kinds:
        room = out / f".{kind}"
        room.mkdir()
        log = lab.cache.log(f"release-{kind}")
        with progress.step(f"building the {kind}", log=log), _usual_umask():
            lab.own_build(kind, sdist, origin.environment())(room, log)
        for path in room.glob(f"*.{kind}"):
            path.rename(out / path.name)
        shutil.rmtree(room)


def checksums(folder: Path) -> None:
    """Write the checksums of all files in *folder*, as ``sha256sum --check`` reads them."""
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
    rows = (f"{digest}  {name}\n" for name, digest in found.items())
    (folder / CHECKSUMS).write_text("".join(rows), encoding="utf-8")


def sign(folder: Path, key: str) -> None:
    """Sign the checksums with *key* of the user's gpg, into a separate file."""
    target = folder / CHECKSUMS
    argv = ["gpg", "--batch", "--yes", "--armor", "--local-user", key]
    run([*argv, "--output", f"{target}.asc", "--detach-sign", str(target)], timeout=300)


def _copy(repo: Path, target: Path, version: str) -> None:
    """Copy the files of a release, with permissions and a version that depend on nothing else."""
    for path in files(repo):
        copy = target / path.relative_to(repo)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
        copy.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    told = target / VERSION_FILE
    text = told.read_text(encoding="utf-8")
    told.write_text(_VERSION.sub(f'__version__ = "{version}"', text), encoding="utf-8")


@contextmanager
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


def _same_bytes(sdist: Path, moment: int) -> None:
    """Write a source archive again without the time, place and user of its packing."""
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, moment
            plain.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    fresh = sdist.with_name(f".new-{sdist.name}")
    with fresh.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=moment) as zipped:
        zipped.write(packed.getvalue())
    fresh.replace(sdist)
