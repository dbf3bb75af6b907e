"""Whoever watches a rollout sees it as it is, and harms it by nothing."""

import io
import os
import pty
import re
import signal
import struct
import termios
from fcntl import ioctl

import pytest

from saltext_safeupdate.fleet import summary
from saltext_safeupdate.master import progress
from tests.unit.fleet.world import Host, World

EVIL = "\x1b[2J\x1b]0;owned\x07 \x9b5A evil"
CONTROL = re.compile(r"\x1b\[(\d*)([FJm])|(\n)|([^\x00-\x1f\x7f])")


class Terminal(io.StringIO):
    """A terminal of that size, and what its screen shows; other controls are an error."""

    encoding = "utf-8"

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self._ends = pty.openpty()
        ioctl(self._ends[1], termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.lines = [""]
        self.at = 0

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._ends[1]

    def write(self, text: str) -> int:
        end = 0
        for found in CONTROL.finditer(text):
            assert found.start() == end, text[end : end + 20]
            end = found.end()
            count, control, newline, char = found.groups()
            if control == "F":
                self.at -= int(count)
                assert self.at >= 0, "it goes up no further than it has drawn"
            elif control == "J":
                del self.lines[self.at :]
                self.lines.append("")
            elif newline:
                self.at += 1
                self.lines.append("")
            elif char:
                self.lines[self.at] += char
        assert end == len(text), text[end : end + 20]
        return super().write(text)

    def close(self) -> None:
        for end in self._ends:
            os.close(end)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    made = []

    def make(rows: int = 40, columns: int = 100) -> Terminal:
        made.append(Terminal(rows, columns))
        return made[-1]

    yield make
    for each in made:
        each.close()


def world(count: int = 12, **wanted: object) -> World:
    hosts = [Host(f"m{number:02}") for number in range(count)]
    return World(hosts, soak=0, **wanted)


def watched(running: World, out: object, **given: object) -> int:
    """Follow a rollout that goes on by a step between two looks."""
    return progress.follow(
        lambda: summary.summary(running.rollout, running.now),
        out,
        wait=lambda seconds: running.tick(),
        **given,
    )


def test_a_terminal_shows_the_newest_and_nothing_else(terminal) -> None:
    screen, running = terminal(), world()

    def wait(_: float) -> None:
        now = progress.text(summary.summary(running.rollout, running.now)).splitlines()
        assert [line.rstrip() for line in screen.lines[: len(now)]] == now
        assert screen.lines[len(now) :] == [""]
        running.tick()

    read = lambda: summary.summary(running.rollout, running.now)  # noqa: E731
    assert progress.follow(read, screen, wait=wait) == 0
    assert screen.lines[0].startswith("Rollout r1: finished")
    assert "\x1b[32m" in screen.getvalue(), "colours"


def test_nobody_waits_for_ever_for_a_rollout_that_nobody_looks_after() -> None:
    """An orchestration did, without a word."""
    running, out, looks = world(), io.StringIO(), []
    away = {"looked_after": False, "owner": "a master"}

    def read() -> dict[str, object]:
        looks.append(1)
        # Its master is restarted once, and stands down later.
        gone = 100 < len(looks) < 300 or len(looks) > 1000
        return {**summary.summary(running.rollout, running.now), **(away if gone else {})}

    assert progress.follow(read, out, wait=lambda _: None, interval=1.0) == 3
    assert 1299 <= len(looks) <= 1302
    assert "no engine drives the rollout" in out.getvalue()


def test_no_minion_writes_to_the_terminal(terminal) -> None:
    screen, running = terminal(columns=300), world(max_failed=12)
    running.hosts["m01"].ends = "failed"
    while running.rollout.mode.value == "running":
        running.tick()
        for minion in running.rollout.minions.values():
            minion.reason = EVIL if minion.step.bad else minion.reason
    assert watched(running, screen) == 2
    # What is no control of our own fails there.
    assert "evil" in screen.getvalue()


@pytest.mark.parametrize(("rows", "columns"), [(10, 40), (5, 20), (0, 0)])
def test_it_fits_into_a_small_terminal(terminal, rows: int, columns: int) -> None:
    screen, running = terminal(rows, columns), world(60)
    assert watched(running, screen) == 0
    assert len(screen.lines) <= (rows or 24)
    assert max(map(len, screen.lines)) < (columns or 80)


def test_wide_characters_take_their_columns(terminal) -> None:
    screen, running = terminal(20, 40), world(2)
    running.rollout.mode = running.rollout.mode.__class__("stopped")
    running.rollout.why = "更新" * 100
    assert watched(running, screen) == 2
    assert 0 < screen.lines[1].count("更") <= 10


def test_without_colours_there_are_none(terminal, monkeypatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    screen = terminal()
    assert watched(world(2), screen) == 0
    assert not re.search(r"\x1b\[\d*m", screen.getvalue())


def test_what_is_no_terminal_gets_a_line_for_each_change() -> None:
    out, running = io.StringIO(), world()
    assert watched(running, out) == 0
    told = out.getvalue().splitlines()
    assert "\x1b" not in out.getvalue()
    assert len(set(told)) == len(told)
    assert "finished: wave" in told[-1]
    assert len(told) <= 3 * 12


def test_a_dumb_terminal_gets_lines(terminal, monkeypatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    screen = terminal()
    assert watched(world(2), screen) == 0
    assert "\x1b" not in screen.getvalue()


def test_what_an_encoding_lacks_is_a_question_mark() -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    running = world(2)
    running.rollout.mode = running.rollout.mode.__class__("stopped")
    running.rollout.why = "müde \udc80"
    assert watched(running, out) == 2
    out.seek(0)
    assert "m?de" in out.read()


def test_a_stop_is_shown_until_nobody_is_at_work() -> None:
    running = world(canaries=2, max_unavailable=2)
    running.hosts["m00"].ends, running.hosts["m01"].takes = "rolled_back", 600.0
    out = io.StringIO()
    assert watched(running, out) == 2
    assert running.rollout.minions["m01"].step.value == "done"


def test_an_interrupt_ends_the_watching_only() -> None:
    running, out = world(), io.StringIO()
    handler = lambda signum, frame: os._exit(0)  # noqa: E731 (as Salt's, it ends with success)
    before = signal.signal(signal.SIGINT, handler)
    try:
        looks = []

        def wait(_: float) -> None:
            running.tick()
            looks.append(1)
            if len(looks) == 3:
                signal.raise_signal(signal.SIGINT)

        read = lambda: summary.summary(running.rollout, running.now)  # noqa: E731
        assert progress.follow(read, out, wait=wait) == 3
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert "salt-run safeupdate.status r1" in out.getvalue()
    assert running.rollout.mode.value == "running"


@pytest.mark.parametrize(
    ("opts", "person"),
    [
        ({"fun": "safeupdate.status", "output": None, "async": False}, True),
        ({"fun": "safeupdate.status", "output": "json", "async": False}, False),
        ({"fun": "safeupdate.rollout", "output": None, "async": True}, False),
        ({"fun": "state.orchestrate", "output": None}, False),
        ({}, False),
    ],
)
def test_programs_get_data_and_people_text(opts: dict[str, object], person: bool) -> None:
    """The options are as salt-run gives them, or as salt-api and orchestrations do."""
    assert progress.for_person(opts) is person


def test_a_list_of_rollouts_is_a_line_for_each() -> None:
    found = summary.summary(world(3).rollout, 0.0) | {"why": EVIL}
    told = progress.listed_text({"r1": found, EVIL: found}).splitlines()
    assert told[0].split()[1] == "running"
    # A line that is too long goes on where none begins.
    assert len([line for line in told if not line.startswith(" ")]) == 2
    assert "\x1b" not in "".join(told)
    assert progress.listed_text({}) == "There are no rollouts."


def test_who_waits_for_a_plan_sees_that_it_is_made(terminal, monkeypatch) -> None:
    """A rollout begins with minutes in which nothing happens that could be drawn."""
    screen = terminal(24, 80)
    monkeypatch.setattr("sys.stderr", screen)
    progress.say_that_minions_are_asked({"fun": "safeupdate.rollout"}, 17, 45.0)
    shown = " ".join(screen.lines)
    assert "Asking 17 minions whether they can be updated, for 45 s at most" in shown
    assert "nothing has started" in shown
    told = screen.getvalue()
    for opts in ({"fun": "state.orchestrate"}, {"fun": "safeupdate.plan", "async": True}):
        progress.say_that_minions_are_asked(opts, 17, 45.0)
    assert screen.getvalue() == told, "nobody sees those"
