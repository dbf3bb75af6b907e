"""A minion that is updated on request, and the questions that its tests ask."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from devtools.lab.recipes import MINION_PACKAGES
from tests.lab.scene import Scene

OLD, NEW = "3007.15", "3008.3"
# What the commit waits for, short enough for tests. A machine that others use as well is slow:
# what is well comes up in the end and is not rolled back for being late.
QUICK: dict[str, Any] = {"safeupdate": {"stable_interval": 3, "watch_timeout": 900}}


def own(version: str) -> dict[str, str]:
    """Return the minion's own packages, each in that version."""
    return dict.fromkeys(MINION_PACKAGES, version)


def changes(old: str, new: str) -> dict[str, dict[str, str]]:
    """Return how a plan or a state shows an update of them."""
    return {package: {"old": old, "new": new} for package in MINION_PACKAGES}


def skipped(version: str) -> list[str]:
    """Return how they are named when that version is allowed again."""
    return [f"{package} {version}" for package in MINION_PACKAGES]


def deb(version: str) -> str:
    return f"salt-minion_{version}"


class EngineScene(Scene):
    """A Scene whose minion is asked for updates."""

    def ask(self, version: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Ask for an update; it has been taken when this returns."""
        words = [version] if version else []
        asked = self.call("safeupdate.update", *words, **kwargs)
        assert isinstance(asked, dict), asked
        return asked

    def update(self, version: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Ask for an update and return how it ended."""
        asked = self.ask(version, **kwargs)
        assert "update" in asked, asked
        return self.ended(asked["update"])

    def ended(self, update: str, timeout: float = 240) -> dict[str, Any]:
        """Wait for the end of that update and of its supervisor."""
        found: dict[str, Any] = self.wait_end(timeout)
        assert found["id"] == update, found
        return found

    @contextmanager
    def waiting(self) -> Iterator[subprocess.Popen[str]]:
        """Have a program on the minion wait for the newest update."""
        before = self._waiters()
        argv = ["salt-call", "--local", "--out", "json", "--log-level", "quiet", "safeupdate.wait"]
        program = self.container.popen(argv)
        try:
            self.master.wait(lambda: self._waiters() - before, 30, "the program to wait")
            yield program
        finally:
            program.kill()
            program.wait(10)

    def _waiters(self) -> set[str]:
        running = self.call("safeupdate.jobs")["running"]
        return {row for row in running if row.endswith("safeupdate.wait")}

    @staticmethod
    def told(program: subprocess.Popen[str]) -> tuple[int, str, str]:
        """Return the exit status of a program that waits, and what it said of which update."""
        output, _ = program.communicate(timeout=60)
        found = json.loads(output)["local"]
        return program.returncode, found["update"], found["phase"]

    def phases(self) -> list[str]:
        """Return the phases of the newest update, from the minion's own history."""
        (newest,) = self.call("safeupdate.history", limit=1)
        return [row["phase"] for row in newest["phases"]]

    def assert_runs(self, version: str) -> None:
        """That version is installed and answers; its jobs work, and nothing is left over."""
        self.wait_alone()
        assert self.answers() == re.split("[+-]", version)[0]
        self.settled()
        self.assert_packages(version)
        assert self.call("cmd.run", "echo works") == "works"
        assert self.container.service(f"{self.unit}.service")["UnitFileState"] == "enabled"
        left = self.leftovers()
        assert left == [], left

    def assert_packages(self, version: str) -> None:
        """The package database says that this version is installed, and nothing else."""
        assert self.version() == version
        assert self.dpkg_status() == "install ok installed"

    def leftovers(self) -> list[str]:
        found = super().leftovers()
        units = self.container.path("/etc/systemd/system")
        return found + [path.name for path in units.rglob("salt-safeupdate-recover*")]

    def kept(self) -> list[str]:
        """Return the files that the minion keeps of its updates."""
        home = self.container.path(self.state_dir)
        return sorted(
            str(path.relative_to(home))
            for part in ("revisions", "staged")
            for path in (home / part).rglob("*")
            if path.is_file()
        )


def told(record: dict[str, Any]) -> Sequence[str]:
    """Return what a record says of versions, for the message of a failed test."""
    return [str(json.loads(record[key])) for key in ("versions_from", "versions_to")]
