"""A content-keyed cache: an artefact's name holds a hash of everything it was made from."""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from devtools.command import ToolError, check_stopping
from devtools.progress import step

Builder = Callable[[Path, Path], None]


def default_root() -> Path:
    """Return the cache directory that the environment asks for."""
    if chosen := os.environ.get("SAFEUPDATE_CACHE"):
        return Path(chosen).expanduser().absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "saltext-safeupdate"


def recipe(*parts: object) -> str:
    """Return the text that a key is made of: source of callables, repr of everything else."""
    return "\n".join(inspect.getsource(p) if callable(p) else repr(p) for p in parts)


class Cache:
    """Artefacts as ``<root>/<kind>/<name>-<key>``; what has that name is complete.

    A build happens in a temporary directory next to it, under a lock for each artefact, and is
    renamed when it is done. So neither a crash nor a second run can leave something half built.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or default_root()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._use = os.open(self.root / ".in-use", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as err:
            raise ToolError(
                f"cannot use the cache directory: {err}; set SAFEUPDATE_CACHE to another one"
            ) from err
        fcntl.flock(self._use, fcntl.LOCK_SH)

    def get(self, kind: str, name: str, depends: Iterable[str], build: Builder) -> Path:
        """Return the artefact's directory; ``build(directory, log)`` makes it when missing."""
        key = hashlib.sha256("\0".join([kind, name, *depends]).encode()).hexdigest()[:16]
        folder = self.root / kind
        final = folder / f"{name}-{key}"
        if final.is_dir():
            return final
        folder.mkdir(exist_ok=True)
        with self._locked(folder / f".{name}.lock"):
            if final.is_dir():
                return final
            for stale in folder.glob(f".new-{_glob(name)}-*"):
                _remove(stale)
            check_stopping()
            fresh = folder / f".new-{name}-{key}"
            fresh.mkdir()
            log = self.log(f"{kind}-{name}")
            log.unlink(missing_ok=True)
            try:
                with step(f"building {kind} {name}", log=log):
                    build(fresh, log)
            except BaseException:
                _remove(fresh)
                raise
            _flush(fresh)
            fresh.rename(final)
            self._prune(folder, name, final)
        return final

    def log(self, name: str) -> Path:
        """Return the path of a build log."""
        folder = self.root / "logs"
        folder.mkdir(exist_ok=True)
        return folder / f"{name}.log"

    def _prune(self, folder: Path, name: str, keep: Path) -> None:
        """Remove older keys of *name*, unless another process may be using them."""
        try:
            fcntl.flock(self._use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            old = re.compile(re.escape(name) + r"-[0-9a-f]{16}")
            for other in folder.iterdir():
                if other != keep and old.fullmatch(other.name):
                    _remove(other)
        finally:
            fcntl.flock(self._use, fcntl.LOCK_SH)

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                with step(f"waiting for another run that builds {path.name[1:-5]}"):
                    fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)


def _glob(name: str) -> str:
    return re.sub(r"([*?[])", r"[\1]", name)


def _flush(path: Path) -> None:
    """Have the file system write the artefact out before its name says that it is complete."""
    os.sync()


def _remove(path: Path) -> None:
    """Remove a tree by renaming it first, so that its name is never half there."""
    doomed = path.with_name(f".old-{path.name.lstrip('.')}-{os.getpid()}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
