"""The lab's Debian packages: Salt's own ones, variants of them, and a few others."""

from __future__ import annotations

import re
from dataclasses import dataclass

from devtools.venvs import SERIES

PREFIX = "/opt/saltstack/salt"
# The programs in the top directory of the tree.
PROGRAMS = (
    *("salt", "salt-api", "salt-call", "salt-cloud", "salt-cp", "salt-key", "salt-master"),
    *("salt-minion", "salt-pip", "salt-proxy", "salt-run", "salt-ssh", "salt-syndic", "spm"),
)
# A shell starts them, with the interpreter in the directory next to them.
SHELL_START = """\
#!/bin/sh
"true" ''''
# shellcheck disable=SC2093
"exec" "$(dirname "$(readlink -f "$0")")/bin/python3" "$0" "$@"
' '''

"""
# The Salt project makes its packages with it. Salt knows such a package by this mark: pip.install
# then uses salt-pip, and relenv lets pip upgrade what is in "extras". Its compiler and its TLS are
# not needed.
RELENV = "relenv==0.22.31"
RELENV_MARK = (
    "import pathlib, sys; sys.RELENV = pathlib.Path(sys.prefix); import relenv.runtime as r; "
    "sys.meta_path.insert(0, r.RelenvImporter("
    "[each for each in r.importer.wrappers if each.module.startswith('pip.')]))\n"
)
# The module of Salt's packages that adds the directory of salt-pip.
EXTRAS = "_salt_onedir_extras"
# The interpreter imports from another tree, so it cannot tell where this one is.
EXTRAS_START = f"import sys, {EXTRAS}; {EXTRAS}.setup(sys.prefix + '/lib/python3/site.py')\n"
# The packages of a version, all built together; a host with a minion has the first two.
SALT_PACKAGES = ("salt-common", "salt-minion", "salt-master", "salt-syndic", "salt-api")
MINION_PACKAGES = SALT_PACKAGES[:2]
MASTER_PACKAGES = ("salt-common", "salt-master")
MOVED_PREFIX = f"{PREFIX}/onedir-next"
# debhelper's restart in the script of a package.
RESTART = re.compile(r"^\tinvoke-rc\.d salt-minion \$_dh_action.*\n", re.M)
_STOP = "systemctl stop salt-minion.service || true\n"
_TRY_RESTART = """\
systemctl --system daemon-reload
systemctl try-restart salt-minion.service || true
"""
_DROP_OLD_TREE = f"""\
if [ "$1" = configure ]; then rm -rf {PREFIX}/lib {PREFIX}/lib64 {PREFIX}/pyvenv.cfg; fi
"""
_FAIL = """\
if [ "$1" = configure ]; then
    echo "salt-minion: this package cannot be configured (made so for a test)" >&2
    exit 1
fi
"""
# One package for every way to be broken: the test says which one, in this file.
FAULT_FILE = "/var/tmp/fault"
_FAULT = f"""\
if [ "$1" = configure ] && [ -e {FAULT_FILE} ]; then sh {FAULT_FILE}; fi
"""


@dataclass(frozen=True)
class Deb:
    """One package without content: its control data."""

    package: str
    version: str
    depends: str = ""

    @property
    def name(self) -> str:
        return f"{self.package}_{self.version}"

    @property
    def file(self) -> str:
        return f"{self.name}_all.deb"

    def control(self) -> str:
        depends = f"Depends: {self.depends}\n" if self.depends else ""
        return (
            f"Package: {self.package}\nVersion: {self.version}\nArchitecture: all\n"
            f"Maintainer: lab <lab@example.invalid>\n{depends}"
            f"Section: admin\nPriority: optional\nDescription: {self.package}, built for tests\n"
        )


@dataclass(frozen=True)
class Variant:
    """
    The packages of a version of Salt, changed so that they do something unusual.

    The scripts of *before* do that before all that debhelper has added to them. *restart* replaces
    the restart of the minion.
    """

    suffix: str
    before: tuple[tuple[str, str, str], ...] = ()  # package, script, text
    restart: str = ""
    moved: bool = False  # the tree is in another directory
    salt: str = SERIES[-1]

    @property
    def version(self) -> str:
        return self.salt + self.suffix

    def control(self, text: str) -> str:
        """Return the control data with this version."""
        for form in ("Version: {}\n", "(= {})"):
            text = text.replace(form.format(self.salt), form.format(self.version))
        return text

    def script(self, package: str, name: str, text: str) -> str:
        """Return the changed text of a maintainer script."""
        if package == "salt-minion" and self.restart:
            text = RESTART.sub(lambda _: self.restart, text)
        for *where, added in self.before:
            if where == [package, name]:
                place = re.search(r"^(# Automatically added|exit 0)", text, re.M)
                assert place is not None
                text = text[: place.start()] + added + text[place.start() :]
        return text


_VARIANTS = (
    Variant("+moved", before=(("salt-common", "postinst", _DROP_OLD_TREE),), moved=True),
    Variant(
        "+stops",
        before=(("salt-minion", "preinst", _STOP), ("salt-minion", "prerm", _STOP)),
        restart=_TRY_RESTART,
    ),
    Variant("+broken", before=(("salt-minion", "postinst", _FAIL),)),
    Variant("+faulty", before=(("salt-minion", "postinst", _FAULT),)),
    # As in 3006.9, among others.
    Variant("+restarts", restart="systemctl restart salt-minion\n"),
)
VARIANTS = {variant.version: variant for variant in _VARIANTS}
VERSIONS = (*SERIES, *VARIANTS)
_OTHERS = (
    Deb("lab-tool", "1.0"),
    Deb("lab-tool", "2.0"),
    Deb("nginx", "1.22.1"),
    Deb("lab-wants-minion", "1.0", "salt-minion (>= 3007)"),
)
DEBS = {deb.name: deb for deb in _OTHERS}


@dataclass(frozen=True)
class Installed:
    """How a host got the packages of a version, which one can see on it afterwards."""

    version: str
    packages: tuple[str, ...] = MINION_PACKAGES
    upgraded: bool = False  # it has run before, and was upgraded
    hardened: bool = False  # the administrator wants a tree that only root can write
    more: tuple[str, ...] = ()  # packages of Debian that were there before

    @property
    def name(self) -> str:
        parts = [] if self.packages == MINION_PACKAGES else list(self.packages)
        parts += [each for each in ("upgraded", "hardened") if getattr(self, each)]
        return "-".join([self.version, *parts, *self.more])


# These are built first; the others when a test asks for them.
FIRST = (
    *(Installed(version) for version in SERIES),
    Installed(SERIES[-1], MASTER_PACKAGES),
    Installed(SERIES[-2], more=("needrestart",)),
)


def deb_file(package: str, version: str) -> str:
    """Return the name of the file of one of Salt's packages."""
    return f"{package}_{version}_amd64.deb"


def salt_of(version: str) -> str:
    """Return the version of Salt that is in the packages of *version*."""
    return version.partition("+")[0]


def version_of(name: str) -> str:
    """Return the version of Salt that the package of this name is built with, if it is Salt's."""
    package, _, version = name.partition("_")
    return version if package in SALT_PACKAGES and version in VERSIONS else ""
