"""A host whose root is a snapshot on a real btrfs; systemd, zypper and snapper are real as well."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from devtools.command import REPO, run
from devtools.lab.container import Container, Lab
from devtools.lab.rpm_recipes import BUNDLE
from tests.lab.engine import QUICK
from tests.lab.rpm import RpmHost

SIZE = "6G"
# The update asks for its reboots, as it does where nobody else is to do it.
REBOOTS = {"safeupdate": {**QUICK["safeupdate"], "transactional_reboot": "always"}}


class SnapshotContainer(Container):
    """
    A container that boots the default snapshot of a btrfs in a file (see ``tests.lab.snapshots``).

    ``transactional-update`` is the stand-in of ``tests/functional/transactional/rig``.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        image = str(self.dir / "image")
        run(["truncate", "--size", SIZE, image], timeout=30)
        self._device = run(["losetup", "--find", "--show", image], timeout=30).stdout.strip()
        (self.dir / "device").write_text(self._device)
        argv = shlex.join([sys.executable, "-m", "tests.lab.snapshots"])
        (self.dir / "mount").write_text(f'cd {shlex.quote(str(REPO))} && exec {argv} "$@"\n')

    def down(self) -> None:
        super().down()
        run(["losetup", "--detach", self._device], timeout=30, check=False, cleans=True)


class TransactionalHost(RpmHost):
    """Such a host. When it has gone down for a reboot, it is booted again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.boots = 0
        self._off = threading.Event()
        self._power = threading.Lock()
        # Upstream's tree is in /opt, which is in no snapshot.
        kwargs = {"front_end": "zypper", "packaging": BUNDLE, "config": REBOOTS, **kwargs}
        super().__init__(*args, **kwargs)

    def _container(self, lab: Lab, layers: Sequence[Path], binds: dict[str, str]) -> Container:
        layers = [*layers, lab.cache.snapshot_tools()]
        network = self._network(lab)
        kind = SnapshotContainer
        return lab.container(None, extra_layers=layers, binds=binds, network=network, kind=kind)

    def up(self) -> Any:
        super().up()
        self.boots += 1
        threading.Thread(target=self._boot_again, daemon=True).start()
        return self

    def snapshot(self) -> int:
        """Return the number of the snapshot that runs."""
        root = self.container.run(["findmnt", "-no", "FSROOT", "/"]).stdout.strip()
        return int(root.split("/")[-2])

    def down(self) -> None:
        self._off.set()
        with self._power:
            super().down()

    def _boot_again(self) -> None:
        while not self._off.wait(0.2):
            with self._power:
                if not self._off.is_set() and not self.container.is_up:
                    self.container.come_back()
                    self.boots += 1
