"""
The request and the answer of a call in a transaction: files on both sides of the chroot.

Neither the arguments nor the result pass through argument lists, pipes or logs: the
tool writes those to its log file and the journal. A call has a directory of its own,
0700, in a place that the tool mounts into the snapshot. It is removed when the call
ends, or by the next call if this process was killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, RecordError
from ..host import processes
from . import plain

BASE = Path("/var/cache/salt-safeupdate")
_NAME = re.compile(r"[0-9a-f]{32}")
# Bytes of a result up to which it is read: more would be a fault, not a result.
RESULT_LIMIT = 1024 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Request:
    """A function and its arguments, and what to look at when it has ended."""

    function: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shadowed: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The return of the function, or the error that it raised."""

    retcode: int
    value: Any = None
    error: str | None = None
    error_type: str = ""
    vanished: Sequence[str] = ()
    unseen: Sequence[str] = ()


def _write(path: Path, data: bytes) -> None:
    """Write a new private file; never follow or replace what is there."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(path, flags, 0o600), "wb") as sink:
            sink.write(data)
    except OSError as err:
        raise RecordError(f"{path} cannot be written: {err.strerror}. Make room there") from err


def _read(path: Path, limit: int) -> bytes | None:
    """Read a file that only we can write; ``None`` if it is missing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as err:
        raise RecordError(f"{path} cannot be read: {err.strerror}; it was not used") from err
    with open(fd, "rb") as source:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
            raise RecordError(
                f"{path} is not a private file of this user, so it was not used. "
                "Somebody else wrote there: look at it, then remove it"
            )
        if info.st_size > limit:
            raise RecordError(f"{path} is larger than {limit} bytes, so it was not read")
        return source.read(limit)


def private_directory(path: Path) -> Path:
    """Make *path* if need be; raise RecordError unless it is a 0700 directory of ours."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
    except OSError as err:
        raise RecordError(
            f"{path} cannot be made: {err.strerror}; nothing was changed. "
            "Make room or fix the permissions, or set another handover_dir"
        ) from err
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise RecordError(
            f"{path} is not a 0700 directory of this user, so it is not used; "
            "nothing was changed. Move it away"
        )
    return path


@dataclass(frozen=True)
class Directory:
    """The directory of one call."""

    path: Path

    @property
    def mark(self) -> str:
        """The environment variables of the processes of this call."""
        return self.path.name

    @property
    def status(self) -> Path:
        """Where the exit status of a plain command is written."""
        return self.path / "status"

    @property
    def wishes(self) -> Path:
        """Where restarts and reboots that were asked for inside are written."""
        return self.path / "wishes"

    @property
    def stderr(self) -> Path:
        """The standard error of the function and its children."""
        return self.path / "stderr"

    @property
    def programs(self) -> Path:
        """The programs that stand before the system's own inside."""
        return self.path / "bin"

    def put_request(self, request: Request) -> None:
        """Write what is asked for; raise InputError if it cannot be handed over."""
        document = {
            "function": request.function,
            "args": list(request.args),
            "kwargs": dict(request.kwargs),
            "shadowed": list(request.shadowed),
        }
        try:
            data = plain.encode(document, strict=True)
        except (TypeError, ValueError, RecursionError) as err:
            raise InputError(
                f"the arguments cannot be handed into the transaction: {err}; nothing was changed"
            ) from err
        _write(self.path / "request", data)

    def request(self) -> Request:
        """Read what is asked for."""
        document = self._document("request")
        if (
            document is None
            or not isinstance(document.get("function"), str)
            or not isinstance(document.get("args"), list)
            or not isinstance(document.get("kwargs"), dict)
            or not isinstance(document.get("shadowed"), list)
        ):
            raise RecordError(f"{self.path / 'request'} is not a request; nothing was called")
        return Request(
            function=document["function"],
            args=document["args"],
            kwargs=document["kwargs"],
            shadowed=[str(path) for path in document["shadowed"]],
        )

    def begin(self) -> None:
        """Say that the function is about to be called, and by which process."""
        _write(self.path / "begun", f"{os.getpid()} {processes.start_time(os.getpid())}".encode())

    @property
    def begun(self) -> bool:
        """Tell whether the call got as far as the function."""
        return (self.path / "begun").exists()

    def performer(self) -> int | None:
        """Return the pid of the process that calls the function, if it lives."""
        words = (_read(self.path / "begun", 100) or b"").decode("ascii", "replace").split()
        if len(words) != 2 or not words[0].isdigit():
            return None
        pid = int(words[0])
        return pid if processes.start_time(pid) == words[1] else None

    def put_answer(self, answer: Answer) -> None:
        """Write the answer as one line; it appears whole or not at all."""
        document = {
            "retcode": answer.retcode,
            "error": answer.error,
            "error_type": answer.error_type,
            "vanished": list(answer.vanished),
            "unseen": list(answer.unseen),
            "value": answer.value,
        }
        # The rest of a larger answer that had no room.
        (self.path / "answer.new").unlink(missing_ok=True)
        _write(self.path / "answer.new", plain.encode(document, strict=False))
        os.replace(self.path / "answer.new", self.path / "answer")

    def answer(self) -> Answer | None:
        """Read the answer; ``None`` if the call did not get that far."""
        document = self._document("answer")
        if document is None:
            return None
        retcode, error = document.get("retcode"), document.get("error")
        # The extension in the snapshot may be an earlier one, which does not say it.
        vanished, unseen = document.get("vanished"), document.get("unseen", [])
        if (
            not isinstance(retcode, int)
            or not isinstance(vanished, list)
            or not isinstance(unseen, list)
            or not (error is None or isinstance(error, str))
            or "value" not in document
        ):
            raise RecordError(f"{self.path / 'answer'} is not an answer, so it was not used")
        return Answer(
            retcode=retcode,
            error=error,
            error_type=str(document.get("error_type", "")),
            vanished=[str(path) for path in vanished],
            unseen=[str(path) for path in unseen],
            value=document["value"],
        )

    def _document(self, name: str) -> dict[str, Any] | None:
        data = _read(self.path / name, RESULT_LIMIT)
        if data is None:
            return None
        try:
            document = plain.decode(data)
        except (ValueError, RecursionError) as err:
            raise RecordError(f"{self.path / name} is damaged ({err}), so it was not used") from err
        if not isinstance(document, dict):
            raise RecordError(f"{self.path / name} is not a JSON object, so it was not used")
        return document

    def put_program(self, name: str, text: str) -> Path:
        """Write a program for use inside."""
        private_directory(self.programs)
        path = self.programs / name
        _write(path, text.encode())
        path.chmod(0o700)
        return path

    def exit_status(self) -> int | None:
        """Read the exit status of a plain command; ``None`` if it did not end by itself."""
        data = _read(self.status, 16)
        text = (data or b"").decode("ascii", "replace").strip()
        return int(text) if re.fullmatch(r"-?\d{1,3}", text) else None

    def wish_list(self) -> list[dict[str, Any]]:
        """Read what was asked for inside; a line that cannot be read is left out."""
        wishes = []
        for line in (_read(self.wishes, 1024 * 1024) or b"").splitlines():
            try:
                wish = json.loads(line)
            except ValueError:
                continue
            if isinstance(wish, dict) and isinstance(wish.get("action"), str):
                wishes.append(wish)
        return wishes

    def error_output(self) -> str:
        """Return the end of what was written to standard error."""
        data = _read(self.stderr, 1024 * 1024 * 64) or b""
        return data[-2000:].decode("utf-8", "replace").strip()


