"""Builds one lab artefact inside a private mount namespace: ``python3 -m devtools.lab.builder``.

Everything is built on tmpfs and copied to its place at the end. All mounts are removed with the
process. :mod:`devtools.lab.artefacts` starts it and determines the cache keys.
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
from typing import Any

from devtools.command import ToolError, run
from devtools.lab import rpm_recipes
from devtools.lab.recipes import (
    DEBS,
    EXTRAS,
    EXTRAS_START,
    MOVED_PREFIX,
    PREFIX,
    PROGRAMS,
    RELENV_MARK,
    SALT_PACKAGES,
    SHELL_START,
    VARIANTS,
    deb_file,
)

SUITE = "bookworm"
# The names of directories with tests in the packages that Salt needs.
TESTS = ("SelfTest", "test", "tests")
# Requirements of Salt that no process of a minion or master imports: 2,300 files.
UNUSED = (
    *("filelock", "libcloud", "markdown_it", "pygments", "rich", "typer", "tzdata"),
    "virtualenv",
)
PACKAGES = (
    "apt-utils,ca-certificates,dbus,dctrl-tools,init-system-helpers,iproute2,libpam-systemd,netbase,"
    "procps,python3,python3-pip,python3-venv,sqlite3,sudo,systemd,systemd-sysv,util-linux"
)
RPM_TOOLS = ("createrepo-c", "dnf", "gnupg", "python3-dateutil", "python3-dbus", "rpm", "zypper")
DNF_PLUGINS = "dnf-plugins-core"
DEB_TOOLS = ("bash-completion", "debhelper", "dh-exec", "dpkg-dev")
# The parts of Salt's source that its packages are built from.
PACKAGING = ("conf", "doc/man", "pkg")
# Packages that Salt's packaging builds, too. No test needs them.
NOT_BUILT = ("salt-cloud", "salt-dbg", "salt-ssh")
# The wheels bring libraries of their own, which no package has. Nobody compares two builds.
MORE_RULES = "\noverride_dh_shlibdeps override_dh_strip_nondeterminism:\n"
# An installation into a directory must not start anything.
NO_START = "#!/bin/sh\nexit 101\n"
# How this project's own packages are built, in its unpacked source: see the release page.
# The tools of rpm are packages of Debian, so the database of rpm does not contain them.
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
# Paths that an installation of Debian's packages leaves in a layer. Other hosts must not get them.
TEMPORARY = (
    "etc/apt/sources.list.d",
    "tmp",
    "var/cache/apt",
    "var/lib/apt",
    "etc/resolv.conf",
    "etc/hosts",
)
SNAPSHOT_TOOLS = ("btrfs-progs", "rsync", "snapper")
BROWSER = ("chromium-headless-shell", "fonts-dejavu-core")
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
# The spec file would rewrite the first line of what is in "bin" so that it does not work. As in the
# Salt project's packages, it finds nothing to rewrite.
BIN_START = '#!/bin/sh\n"exec" "$(dirname $(readlink -f $0))/python3" "$0" "$@"\n'
PACK = ("dpkg-deb", "--root-owner-group", "-Zzstd", "-z1", "--build")
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
# The time of files of release 3000.0, in seconds since 1970. Each later release has an hour more.
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
        """Run *argv* inside and return its output, which is also written to our log."""
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
    """Bootstrap Debian with systemd. It boots fast and never downloads anything."""
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
    """
    Build Salt's wheels with the Python of the rootfs, if the host has another version.

    *shared* are paths of the host that pip needs inside. *pip* is the host's configuration of pip.
    """
    root = Root(out / "scratch", rootfs)
    for item in shared:
        bind(Path(item), root.path / item.lstrip("/"))
    # Some packages have no wheel and are compiled.
    _install(root, "gcc", "libc6-dev", "python3-dev")
    bind(out, root.path / "wheels")
    bind(Path(source), root.path / "sdist")
    archive = next(Path(source).glob("salt-*.tar.gz")).name
    argv = ["python3", "-m", "pip", "wheel", "-w", "/wheels", f"/sdist/{archive}"]
    root.chroot(*argv, timeout=1500, env=pip | _proxies())


def _keep(root: Root, out: Path, *unwanted: str) -> None:
    """Copy everything that was changed below *root* to *out*, without what is unwanted."""
    run(["umount", "-R", str(root.path)], timeout=60)
    for path in unwanted:
        run(["rm", "-rf", str(root.upper / path)], timeout=60)
    copy(root.upper, out)


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
    """Return the mirror that debootstrap uses by default."""
    program = shutil.which("debootstrap")
    found = re.search(r'DEF_MIRROR="([^"$]+)"', Path(program).read_text()) if program else None
    if found is None:
        raise ToolError("debootstrap has no default mirror. Install the debootstrap of Debian.")
    return found[1]


def build_tree(out: Path, rootfs: str, wheels: str, version: str) -> None:
    """Build ``/opt/saltstack/salt`` for *version*: an environment with everything Salt needs."""
    root = Root(out / "scratch", rootfs)
    bind(Path(wheels), root.path / "wheels")
    root.chroot("python3", "-m", "venv", "--copies", PREFIX)
    pip = f"{PREFIX}/bin/python3", "-m", "pip", "install", "-q", "--no-index", "--no-compile"
    root.chroot(*pip, "--no-cache-dir", "--find-links", "/wheels", f"salt=={version}")
    tree = root.path / PREFIX.lstrip("/")
    # Nothing here needs them, and they are almost half of all files.
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
    Give all files of a version the same time, which does not depend on the time of the build.

    Byte code is checked against the time and the size of its source. A package keeps whole
    seconds. Files of two versions may have the same size, so they must not have the same time.
    """
    then = _time_of(version)
    for folder, _, files in os.walk(tree):
        for name in files:
            os.utime(os.path.join(folder, name), (then, then), follow_symlinks=False)


