"""An update of the minion on a real btrfs root: installed in a snapshot, activated by a boot."""

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys

import pytest
import salt.version

from .rig.system import HERE

# The core without Salt: once is enough.
pytestmark = pytest.mark.skipif(
    salt.version.__version__.partition(".")[0] != "3008",
    reason="no Salt in it: runs with Salt 3008 only",
)

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
echo {version} > %{{buildroot}}/data/salt/minion
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
# The last two: a minion that does not start, and a package that cannot be installed.
VERSIONS = {
    "3007.15": {},
    "3008.3": {},
    "3008.4": {"file": "broken"},
    "3008.5": {"pre": "error(1)"},
}
OLD, NEW, BROKEN, BAD = (
    dict.fromkeys(("salt", "salt-minion"), f"{version}-1") for version in VERSIONS
)


@pytest.fixture(scope="module")
def rpms(tmp_path_factory):
    """Return a directory with the packages of every version."""
    if not all(map(shutil.which, TOOLS)) and shutil.which("apt-get"):
        install = ("apt-get", "install", "-y", "--no-install-recommends", "rpm", "zypper")
        subprocess.run(install, check=False, capture_output=True)
    if not all(map(shutil.which, TOOLS)):
        pytest.skip("transactional system: needs the packages rpm and zypper")
    home = tmp_path_factory.mktemp("rpms")
    name = "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm"
    for version, special in VERSIONS.items():
        spec = home / f"{version}.spec"
        spec.write_text(SPEC.format(version=version, **{"file": "core", "pre": "", **special}))
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
        done = self.rig.run(sys.executable, str(HERE / "update.py"), what, json.dumps(given))
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
        etc = self.rig.top / f"@/var/lib/overlay/{number}/etc"
        return (etc / "systemd/system/salt-safeupdate-recover.service").exists()

    def reboots(self):
        path = self.rig.path("/run/rig/rebooted")
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def host(rig, rpms):
    return Host(rig, rpms)


def test_it_is_installed_in_a_snapshot_and_committed_after_the_boot(host):
    found = host.update("3008.3")
    assert (found["last"]["phase"], found["last"]["awaits"][1]) == ("restarting", "restarting")
    assert (found["running"], found["installed"]) == (OLD, NEW)
    assert (host.rig.default(), host.rig.numbers()) == (3, [1, 2, 3])
    assert host.reboots() == []
    assert host.armed(3)
    # Until the boot, a supervisor that is started has nothing to do.
    assert host("supervise") == found

    host.boot()
    found = host("supervise")
    assert found["last"]["phases"][-3:] == ["restarting", "watching", "committed"]
    assert (found["running"], found["installed"], found["quarantined"]) == (NEW, NEW, [])
    assert not host.armed(3)


def test_what_was_committed_is_left_again_by_request(host):
    host.update("3008.3")
    host.boot()
    host("supervise")
    host("request", back=True)
    found = host("supervise")
    assert (found["running"], found["installed"], host.rig.default()) == (NEW, OLD, 2)
    host.boot()
    found = host("supervise")
    assert (found["last"]["phase"], found["running"]) == ("committed", OLD)
    assert found["quarantined"] == ["3008.3-1"]
    assert host.rig.numbers() == [1, 2, 3]


def test_going_back_by_request_does_not_undo_other_transactions(host):
    host.update("3008.3")
    host.boot()
    host("supervise")
    host.rig.ok("transactional-update", "--non-interactive", "run", "touch", "/data/other")
    host.boot()
    host("request", back=True)
    found = host("supervise")
    assert found["last"]["phase"] == "failed"
    assert "Snapshot 4 was made after the update" in found["last"]["reason"]
    assert (found["installed"], host.rig.default()) == (NEW, 4)


