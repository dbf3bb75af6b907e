"""The inner half of a call: what happens in the snapshot."""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

from ..errors import InputError
from ..host import hidden
from .handover import Answer, Directory
from .programs import recorder
from .roots import parse_mountinfo
from .services import is_state_result

# The environment variable by which a function inside can request a reboot.
WISHES = "SALT_SAFEUPDATE_WISHES"
# Programs that a transaction cannot obey; what they are asked for is done afterwards.
RECORDED = (
    "halt",
    "init",
    "poweroff",
    "reboot",
    "rebootmgrctl",
    "shutdown",
    "systemctl",
    "telinit",
)
# File systems whose mount points hold no data of the snapshot.
_VIRTUAL = ("proc", "sysfs", "devtmpfs", "devpts", "cgroup2", "securityfs", "tracefs", "debugfs")
# Private places of a transaction, empty afterwards.
TEMPORARY = ("/tmp", "/var/tmp", "/run")  # noqa: S108 (looked at, not used)
# Files that are looked at in search of vanishing writes, and named in the report.
SCAN_LIMIT = 20_000
NAME_LIMIT = 20
# Salt's own temporary files.
_OWN_TEMPORARY = ("__salt.tmp.", ".root_", "salt-", "tmp")
# What programs write into /run for as long as they run: zypper does.
_OF_PROGRAMS = (".pid", ".lock")


def shadowed_places(mountinfo: str) -> list[str]:
    """Return the mount points of the running system whose content a snapshot lacks."""
    places = []
    for mount in parse_mountinfo(mountinfo):
        under = mount.point.split("/")[1]
        # A part of a snapshot (/etc since 5.0; an applied one) is in the next one, too.
        if (
            mount.fstype in _VIRTUAL
            or mount.of_snapshot
            or under in ("", "dev", "proc", "run", "sys", ".snapshots")
        ):
            continue
        places.append(mount.point)
    return sorted(set(places))


def vanishing(
    shadowed: Sequence[str], since: float, mountinfo: str, temporary: Sequence[str] = TEMPORARY
) -> list[str]:
    """Return files written since *since* to places that nobody will see again."""
    mounted = {mount.point for mount in parse_mountinfo(mountinfo)}
    places = [place for place in shadowed if place not in mounted]
    found: list[str] = []
    looked = 0
    for path in _files(places + [place for place in temporary if place in mounted], mounted):
        looked += 1
        if looked > SCAN_LIMIT:
            found.append(f"(only the first {SCAN_LIMIT} files were looked at)")
            break
        name, passing = Path(path).name, path.startswith(tuple(temporary))
        own = passing and name.startswith(_OWN_TEMPORARY)
        own = own or (path.startswith("/run/") and name.endswith(_OF_PROGRAMS))
        try:
            if not own and os.lstat(path).st_ctime >= since:
                found.append(path)
        except OSError:
            continue
    return found


def unseen(
    value: Any, shadowed: Sequence[str], mountinfo: str, temporary: Sequence[str] = TEMPORARY
) -> list[str]:
    """
    Return the paths of states that found nothing to do in places that a transaction hides.

    They have seen other files there than the live system has.
    """
    mounted = {mount.point for mount in parse_mountinfo(mountinfo)}
    hidden = (set(shadowed) - mounted) | (set(temporary) & mounted)
    chunks = value.values() if is_state_result(value) else ()
    names = [
        str(chunk.get("name"))
        for chunk in chunks
        if isinstance(chunk, dict) and chunk.get("result") is True and not chunk.get("changes")
    ]
    return [name for name in names if _nearest(name, hidden | mounted) in hidden]


def _nearest(path: str, places: set[str]) -> str | None:
    """Return the innermost of *places* in which an absolute path lies."""
    found = PurePosixPath(path)
    if not found.is_absolute() or ".." in found.parts:
        return None
    return next((str(at) for at in (found, *found.parents) if str(at) in places), None)


def _files(places: Sequence[str], mounted: set[str]) -> Iterator[str]:
    for place in places:
        for folder, folders, files in os.walk(place):
            folders[:] = [name for name in folders if os.path.join(folder, name) not in mounted]
            for name in files:
                yield os.path.join(folder, name)