def _time_of(version: str) -> int:
    series, _, release = version.partition(".")
    return FIRST_TIME + 3600 * (1000 * (int(series) - 3000) + int(release))


def build_onedir(out: Path, rootfs: str, tree: str, relenv: str, source: str, version: str) -> None:
    """Give the tree the layout that it has in the Salt project's own packages."""
    root = Root(out / "scratch", rootfs)
    copy(Path(tree), root.path)
    top = root.path / PREFIX.lstrip("/")
    for program in PROGRAMS:
        script = top / "bin" / program
        _, _, body = script.read_text().partition("\n")
        root.write(f"{PREFIX}/{program}", SHELL_START + body, 0o755)
        script.unlink()
    shutil.copytree(Path(relenv) / "relenv", top / SITE / "relenv")
    root.write(f"{PREFIX}/{SITE}/_relenv.pth", RELENV_MARK)
    root.write(f"{PREFIX}/{SITE}/{EXTRAS}.py", _of_source(source, f"pkg/common/onedir/{EXTRAS}.py"))
    root.write(f"{PREFIX}/{SITE}/{EXTRAS}.pth", EXTRAS_START)
    _set_times(top, version)
    compileall = f"{PREFIX}/bin/python3", "-m", "compileall", "-q", "-j", "2"
    root.chroot(*compileall, f"{PREFIX}/{SITE}")
    root.chroot(f"{PREFIX}/salt-minion", "--version")
    copy(root.upper / "opt", out / "opt")


