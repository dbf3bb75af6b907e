"""The one place where the tooling starts other programs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

REPO = Path(__file__).resolve().parent.parent

# Seconds that a program gets to clean up after itself when the user ends ours.
STOP_TIMEOUT = 60.0
# Set when the user wants the program to end: long work looks at it and gives up.
stopping = threading.Event()
_running: set[subprocess.Popen[str]] = set()


class ToolError(Exception):
    """Something the developer has to act on; the message says what happened and what to do."""


class Stopped(ToolError):
    """The user ended the program."""


def check_stopping() -> None:
    if stopping.is_set():
        raise Stopped("stopped")


def interrupt_all() -> None:
    """Send SIGINT to everything that :func:`run` waits for; callable from a signal handler."""
    stopping.set()
    for process in list(_running):
        _interrupt(process)


def _interrupt(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)


@dataclass(frozen=True)
class Result:
    """The result of a finished program."""

    argv: tuple[str, ...]
    stdout: str
    stderr: str
    rc: int

    @property
    def ok(self) -> bool:
        return self.rc == 0


class CommandFailed(ToolError):
    """A program failed or took too long; carries its :class:`Result`."""

    def __init__(self, result: Result, reason: str, log: Path | None = None) -> None:
        self.result = result
        tail = _tail(log.read_text(errors="replace")) if log and log.exists() else ""
        tail = tail or _tail(result.stderr) or _tail(result.stdout)
        where = f" (full output: {log})" if log else ""
        super().__init__(f"{' '.join(result.argv)}: {reason}{where}\n{tail}".rstrip())


def _tail(text: str, lines: int = 20) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines()[-lines:])


def spawn(
    argv: Sequence[str],
    *,
    stdin: int | IO[str] | None = subprocess.DEVNULL,
    stdout: int | IO[str] | None = subprocess.PIPE,
    stderr: int | IO[str] | None = subprocess.STDOUT,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[str]:
    """Start *argv* in a process group of its own and return at once."""
    try:
        return subprocess.Popen(  # noqa: S603 (an argument list, and no shell)
            list(argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=None if env is None else dict(env),
            cwd=cwd,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=pass_fds,
        )
    except FileNotFoundError as err:
        raise ToolError(f"{argv[0]} is not installed or not in PATH: {err}") from err


def end(process: subprocess.Popen[str], *, grace: float = 5.0) -> None:
    """End a process started by :func:`spawn`, with everything in its process group."""
    # The second signal is for children of the group that outlive its leader.
    for sig, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(process.pid, sig)
            process.wait(wait)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def run(
    argv: Sequence[str],
    *,
    timeout: float,
    check: bool = True,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    cleans: bool = False,
) -> Result:
    """Run *argv* to its end; with *log*, output goes (appended) to that file instead.

    When the user ends our program, what runs is interrupted and nothing more is started, except
    for what *cleans*.
    """
    if not cleans:
        check_stopping()
    sink = log.open("a", encoding="utf-8") if log else None
    try:
        process = spawn(
            argv,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=sink or subprocess.PIPE,
            stderr=subprocess.STDOUT if sink else subprocess.PIPE,
            env=env,
            cwd=cwd,
        )
        if not cleans:
            _running.add(process)
            if stopping.is_set():
                _interrupt(process)
        try:
            out, err = _communicate(process, stdin, timeout, ends=not cleans)
        except subprocess.TimeoutExpired:
            kill_group(process)
            out, err = process.communicate()
            if not cleans:
                check_stopping()
            result = Result(tuple(argv), out or "", err or "", -signal.SIGKILL)
            raise CommandFailed(result, f"no end after {timeout:g} s, killed", log) from None
        except BaseException:
            if stopping.is_set():
                # It has been interrupted and may have much to take back.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    _communicate(process, None, STOP_TIMEOUT)
            kill_group(process)
            process.wait()
            raise
        finally:
            _running.discard(process)
    finally:
        if sink:
            sink.close()
    result = Result(tuple(argv), out or "", err or "", process.returncode)
    if check and not result.ok:
        raise CommandFailed(result, f"exit status {result.rc}", log)
    return result


def _communicate(
    process: subprocess.Popen[str], stdin: str | None, timeout: float, *, ends: bool = False
) -> tuple[str | None, str | None]:
    """Wait for the end; one that *ends* with us has STOP_TIMEOUT for that, whatever it ignores."""
    deadline = time.monotonic() + timeout
    while True:
        if ends and stopping.is_set():
            ends, deadline = False, min(deadline, time.monotonic() + STOP_TIMEOUT)
        try:
            left = max(0.0, deadline - time.monotonic())
            out, err = process.communicate(stdin, timeout=min(1.0, left))
        except subprocess.TimeoutExpired:
            if process.poll() is not None:
                # A process that it has started still holds its output.
                if stopping.is_set():
                    return None, None
                kill_group(process)
            if time.monotonic() >= deadline:
                raise
            stdin = None
        else:
            return out, err


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process started by :func:`spawn`, with everything in its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
