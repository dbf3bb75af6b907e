"""Progress lines: what is being done, for how long, and a sign of life when it takes time."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HEARTBEAT_INTERVAL = 10.0
_started = time.monotonic()
_lock = threading.Lock()
_active: list[Step] = []


@dataclass
class Step:
    """A running piece of work; *detail* and *log* feed the heartbeat line."""

    title: str
    log: Path | None = None
    detail: str = ""
    began: float = field(default_factory=time.monotonic)
    beaten: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began


def say(text: str) -> None:
    """Print one progress line with the time since the program started."""
    with _lock:
        print(_line(text), file=sys.stderr, flush=True)


def say_at_once(text: str) -> None:
    """Do the same where the code that was interrupted may be in the middle of :func:`say`."""
    with contextlib.suppress(OSError):
        os.write(sys.stderr.fileno(), f"{_line(text)}\n".encode())


def _line(text: str) -> str:
    return f"[{time.monotonic() - _started:6.1f} s] {text}"


@contextmanager
def step(title: str, *, log: Path | None = None, quiet: bool = False) -> Iterator[Step]:
    """Announce *title*, beat while it runs, and say how long it took."""
    current = Step(title, log)
    if not quiet:
        say(f"{title} ...")
    _active.append(current)
    _ensure_heartbeat()
    try:
        yield current
    except BaseException:
        say(f"{title}: FAILED after {current.elapsed:.1f} s")
        raise
    else:
        if not quiet or current.elapsed > HEARTBEAT_INTERVAL:
            say(f"{title}: done in {current.elapsed:.1f} s")
    finally:
        _active.remove(current)


@functools.cache
def _ensure_heartbeat() -> None:
    """Start the thread that prints the signs of life, once."""
    threading.Thread(target=_beat, name="heartbeat", daemon=True).start()


def _beat() -> None:
    while True:
        time.sleep(0.5)
        for current in list(_active):
            now = time.monotonic()
            if now - current.beaten >= HEARTBEAT_INTERVAL:
                current.beaten = now
                doing = current.detail or _last_line(current.log)
                say(f"{current.title}: {current.elapsed:.0f} s so far{doing and ': ' + doing}")


def _last_line(log: Path | None) -> str:
    """Return the end of *log*, shortened to fit a terminal line."""
    try:
        with open(log or "/dev/null", "rb") as handle:
            handle.seek(0, 2)
            handle.seek(max(0, handle.tell() - 2000))
            lines = handle.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:80] for line in reversed(lines) if line.strip()), "")