def build_debs(out: Path, lower: str, onedir: str, source: str, version: str) -> None:
    """Build Salt's packages with Salt's own packaging."""
    root = Root(out / "scratch", lower)
    bind(Path(source), root.path / "sdist")
    bind(Path(onedir) / "opt/saltstack", root.path / "onedir")
    (root.path / "build").mkdir()
    folder = f"/build/salt-{version}"
    parts = [f"salt-{version}/{part}" for part in PACKAGING]
    root.chroot("tar", "-xf", f"/sdist/salt-{version}.tar.gz", "-C", "/build", *parts)
    root.chroot("tar", "-cf", "/build/onedir.tar", "-C", "/onedir", "salt")
    root.chroot("cp", "-a", f"{folder}/pkg/debian", f"{folder}/debian")
    with (root.path / folder.lstrip("/") / "debian/rules").open("a") as rules:
        rules.write(MORE_RULES)
    settings = {
        "SALT_ONEDIR_ARCHIVE": "/build/onedir.tar",
        "DEB_BUILD_OPTIONS": "nocheck nostrip",
        "DH_OPTIONS": " ".join(f"-N{package}" for package in NOT_BUILT),
        "DPKG_DEB_COMPRESSOR_TYPE": "zstd",
        "DPKG_DEB_COMPRESSOR_LEVEL": "1",
        # The byte code in the tree fits sources of this time.
        "SOURCE_DATE_EPOCH": str(_time_of(version)),
    }
    root.chroot("env", "-C", folder, "dpkg-buildpackage", "-b", "-us", "-uc", "-d", env=settings)
    for package in SALT_PACKAGES:
        name = deb_file(package, version)
        shutil.copy(root.path / "build" / name, out / name)


def _of_source(source: str, path: str) -> str:
    """Return the text of a file in Salt's source archive."""
    archive = next(Path(source).glob("salt-*.tar.gz"))
    with tarfile.open(archive) as tar:
        member = tar.extractfile(f"{archive.name[:-7]}/{path}")
        assert member is not None
        return member.read().decode()


def build_variant(out: Path, rootfs: str, debs: str, version: str) -> None:
    """Change the packages of a version as the recipe of the variant says."""
    root = Root(out / "scratch", rootfs)
    bind(Path(debs), root.path / "debs")
    (root.path / "stage").mkdir()
    variant = VARIANTS[version]
    for package in SALT_PACKAGES:
        folder = f"/stage/{package}"
        root.chroot("dpkg-deb", "-R", f"/debs/{deb_file(package, variant.salt)}", folder)
        data = root.path / folder.lstrip("/") / "DEBIAN"
        (data / "control").write_text(variant.control((data / "control").read_text()))
        for name in SCRIPTS:
            if (data / name).exists():
                text = (data / name).read_text()
                (data / name).write_text(variant.script(package, name, text))
        if variant.moved and package == "salt-common":
            _move_tree(data.parent)
        root.chroot(*PACK, folder, f"/{deb_file(package, version)}")
        shutil.copy(root.path / deb_file(package, version), out)


def _move_tree(stage: Path) -> None:
    """Put the tree elsewhere. Only the programs and the interpreter can be found where it was."""
    top, moved = stage / PREFIX.lstrip("/"), stage / MOVED_PREFIX.lstrip("/")
    aside = top.with_name("moved")
    top.rename(aside)
    (top / "bin").mkdir(parents=True)
    aside.rename(moved)
    for program in PROGRAMS:
        (top / program).symlink_to(f"{MOVED_PREFIX}/{program}")
    for interpreter in ("python3", "python3.11"):
        wrapper = top / "bin" / interpreter
        wrapper.write_text(f'#!/bin/sh\nexec {MOVED_PREFIX}/bin/python3 "$@"\n')
        wrapper.chmod(0o755)
    sums = stage / "DEBIAN/md5sums"
    sums.write_text(sums.read_text().replace(f" {PREFIX[1:]}/", f" {MOVED_PREFIX[1:]}/"))


def build_deb(out: Path, rootfs: str, name: str) -> None:
    """Build one of the packages that have nothing to do with Salt."""
    deb = DEBS[name]
    root = Root(out / "scratch", rootfs)
    root.write("/stage/DEBIAN/control", deb.control())
    root.chroot(*PACK, "/stage", f"/{deb.file}")
    shutil.copy(root.path / deb.file, out / deb.file)


