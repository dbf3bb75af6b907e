"""A booted transactional system for each test; a visible skip where none can be built."""

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import salt.version

from devtools.venvs import NEWEST
from tests.support import loading
from tests.support.minion import not_loaded
from tests.support.waiting import wait_for

from .host import TOOLS, Host, build
from .rig import drive
from .rig.system import HERE, PACKAGES, System


def _missing():
    return [package for program, package in PACKAGES.items() if not shutil.which(program)]


def _obstacle():
    """Say why no btrfs root can be had here, or None."""
    if os.geteuid() != 0:
        return "needs root for a loop device with btrfs"
    if not os.path.exists("/dev/loop-control"):
        return "needs loop devices"
    if "btrfs" not in Path("/proc/filesystems").read_text(encoding="ascii"):
        subprocess.run(("modprobe", "btrfs"), check=False, capture_output=True)
        if "btrfs" not in Path("/proc/filesystems").read_text(encoding="ascii"):
            return "needs a kernel with btrfs"
    if _missing() and shutil.which("apt-get"):
        install = ("apt-get", "install", "-y", "--no-install-recommends", *_missing())
        subprocess.run(install, check=False, capture_output=True)
    if _missing():
        return f"needs the packages {', '.join(_missing())}"
    for probe in (("losetup", "--find"), ("unshare", "--mount", "true")):
        done = subprocess.run(probe, check=False, capture_output=True, text=True)
        if done.returncode:
            return f"'{' '.join(probe)}' does not work here: {done.stderr.strip()}"
    return None


@pytest.fixture(scope="session")
def system(tmp_path_factory):
    obstacle = _obstacle()
    if obstacle:
        pytest.skip(f"transactional system: {obstacle}")
    found = System(tmp_path_factory.mktemp("transactional"), thrifty=True)
    found.boot()
    yield found
    found.close()


@pytest.fixture
def rig(system):
    system.reset()
    return Rig(system)


def loaded():
    """Import here what every salt-call needs, so that its forks have it."""
    import salt.cli.call
    import salt.cli.caller
    import salt.client
    import salt.loader
    import salt.minion
    import salt.scripts
    import salt.state

    return salt.scripts


# What has no Salt in it: a test run has it on the newest series, the soak on the others.
WITHOUT_SALT = [] if salt.version.__version__ == NEWEST else [pytest.mark.soak]
# In the system: where the loaders of Salt keep what they find.
LOADERS = "/usr/local/sbin/loaders"


@functools.cache
def thrifty():
    """Let a minion find its grains once, and have the modules of Salt's own that tests use."""
    return {
        "grains_cache": True,
        "disable_modules": not_loaded("modules", "rebootmgr", "system", "systemd_service"),
        "disable_states": not_loaded("states"),
        "disable_fileservers": not_loaded("fileserver", "roots"),
        "disable_outputs": not_loaded("output", "json_out", "nested"),
    }


# A command that says that it runs, and goes on when it is told to.
WAITER = "touch /var/cache/started; while ! [ -e /var/cache/go ]; do sleep 0.02; done; "


class Rig:
    """What a test does with the system."""

    def __init__(self, system):
        self.system = system
        for name in ("started", "go", "never"):
            self.path(f"/var/cache/{name}").unlink(missing_ok=True)
        self.path("/etc/salt").mkdir()
        shutil.rmtree(self.path("/var/cache/srv"), ignore_errors=True)
        self.path("/var/cache/srv").mkdir()
        self.configure()

    def __getattr__(self, name):
        return getattr(self.system, name)

    # the core alone

    def drive_argv(self, method, **given):
        return sys.executable, str(HERE / "drive.py"), method, json.dumps(given)

    def drive(self, method, **given):
        done = self.system.visit(lambda: drive.answer(method, given))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def drive_started(self, method, **given):
        """Start it and wait until its command runs."""
        process = self.system.start(*self.drive_argv(method, **given))
        wait_for(self.path("/var/cache/started").exists, "the command runs")
        return process

    def go(self):
        self.path("/var/cache/go").touch()

    def tool_pid(self):
        return int(self.path("/run/transactional-update.pid").read_text())

    # Salt

    def configure(self, **options):
        config = {
            "id": "rig",
            "file_client": "local",
            "file_roots": {"base": ["/var/cache/srv"]},
            "enable_fqdns_grains": False,
            "log_level": "error",
            # as on SUSE; Debian's own module comes first where systemd does not run
            "providers": {"service": "systemd_service"},
            **(thrifty() if self.system.thrifty else {}),
            **options,
        }
        self.path("/etc/salt/minion").write_text(json.dumps(config))

    def sls(self, name, text):
        self.path(f"/var/cache/srv/{name}.sls").write_text(text)

    def salt_argv(self, *words):
        program = Path(sys.executable).parent / "salt-call"
        quiet = ("--local", "--out", "json", "--out-indent=-1", "--log-level", "critical")
        return str(program), *quiet, "--retcode-passthrough", *words

    def salt_call(self, *words):
        """Run salt-call in a process that has Salt loaded, as those of a minion have."""
        argv = list(self.salt_argv(*words))
        scripts = loaded()

        def salt_call():
            sys.argv = argv
            with loading.Kept(LOADERS):
                scripts.salt_call()

        return self.system.visit(salt_call)

    def salt(self, *words, retcode=0):
        done = self.salt_call(*words)
        assert done.returncode == retcode, (done.returncode, done.stdout[-3000:], done.stderr)
        return json.loads(done.stdout)["local"]

    def salt_error(self, *words):
        done = self.salt_call(*words)
        assert done.returncode > 0, done
        return done.stderr

    def python(self, code):
        """Run *code* in the system; return what it printed, as JSON."""
        loaded()

        def run():
            with loading.Kept(LOADERS):
                exec(compile(code, "test", "exec"), {})

        done = self.system.visit(run)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(done.stdout)

    # what must be true afterwards

    def assert_clean(self, default, snapshots):
        """No snapshot too many, none open, no lock, no hand-over."""
        assert self.system.default() == default
        assert self.system.numbers() == snapshots
        assert not self.path("/run/transactional-update.pid").exists()
        assert [path.name for path in self.path("/var/cache/salt-safeupdate").iterdir()] == ["lock"]
        infos = [(self.system.top / f"@/.snapshots/{n}/info.xml").read_text() for n in snapshots]
        assert not [info for info in infos if "<value>yes</value>" in info], "a snapshot is open"
        assert all(self.system.in_snapshot(n, "/").exists() for n in snapshots), "one is dead"


@pytest.fixture(scope="session")
def rpms(tmp_path_factory):
    if not all(map(shutil.which, TOOLS)) and shutil.which("apt-get"):
        install = ("apt-get", "install", "-y", "--no-install-recommends", "rpm", "zypper")
        subprocess.run(install, check=False, capture_output=True)
    if not all(map(shutil.which, TOOLS)):
        pytest.skip("transactional system: needs the packages rpm and zypper")
    return build(tmp_path_factory.mktemp("rpms"))


@pytest.fixture
def host(rig, rpms):
    return Host(rig, rpms)


@pytest.fixture
def full(tmp_path_factory, system):
    """A system whose disk is soon full."""
    small = System(tmp_path_factory.mktemp("small"), size="160M", thrifty=True)
    small.reset()
    yield Rig(small)
    small.close()
