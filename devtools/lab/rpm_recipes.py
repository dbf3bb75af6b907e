"""The lab's rpm hosts: Salt's own rpms, and the same Salt as openSUSE packs it."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from devtools.lab.recipes import FAULT_FILE, PREFIX

VERSIONS = ("3006.28", "3007.15", "3008.3")
RELEASE = "0"
# A test puts a script there. The faulty variant of the newest version runs it when all files are in
# place.
FAULT = f"if [ -e {FAULT_FILE} ]; then sh {FAULT_FILE}; fi\n"


@dataclass(frozen=True)
class Packaging:
    """
    A way of packing Salt's minion: the directory of its code, the packages, its service.

    A host with a minion has the *packages*; *beside* them are others of the same version.
    """

    name: str
    code: str
    packages: tuple[str, ...] = ("salt", "salt-minion")
    beside: tuple[str, ...] = ()
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
UPSTREAM = Packaging("upstream", PREFIX, beside=("salt-master", "salt-syndic", "salt-api"))
# As in distributions: the system's Python runs it.
DISTRIBUTION = Packaging(
    "distribution",
    "/usr/local/lib/python3.11/dist-packages",
    packages=("python3-salt", "salt", "salt-minion"),
)
# All in one package, next to which a distribution's minion may run.
BUNDLE = Packaging(
    "bundle",
    "/usr/lib/venv-salt-minion",
    packages=("venv-salt-minion",),
    unit="venv-salt-minion",
    config="/etc/venv-salt-minion",
    cache="/var/cache/venv-salt-minion",
)
PACKAGINGS = {each.name: each for each in (UPSTREAM, DISTRIBUTION, BUNDLE)}
PACKAGES = UPSTREAM.packages
# The first version on a host of the tests, and the versions on offer.
OFFERED = {UPSTREAM: VERSIONS, DISTRIBUTION: VERSIONS, BUNDLE: VERSIONS[1:]}
FIRST = {packaging: versions[:-1] for packaging, versions in OFFERED.items()}
REPOSITORY = "/srv/rpms"
BUILD = (
    "rpmbuild", "-bb", "--quiet", "--nodeps",
    "--define", "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    # The packages are read and written once or twice, so speed counts, and not their size.
    "--define", "_binary_payload w1T0.zstdio",
    # A package needs and provides what its spec file says. Nobody looks into each file.
    "--define", "_use_internal_dependency_generator 0",
    "--define", "__find_provides /bin/sed d",
    "--define", "__find_requires /bin/sed d",
    "--define", "__os_install_post %{nil}",
    "--define", "_build_id_links none",
    "--define", "debug_package %{nil}",
    # Salt's spec has it behind the package above, as a line of its description.
    "--define", "_no_recompute_build_ids #",
    # As the rpm macros of systemd say. No package of Debian has them.
    "--define", "_unitdir /usr/lib/systemd/system",
    # All files of a version have the same time, and no two versions have the same.
    "--define", "clamp_mtime_to_source_date_epoch 1",
)  # fmt: skip

# Programs of this Debian that Salt's packages ask for.
_PROVIDES = (
    *("coreutils", "dmidecode", "findutils", "grep", "openssl", "pciutils", "sed", "systemd"),
    *("which", "/usr/bin/getent", "/usr/sbin/groupadd", "/usr/sbin/useradd", "/usr/sbin/usermod"),
)
# Files of this Debian that no rpm package provides.
BASE = """\
Name: base
Version: 1
Release: 0
Summary: what the system brings
License: none
BuildArch: noarch
Provides: /bin/sh
{provides}
%description
Built for tests.
%files
%ghost /usr/bin/python3
%ghost /usr/bin/python3.11
""".format(provides="\n".join(f"Provides: {each}" for each in _PROVIDES))

# openSUSE's packages do what systemd's macros there do. Whether an update restarts the service is
# a setting of the host.
_SCRIPTLETS = """\
%pre{sub}
if [ ! -e /usr/lib/systemd/system/{unit} ]; then
    mkdir -p /run/systemd/rpm/needs-preset
    touch /run/systemd/rpm/needs-preset/{unit}