def build_layer(
    out: Path, rootfs: str, debs: str, version: str, packages: list[str], **kind: Any
) -> None:
    """Install packages of Salt over the rootfs and keep the changes as an overlay layer."""
    root = Root(out / "scratch", rootfs)
    unwanted = ["debs", "usr/sbin/policy-rc.d"]
    if kind["more"]:
        _install(root, *kind["more"])
        unwanted += TEMPORARY
    bind(Path(debs), root.path / "debs")
    root.write("/usr/sbin/policy-rc.d", NO_START, 0o755)
    if kind["hardened"]:
        root.write("/etc/default/salt-setup", "SALT_ONEDIR_HARDEN=1\n")
    install = ["dpkg", "-i", *(f"/debs/{deb_file(package, version)}" for package in packages)]
    root.chroot(*install, env={"DEBIAN_FRONTEND": "noninteractive"})
    if kind["upgraded"]:
        # By its owner the packages know who has run the minion.
        root.chroot("mkdir", "-p", "-m", "700", "/etc/salt/pki/minion")
        root.chroot(*install, env={"DEBIAN_FRONTEND": "noninteractive"})
    for package in packages[1:]:
        root.chroot("systemctl", "is-enabled", f"{package}.service")
    _keep(root, out, *unwanted)


def build_rpm_tools(out: Path, rootfs: str) -> None:
    """Build a layer that adds rpm, dnf and zypper, with their own package database."""
    root = Root(out / "scratch", rootfs)
    _install(root, *RPM_TOOLS)
    # Debian's dnf-plugins-core declares that it breaks zypper: both have a command of one name.
    root.chroot("sh", "-c", f"cd /tmp && apt-get download {DNF_PLUGINS}", env=_proxies())
    root.chroot("sh", "-c", f"dpkg --force-breaks --install /tmp/{DNF_PLUGINS}_*.deb")
    # As on Fedora and SUSE, there is one database, and no repository of the packages of dnf.
    root.write("/etc/rpm/macros", "%_dbpath /var/lib/rpm\n")
    root.write("/etc/dnf/plugins/local.conf", "[main]\nenabled = 0\n")
    root.write("/etc/dnf/vars/releasever", "12\n")
    root.chroot("rpm", "--initdb")
    _keep(root, out, *TEMPORARY)


def build_browser(out: Path, rootfs: str) -> None:
    """Build a layer that adds a browser without a window."""
    root = Root(out / "scratch", rootfs)
    _install(root, *BROWSER)
    _keep(root, out, "tmp", "usr/share/doc", "var/cache/apt", "var/lib/apt")


def build_snapshot_tools(out: Path, rootfs: str) -> None:
    """Build a layer that adds the tools of a transactional system."""
    root = Root(out / "scratch", rootfs)
    _install(root, *SNAPSHOT_TOOLS)
    # Its timers would make and remove snapshots of their own.
    _keep(root, out, "etc/apt", "etc/systemd", "tmp", "usr/share/doc", "var", "etc/resolv.conf")


def build_rpms(out: Path, lower: str, onedir: str, source: str, version: str, faulty: bool) -> None:
    """Build Salt's packages with Salt's own spec file."""
    root = Root(out / "scratch", lower)
    bind(Path(source), root.path / "sdist")
    tree = root.path / "build/salt"
    tree.mkdir(parents=True)
    copy(Path(onedir) / PREFIX.lstrip("/"), tree)
    for script in (tree / "bin").iterdir():
        first, _, body = script.read_bytes().partition(b"\n")
        if first == f"#!{PREFIX}/bin/python3".encode():
            script.write_bytes(BIN_START.encode() + body)
    parts = [f"salt-{version}/{part}" for part in PACKAGING]
    root.chroot("tar", "-xf", f"/sdist/salt-{version}.tar.gz", "-C", "/build", *parts)
    # A scriptlet compiles everything. As in the Salt project's packages, nothing is compiled yet.
    clean = "--exclude=__pycache__"
    root.chroot("tar", "-cf", "/build/onedir.tar", clean, "-C", "/build", "salt")
    spec = rpm_recipes.fast(_of_source(source, "pkg/rpm/salt.spec"))
    settings = {"SALT_ONEDIR_ARCHIVE": "/build/onedir.tar"}
    where = "--define", f"_salt_src /build/salt-{version}"
    packages = rpm_recipes.UPSTREAM.packages + rpm_recipes.UPSTREAM.beside
    _build_rpms(root, out, spec, version, faulty, packages, where, settings)


