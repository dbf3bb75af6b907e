"""A minion that is handed over to the next one when it is restarted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devtools.lab.container import Lab
from tests.lab.jobs import JobScene
from tests.lab.scene import SET_UP

FLAG = "/var/tmp/go"
SOCKETS = "/var/run/salt/minion"
# What a job does until the test tells it to go on.
UNTIL_FLAG = f"until test -e {FLAG}; do sleep 0.1; done"


def other(version: str) -> str:
    """Return the version that somebody installs in the place of this one."""
    return "3007.15" if version == "3008.3" else "3008.3"


class HandoverScene(JobScene):
    """A minion that is handed over when it is restarted."""

    # How the package manager of the host names a version that is on offer.
    offer_name = "salt-minion_{}"

    def __init__(
        self,
        lab: Lab,
        site: Path,
        version: str,
        *more: str,
        master_config: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        offers = [self.offer_name.format(each) for each in {version, other(version), *more}]
        ours = {"safeupdate": {**SET_UP["safeupdate"], **settings}}
        super().__init__(
            lab, site, version, config=ours, offers=offers, master_config=master_config
        )

    def wait_taken_over(self, timeout: float, what: str, before: str = "") -> None:
        """Wait until the newest process, which is another one than *before*, serves."""

        def serves(each: dict[str, str]) -> bool:
            newest = list(each)[-1]
            return newest != before and each[newest] == "serving"

        self.wait_generations(serves, timeout, what)

    def left(self) -> list[str]:
        """Return what is left of earlier generations."""
        run_dir = self.container.path(self.run_dir)
        ours = f"handover.{self.pid()}.open"
        sockets = self.container.path(SOCKETS)
        scopes = self.container.run(
            ["systemctl", "list-units", "--all", "--no-legend", "--plain", "salt-minion-before-*"]
        ).stdout.split("\n")
        return [
            *(path.name for path in run_dir.glob("handover.*") if path.name != ours),
            *[path.name for path in sockets.glob("generation-*")][1:],
            *filter(None, scopes),
        ]

    def trees(self) -> list[str]:
        """Return the copies of the code that generations have."""
        return [path.name for path in self.container.path(self.tree_parent).glob(".salt-*")]

    def have_own_tree(self) -> None:
        """Have the minion run from files that the file system of the lab can link at once."""
        before, copy = self.pid(), "cp -a salt new && mv salt old && mv new salt && rm -r old"
        self.container.run(["sh", "-c", f"cd /opt/saltstack && {copy}"], timeout=300)
        self.container.run(["systemctl", "restart", "salt-minion"], timeout=120)
        self.master.wait(lambda: self.pid() not in ("0", before), 60, "another minion")
        self.master.wait(lambda: self.left() == [], 90, "the next generation to serve alone")
