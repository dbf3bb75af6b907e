"""A minion whose Salt came from rpms, and the questions that its tests ask."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from devtools.lab import rpm_recipes
from devtools.lab.container import Container, Lab
from devtools.lab.rpm_recipes import PACKAGES, RELEASE, REPOSITORY
from tests.lab.engine import EngineScene
from tests.lab.managed import BINDS, Managed

OLD, NEW = (f"{version}-{RELEASE}" for version in rpm_recipes.VERSIONS)


class RpmScene(EngineScene):
    """An EngineScene on a host of rpm's: *front_end* is dnf or zypper."""

    def __init__(self, *args: Any, front_end: str = "dnf", **kwargs: Any) -> None:
        self.front_end = front_end
        super().__init__(*args, **kwargs)
        self.manager = Managed(self.container, front_end)

    def _prepared(
        self, lab: Lab, version: str, offers: Sequence[str], layers: Sequence[Path]
    ) -> Container:
        self._offers = offers
        cache = lab.cache
        layers = [*layers, self._system(lab), cache.rpm_host(version), cache.rpm_tools()]
        binds = {f"{REPOSITORY}/{each}": str(cache.rpms(each)) for each in rpm_recipes.VERSIONS}
        binds = {**BINDS, **binds}
        return lab.container(None, extra_layers=layers, binds=binds, network=self._network(lab))

    def _system(self, lab: Lab) -> Path:
        """Return a layer that makes it a system of one kind, and no Debian."""
        layer = lab.run_dir.path / f"{self.front_end}{lab.run_dir.number()}"
        files = {
            "/usr/lib/os-release": rpm_recipes.OS_RELEASE[self.front_end],
            rpm_recipes.REPO_FILES[self.front_end]: rpm_recipes.REPO,
        }
        for path, text in files.items():
            target = layer / path.lstrip("/")
            target.parent.mkdir(parents=True)
            target.write_text(text)
        programs = layer / "usr/bin"
        programs.mkdir()
        for name in rpm_recipes.HIDDEN[self.front_end]:
            # To an overlay this is a file that is not there.
            os.mknod(programs / name, stat.S_IFCHR, os.makedev(0, 0))
        return layer

    def up(self) -> RpmScene:
        super().up()
        self.offer(*self._offers)
        return self

    def offer(self, *versions: str) -> None:
        """Have exactly these versions in the repository."""
        names = [f"{each}/{rpm_recipes.file(name, each)}" for each in versions for name in PACKAGES]
        self.container.write("/var/tmp/offers", "".join(f"{name}\n" for name in names))
        argv = ["createrepo_c", "--quiet", "--pkglist", "/var/tmp/offers", REPOSITORY]
        self.container.run(argv)

    def version(self) -> str:
        form = r"%{VERSION}-%{RELEASE}\n"
        return self.container.run(["rpm", "-q", "--qf", form, "salt-minion"]).stdout.strip()

    def assert_packages(self, version: str) -> None:
        form = r"%{NAME} %{VERSION}-%{RELEASE}\n"
        rows = self.container.run(["rpm", "-q", "--qf", form, *PACKAGES]).stdout.splitlines()
        assert rows == [f"{name} {version}" for name in PACKAGES]
        altered = self.altered()
        assert altered == [], altered

    def altered(self) -> list[str]:
        """Return the files whose contents are not the packages', configuration left out."""
        # A scriptlet changes the owners of all files; rpm looks long at each that differs.
        verify = ["rpm", "--verify", "--nodeps", "--nouser", "--nogroup", "--nomtime", *PACKAGES]
        lines = self.container.run(verify, check=False).stdout.splitlines()
        wrong = [line for line in lines if line[2:3] == "5" or line.startswith("missing")]
        return [line for line in wrong if " c /" not in line]

    def half_done(self) -> list[str]:
        found = [f"rpm: {name} twice" for name in self.manager("unfinished", PACKAGES)]
        found += ["the package manager is at work"] if self.manager("busy") else []
        found += [f"locked {name}" for name in self.manager("version_locked", PACKAGES)]
        strays = ["find", "/opt/saltstack", "-regex", r".*;[0-9a-f]+"]
        return found + self.container.run(strays).stdout.split()[:9]