class Answering:
    """Writes the answer of a call, whichever way the call ends."""

    def __init__(self, directory: Directory, shadowed: Sequence[str], since: float) -> None:
        self._directory = directory
        self._shadowed = shadowed
        self._since = since

    def __enter__(self) -> Answering:
        return self

    def returned(self, value: Any, retcode: int) -> int:
        """Answer with *value*; return the exit status that stands for it."""
        if retcode == 0 and isinstance(value, dict):
            # Salt's own rule for functions that report failure in their result.
            retcode = 0 if all(value.get(key, True) for key in ("result", "success")) else 1
        answer = Answer(
            value=value,
            retcode=retcode,
            vanished=self._vanished(),
            unseen=_some(unseen(value, self._shadowed, _mountinfo())),
        )
        self._directory.put_answer(answer)
        return retcode

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Answer with the error, and let it go on: salt-call then fails too."""
        # SystemExit is no answer: the process was told to stop.
        if kind and isinstance(error, Exception) and self._directory.answer() is None:
            self._directory.put_answer(
                Answer(
                    retcode=1,
                    error=str(error) or kind.__name__,
                    error_type=kind.__name__,
                    vanished=self._vanished(),
                )
            )

    def _vanished(self) -> list[str]:
        return _some(vanishing(self._shadowed, self._since, _mountinfo()))


def _mountinfo() -> str:
    return Path("/proc/self/mountinfo").read_text(encoding="utf-8")


def _some(found: list[str]) -> list[str]:
    """Return the first of many names, and how many more there are."""
    if len(found) > NAME_LIMIT:
        found[NAME_LIMIT:] = [f"(and {len(found) - NAME_LIMIT} more)"]
    return found


def perform(
    path: str,
    functions: Mapping[str, Callable[..., Any]],
    context: MutableMapping[str, Any],
    environ: MutableMapping[str, str],
    clock: Callable[[], float],
    published: Mapping[str, Any],
) -> None:
    """
    Carry out the request in *path*; the exit status lands in ``context["retcode"]``.

    *published* is what Salt tells functions about their job (``__pub_jid``...).
    """
    directory = Directory(Path(path))
    if not hidden.in_transaction(environ):
        raise InputError("this runs inside a transaction only; use transactional_update.call")
    request = directory.request()
    install_recorders(directory, environ)
    environ[WISHES] = str(directory.wishes)
    with _stderr_in(directory.stderr), Answering(directory, request.shadowed, clock()) as answer:
        if request.function not in functions:
            raise InputError(f"'{request.function}' is not available in the snapshot")
        directory.begin()
        context["retcode"] = 0
        function = functions[request.function]
        told = {**published, "__pub_fun": request.function} if _takes_any(function) else {}
        value = function(*request.args, **{**told, **request.kwargs})
        context["retcode"] = answer.returned(value, int(context.get("retcode") or 0))


def _takes_any(function: Callable[..., Any]) -> bool:
    """Tell whether *function* has ``**kwargs``: only then Salt tells it about its job."""
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def install_recorders(directory: Directory, environ: MutableMapping[str, str]) -> None:
    """Put the recording programs before the system's own."""
    source = Path(recorder.__file__).read_text(encoding="utf-8")
    for name in RECORDED:
        directory.put_program(name, f"#!{sys.executable} -I\n{source}")
    environ["PATH"] = f"{directory.programs}{os.pathsep}{environ.get('PATH', os.defpath)}"


@contextmanager
def _stderr_in(path: Path) -> Iterator[None]:
    """Keep what is written to standard error apart from the tool's own messages."""
    sys.stderr.flush()
    saved = os.dup(2)
    sink = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    os.dup2(sink, 2)
    os.close(sink)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)


def ask_for_reboot(environ: Mapping[str, str]) -> bool:
    """Inside a call: ask for a reboot after the transaction. False: there is no such call."""
    return ask(environ, {"action": "reboot"})


def ask(environ: Mapping[str, str], wish: Mapping[str, Any]) -> bool:
    """Inside a call: ask for something after the transaction. False: there is no such call."""
    path = environ.get(WISHES)
    if not path:
        return False
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "a", encoding="utf-8") as sink:
        sink.write(json.dumps(wish, default=str) + "\n")
    return True
