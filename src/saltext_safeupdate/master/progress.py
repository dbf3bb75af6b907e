"""
A rollout in a terminal.


Watching changes nothing: the rollout continues without a terminal, and Ctrl-C only ends the
display.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from ..core.times import UTC, beside, zone
from ..fleet.columns import Line, columns, fitting
from ..fleet.policy_text import policy_lines
from ..fleet.text import changes, clean, goal, lines, plan_text, seconds, shown, text

__all__ = [
    "beside",
    "follow",
    "for_person",
    "listed_text",
    "plan_text",
    "text",
    "zone",
]

# Seconds between two looks.
INTERVAL = 1.0
COLOURS = {"good": "32", "bad": "31", "work": "36", "dim": "2"}
# Move the cursor that many lines up, to the first column, and erase everything below it.
BACK, ERASE = "\x1b[{}F", "\x1b[J"


# Seconds for which a rollout that no engine drives is shown: its master may be restarting.
_ALONE = 300.0
_UNATTENDED = (
    "\nNo longer shown: no engine drives the rollout. No minion begins meanwhile, and those that "
    "have begun continue. 'salt-run safeupdate.status' says why. It continues once one runs.\n"
)


def follow(
    read: Callable[[], Mapping[str, Any]],
    out: TextIO,
    *,
    wait: Callable[[float], object] = time.sleep,
    interval: float = INTERVAL,
) -> int:
    """
    Show a rollout until it ends, or has stopped and no minion is at work; return its exit status.

    *read* returns the present summary. A terminal *out* is drawn again each time; any other gets a
    line for each change. Ctrl-C ends the display: then the exit status is the present one, 3 if
    the rollout is under way. The same happens if no engine drives the rollout for minutes.
    """
    show = Screen(out).show if _draws(out) else Lines(out).show
    found = read()
    with _interruptible():
        try:
            show(found)
            alone = 0.0
            while not _stands(found):
                wait(interval)
                found = read()
                show(found)
                alone = 0.0 if found.get("looked_after", True) else alone + interval
                if alone >= _ALONE:
                    _write(out, _UNATTENDED)
                    break
        except KeyboardInterrupt:
            name = clean(found["rollout"])
            _write(
                out,
                f"\nNo longer shown; the rollout continues. 'salt-run safeupdate.status {name}' "
                f"shows it, 'salt-run safeupdate.abort {name}' ends it.\n",
            )
    return int(found["exit_status"])


def for_person(opts: Mapping[str, Any]) -> bool:
    """
    Return whether the answer of a runner is for a person at a terminal, and not for a program.

    Then ``salt-run`` itself calls it, and nobody has asked for a form of output.
    """
    called = str(opts.get("fun") or "").startswith("safeupdate.")
    return called and not opts.get("async") and not opts.get("output")


def watched(opts: Mapping[str, Any]) -> TextIO:
    """
    Return the file on which a runner shows its progress; if nobody sees it, one that drops all.

    Only the answer is written to the standard output, because programs read that.
    """
    called = str(opts.get("fun") or "").startswith("safeupdate.")
    return sys.stderr if called and not opts.get("async") else io.StringIO()


def say_that_minions_are_asked(opts: Mapping[str, Any], minions: int, timeout: float) -> None:
    """Tell a person why a plan takes so long."""
    _write(
        watched(opts),
        f"Asking {minions} minions whether they can be updated, for {seconds(timeout)} at most; "
        "nothing has started.\n",
    )


def listed_text(found: Mapping[str, Mapping[str, Any]], zone: object = UTC) -> str:
    """Return many rollouts as text; see :func:`..fleet.text.shown`."""
    rows = []
    for name, told in found.items():
        counts = ", ".join(f"{n} {step.replace('_', ' ')}" for step, n in told["counts"].items())
        why = f" ({clean(told['why'])})" if told["why"] else ""
        why += "" if told.get("looked_after", True) else " (nobody looks after it)"
        what = goal(told["version"], told["extension"], told["back"])
        rows.append(f"{clean(name)}  {told['mode']:8}  {what}: {counts}{why}")
    return shown("\n".join(rows), zone) or "There are no rollouts."


def policy_text(found: Mapping[str, Any], zone: object = UTC) -> str:
    """Return the status of a fleet by its policy as text; see :func:`..fleet.text.shown`."""
    return policy_lines(found, zone)


def _stands(found: Mapping[str, Any]) -> bool:
    """Return whether nothing more happens unless somebody acts. A pause was somebody's wish."""
    active = any(wave["active"] for wave in found["waves"])
    return found["exit_status"] in (0, 1) or (found["mode"] == "stopped" and not active)


class Lines:
    """Prints a line for each change."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._before: Mapping[str, Any] | None = None

    def show(self, found: Mapping[str, Any]) -> None:
        for line in changes(self._before, found):
            _write(self._out, f"{line}\n")
        self._before = found


class Screen:
    """Draws the rollout over its last drawing, as large as the terminal."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._colours = not os.environ.get("NO_COLOR")
        self._drawn = 0

    def show(self, found: Mapping[str, Any]) -> None:
        size = os.get_terminal_size(self._out.fileno())
        # A terminal that does not know its size gets the usual one.
        width, height = size.columns or 80, size.lines or 24
        drawn = lines(found)
        if len(drawn) >= height:
            hidden = len(drawn) - (height - 2)
            drawn = [*drawn[: height - 2], [(f"  ... {hidden} more lines", "dim")]]
        back = BACK.format(self._drawn) if self._drawn else ""
        told = "".join(f"{self._line(line, width - 1)}\n" for line in drawn)
        _write(self._out, f"{back}{ERASE}{told}")
        self._drawn = len(drawn)

    def _line(self, line: Line, width: int) -> str:
        """Return a line that fits one line of the terminal."""
        told = []
        for part, kind in line:
            kept = fitting(part, width)
            width -= columns(kept)
            colour = COLOURS.get(kind) if self._colours else None
            told.append(f"\x1b[{colour}m{kept}\x1b[0m" if colour and kept else kept)
        return "".join(told)


def _draws(out: TextIO) -> bool:
    return out.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _write(out: TextIO, told: str) -> None:
    """Write *told*; characters that the encoding of *out* lacks become question marks."""
    encoding = out.encoding or "ascii"
    out.write(told.encode(encoding, "replace").decode(encoding))
    out.flush()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt: Salt's own handler ends the program with success."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