@contextmanager
def opened(base: Path = BASE) -> Iterator[Directory]:
    """Make the directory of a call, keep it locked while it is used, and remove it."""
    private_directory(base)
    path, fd = _new_directory(base)
    try:
        yield Directory(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)


def _new_directory(base: Path) -> tuple[Path, int]:
    """Return a new directory and the descriptor that keeps it locked."""
    while True:
        path = base / secrets.token_hex(16)
        try:
            path.mkdir(mode=0o700)
        except OSError as err:
            raise RecordError(
                f"{path} cannot be made: {err.strerror}; nothing was changed. Make room in {base}"
            ) from err
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if path.exists():
                return path, fd
            # Before it was locked, another call took it for one of a killed call.
            os.close(fd)


def open_lock(base: Path) -> int:
    """Open the file whose lock puts calls in a queue."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(base / "lock", flags, 0o600)
    except OSError as err:
        raise RecordError(
            f"{base / 'lock'} cannot be opened: {err.strerror}; nothing was changed. "
            "Make room there, or remove what is in its place"
        ) from err


def has_leftovers(base: Path = BASE) -> bool:
    """Tell whether there are directories of calls, of which some may have been killed."""
    return base.is_dir() and any(_NAME.fullmatch(path.name) for path in base.iterdir())


def sweep(base: Path = BASE, before: Callable[[Path], object] = lambda path: None) -> int:
    """
    Remove what killed calls left behind; return how many there were.

    *before* is called with the directory of such a call before that is removed.
    """
    removed = 0
    for path in base.iterdir():
        if not _NAME.fullmatch(path.name) or not path.is_dir() or path.is_symlink():
            continue
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            before(path)
            shutil.rmtree(path, ignore_errors=True)
            removed += 1
        finally:
            os.close(fd)
    return removed
