"""Builds one lab artefact inside a private mount namespace: ``python3 -m devtools.lab.builder``.

Everything is made on tmpfs and copied to its place at the end; all mounts vanish with the
process. :mod:`devtools.lab.artefacts` starts it and owns the cache keys.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from devtools.command import ToolError, run
from devtools.lab import rpm_recipes
from devtools.lab.recipes import COMMANDS, DEBS, MOVED_PREFIX, PREFIX, Deb

SUITE = "bookworm"
# How packages that Salt needs call the directories with their own tests.
TESTS = ("SelfTest", "test", "tests")
# What Salt's requirements bring and no process of a minion or master imports: 2,300 more files.
UNUSED = (
    *("filelock", "libcloud", "markdown_it", "pygments", "rich", "typer", "tzdata"),
    "virtualenv",
)
PACKAGES = (
    "apt-utils,ca-certificates,dbus,init-system-helpers,iproute2,libpam-systemd,netbase,"
    "procps,python3,python3-pip,python3-venv,sqlite3,sudo,systemd,systemd-sysv,util-linux"
)
RPM_TOOLS = ("createrepo-c", "dnf", "gnupg", "python3-dateutil", "python3-dbus", "rpm", "zypper")
DNF_PLUGINS = "dnf-plugins-core"
DEB_TOOLS = ("debhelper", "dpkg-dev")
# How this project's own packages are built, in its unpacked source: see the release page.
# The tools of rpm are Debian's here, so its database knows nothing of what is there.
OWN_BUILD = {
    "deb": (("dpkg-buildpackage", "-b", "-us", "-uc", "-d"), "*.deb"),
    "rpm": (
        (
            *("rpmbuild", "-bb", "--nodeps"),
            *("--define", "_buildhost localhost"),
            *("--define", "use_source_date_epoch_as_buildtime 1"),
            *("--define", "clamp_mtime_to_source_date_epoch 1"),
            "saltext-safeupdate.spec",
        ),
        "root/rpmbuild/RPMS/noarch/*.rpm",
    ),
}
SNAPSHOT_TOOLS = ("btrfs-progs", "rsync", "snapper")
BROWSER = ("chromium-headless-shell", "fonts-dejavu-core")
CHROOT_ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"}
MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "systemd-networkd-wait-online.service",
    "systemd-firstboot.service",
    "console-getty.service",
    "systemd-hwdb-update.service",
)
MACHINE_ID = "5afe0da7e5afe0da7e5afe0da7e50000"
SITE = "lib/python3.11/site-packages"
# Seconds: what the files of a built tree are older than, an hour for each release since 3000.0.
FIRST_TIME = 1_700_000_000


def mount(fstype: str, source: str, target: Path, *options: str) -> None:
    target.mkdir(parents=True, exist_ok=True)
    extra = ["-o", ",".join(options)] if options else []
    run(["mount", "-t", fstype, *extra, source, str(target)], timeout=60)


def bind(source: Path, target: Path) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    run(["mount", "--bind", str(source), str(target)], timeout=60)


def copy(source: Path, target: Path) -> None:
    """Copy a tree with owners, times, devices and extended attributes."""
    run(["cp", "-a", "--", f"{source}/.", str(target)], timeout=900)


class Root:
    """A throw-away writable root over lower directories, on tmpfs."""

    def __init__(self, scratch: Path, lower: str) -> None:
        mount("tmpfs", "lab", scratch, "mode=755")
        self.scratch = scratch
        self.upper = scratch / "up"
        self.path = scratch / "root"
        (scratch / "work").mkdir()
        self.upper.mkdir()
        where = f"upperdir={self.upper}", f"workdir={scratch / 'work'}"
        mount("overlay", "overlay", self.path, f"lowerdir={lower}", *where)
        bind(Path("/dev"), self.path / "dev")
        mount("proc", "proc", self.path / "proc")

    def chroot(self, *argv: str, timeout: float = 900, env: dict[str, str] | None = None) -> str:
        """Run *argv* inside and return its output; output also goes to our log."""
        result = run(
            ["chroot", str(self.path), *argv], timeout=timeout, env=CHROOT_ENV | (env or {})
        )
        print(result.stdout + result.stderr, flush=True)
        return result.stdout

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)


def build_rootfs(out: Path) -> None:
    """Bootstrap Debian with systemd, tuned to boot fast and never to fetch anything."""
    scratch = out / "scratch"
    mount("tmpfs", "lab", scratch, "mode=755")
    root = scratch / "root"
    argv = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(root)]
    # Straight into our log, so that the heartbeat shows debootstrap's last line.
    run(argv, timeout=1800, log=Path("/dev/stdout"))
    for junk in ("var/cache/apt/archives", "var/lib/apt/lists", "usr/share/doc", "usr/share/man"):
        shutil.rmtree(root / junk, ignore_errors=True)
    for needed in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial", "srv/repo"):
        (root / needed).mkdir(parents=True)
    (root / "var/log/journal").mkdir(exist_ok=True)
    (root / "etc/machine-id").write_text(MACHINE_ID + "\n")
    (root / "etc/hostname").write_text("lab\n")
    (root / "etc/apt/sources.list").unlink(missing_ok=True)
    (root / "etc/apt/sources.list.d/lab.list").write_text("deb [trusted=yes] file:/srv/repo ./\n")
    (root / "etc/apt/apt.conf.d/90lab").write_text('Acquire::Languages "none";\n')
    dpkg = root / "etc/dpkg/dpkg.cfg.d"
    dpkg.mkdir(parents=True, exist_ok=True)
    (dpkg / "lab").write_text("force-unsafe-io\n")
    for unit in MASKED:
        (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    run(["umount", "-R", str(root / "proc")], timeout=30, check=False)
    copy(root, out)
    run(["umount", str(scratch)], timeout=30)
    scratch.rmdir()


def build_wheels(
    out: Path, rootfs: str, source: str, shared: list[str], pip: dict[str, str]
) -> None:
    """Build Salt's wheels with the rootfs' own Python (where the host's does not match).

    *shared* are host paths that pip needs inside, *pip* is the host's configuration of it.
    """
    root = Root(out / "scratch", rootfs)
    for item in shared:
        bind(Path(item), root.path / item.lstrip("/"))
    # Not every wheel exists ready-made.
    _install(root, "gcc", "libc6-dev", "python3-dev")
    bind(out, root.path / "wheels")
    bind(Path(source), root.path / "sdist")
    archive = next(Path(source).glob("salt-*.tar.gz")).name
    argv = ["python3", "-m", "pip", "wheel", "-w", "/wheels", f"/sdist/{archive}"]
    root.chroot(*argv, timeout=1500, env=pip | _proxies())


def _install(root: Root, *packages: str) -> None:
    """Install packages of the rootfs' own Debian."""
    for item in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs"):
        if Path(item).exists():
            bind(Path(item), root.path / item.lstrip("/"))
    root.write("/etc/apt/sources.list.d/lab.list", f"deb {_default_mirror()} {SUITE} main\n")
    root.chroot("apt-get", "update", env=_proxies())
    quiet = _proxies() | {"DEBIAN_FRONTEND": "noninteractive"}
    root.chroot("apt-get", "install", "-y", "--no-install-recommends", *packages, env=quiet)


def _proxies() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if k.lower().endswith("_proxy")}


