"""A minion whose master has builds: what its slots are made of, and what can be asked of them."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from devtools import venvs
from devtools.command import REPO, run
from devtools.lab.container import Container, Lab
from devtools.lab.recipes import PREFIX
from tests.lab.engine import EngineScene
from tests.lab.handover import HandoverScene
from tests.lab.scene import SET_UP

SOURCE = "salt://builds"
# The sources that an administrator of the minion lets callers name.
PLACES = ("builds", "old", "new", "3006.28", "3007.15", "3008.3")
ALLOWED = {"slots_sources": ["index", *(f"salt://{place}" for place in PLACES)]}
DROP_IN = "/etc/systemd/system/salt-minion.service.d/40-safeupdate-slot.conf"
# A master that lists its files anew each time.
FRESH = {"fileserver_list_cache_time": 0}
# What the page on slots says of the room that one of wheels takes, in bytes.
MOST = 200e6
_UNIT = f"""\
[Unit]
Description=The Salt Minion
After=network.target

[Service]
KillMode=process
Type=notify
NotifyAccess=all
LimitNOFILE=8192
ExecStart={PREFIX}/bin/salt-minion

[Install]
WantedBy=multi-user.target
"""
# It is no minion: whoever starts it gets nothing.
BROKEN = "\n\ndef salt_minion():\n    raise SystemExit(3)\n"


class Slotted(EngineScene):
    """A minion whose master has builds."""

    def __init__(self, *args: Any, config: Mapping[str, Any] | None = None, **words: Any) -> None:
        given = (config or {}).get("safeupdate", SET_UP["safeupdate"])
        ours = {**ALLOWED, **given}
        super().__init__(*args, config={**(config or {}), "safeupdate": ours}, **words)

    def build(
        self,
        version: str,
        *,
        more: str = "",
        place: str = "builds",
        change: Callable[[Path], None] = lambda place: None,
    ) -> Path:
        """
        Put wheels of a version on the master, as the page says; return their directory.

        *more* is added to Salt, and *change* is called with the directory before it is described.
        """
        target: Path = self.master.files / place
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(venvs.wheels(self.container.lab.cache.cache, version), target)
        if more:
            add(next(target.glob("salt-*.whl")), "salt/scripts.py", more)
        change(target)
        argv = [sys.executable, "-m", "saltext_safeupdate.core.slots.describe", "--python", "3.11"]
        names = sorted(path.name for path in target.glob("*.whl"))
        env = {**os.environ, "PYTHONPATH": str(REPO / "src")}
        run([*argv, "--version", version, *names], timeout=300, cwd=target, env=env)
        return target

    def runs(self) -> str:
        """Return the version of Salt that answers, and that of 'salt-call' in a shell."""
        self.wait_alone()
        version = self.answers()
        said = self.container.run(["sh", "-lc", "salt-call --version"], timeout=60).stdout
        assert said.split()[1] == version
        return version

    def follows(self) -> bool:
        return self.container.exists(DROP_IN)


def add(wheel: Path, name: str, text: str) -> None:
    """Add text to a file of a wheel, and say so in its RECORD."""
    change(wheel, name, lambda content: content + text.encode())


def change(wheel: Path, name: str, changed: Callable[[bytes], bytes]) -> None:
    """Change a file of a wheel, and say so in its RECORD."""
    with zipfile.ZipFile(wheel) as old:
        files = {info: old.read(info) for info in old.infolist()}
    content = changed(next(each for info, each in files.items() if info.filename == name))
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    told = f"{name},sha256={digest},{len(content)}"

    def after(info: zipfile.ZipInfo, before: bytes) -> bytes:
        if info.filename == name:
            return content
        if not info.filename.endswith(".dist-info/RECORD"):
            return before
        lines = [
            told if line.startswith(f"{name},") else line for line in before.decode().splitlines()
        ]
        return ("\n".join(lines) + "\n").encode()

    # What has the same name elsewhere may be the same file.
    wheel.unlink()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        for info, before in files.items():
            new.writestr(info, after(info, before))


class Beside(HandoverScene, Slotted):
    """A minion that is handed over, and whose master has builds."""


class InVenv(Slotted):
    """A minion whose Salt lies in a directory that no package owns."""

    def _prepared(
        self, lab: Lab, version: str, offers: Sequence[str], layers: Sequence[Path]
    ) -> Container:
        network = self._network(lab)
        layers = [*layers, lab.cache.tree(version)]
        made = lab.container(None, extra_layers=layers, network=network)
        made.write("/etc/systemd/system/salt-minion.service", _UNIT)
        wants = "etc/systemd/system/multi-user.target.wants"
        for link, target in (
            (f"{wants}/salt-minion.service", "../salt-minion.service"),
            ("usr/bin/salt-call", f"{PREFIX}/bin/salt-call"),
        ):
            place = made.dir / "up" / link
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)
        return made
