"""The lab's artefacts and their sources; built on demand, kept in the cache."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import platform
import re
import sys
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from devtools import venvs
from devtools.cache import Cache, recipe
from devtools.command import REPO, ToolError, run
from devtools.lab import builder, recipes, rpm_recipes
from devtools.lab.recipes import (
    DEBS,
    RELENV,
    SALT_PACKAGES,
    VARIANTS,
    VERSIONS,
    Installed,
    Variant,
)
from devtools.lab.rpm_recipes import UPSTREAM, Packaging

BUILD_TIMEOUT = 2400
GUEST_PYTHON = (3, 11)
GUEST_GLIBC = (2, 36)
_SHARED = recipe(builder.Root, builder.mount, builder.bind, builder.copy)
_TIMES = recipe(builder._set_times, builder._time_of)


class LabCache:
    """Builds and finds rootfs, trees, packages and layers."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    def build_all(self) -> None:
        """Build everything that the tests use, two things at a time."""
        with ThreadPoolExecutor(max_workers=2) as pool:
            first = pool.submit(self.rootfs)
            wheels = [pool.submit(venvs.wheels, self.cache, v) for v in venvs.SERIES]
            for job in (first, *wheels):
                job.result()
            for job in [pool.submit(self.tree, v) for v in venvs.SERIES]:
                job.result()
            jobs: list[Future[Any]] = [pool.submit(self.files, name) for name in DEBS]
            jobs += [pool.submit(self.layer, installed) for installed in recipes.FIRST]
            jobs += [pool.submit(self.debs, version) for version in VERSIONS]
            jobs.append(pool.submit(self.browser))
            for packaging, versions in rpm_recipes.FIRST.items():
                jobs += [pool.submit(self.rpm_host, version, packaging) for version in versions]
            for packaging, versions in rpm_recipes.OFFERED.items():
                jobs += [pool.submit(self.rpms, version, packaging) for version in versions]
                newest = rpm_recipes.VERSIONS[-1]
                jobs.append(pool.submit(self.rpms, newest, packaging, faulty=True))
            for done in jobs:
                done.result()

    def rootfs(self) -> Path:
        key = [platform.machine(), builder.SUITE, recipe(builder.build_rootfs), builder.PACKAGES]
        key += [repr(builder.MASKED), recipe(builder.mount, builder.copy)]
        return self.cache.get("rootfs", builder.SUITE, key, self._task("rootfs"))

    def guest_wheels(self, version: str) -> Path:
        """Return wheels that fit the rootfs' Python; the host's own if both are the same."""
        if _host_matches_guest():
            return venvs.wheels(self.cache, version)
        source, rootfs = venvs.sdist(self.cache, version), self.rootfs()
        key = [rootfs.name, source.name, recipe(builder.build_wheels, builder._install), _SHARED]
        pip = _pip_settings()
        parameters: dict[str, Any] = {"rootfs": str(rootfs), "source": str(source), "pip": pip}
        build = self._task("wheels", shared=_pip_folders(pip), **parameters)
        return self.cache.get("guest-wheels", version, key, build)

    def tree(self, version: str) -> Path:
        rootfs, wheels = self.rootfs(), self.guest_wheels(version)
        built = recipe(builder.build_tree, _TIMES, builder.TESTS, builder.UNUSED)
        key = [rootfs.name, wheels.name, _SHARED, built]
        parameters = {"rootfs": str(rootfs), "wheels": str(wheels), "version": version}
        return self.cache.get("tree", version, key, self._task("tree", **parameters))

    def onedir(self, version: str) -> Path:
        """Return the tree of *version* in the layout of the Salt project's own packages."""
        tree, relenv, source = self.tree(version), self._relenv(), venvs.sdist(self.cache, version)
        texts = recipes.PROGRAMS, recipes.SHELL_START, recipes.RELENV_MARK, recipes.EXTRAS_START
        steps = recipe(builder.build_onedir, builder._of_source, *texts)
        key = [tree.name, relenv.name, source.name, steps, _TIMES, _SHARED]
        parameters: dict[str, Any] = {"rootfs": str(self.rootfs()), "tree": str(tree)}
        parameters |= {"relenv": str(relenv), "source": str(source), "version": version}
        return self.cache.get("onedir", version, key, self._task("onedir", **parameters))

    def _relenv(self) -> Path:
        def build(out: Path, log: Path) -> None:
            argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
            argv += ["-d", str(out), RELENV]
            run(argv, timeout=venvs.PIP_TIMEOUT, log=log, env=venvs.pip_env())
            with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
                wheel.extractall(out)

        return self.cache.get("beside", "relenv", [RELENV], build)

    def debs(self, version: str) -> Path:
        """Return the directory with the packages of Salt *version*, all built together."""
        if version not in VERSIONS:
            raise ToolError(f"the lab has no Salt {version}; it has: {', '.join(VERSIONS)}")
        if variant := VARIANTS.get(version):
            return self._variant(variant)
        tools, onedir = self._own_tools("deb"), self.onedir(version)
        source = venvs.sdist(self.cache, version)
        settings = builder.PACKAGING, builder.NOT_BUILT, builder.MORE_RULES, SALT_PACKAGES
        steps = recipe(builder.build_debs, builder._time_of, *settings)
        key = [tools.name, onedir.name, source.name, steps, _SHARED]
        parameters = {"lower": f"{tools}:{self.rootfs()}", "onedir": str(onedir)}
        build = self._task("debs", source=str(source), version=version, **parameters)
        return self.cache.get("deb", f"salt-{version}", key, build)

    def _variant(self, variant: Variant) -> Path:
        rootfs, debs = self.rootfs(), self.debs(variant.salt)
        steps = recipe(builder.build_variant, builder._move_tree, Variant, recipes.RESTART)
        key = [rootfs.name, debs.name, repr(variant), steps, _SHARED]
        parameters = {"rootfs": str(rootfs), "debs": str(debs), "version": variant.version}
        build = self._task("variant", **parameters)
        return self.cache.get("deb", f"salt-{variant.version}", key, build)

    def files(self, name: str) -> list[Path]:
        """
        Return the package file of that name (see :data:`devtools.lab.recipes.DEBS`).

        If it is a package of Salt, return all packages of its version, since they need each other.
        """
        if version := recipes.version_of(name):
            folder = self.debs(version)
            return [folder / recipes.deb_file(package, version) for package in SALT_PACKAGES]
        deb = DEBS.get(name)
        if deb is None:
            known = ", ".join([*DEBS, *(f"salt-minion_{version}" for version in VERSIONS)])
            raise ToolError(f"the lab has no package {name}; it has: {known}")
        rootfs = self.rootfs()
        key = [rootfs.name, repr(deb), deb.control(), recipe(builder.build_deb), _SHARED]
        build = self._task("deb", rootfs=str(rootfs), name=name)
        return [self.cache.get("deb", name, key, build) / deb.file]

    def layer(self, installed: str | Installed) -> Path:
        """Return the overlay layer with the packages of Salt; with a version, a fresh minion's."""
        if isinstance(installed, str):
            installed = Installed(installed)
        debs, rootfs = self.debs(installed.version), self.rootfs()
        steps = recipe(builder.build_layer, builder._install, builder.NO_START, builder.TEMPORARY)
        key = [rootfs.name, debs.name, repr(installed), steps, _SHARED]
        build = self._task("layer", rootfs=str(rootfs), debs=str(debs), **asdict(installed))
        return self.cache.get("layer", installed.name, key, build)

    def rpm_tools(self) -> Path:
        """Return the overlay layer with rpm, dnf, zypper and the tools to build packages."""
        rootfs = self.rootfs()
        tools = repr((builder.RPM_TOOLS, builder.DNF_PLUGINS))
        key = [rootfs.name, tools, recipe(builder.build_rpm_tools, builder._install), _SHARED]
        build = self._task("rpm-tools", rootfs=str(rootfs))
        return self.cache.get("layer", "rpm-tools", key, build)

    def snapshot_tools(self) -> Path:
        """Return the overlay layer with btrfs-progs, snapper and rsync."""
        rootfs = self.rootfs()
        steps = recipe(builder.build_snapshot_tools, builder._install)
        key = [rootfs.name, repr(builder.SNAPSHOT_TOOLS), steps, _SHARED]
        build = self._task("snapshot-tools", rootfs=str(rootfs))
        return self.cache.get("layer", "snapshot-tools", key, build)

    def browser(self) -> Path:
        """Return the overlay layer with the distribution's Chromium, for pages in tests."""
        rootfs = self.rootfs()
        steps = recipe(builder.build_browser, builder._install)
        key = [rootfs.name, repr(builder.BROWSER), steps, _SHARED]
        return self.cache.get("layer", "browser", key, self._task("browser", rootfs=str(rootfs)))

    def rpms(self, version: str, packaging: Packaging = UPSTREAM, *, faulty: bool = False) -> Path:
        """
        Return the directory with the rpms of Salt *version*.

        The *faulty* variant runs what a test has put into FAULT_FILE.
        """
        tools, source = self.rpm_tools(), venvs.sdist(self.cache, version)
        key = [tools.name, source.name, recipe(builder._build_rpms, rpm_recipes.file), _TIMES]
        key += [repr((rpm_recipes.BUILD, packaging)), rpm_recipes.FAULT if faulty else ""]
        parameters: dict[str, Any] = {"lower": f"{tools}:{self.rootfs()}", "source": str(source)}
        parameters |= {"version": version, "faulty": faulty}
        steps: tuple[object, ...]
        if packaging == UPSTREAM:
            tree = self.onedir(version)
            steps = builder.build_rpms, builder.PACKAGING, builder.BIN_START, rpm_recipes.fast
            build = self._task("rpms", onedir=str(tree), **parameters)
        else:
            tree = self.tree(version)
            steps = builder.build_other_rpms, builder._stage_other, rpm_recipes.programs
            key.append(rpm_recipes.spec(version, packaging))
            parameters |= {"tree": str(tree), "packaging": packaging.name}
            build = self._task("other-rpms", **parameters)
        key += [tree.name, recipe(*steps, builder._of_source), _SHARED]
        name = _name(version, packaging) + ("+faulty" if faulty else "")
        return self.cache.get("rpm", name, key, build)

    def rpm_host(self, version: str, packaging: Packaging = UPSTREAM) -> Path:
        """Return the overlay layer with the rpms of *version*, on top of :meth:`rpm_tools`."""
        tools, rpms = self.rpm_tools(), self.rpms(version, packaging)
        key = [tools.name, rpms.name, rpm_recipes.BASE, recipe(builder.build_rpm_host), _SHARED]
        parameters = {"lower": f"{tools}:{self.rootfs()}", "rpms": str(rpms), "version": version}
        build = self._task("rpm-host", packaging=packaging.name, **parameters)
        return self.cache.get("layer", f"rpm-{_name(version, packaging)}", key, build)

    def own(self, kind: str, sdist: Path, told: Mapping[str, str], key: str) -> Path:
        """
        Return this project's own package, a ``deb`` or an ``rpm``, built from *sdist*.

        *told* has the builder and the time of the package; *key* identifies its content.
        """
        tools = self._own_tools(kind)
        depends = [tools.name, key, repr(sorted(told.items())), recipe(builder.build_own), _SHARED]
        depends.append(repr(builder.OWN_BUILD))
        name = sdist.name.removesuffix(".tar.gz").replace("saltext_safeupdate", kind)
        folder = self.cache.get("own", name, depends, self.own_build(kind, sdist, told))
        return next(folder.glob(f"*.{kind}"))

    def own_build(
        self, kind: str, sdist: Path, told: Mapping[str, str]
    ) -> Callable[[Path, Path], None]:
        """Return the function that builds it into a given directory, with a log."""
        lower = f"{self._own_tools(kind)}:{self.rootfs()}"
        return self._task("own", kind=kind, lower=lower, sdist=str(sdist), told=dict(told))

    def _own_tools(self, kind: str) -> Path:
        """Return the overlay layer with the tools that build our own packages of that kind."""
        if kind == "rpm":
            return self.rpm_tools()
        rootfs = self.rootfs()
        steps = recipe(builder.build_deb_tools, builder._install)
        depends = [rootfs.name, repr(builder.DEB_TOOLS), steps, _SHARED]
        build = self._task("deb-tools", rootfs=str(rootfs))
        return self.cache.get("layer", "deb-tools", depends, build)

    def stanzas(self, name: str) -> str:
        """Return the entries of :meth:`files` for an apt repository whose pool is ``./pool``."""
        return "".join(_stanza(file) for file in self.files(name))

    @property
    def pool(self) -> Path:
        return self.cache.root / "deb"

    def _task(self, task: str, **parameters: Any) -> Callable[[Path, Path], None]:
        def build(out: Path, log: Path) -> None:
            argv = ["unshare", "--mount", "--propagation", "private", "--", sys.executable]
            argv += ["-m", "devtools.lab.builder", task, str(out), json.dumps(parameters)]
            run(argv, timeout=BUILD_TIMEOUT, log=log, cwd=REPO)

        return build