def _default_mirror() -> str:
    """Return the mirror that debootstrap uses where it is told none."""
    program = shutil.which("debootstrap")
    found = re.search(r'DEF_MIRROR="([^"$]+)"', Path(program).read_text()) if program else None
    if found is None:
        raise ToolError("debootstrap names no default mirror; is it installed and a Debian one?")
    return found[1]


def build_tree(out: Path, rootfs: str, wheels: str, version: str) -> None:
    """Make ``/opt/saltstack/salt`` for *version*: an environment with everything Salt needs."""
    root = Root(out / "scratch", rootfs)
    bind(Path(wheels), root.path / "wheels")
    root.chroot("python3", "-m", "venv", "--copies", PREFIX)
    pip = f"{PREFIX}/bin/python3", "-m", "pip", "install", "-q", "--no-index", "--no-compile"
    root.chroot(*pip, "--no-cache-dir", "--find-links", "/wheels", f"salt=={version}")
    tree = root.path / PREFIX.lstrip("/")
    # Almost half of all files, which nothing here needs.
    for pattern in (*(f"*/{name}" for name in TESTS), *UNUSED):
        for unused in (tree / SITE).glob(pattern):
            shutil.rmtree(unused)
    _set_times(tree, version)
    compileall = f"{PREFIX}/bin/python3", "-m", "compileall", "-q", "-j", "2"
    root.chroot(*compileall, f"{PREFIX}/{SITE}")
    print(root.chroot(f"{PREFIX}/bin/salt-minion", "--version"))
    shutil.rmtree(tree / "share", ignore_errors=True)
    (out / "opt").mkdir()
    copy(root.upper / "opt", out / "opt")


