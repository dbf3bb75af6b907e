"""What the lab's rpm hosts are: the same Salt trees as rpms, split and scripted as upstream's."""

from __future__ import annotations

import platform

from devtools.lab.recipes import COMMANDS, FAULT_FILE, PREFIX

VERSIONS = ("3007.15", "3008.3")
RELEASE = "0"
PACKAGES = ("salt", "salt-minion")
REPOSITORY = "/srv/rpms"
BUILD = (
    "rpmbuild", "-bb", "--quiet",
    "--define", "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    # Read and written once or twice: fast counts, and no file needs a look at what it is.
    "--define", "_binary_payload w1T0.zstdio",
    "--define", "_use_internal_dependency_generator 0",
    "--define", "__os_install_post %{nil}",
    "--define", "_build_id_links none",
    "--define", "debug_package %{nil}",
)  # fmt: skip

# Whatever is this Debian's own: no package of rpm's brings it.
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
"""

# Upstream's stop the minion before an upgrade and start it in the end, unless the minion itself
# upgrades; what is left of the older package tries to restart it in any case. (Theirs compile
# the tree as well, which takes half a minute: here it is packaged compiled.)
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
# The 3008.3 runs what a test has put into FAULT_FILE, when everything is in place.
_FAULTY = f"if [ -e {FAULT_FILE} ]; then sh {FAULT_FILE}; fi\n"

# What a Debian with both front ends has, and a host with one of them has not.
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


def spec(version: str) -> str:
    """Return the spec file of Salt *version*; what it packs is in ``/stage``."""
    return SPEC.format(
        version=version,
        release=RELEASE,
        prefix=PREFIX,
        commands=" ".join(COMMANDS),
        programs="\n".join(f"/usr/bin/{command}" for command in COMMANDS),
        active="/var/tmp/.salt-minion-was-active",
        itself="/var/tmp/.salt-minion-updates-itself",
        fault=_FAULTY if version == VERSIONS[-1] else "",
    )


def file(package: str, version: str) -> str:
    return f"{package}-{version}-{RELEASE}.{platform.machine()}.rpm"
