"""Jobs for the minions of a host with a master, as many as it takes, and what became of each."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from devtools.command import REPO, end
from devtools.lab.container import Container
from devtools.lab.recipes import PREFIX
from tests.lab import crowd
from tests.support.waiting import LONGEST, wait_for

PUBLISHER = Path(__file__).with_name("publisher.py")


class Load:
    """Jobs that are published as fast as wanted, to the real minion and to many light ones."""

    # Jobs a second, and how many light minions take them in turns, with the real one now and then:
    # it does ten a second at most, and has to update itself.
    RATE, MINIONS, TURNS = 50, 10, 5
    # Of an earlier Salt, outside of what the package changes.
    CLIENT, DIRECTORY = "/var/tmp/client", "/var/tmp/load"

    def __init__(self, container: Container, minion: str, path: Path) -> None:
        self.container, self.minion, self.path = container, minion, path
        self.names = [f"light{number}" for number in range(self.MINIONS)]
        argv = [sys.executable, "-m", "tests.lab.crowd", str(path), *self.names]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPO), str(REPO / "src")))}
        self.crowd = container.network.popen(argv, stdin=subprocess.PIPE, env=env)
        self.publisher: subprocess.Popen[str] | None = None

    def begin(self) -> None:
        assert self.crowd.stdout is not None
        lines: list[str] = []
        while crowd.UP not in (line := self.crowd.stdout.readline()):
            lines.append(line)
            assert line, lines
        self.container.run(["cp", "-a", PREFIX, self.CLIENT])
        self.container.run(["mkdir", self.DIRECTORY])
        self.container.write("/var/tmp/publisher.py", PUBLISHER.read_text())
        self.publish()
        self.wait_for_more()

    def publish(self) -> None:
        """Publish from now on; also after the power was cut."""
        argv = [f"{self.CLIENT}/bin/python3", "/var/tmp/publisher.py", self.DIRECTORY]
        turns = [self.minion, *self.names * self.TURNS]
        self.publisher = self.container.popen([*argv, str(self.RATE), *turns])

    def wait_for_more(self, count: int = 200) -> None:
        """Wait until so many more jobs were taken."""
        wanted = len(self.accepted()) + count
        wait_for(lambda: len(self.accepted()) >= wanted, f"{count} more jobs to be published")

    def accepted(self) -> dict[str, tuple[str, str]]:
        """Return minion and mark of each job that the master has said it has taken, by JID."""
        text = self.container.read(f"{self.DIRECTORY}/accepted", "")
        rows = (line.split() for line in text.splitlines())
        return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}

    def end(self) -> None:
        self.container.write(f"{self.DIRECTORY}/enough", "")
        assert self.publisher is not None
        said, _ = self.publisher.communicate(timeout=LONGEST)
        assert self.publisher.returncode == 0, said
        print(said)

    def assert_each_ran_once_and_returned(self) -> None:
        accepted = self.accepted()
        open_ = dict(accepted)

        def all_returned() -> bool:
            for jid, (minion, _) in list(open_.items()):
                digest = hashlib.sha256(jid.encode()).hexdigest()
                job = f"/var/cache/salt/master/jobs/{digest[:2]}/{digest[2:]}"
                if self.container.exists(f"{job}/{minion}/return.p"):
                    del open_[jid]
            return not open_

        wait_for(all_returned, f"the returns of {len(accepted)} jobs, such as {list(open_)[:3]}")
        marks = self.container.read(f"{self.DIRECTORY}/ran").split()
        light = [tuple(line.split()) for line in (self.path / crowd.RAN).read_text().splitlines()]
        assert _twice(marks) == []
        assert _twice(light) == []
        real = {mark for minion, mark in accepted.values() if minion == self.minion}
        assert real <= set(marks)
        wanted = {(minion, jid) for jid, (minion, _) in accepted.items() if minion != self.minion}
        assert wanted <= set(light)
        print(f"{len(accepted)} jobs accepted and returned, {len(real)} of the real minion")

    def close(self) -> None:
        for process in (self.publisher, self.crowd):
            if process is not None:
                end(process)


def _twice(listed: Sequence[object]) -> list[object]:
    """Return what is there more than once."""
    return [each for each, count in Counter(listed).items() if count > 1]