def _set_times(tree: Path, version: str) -> None:
    """
    Give all files of a version one time, which says nothing of when or beside what it was built.

    Byte code is checked against the time and the size of its source. A package keeps whole
    seconds, and files of two versions that have one size must not have one time as well.
    """
    series, _, release = version.partition(".")
    then = FIRST_TIME + 3600 * (1000 * (int(series) - 3000) + int(release))
    for folder, _, files in os.walk(tree):
        for name in files:
            os.utime(os.path.join(folder, name), (then, then), follow_symlinks=False)


def build_deb(out: Path, rootfs: str, tree: str, source: str, name: str) -> None:
    """Build one of the packages that the recipes describe."""
    deb = DEBS[name]
    root = Root(out / "scratch", rootfs)
    stage = root.path / "stage"
    if deb.tree == "plain":
        bind(Path(tree) / "opt", stage / "opt")
    elif deb.tree == "moved":
        _move_tree(root, Path(tree), stage)
    if deb.unit:
        _add_unit(root, deb, source)
    root.write("/stage/DEBIAN/control", deb.control())
    for script, body in deb.scripts:
        text = f"#!/bin/sh\nset -e\n{body}exit 0\n"
        root.write(f"/stage/DEBIAN/{script}", text, 0o755)
    pack = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "--build", "/stage", f"/{deb.file}"]
    root.chroot(*pack)
    shutil.copy(root.path / deb.file, out / deb.file)


def _add_unit(root: Root, deb: Deb, source: str) -> None:
    """Add upstream's own unit file and the commands in ``/usr/bin``."""
    root.write("/stage/lib/systemd/system/salt-minion.service", _unit(source))
    stage = root.path / "stage"
    for folder in ("usr/bin", "etc/salt/minion.d"):
        (stage / folder).mkdir(parents=True)
    for command in COMMANDS:
        (stage / "usr/bin" / command).symlink_to(f"{PREFIX}/bin/{command}")


def _unit(source: str) -> str:
    archive = next(Path(source).glob("salt-*.tar.gz"))
    with tarfile.open(archive) as tar:
        member = tar.extractfile(f"{archive.name[:-7]}/pkg/common/salt-minion.service")
        assert member is not None
        return member.read().decode()


def _move_tree(root: Root, tree: Path, stage: Path) -> None:
    """Put the tree's packages into an environment elsewhere; only ``bin`` stays where it was."""
    old = tree / PREFIX.lstrip("/")
    root.chroot("python3", "-m", "venv", "--copies", "--without-pip", MOVED_PREFIX)
    made = root.path / MOVED_PREFIX.lstrip("/")
    copy(old / SITE, made / SITE)
    for script in (old / "bin").iterdir():
        if script.is_symlink() or (made / "bin" / script.name).exists():
            continue
        text = script.read_bytes()
        if text.startswith(b"#!" + PREFIX.encode()):
            target = made / "bin" / script.name
            target.write_bytes(text.replace(PREFIX.encode(), MOVED_PREFIX.encode(), 1))
            target.chmod(0o755)
    bin_dir = root.path / PREFIX.lstrip("/") / "bin"
    bin_dir.mkdir(parents=True, exist_ok=True)
    for command in (*COMMANDS, "salt-pip", "pip3"):
        if (made / "bin" / command).exists():
            (bin_dir / command).symlink_to(f"{MOVED_PREFIX}/bin/{command}")
    for interpreter in ("python3", "python3.11"):
        wrapper = f'#!/bin/sh\nexec {MOVED_PREFIX}/bin/python3 "$@"\n'
        root.write(f"{PREFIX}/bin/{interpreter}", wrapper, 0o755)
    (stage / "opt").mkdir(parents=True)
    (root.path / "opt/saltstack").rename(stage / "opt/saltstack")


def build_layer(out: Path, rootfs: str, debs: list[str]) -> None:
    """Install packages over the rootfs and keep what that changed as an overlay layer."""
    root = Root(out / "scratch", rootfs)
    inside = []
    for deb in debs:
        bind(Path(deb), root.path / "debs" / Path(deb).name)
        inside.append(f"/debs/{Path(deb).name}")
    root.chroot("dpkg", "-i", *inside)
    if "salt-minion" in " ".join(debs):
        root.chroot("systemctl", "is-enabled", "salt-minion.service")
    run(["umount", "-R", str(root.path)], timeout=60)
    shutil.rmtree(root.upper / "debs")
    copy(root.upper, out)


