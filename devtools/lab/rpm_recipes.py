"""The lab's rpm hosts: the same Salt trees as rpms, split and scripted like upstream's."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from devtools.lab.recipes import COMMANDS, FAULT_FILE, PREFIX

VERSIONS = ("3006.28", "3007.15", "3008.3")
RELEASE = "0"


@dataclass(frozen=True)
class Packaging:
    """A way of packing Salt's minion: the directory of its code, the packages, its service."""

    name: str
    code: str
    packages: tuple[str, ...] = ("salt", "salt-minion")
    unit: str = "salt-minion"
    config: str = "/etc/salt"
    cache: str = "/var/cache/salt"

    @property
    def own_interpreter(self) -> bool:
        return self != DISTRIBUTION

    @property
    def site(self) -> str:
        """The directory that Python imports from."""
        return f"{self.code}/{SITE}" if self.own_interpreter else self.code


SITE = "lib/python3.11/site-packages"
UPSTREAM = Packaging("upstream", PREFIX)
# As in distributions: the system's Python runs it.
DISTRIBUTION = Packaging("distribution", "/usr/local/lib/python3.11/dist-packages")
# All in one package, next to which a distribution's minion may run.
BUNDLE = Packaging(
    "bundle",
    "/usr/lib/venv-salt-minion",
    ("venv-salt-minion",),
    "venv-salt-minion",
    "/etc/venv-salt-minion",
    "/var/cache/venv-salt-minion",
)
PACKAGINGS = {each.name: each for each in (UPSTREAM, DISTRIBUTION, BUNDLE)}
PACKAGES = UPSTREAM.packages
# The first version on a host of the tests, and the versions on offer.
OFFERED = {UPSTREAM: VERSIONS, DISTRIBUTION: VERSIONS, BUNDLE: VERSIONS[1:]}
FIRST = {packaging: versions[:-1] for packaging, versions in OFFERED.items()}
REPOSITORY = "/srv/rpms"
BUILD = (
    "rpmbuild", "-bb", "--quiet",
    "--define", "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    # The packages are read and written once or twice, so speed counts, and not their size.
    "--define", "_binary_payload w1T0.zstdio",
    "--define", "_use_internal_dependency_generator 0",
    "--define", "__os_install_post %{nil}",
    "--define", "_build_id_links none",
    "--define", "debug_package %{nil}",
)  # fmt: skip

# Files of this Debian that no rpm package provides.
BASE = """\
Name: base
Version: 1
Release: 0
Summary: what the system brings
License: none
BuildArch: noarch
Provides: /bin/sh
%description
Built for tests.
%files
%ghost /usr/bin/python3
%ghost /usr/bin/python3.11
"""

# Upstream's scriptlets stop the minion before an upgrade and start it at the end, unless the
# minion itself upgrades. The older package's last scriptlet tries to restart it in any case.
# (Theirs compile the tree as well, which takes half a minute: here it is packed compiled.)
SPEC = """\
Name: salt
Version: {version}
Release: {release}
Summary: Salt, built for tests
License: none
AutoReqProv: no
%description
Built for tests.
%package minion
Summary: the minion, built for tests
AutoReqProv: no
Requires: %{{name}} = %{{version}}-%{{release}}
%description minion
Built for tests.

%install
mkdir -p %{{buildroot}}
cp -a /stage/. %{{buildroot}}

%files
{prefix}
%files minion
{programs}
/usr/lib/systemd/system/salt-minion.service
%config(noreplace) /etc/salt/minion
%dir /etc/salt/minion.d

%pre
getent group salt >/dev/null || groupadd --system salt
getent passwd salt >/dev/null || useradd --system --gid salt --home-dir {prefix} -M salt
%pre minion
if [ $1 -gt 1 ]; then
    if systemctl is-active --quiet salt-minion.service; then touch {active}; fi
    pid=$$
    while [ "${{pid:-0}}" -gt 1 ]; do
        if grep -q 'salt-minion[.]service' /proc/$pid/cgroup; then touch {itself} {active}; fi
        pid=$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$pid/status)
    done
    if [ ! -e {itself} ]; then systemctl stop salt-minion.service >/dev/null 2>&1; fi
fi
:
%post minion
for command in {commands}; do ln -sf {prefix}/bin/$command /usr/bin/$command; done
{fault}if [ $1 -gt 1 ]; then
    if [ ! -e {itself} ]; then systemctl try-restart salt-minion.service >/dev/null 2>&1; fi
else
    systemctl preset salt-minion.service >/dev/null 2>&1
fi
:
%preun minion
if [ $1 -eq 0 ]; then
    systemctl --no-reload disable salt-minion.service >/dev/null 2>&1
    systemctl stop salt-minion.service >/dev/null 2>&1
fi
:
%postun minion
systemctl daemon-reload >/dev/null 2>&1
if [ $1 -ge 1 ]; then systemctl try-restart salt-minion.service >/dev/null 2>&1; fi
:
%posttrans minion
chown -R salt:salt {prefix}
if [ -e {active} ]; then
    systemctl start salt-minion.service >/dev/null 2>&1
else
    systemctl try-restart salt-minion.service >/dev/null 2>&1
fi
rm -f {active} {itself}
:
"""
# The scriptlets of others come from systemd's macros.
OTHER_SPEC = """\
Name: {name}
Version: {version}
Release: {release}
Summary: Salt, built for tests
License: none
AutoReqProv: no
%description
Built for tests.
{package}
%install
mkdir -p %{{buildroot}}
cp -a /stage/. %{{buildroot}}
%files
{code}
{files}
{programs}
/usr/lib/systemd/system/{unit}.service
%config(noreplace) {config}/minion
%dir {config}/minion.d
%post {sub}
{fault}if [ $1 -eq 1 ]; then systemctl preset {unit}.service >/dev/null 2>&1; fi
:
%preun {sub}
if [ $1 -eq 0 ]; then
    systemctl --no-reload disable --now {unit}.service >/dev/null 2>&1
fi
:
%postun {sub}
systemctl daemon-reload >/dev/null 2>&1
if [ $1 -ge 1 ]; then systemctl try-restart {unit}.service >/dev/null 2>&1; fi
:
"""
_MINION = """\
%package minion
Summary: the minion, built for tests
AutoReqProv: no
Requires: %{name} = %{version}-%{release}
%description minion
Built for tests.
"""
# 3008.3 runs the script that a test has put into FAULT_FILE, when everything is in place.
_FAULTY = f"if [ -e {FAULT_FILE} ]; then sh {FAULT_FILE}; fi\n"

