"""A minion whose Salt came from rpms, and the questions that its tests ask."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from devtools.experiment import extension_layer
from devtools.lab import rpm_recipes
from devtools.lab.container import Container, Lab
from devtools.lab.rpm_recipes import RELEASE, REPOSITORY, UPSTREAM, Packaging
from tests.lab import engine
from tests.lab.engine import EngineScene
from tests.lab.faults import Pair
from tests.lab.jobs import JobScene
from tests.lab.managed import BINDS, Managed
from tests.lab.scene import Scene

FRONT_ENDS = ("dnf", "zypper")
_REINSTALL = {
    "dnf": ("dnf", "-y", "reinstall"),
    "zypper": ("zypper", "--non-interactive", "install", "--force"),
}


def installed(version: str) -> str:
    """Return what rpm calls the version."""
    return f"{version}-{RELEASE}"


OLD, NEW = installed(engine.OLD), installed(engine.NEW)
# rpm asks itself many questions: what is killed is the one that installs.
PAIRS = {
    front_end: Pair(
        engine.OLD,
        engine.NEW,
        {
            "staging": [front_end, f"{front_end}-3"],
            "installing": ["rpm --upgrade"],
            "rolling_back": ["rpm --upgrade"],
        },
        OLD,
        NEW,
    )
    for front_end in FRONT_ENDS
}


class RpmHost(Scene):
    """
    A Scene on a host of rpm's: *front_end* is dnf or zypper.

    *packaging* is how its Salt is packed. With *faulty*, the newest version on offer is the variant
    that runs what is in FAULT_FILE.
    """

    def __init__(
        self,
        *args: Any,
        front_end: str = "dnf",
        packaging: Packaging = UPSTREAM,
        faulty: bool = False,
        **kwargs: Any,
    ) -> None:
        self.front_end = front_end
        self.faulty = faulty
        self.packaging = packaging
        self.unit, self.config_dir = packaging.unit, packaging.config
        self.cache_dir = packaging.cache
        # Linked copies are beside the tree, or beside Salt if the system's Python runs it.
        self.tree_parent = packaging.code
        if packaging.own_interpreter:
            self.tree_parent = os.path.dirname(packaging.code)
        super().__init__(*args, **kwargs)
        self.manager = Managed(self.container, front_end)

    def _prepared(
        self, lab: Lab, version: str, offers: Sequence[str], layers: Sequence[Path]
    ) -> Container:
        self._offers = offers
        cache = lab.cache
        host = cache.rpm_host(version, self.packaging)
        layers = [*layers, self._system(lab), host, cache.rpm_tools()]
        binds = {}
        for each in rpm_recipes.OFFERED[self.packaging]:
            faulty = self.faulty and each == rpm_recipes.VERSIONS[-1]
            rpms = cache.rpms(each, self.packaging, faulty=faulty)
            binds[f"{REPOSITORY}/{each}"] = str(rpms)
        return self._container(lab, layers, {**BINDS, **binds})

    def _container(self, lab: Lab, layers: Sequence[Path], binds: dict[str, str]) -> Container:
        return lab.container(None, extra_layers=layers, binds=binds, network=self._network(lab))

    def _extension(self, lab: Lab, site: Path) -> Path:
        return extension_layer(lab, site, self.packaging.site)

    def _system(self, lab: Lab) -> Path:
        """Return a layer that makes it a system of one kind, and no Debian."""
        layer = lab.run_dir.path / f"{self.front_end}{lab.run_dir.number()}"
        path, text = rpm_recipes.SERVICES
        files = {
            path: text,
            "/usr/lib/os-release": rpm_recipes.OS_RELEASE[self.front_end],
            rpm_recipes.REPO_FILES[self.front_end]: rpm_recipes.REPO,
        }
        for path, text in files.items():
            target = layer / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        programs = layer / "usr/bin"
        programs.mkdir(parents=True)
        for name in rpm_recipes.HIDDEN[self.front_end]:
            # To an overlay this is a file that is not there.
            os.mknod(programs / name, stat.S_IFCHR, os.makedev(0, 0))
        return layer

    def up(self) -> Any:
        super().up()
        self.offer(*self._offers)
        return self

    def offer(self, *versions: str) -> None:
        """Have exactly these versions in the repository."""
        packages = self.packaging.packages + self.packaging.beside
        names = [f"{each}/{rpm_recipes.file(name, each)}" for each in versions for name in packages]
        self.container.write("/var/tmp/offers", "".join(f"{name}\n" for name in names))
        argv = ["createrepo_c", "--quiet", "--pkglist", "/var/tmp/offers", REPOSITORY]
        self.container.run(argv)

    def version(self) -> str:
        form = r"%{VERSION}-%{RELEASE}\n"
        name = self.packaging.packages[-1]
        return self.container.run(["rpm", "-q", "--qf", form, name]).stdout.strip()

    def assert_packages(self, version: str) -> None:
        form = r"%{NAME} %{VERSION}-%{RELEASE}\n"
        packages = self.packaging.packages
        rows = self.container.run(["rpm", "-q", "--qf", form, *packages]).stdout.splitlines()
        assert rows == [f"{name} {version}" for name in packages]
        altered = self.altered()
        assert altered == [], altered

    def altered(self) -> list[str]:
        """Return the files whose contents are not the packages', configuration left out."""
        # A scriptlet changes the owners of all files; rpm looks long at each that differs.
        verify = ["rpm", "--verify", "--nodeps", "--nouser", "--nogroup", "--nomtime"]
        said = self.container.run([*verify, *self.packaging.packages], check=False)
        lines = said.stdout.splitlines()
        wrong = [line for line in lines if line[2:3] == "5" or line.startswith("missing")]
        return [line for line in wrong if " c /" not in line]

    def half_done(self) -> list[str]:
        packages = self.packaging.packages
        found = [f"rpm: {name} twice" for name in self.manager("unfinished", packages)]
        found += ["the package manager is at work"] if self.manager("busy") else []
        found += [f"locked {name}" for name in self.manager("version_locked", packages)]
        strays = ["find", self.packaging.code, "-regex", r".*;[0-9a-f]+"]
        return found + self.container.run(strays).stdout.split()[:9]


class RpmScene(RpmHost, EngineScene):
    """An EngineScene on a host of rpm's."""


class RpmJobScene(RpmHost, JobScene):
    """A JobScene on a host of rpm's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reinstall = (*_REINSTALL[self.front_end], *self.packaging.packages)
        self.refresh = (self.front_end, "makecache" if self.front_end == "dnf" else "refresh")
