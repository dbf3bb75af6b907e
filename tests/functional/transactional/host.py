"""A transactional system with a minion from packages, and the packages."""

import json
import shutil
import subprocess

from .rig import update

TOOLS = ("rpm", "rpmbuild", "zypper")
SPEC = """\
Name: salt
Version: {version}
Release: 1
Summary: made for a test
License: none
BuildArch: noarch
%description
Made for a test.
%package -n salt-minion
Summary: made for a test
Requires: salt = %{{version}}-%{{release}}
%description -n salt-minion
Made for a test.
%pre -n salt-minion -p <lua>
{pre}
%install
mkdir -p %{{buildroot}}/data/salt
echo {version} > %{{buildroot}}/data/salt/{file}
(echo '#!/data/{python}/bin/python3'; echo {version}) > %{{buildroot}}/data/salt/minion
%files
/data/salt/{file}
%files -n salt-minion
/data/salt/minion
"""
REPO = """\
[lab]
name = lab
type = plaindir
baseurl = dir:/var/cache/rpms
enabled = 1
gpgcheck = 0
"""
PLAIN = {"file": "core", "pre": "", "python": "old"}
# The last two: a minion that does not start, and a package that cannot be installed.
VERSIONS = {
    "3007.15": {},
    "3008.3": {"python": "new"},
    "3008.4": {"file": "broken"},
    "3008.5": {"pre": "error(1)"},
}
OLD, NEW, BROKEN, BAD = (
    dict.fromkeys(("salt", "salt-minion"), f"{version}-1") for version in VERSIONS
)


def build(home):
    """Return a directory with the packages of every version."""
    name = "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"
    for version, special in VERSIONS.items():
        spec = home / f"{version}.spec"
        spec.write_text(SPEC.format(version=version, **{**PLAIN, **special}))
        places = ("--define", f"_rpmdir {home}/rpms", "--define", f"_topdir {home}/build")
        argv = ("rpmbuild", "-bb", "--quiet", *places, "--define", f"_rpmfilename {name}", spec)
        subprocess.run(argv, check=True, capture_output=True)
    return home / "rpms"


class Host:
    """A transactional system whose minion runs in the version OLD."""

    def __init__(self, rig, rpms):
        self.rig = rig
        for place in ("/var/cache/rpms", "/var/cache/zypp"):
            shutil.rmtree(rig.path(place), ignore_errors=True)
        shutil.copytree(rpms, rig.path("/var/cache/rpms"))
        rig.path("/etc/zypp/repos.d").mkdir(parents=True)
        rig.path("/etc/zypp/repos.d/lab.repo").write_text(REPO)
        rig.path("/etc/systemd/system").mkdir(parents=True)
        files = self.files("3007.15")
        rig.ok("transactional-update", "--non-interactive", "run", "rpm", "--upgrade", *files)
        self.boot()

    @staticmethod
    def files(version):
        return [f"/var/cache/rpms/{name}-{version}-1.noarch.rpm" for name in OLD]

    def __call__(self, what, **given):
        done = self.rig.visit(lambda: update.answer(what, given))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def boot(self):
        """Boot the default snapshot; its minion starts."""
        self.rig.boot()
        self("start")

    def update(self, version, **settings):
        """Ask for an update, and have the supervisor do what it can before a boot."""
        self("request", version=version)
        return self("supervise", settings=settings)

    def armed(self, number):
        """Tell whether the boot into a snapshot starts the supervisor."""
        units = self.rig.etc_of(number) / "systemd/system"
        return bool(list(units.glob("salt-safeupdate-recover*.service")))

    def reboots(self):
        path = self.rig.path("/run/rig/rebooted")
        return path.read_text().splitlines() if path.exists() else []