# Programs of a Debian with both front ends that a host with one of them lacks.
_FOREIGN = ("apt", "apt-cache", "apt-get", "dpkg", "dpkg-deb", "dpkg-query")
HIDDEN = {"dnf": (*_FOREIGN, "zypper"), "zypper": (*_FOREIGN, "dnf", "dnf-3", "yum")}
OS_RELEASE = {
    "dnf": 'NAME="AlmaLinux"\nVERSION="9.4"\nID="almalinux"\nID_LIKE="rhel centos fedora"\n'
    'VERSION_ID="9.4"\nPRETTY_NAME="AlmaLinux 9.4"\n',
    "zypper": 'NAME="openSUSE Leap"\nVERSION="15.6"\nID="opensuse-leap"\nID_LIKE="suse opensuse"\n'
    'VERSION_ID="15.6"\nPRETTY_NAME="openSUSE Leap 15.6"\n',
}
REPO_FILES = {"dnf": "/etc/yum.repos.d/lab.repo", "zypper": "/etc/zypp/repos.d/lab.repo"}
REPO = f"""\
[lab]
name = lab
baseurl = file://{REPOSITORY}
enabled = 1
autorefresh = 1
metadata_expire = 0
gpgcheck = 0
repo_gpgcheck = 0
"""


def programs(packaging: Packaging) -> dict[str, str]:
    """Return the programs in ``/usr/bin``, each with the one of Salt's that it is."""
    prefix = "venv-" if packaging == BUNDLE else ""
    return {f"{prefix}{command}": command for command in COMMANDS}


def spec(version: str, packaging: Packaging = UPSTREAM) -> str:
    """Return the spec file of Salt *version*; it packs the files in ``/stage``."""
    fault = _FAULTY if version == VERSIONS[-1] else ""
    if packaging != UPSTREAM:
        split = len(packaging.packages) > 1
        return OTHER_SPEC.format(
            name=packaging.packages[0],
            version=version,
            release=RELEASE,
            package=_MINION if split else "",
            code=packaging.code,
            files="%files minion" if split else "",
            sub="minion" if split else "",
            programs="\n".join(f"/usr/bin/{program}" for program in programs(packaging)),
            unit=packaging.unit,
            config=packaging.config,
            fault=fault,
        )
    return SPEC.format(
        version=version,
        release=RELEASE,
        prefix=PREFIX,
        commands=" ".join(COMMANDS),
        programs="\n".join(f"/usr/bin/{command}" for command in COMMANDS),
        active="/var/tmp/.salt-minion-was-active",
        itself="/var/tmp/.salt-minion-updates-itself",
        fault=fault,
    )


def file(package: str, version: str) -> str:
    return f"{package}-{version}-{RELEASE}.{platform.machine()}.rpm"