@pytest.mark.parametrize(("policy", "reboots"), [("manual", 0), ("rollback", 1)])
def test_a_minion_that_does_not_start_is_rolled_back_by_another_boot(host, policy, reboots):
    host.update("3008.4", transactional_reboot=policy)
    host.boot()
    found = host("supervise", settings={"transactional_reboot": policy})
    assert found["last"]["phase"] == "rolling_back"
    assert "has failed" in found["last"]["reason"]
    assert (found["running"], found["installed"], host.rig.default()) == (BROKEN, OLD, 2)
    assert len(host.reboots()) == reboots
    again = host("supervise", settings={"transactional_reboot": policy})
    assert (again["last"]["phase"], len(host.reboots())) == ("rolling_back", reboots)

    host.boot()
    found = host("supervise")
    assert found["last"]["phase"] == "rolled_back"
    assert (found["running"], found["installed"]) == (OLD, OLD)
    assert found["quarantined"] == ["3008.4-1"]
    assert not host.armed(2)


def test_the_reboot_is_asked_for_once_where_that_is_set(host):
    host.update("3008.3", transactional_reboot="always")
    found = host("supervise", settings={"transactional_reboot": "always"})
    assert len(host.reboots()) == 1
    assert "reboot requested" in found["last"]["reboot"]


def test_a_package_that_cannot_be_installed_changes_nothing(host):
    found = host.update("3008.5")
    assert found["last"]["phase"] == "failed"
    assert "Nothing was changed" in found["last"]["reason"]
    assert (found["running"], found["installed"]) == (OLD, OLD)
    assert (host.rig.default(), host.rig.numbers()) == (2, [1, 2])
    assert not host.armed(2)


def test_a_later_transaction_that_does_not_start_from_it_ends_it(host):
    host.update("3008.3")
    host.rig.ok("transactional-update", "--non-interactive", "run", "touch", "/data/other")
    found = host("supervise")
    assert found["last"]["phase"] == "failed"
    assert "snapshot=continue" in found["last"]["reason"]
    assert found["quarantined"] == []


def test_a_later_transaction_that_starts_from_it_keeps_it(host):
    host.update("3008.3")
    host.rig.ok("transactional-update", "--continue", "run", "touch", "/data/other")
    assert host("supervise")["last"]["phase"] == "restarting"
    host.boot()
    assert host("supervise")["last"]["phase"] == "committed"


def test_who_goes_back_before_it_is_committed_is_not_given_it_again(host):
    host.update("3008.3")
    host.boot()
    host.rig.ok("transactional-update", "rollback", "2")
    host.boot()
    found = host("supervise")
    assert found["last"]["phase"] == "failed"
    assert "the host went back" in found["last"]["reason"]
    assert found["quarantined"] == ["3008.3-1"]


def test_it_is_called_off_before_the_boot(host):
    host.update("3008.3")
    host("cancel")
    found = host("supervise")
    assert (found["last"]["phase"], host.rig.default()) == ("rolled_back", 2)
    assert (found["installed"], found["quarantined"]) == (OLD, [])
    assert not host.armed(2)


def test_a_pending_snapshot_is_not_lost_for_an_update(host):
    host.rig.ok("transactional-update", "--non-interactive", "run", "touch", "/data/other")
    found = host.update("3008.3")
    assert found["last"]["phase"] == "failed"
    assert "Snapshot 3 waits for a reboot" in found["last"]["reason"]
    assert host.rig.default() == 3


def test_a_transaction_that_brings_it_along_is_watched_too(host):
    found = host("transaction", files=host.files("3008.4"))
    assert (found["last"]["phase"], found["last"]["from"]) == ("restarting", OLD)
    host("supervise")
    host.boot()
    assert host("supervise")["last"]["phase"] == "rolling_back"
    host.boot()
    found = host("supervise")
    assert (found["last"]["phase"], found["running"]) == ("rolled_back", OLD)


def test_a_boot_before_the_installation_was_written_down_is_taken_for_one(host):
    """The power went when the snapshot was the default, and the record said installing."""
    found = host.update("3008.3")
    with (
        contextlib.closing(
            sqlite3.connect(host.rig.top / "@/var/lib/salt-safeupdate/safeupdate.db")
        ) as db,
        db,
    ):
        db.execute("UPDATE updates SET phase = 'installing' WHERE id = ?", (found["last"]["id"],))
    host.boot()
    found = host("supervise")
    assert (found["last"]["phase"], found["running"]) == ("committed", NEW)
