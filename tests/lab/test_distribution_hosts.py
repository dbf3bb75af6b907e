"""Packages of the extension come, are updated and go, on hosts whose minion runs all the time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from devtools.command import Result
from devtools.lab.container import Lab
from saltext_safeupdate import __version__
from tests.lab.released import EARLIER, Repository, archives, package
from tests.lab.rpm import RpmHost
from tests.lab.scene import Scene, state


class PackagedHost(Scene):
    """A host with a minion, on which nothing of the extension is installed yet."""

    kind = "deb"
    installs_by = "apt-get"

    def _extension(self, lab: Lab, site: Path) -> Path:
        empty = lab.run_dir.path / f"nothing{lab.run_dir.number()}"
        empty.mkdir()
        return empty

    def up(self) -> PackagedHost:
        super().up()
        self.repository = Repository(self.container, self.installs_by)
        return self

    def take(self, how: Callable[[Path], None], package: Path) -> None:
        """Install a package, or upgrade to it; the minion that runs is not touched by that."""
        pid = self.pid()
        how(package)
        assert self.pid() == pid
        self.answers()

    def leave(self, *, check: bool = True) -> Result:
        """Remove the package, or try to; the minion that runs is not touched by that."""
        pid = self.pid()
        said = self.repository.remove(check=check)
        assert self.pid() == pid
        self.answers()
        return said

    def changed(self, function: str, *words: str) -> None:
        """Apply a state that restarts the minion, on its host; wait for the next minion."""
        pid = self.pid()
        made = self.salt_call("state.single", function, "name=x", *words)
        assert state(made, "x")["result"] is True, made
        self.master.wait(lambda: self.pid() not in ("0", pid), 120, "a new minion")
        self.answers()

    def runs(self, version: str) -> None:
        """Wait until the minion runs that version of the extension, which is installed, too."""
        wanted = {"running": version, "installed": version}
        self.master.wait(
            lambda: self.call("safeupdate.status")["extension"] == wanted, 240, f"{version} to run"
        )


class PackagedRpmHost(RpmHost, PackagedHost):
    """The same with dnf."""

    kind = "rpm"
    installs_by = "dnf"
    _extension = PackagedHost._extension


@pytest.mark.parametrize(
    "made", [PackagedHost, pytest.param(PackagedRpmHost, marks=pytest.mark.soak)]
)
def test_a_minion_runs_while_its_package_comes_is_updated_and_goes(
    lab: Lab,
    site: Path,
    tmp_path: Path,
    begin: Callable[[Any], Any],
    made: type[PackagedHost],
) -> None:
    host: PackagedHost = begin(made(lab, site, set_up=False)).up()
    earlier, current = (
        package(lab, made.kind, archives(lab, tmp_path / version, version))
        for version in (EARLIER, __version__)
    )
    host.take(host.repository.install, earlier)
    host.changed("safeupdate.enabled", "settings={restart_jitter: 1}")
    host.runs(EARLIER)
    # The engine notices it, and the minion restarts by itself, beside a job that has no end yet.
    long = host.publish("cmd.run", "until [ -e /var/tmp/go ]; do sleep 0.2; done; echo done")
    host.take(host.repository.upgrade, current)
    host.runs(__version__)
    host.container.write("/var/tmp/go", "")
    assert host.returned(long)["return"] == "done"
    refused = host.leave(check=False)
    assert not refused.ok
    assert "/etc/salt/minion.d/_safeupdate.conf" in refused.stdout + refused.stderr
    host.runs(__version__)
    host.changed("safeupdate.disabled")
    host.leave()
    pid = host.pid()
    host.container.run(["systemctl", "restart", "salt-minion"])
    assert host.pid() not in ("0", pid)
    host.answers()
    assert not host.container.exists("/usr/share/saltext-safeupdate")