def build_rpm_tools(out: Path, rootfs: str) -> None:
    """Add rpm, dnf and zypper to the rootfs, with a package database of their own: a layer."""
    root = Root(out / "scratch", rootfs)
    _install(root, *RPM_TOOLS)
    # Debian's dnf-plugins-core declares that it breaks zypper, whose place it takes in one command.
    root.chroot("sh", "-c", f"cd /tmp && apt-get download {DNF_PLUGINS}", env=_proxies())
    root.chroot("sh", "-c", f"dpkg --force-breaks --install /tmp/{DNF_PLUGINS}_*.deb")
    # As on Fedora and SUSE: one database, and no repository of what dnf has seen.
    root.write("/etc/rpm/macros", "%_dbpath /var/lib/rpm\n")
    root.write("/etc/dnf/plugins/local.conf", "[main]\nenabled = 0\n")
    root.write("/etc/dnf/vars/releasever", "12\n")
    root.chroot("rpm", "--initdb")
    run(["umount", "-R", str(root.path)], timeout=60)
    for junk in ("etc/apt", "tmp", "var/cache/apt", "var/lib/apt", "etc/resolv.conf", "etc/hosts"):
        run(["rm", "-rf", str(root.upper / junk)], timeout=60)
    copy(root.upper, out)


def build_browser(out: Path, rootfs: str) -> None:
    """Add a browser without a window to the rootfs: a layer."""
    root = Root(out / "scratch", rootfs)
    _install(root, *BROWSER)
    run(["umount", "-R", str(root.path)], timeout=60)
    for junk in ("tmp", "usr/share/doc", "var/cache/apt", "var/lib/apt"):
        run(["rm", "-rf", str(root.upper / junk)], timeout=60)
    copy(root.upper, out)


def build_snapshot_tools(out: Path, rootfs: str) -> None:
    """Add what a transactional system is made of to the rootfs: a layer."""
    root = Root(out / "scratch", rootfs)
    _install(root, *SNAPSHOT_TOOLS)
    run(["umount", "-R", str(root.path)], timeout=60)
    # Without the timers, which make and remove snapshots of their own.
    for junk in ("etc/apt", "etc/systemd", "tmp", "usr/share/doc", "var", "etc/resolv.conf"):
        run(["rm", "-rf", str(root.upper / junk)], timeout=60)
    copy(root.upper, out)


def build_rpms(out: Path, lower: str, tree: str, source: str, version: str, packaging: str) -> None:
    """Pack a Salt tree as upstream's two rpms, or as others do."""
    root = Root(out / "scratch", lower)
    chosen = rpm_recipes.PACKAGINGS[packaging]
    unit = _unit(source).replace("/usr/bin/salt-minion", f"/usr/bin/{chosen.unit}")
    root.write(f"/stage/usr/lib/systemd/system/{chosen.unit}.service", unit)
    root.write(f"/stage{chosen.config}/minion", "# Everything is in minion.d.\n")
    (root.path / f"stage{chosen.config}/minion.d").mkdir()
    (root.path / "stage/usr/bin").mkdir()
    old = Path(tree) / PREFIX.lstrip("/")
    if chosen == rpm_recipes.UPSTREAM:
        bind(Path(tree) / "opt", root.path / "stage/opt")
        for command in COMMANDS:
            # Files at first, as upstream's; a scriptlet makes links of them.
            shutil.copy(old / "bin" / command, root.path / "stage/usr/bin" / command)
    else:
        _stage_other(root.path / "stage", old, chosen)
    root.write("/salt.spec", rpm_recipes.spec(version, chosen))
    root.chroot(*rpm_recipes.BUILD, "--define", "_rpmdir /rpms", "/salt.spec")
    for package in chosen.packages:
        name = rpm_recipes.file(package, version)
        shutil.copy(root.path / "rpms" / name, out / name)


