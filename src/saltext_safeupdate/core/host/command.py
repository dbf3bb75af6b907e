"""The one place that starts programs."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..errors import CommandError
from ..frozen import frozen
from . import inherited
from .wait import Wait

log = logging.getLogger(__name__)

# Variables of the caller that programs may see. The minion's own bundle variables
# (LD_LIBRARY_PATH, PYTHONPATH, PYTHONHOME...) would break the system's programs.
_PASSED = (
    "HOME",
    "TRANSACTIONAL_UPDATE",
    "TZ",
    *inherited.NAMES,
)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Seconds between SIGTERM and SIGKILL for a program that ran out of time.
_TERM_GRACE = 5.0
# Seconds between two looks whether a program that prints nothing has ended, and seconds that a
# program which it left running gets to close the output.
_LOOK_INTERVAL = 1.0
_OUTPUT_GRACE = 0.5


@frozen
class Result:
    """The output and exit status of a program that has ended."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


class Run(Protocol):
    """The signature of :func:`run`, which tests replace by a fake."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        ok: Sequence[int] | None = (0,),
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        keep: Callable[[str], object] | None = None,
    ) -> Result: ...


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the short, explicit environment that every program gets."""
    env = {name: os.environ[name] for name in _PASSED if name in os.environ}
    env.update({"PATH": _PATH, "LC_ALL": "C"})
    env.update(extra or {})
    return env


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    ok: Sequence[int] | None = (0,),
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    keep: Callable[[str], object] | None = None,
) -> Result:
    """
    Run *argv* without a shell; return its Result or raise CommandError.

    The program gets a process group of its own. After *timeout* seconds the group is
    sent SIGTERM, and SIGKILL 5 s later. It does not wait for a daemon that the program leaves
    running, even if the daemon keeps the output open. *ok* lists the exit statuses that are
    no error (``None``: all). Standard input is *stdin*, or empty. It only returns
    the lines of standard output for which *keep* is true (``None``: all); others take no memory.
    With *keep*, all output goes to files first, so that their limit of size is one for it.
    """
    argv = tuple(argv)
    log.debug("run %s (%d arguments)", argv[0], len(argv) - 1)
    with (
        tempfile.TemporaryFile("w+", errors="replace")
        if keep
        else contextlib.nullcontext() as sieve,
        tempfile.TemporaryFile("w+", errors="replace")
        if keep
        else contextlib.nullcontext() as said,
    ):
        try:
            proc = subprocess.Popen(  # noqa: S603 (an argument list, and no shell)
                argv,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=sieve or subprocess.PIPE,
                stderr=said or subprocess.PIPE,
                env=environment(env),
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as err:
            raise CommandError(argv, f"cannot be started: {err.strerror or err}") from err
        try:
            stdout, stderr = _collect(proc, stdin, timeout)
        except subprocess.TimeoutExpired:
            stdout, stderr = _end(proc)
            raise CommandError(
                argv, f"did not end within {timeout:g} s", stdout=stdout, stderr=stderr
            ) from None
        except BaseException:
            _end(proc)
            raise
        if sieve and said and keep:
            sieve.seek(0)
            stdout = "".join(filter(keep, sieve))
            said.seek(0)
            stderr = said.read()
    result = Result(argv=argv, returncode=proc.returncode, stdout=stdout, stderr=stderr)
    if ok is not None and result.returncode not in ok:
        raise CommandError(
            argv,
            f"exit status {result.returncode}",
            stdout=stdout,
            stderr=stderr,
            returncode=result.returncode,
        )
    return result


def _collect(proc: subprocess.Popen[str], stdin: str | None, timeout: float) -> tuple[str, str]:
    """Return the whole output of the program once it has ended, or raise TimeoutExpired."""
    wait = Wait(timeout)
    while True:
        left = wait.left
        try:
            printed = proc.communicate(stdin, timeout=max(0.0, min(_LOOK_INTERVAL, left)))
            return _text(printed[0]), _text(printed[1])
        except subprocess.TimeoutExpired:
            stdin = None
            if proc.poll() is not None:
                return _rest(proc)
            if left <= 0:
                raise


def _rest(proc: subprocess.Popen[str]) -> tuple[str, str]:
    """Return what a program that has ended printed, even if others have its output open."""
    try:
        printed = proc.communicate(timeout=_OUTPUT_GRACE)
        return _text(printed[0]), _text(printed[1])
    except subprocess.TimeoutExpired as err:
        for stream in (proc.stdout, proc.stderr):
            if stream is not None:
                stream.close()
        return _text(err.stdout), _text(err.stderr)


def _text(printed: str | bytes | None) -> str:
    return printed.decode(errors="replace") if isinstance(printed, bytes) else printed or ""


def _end(proc: subprocess.Popen[str]) -> tuple[str, str]:
    """End the whole process group and return what was printed."""
    _signal_group(proc, signal.SIGTERM)
    try:
        printed = _collect(proc, None, _TERM_GRACE)
    except subprocess.TimeoutExpired:
        _signal_group(proc, signal.SIGKILL)
        return _rest(proc)
    # The program has ended; what it started may not have.
    _signal_group(proc, signal.SIGKILL)
    return printed


def _signal_group(proc: subprocess.Popen[str], signum: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(proc.pid, signum)
