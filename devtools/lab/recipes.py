"""The lab's Debian packages: variants of one Salt tree, with their maintainer scripts."""

from __future__ import annotations

from dataclasses import dataclass

PREFIX = "/opt/saltstack/salt"
MOVED_PREFIX = f"{PREFIX}/onedir-next"
COMMANDS = ("salt-minion", "salt-call", "salt-proxy")

HEADER = "#!/bin/sh\nset -e\n"
FOOTER = "exit 0\n"

# The output of dh_installsystemd for a unit (compat >= 10).
ENABLE = """\
case "$1" in configure|abort-upgrade|abort-deconfigure|abort-remove)
    deb-systemd-helper unmask salt-minion.service >/dev/null || true
    if deb-systemd-helper --quiet was-enabled salt-minion.service; then
        deb-systemd-helper enable salt-minion.service >/dev/null || true
    else
        deb-systemd-helper update-state salt-minion.service >/dev/null || true
    fi
esac
"""
RESTART = """\
case "$1" in configure|abort-upgrade|abort-deconfigure|abort-remove)
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        if [ -n "$2" ]; then action=restart; else action=start; fi
        deb-systemd-invoke $action salt-minion.service >/dev/null || true
    fi
esac
"""
TRY_RESTART = """\
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    systemctl try-restart salt-minion.service || true
fi
"""
STOP_ON_REMOVE = """\
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop salt-minion.service >/dev/null || true
fi
"""
STOP_ALWAYS = """\
if [ -d /run/systemd/system ]; then
    systemctl stop salt-minion.service || true
fi
"""
RELOAD = """\
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
if [ "$1" = purge ]; then deb-systemd-helper purge salt-minion.service >/dev/null || true; fi
"""
DROP_OLD_TREE = f"""\
if [ "$1" = configure ]; then rm -rf {PREFIX}/lib {PREFIX}/lib64 {PREFIX}/pyvenv.cfg; fi
"""
FAIL = """\
if [ "$1" = configure ]; then
    echo "salt-minion: this package cannot be configured (made so for a test)" >&2
    exit 1
fi
"""
# One package for every way to be broken: the test says which one, in this file.
FAULT_FILE = "/var/tmp/fault"
FAULT = f"""\
if [ "$1" = configure ] && [ -e {FAULT_FILE} ]; then sh {FAULT_FILE}; fi
"""

SCRIPTS = {
    "postinst": ENABLE + RESTART,
    "prerm": STOP_ON_REMOVE,
    "postrm": RELOAD,
}


@dataclass(frozen=True)
class Deb:
    """One package file: its control data, its maintainer scripts, its content."""

    package: str
    version: str
    salt: str | None = None  # which Salt tree it is made from
    depends: str = "init-system-helpers, python3, systemd"
    tree: str | None = None  # "plain" or "moved": contains the tree
    unit: bool = False  # contains unit, links and the service's scripts
    scripts: tuple[tuple[str, str], ...] = ()
    architecture: str = "amd64"

    @property
    def name(self) -> str:
        return f"{self.package}_{self.version}"

    @property
    def file(self) -> str:
        return f"{self.name}_{self.architecture}.deb"

    def control(self) -> str:
        depends = f"Depends: {self.depends}\n" if self.depends else ""
        return (
            f"Package: {self.package}\nVersion: {self.version}\n"
            f"Architecture: {self.architecture}\n"
            f"Maintainer: lab <lab@example.invalid>\n{depends}"
            f"Section: admin\nPriority: optional\nDescription: {self.package}, built for tests\n"
        )


def minion(salt: str, suffix: str = "", *, tree: str = "plain", **scripts: str) -> Deb:
    """Return the usual one-package minion; *scripts* replace the usual maintainer scripts."""
    merged = tuple(sorted((SCRIPTS | scripts).items()))
    return Deb("salt-minion", salt + suffix, salt, tree=tree, unit=True, scripts=merged)


def split(salt: str) -> tuple[Deb, Deb]:
    """Return the version-locked pair that distributions have."""
    version = f"{salt}+split"
    locked = f"salt-common (= {version}), init-system-helpers, systemd"
    scripts = tuple(sorted(SCRIPTS.items()))
    return (
        Deb("salt-common", version, salt, depends="python3", tree="plain"),
        Deb("salt-minion", version, salt, depends=locked, unit=True, scripts=scripts),
    )


def plain(package: str, version: str, depends: str = "") -> Deb:
    return Deb(package, version, depends=depends, architecture="all")


_ALL = (
    minion("3006.28"),
    minion("3007.15"),
    minion("3008.3"),
    minion("3008.3", "+moved", tree="moved", postinst=DROP_OLD_TREE + ENABLE + RESTART),
    minion(
        "3008.3", "+stops", preinst=STOP_ALWAYS, prerm=STOP_ALWAYS, postinst=ENABLE + TRY_RESTART
    ),
    minion("3008.3", "+broken", postinst=FAIL),
    minion("3008.3", "+faulty", postinst=FAULT + ENABLE + RESTART),
    *split("3006.28"),
    *split("3007.15"),
    plain("lab-tool", "1.0"),
    plain("lab-tool", "2.0"),
    plain("nginx", "1.22.1"),
    plain("lab-wants-minion", "1.0", "salt-minion (>= 3007)"),
)
DEBS = {deb.name: deb for deb in _ALL}


def of_version(version: str) -> list[Deb]:
    """Return all packages of Salt *version*."""
    return [deb for deb in _ALL if deb.version == version and deb.salt]