def _stage_other(stage: Path, old: Path, packaging: rpm_recipes.Packaging) -> None:
    """Put the tree elsewhere, and have its programs know that."""
    code = stage / packaging.code.lstrip("/")
    code.mkdir(parents=True)
    python = f"{packaging.code}/bin/python3"
    if packaging.own_interpreter:
        copy(old, code)
    else:
        copy(old / SITE, code)
        python = "/usr/bin/python3"
    for name, command in rpm_recipes.programs(packaging).items():
        _, _, body = (old / "bin" / command).read_text().partition("\n")
        program = stage / "usr/bin" / name
        program.write_text(f"#!{python}\n{body}")
        program.chmod(0o755)
        if packaging.own_interpreter:
            shutil.copy(program, code / "bin" / command)
    if packaging != rpm_recipes.BUNDLE:
        return
    site = stage / packaging.site.lstrip("/")
    # Salt warns of each that it does not find here; what is None is where it always is.
    text = (site / "salt/syspaths.py").read_text()
    found = re.search(r"EXPECTED_VARIABLES = \((.*?)\)", text, re.S)
    assert found is not None
    paths: dict[str, str | None] = dict.fromkeys(re.findall(r'"(\w+)"', found[1]))
    paths |= {
        "CONFIG_DIR": packaging.config,
        "CACHE_DIR": packaging.cache,
        "SOCK_DIR": f"/run/{packaging.unit}",
        "LOGS_DIR": f"/var/log/{packaging.config.rpartition('/')[2]}",
    }
    lines = [f"{key} = {path!r}\n" for key, path in paths.items()]
    (site / "salt/_syspaths.py").write_text("".join(lines))


def build_rpm_host(out: Path, lower: str, rpms: str, version: str, packaging: str) -> None:
    """Install the rpms of a version, and keep what that changed as an overlay layer."""
    root = Root(out / "scratch", lower)
    bind(Path(rpms), root.path / "rpms")
    root.write("/base.spec", rpm_recipes.BASE)
    root.chroot(*rpm_recipes.BUILD, "--define", "_rpmdir /base", "/base.spec")
    chosen = rpm_recipes.PACKAGINGS[packaging]
    packages = [f"/rpms/{rpm_recipes.file(package, version)}" for package in chosen.packages]
    root.chroot("rpm", "--install", "/base/base-1-0.noarch.rpm", *packages)
    root.chroot("systemctl", "enable", f"{chosen.unit}.service")
    run(["umount", "-R", str(root.path)], timeout=60)
    for junk in ("base", "base.spec", "root", "rpms"):
        run(["rm", "-rf", str(root.upper / junk)], timeout=60)
    copy(root.upper, out)


def build_deb_tools(out: Path, rootfs: str) -> None:
    """Add what builds Debian packages to the rootfs: a layer."""
    root = Root(out / "scratch", rootfs)
    _install(root, *DEB_TOOLS)
    run(["umount", "-R", str(root.path)], timeout=60)
    for junk in ("etc/apt", "tmp", "var/cache/apt", "var/lib/apt", "etc/resolv.conf", "etc/hosts"):
        run(["rm", "-rf", str(root.upper / junk)], timeout=60)
    copy(root.upper, out)


def build_own(out: Path, lower: str, kind: str, sdist: str, told: dict[str, str]) -> None:
    """
    Build this project's own package from its source archive, as the release page says.

    *told* is the environment that says who builds, and of what time the result is.
    """
    root = Root(out / "scratch", lower)
    command, built = OWN_BUILD[kind]
    name = Path(sdist).name
    source = f"/build/{name.removesuffix('.tar.gz')}"
    sources = root.path / "root/rpmbuild/SOURCES"
    for folder in (root.path / "build", sources):
        folder.mkdir(parents=True)
        shutil.copy(sdist, folder / name)
    root.chroot("tar", "--extract", "--directory", "/build", "--file", f"/build/{name}")
    root.chroot("env", "-C", source, "python3", "packaging/prepare.py", env=told)
    root.chroot("env", "-C", source, *command, env=told)
    folder = root.path if "/" in built else root.path / "build"
    (found,) = folder.glob(built)
    shutil.copy(found, out / found.name)


TASKS: dict[str, Callable[..., None]] = {
    "rootfs": build_rootfs,
    "wheels": build_wheels,
    "tree": build_tree,
    "deb": build_deb,
    "layer": build_layer,
    "browser": build_browser,
    "rpm-tools": build_rpm_tools,
    "snapshot-tools": build_snapshot_tools,
    "rpms": build_rpms,
    "rpm-host": build_rpm_host,
    "deb-tools": build_deb_tools,
    "own": build_own,
}


def main(task: str, out: str, parameters: str) -> None:
    target = Path(out)
    TASKS[task](target, **json.loads(parameters))
    scratch = target / "scratch"
    if scratch.exists():
        run(["umount", "-R", str(scratch)], timeout=60)
        scratch.rmdir()


if __name__ == "__main__":
    main(*sys.argv[1:4])