def _stanza(file: Path) -> str:
    data = file.with_suffix(".stanza")
    if not data.exists():
        control = run(["dpkg-deb", "--field", str(file)], timeout=60).stdout
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        where = f"Filename: ./pool/{file.parent.name}/{file.name}\n"
        text = f"{where}Size: {file.stat().st_size}\nSHA256: {digest}\n\n"
        fresh = data.with_name(f".{data.name}-{os.getpid()}")
        fresh.write_text(control + text)
        fresh.replace(data)
    return data.read_text()


def _name(version: str, packaging: Packaging) -> str:
    return version if packaging == UPSTREAM else f"{packaging.name}-{version}"


def _host_matches_guest() -> bool:
    if sys.version_info[:2] != GUEST_PYTHON or sys.platform != "linux":
        return False
    library, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    parts = tuple(int(p) for p in re.findall(r"\d+", version)[:2])
    return library == "glibc" and parts <= GUEST_GLIBC


def _pip_settings() -> dict[str, str]:
    """Return the machine's pip configuration as environment variables."""
    listed = run([sys.executable, "-m", "pip", "config", "list"], timeout=60, check=False).stdout
    found = re.findall(r"^(?:global|install|wheel|:env:)\.([\w-]+)=(['\"].*)$", listed, re.M)
    return {f"PIP_{key.upper().replace('-', '_')}": ast.literal_eval(text) for key, text in found}


def _pip_folders(settings: dict[str, str]) -> list[str]:
    """Return the local paths that a pip configuration points to.

    An index on disk may refer to files next to its own directory, so the parent counts.
    """
    text = " ".join(settings.values())
    indexes = [Path(path) for path in re.findall(r"file://(/[^\s'\",]+)", text)]
    named = [Path(path) for path in re.findall(r"(?<![\w:/])(/[^\s'\",]+)", text)]
    parents = [path.parent if len(path.parts) > 3 else path for path in indexes]
    return sorted({str(path) for path in (*parents, *named) if path.exists()})