fi
%post{sub}
if [ -e /run/systemd/rpm/needs-preset/{unit} ]; then
    /usr/bin/systemctl preset {unit} || :
    rm /run/systemd/rpm/needs-preset/{unit} || :
fi
%preun{sub}
if [ $1 -eq 0 ]; then /usr/bin/systemctl --no-reload disable --now {unit} || :; fi
%postun{sub}
/usr/bin/systemctl daemon-reload || :
if [ $1 -ge 1 ] && [ -e /etc/sysconfig/services ]; then
    . /etc/sysconfig/services
    case "$DISABLE_RESTART_ON_UPDATE" in
        yes|1) ;;
        *) /usr/bin/systemctl try-restart {unit} || : ;;
    esac
fi
"""
SERVICES = ("/etc/sysconfig/services", 'DISABLE_RESTART_ON_UPDATE="no"\n')
_HEAD = """\
Name: {name}
Version: {version}
Release: {release}
Summary: Salt, built for tests
License: none
AutoReqProv: no
"""
_OTHERS = {
    DISTRIBUTION: """\
Requires: python3-salt = %{{version}}-%{{release}}
%description
Built for tests.
%package -n python3-salt
Summary: the code, built for tests
AutoReqProv: no
%description -n python3-salt
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
%files -n python3-salt
{code}
%files
/usr/bin/salt-call
%dir %attr(0750, root, salt) {config}
%files minion
/usr/bin/salt-minion
/usr/lib/systemd/system/{unit}
%config(noreplace) %attr(0640, root, root) {config}/minion
%dir %attr(0750, root, root) {config}/minion.d

%pre
getent group salt >/dev/null || groupadd --system salt
getent passwd salt >/dev/null || useradd --system --gid salt --home-dir /var/lib/salt \\
    --shell /bin/false salt
%posttrans -n python3-salt
rm -f /var/cache/salt/master/thin/version /var/cache/salt/minion/thin/version
""",
    BUNDLE: """\
%description
Built for tests.
%install
mkdir -p %{{buildroot}}
cp -a /stage/. %{{buildroot}}
%files
{code}
/usr/bin/venv-salt-call
/usr/bin/venv-salt-minion
/usr/lib/systemd/system/{unit}
%config(noreplace) {config}/minion
%dir {config}/minion.d
""",
}

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
    return {f"{prefix}{command}": command for command in ("salt-call", "salt-minion")}


def spec(version: str, packaging: Packaging) -> str:
    """Return a spec file as openSUSE has it; it packs the files in ``/stage``."""
    *_, package = packaging.packages
    name = package.removesuffix("-minion") if packaging == DISTRIBUTION else package
    sub = " minion" if packaging == DISTRIBUTION else ""
    unit = f"{packaging.unit}.service"
    contents = _OTHERS[packaging].format(code=packaging.code, config=packaging.config, unit=unit)
    head = _HEAD.format(name=name, version=version, release=RELEASE)
    return head + contents + _SCRIPTLETS.format(sub=sub, unit=unit)


def faulty(spec: str) -> str:
    """Return the spec file of the faulty variant."""
    post = "%post minion\n" if "%post minion\n" in spec else "%post\n"
    return _replaced(spec, post, post + FAULT)


def fast(spec: str) -> str:
    """Return Salt's own spec file with another compression."""
    return _replaced(
        spec, "%define _binary_payload w2.gzdio", "%define _binary_payload w1T0.zstdio"
    )


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, f"{old!r} is {text.count(old)} times in the spec file"
    return text.replace(old, new)


def file(package: str, version: str) -> str:
    return f"{package}-{version}-{RELEASE}.{platform.machine()}.rpm"