def build_other_rpms(
    out: Path, lower: str, tree: str, source: str, version: str, packaging: str, faulty: bool
) -> None:
    """Pack a Salt tree as openSUSE does."""
    root = Root(out / "scratch", lower)
    chosen = rpm_recipes.PACKAGINGS[packaging]
    unit = _of_source(source, "pkg/old/suse/salt-minion.service")
    unit = unit.replace("/usr/bin/salt-minion", f"/usr/bin/{chosen.unit}")
    root.write(f"/stage/usr/lib/systemd/system/{chosen.unit}.service", unit)
    root.write(f"/stage{chosen.config}/minion", "# Everything is in minion.d.\n")
    (root.path / f"stage{chosen.config}/minion.d").mkdir()
    (root.path / "stage/usr/bin").mkdir()
    _stage_other(root.path / "stage", Path(tree) / PREFIX.lstrip("/"), chosen)
    spec = rpm_recipes.spec(version, chosen)
    _build_rpms(root, out, spec, version, faulty, chosen.packages)


def _build_rpms(
    root: Root,
    out: Path,
    spec: str,
    version: str,
    faulty: bool,
    packages: tuple[str, ...],
    options: tuple[str, ...] = (),
    settings: dict[str, str] | None = None,
) -> None:
    root.write("/salt.spec", rpm_recipes.faulty(spec) if faulty else spec)
    env = {"SOURCE_DATE_EPOCH": str(_time_of(version))} | (settings or {})
    root.chroot(*rpm_recipes.BUILD, *options, "--define", "_rpmdir /rpms", "/salt.spec", env=env)
    for package in packages:
        name = rpm_recipes.file(package, version)
        shutil.copy(root.path / "rpms" / name, out / name)


def _stage_other(stage: Path, old: Path, packaging: rpm_recipes.Packaging) -> None:
    """Put the tree elsewhere, and adapt its programs to that."""
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
    # Salt warns about each one that it does not find here. None stands for the default.
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
    """Install the rpms of a version, and keep the changes as an overlay layer."""
    root = Root(out / "scratch", lower)
    bind(Path(rpms), root.path / "rpms")
    root.write("/base.spec", rpm_recipes.BASE)
    root.chroot(*rpm_recipes.BUILD, "--define", "_rpmdir /base", "/base.spec")
    chosen = rpm_recipes.PACKAGINGS[packaging]
    packages = [f"/rpms/{rpm_recipes.file(package, version)}" for package in chosen.packages]
    root.chroot("rpm", "--install", "/base/base-1-0.noarch.rpm", *packages)
    root.chroot("systemctl", "enable", f"{chosen.unit}.service")
    _keep(root, out, "base", "base.spec", "root", "rpms")


def build_deb_tools(out: Path, rootfs: str) -> None:
    """Build a layer that adds the tools for building Debian packages."""
    root = Root(out / "scratch", rootfs)
    _install(root, *DEB_TOOLS)
    _keep(root, out, *TEMPORARY)


def build_own(out: Path, lower: str, kind: str, sdist: str, told: dict[str, str]) -> None:
    """
    Build this project's own package from its source archive, as the release page says.

    *told* is the environment that names the builder and the time of the result.
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
    "onedir": build_onedir,
    "debs": build_debs,
    "variant": build_variant,
    "deb": build_deb,
    "layer": build_layer,
    "browser": build_browser,
    "rpm-tools": build_rpm_tools,
    "snapshot-tools": build_snapshot_tools,
    "rpms": build_rpms,
    "other-rpms": build_other_rpms,
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
