"""The daemons of Salt beside a minion, as they look in ``/proc``."""

import os

import pytest

from saltext_safeupdate.core.host import daemons
from saltext_safeupdate.core.host.daemons import Daemon

ONEDIR = "/opt/saltstack/salt/bin/python3.10"


class Services:
    def __init__(self, **units):
        self.units = units

    def running(self, pattern):
        assert pattern == "*salt*.service"
        return {f"{unit.replace('_', '-')}.service": pid for unit, pid in self.units.items()}


@pytest.fixture
def proc(tmp_path):
    def make(pid, *words, exe=ONEDIR):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cmdline").write_text("\0".join(words) + "\0")
        os.symlink(exe, tmp_path / str(pid) / "exe")
        return pid

    make.path = str(tmp_path)
    return make


def test_those_of_the_same_tree_are_found_with_what_they_are(proc):
    services = Services(
        salt_minion=proc(1, ONEDIR, "/usr/bin/salt-minion"),
        salt_master=proc(2, ONEDIR, "/usr/bin/salt-master", "MainProcess"),
        salt_proxy_a=proc(3, ONEDIR, "/usr/bin/salt-proxy", "--proxyid=a"),
        venv_salt_minion=proc(4, "/usr/lib/venv-salt-minion/bin/python", "salt-minion", exe="/x"),
        salt_other=proc(5, ONEDIR, "/usr/bin/something"),
        salt_gone=6,
    )
    found = daemons.running_from(services, ["/opt/saltstack/salt"], "", proc.path)
    assert found == [
        Daemon("salt-master", "salt-master", 2),
        Daemon("salt-minion", "salt-minion", 1),
        Daemon("salt-proxy-a", "salt-proxy", 3),
    ]
    assert [each.has_jobs for each in found] == [False, True, True]


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (("/usr/bin/salt-master",), ""),
        (("/usr/bin/salt-master", "-c", "/etc/salt2"), "/etc/salt2"),
        (("/usr/bin/salt-master", "--config-dir=/etc/salt2", "-d"), "/etc/salt2"),
        # As a process of Salt names itself.
        (("/usr/bin/salt-master -c /etc/salt2 MainProcess",), "/etc/salt2"),
    ],
)
def test_each_may_have_a_configuration_of_its_own(proc, words, config):
    services = Services(salt_master=proc(1, ONEDIR, *words))
    (found,) = daemons.running_from(services, ["/opt/saltstack/salt"], "", proc.path)
    assert found.config == config


def test_in_the_python_of_the_system_it_is_the_interpreter_that_tells(proc):
    services = Services(
        salt_minion2=proc(1, "/usr/bin/python3", "/usr/bin/salt-minion", exe="/usr/bin/python3.11"),
        salt_minion3=proc(2, "/srv/bin/python3", "/srv/bin/salt-minion", exe="/srv/bin/python3.12"),
    )
    root = "/usr/lib/python3/dist-packages/salt"
    found = daemons.running_from(services, [root], "/usr/bin/python3.11", proc.path)
    assert found == [Daemon("salt-minion2", "salt-minion", 1)]


def test_a_virtual_environment_has_code_of_its_own_whoevers_the_interpreter_is(proc, tmp_path):
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    python = str(venv / "bin" / "python3")
    services = Services(
        salt_master=proc(1, python, f"{venv}/bin/salt-master", exe="/usr/bin/python3.11"),
        # As a process of Salt names itself.
        salt_api=proc(2, f"{python} {venv}/bin/salt-api MainProcess", exe="/usr/bin/python3.11"),
    )
    packages = "/usr/lib/python3/dist-packages/salt"
    assert daemons.running_from(services, [packages], "/usr/bin/python3.11", proc.path) == []
    found = daemons.running_from(services, [str(venv)], "", proc.path)
    assert [each.unit for each in found] == ["salt-api", "salt-master"]


def test_a_virtual_environment_may_share_the_code_of_the_packages(proc, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    python = str(tmp_path / "bin" / "python3")
    services = Services(
        salt_minion2=proc(1, python, "/usr/bin/salt-minion", exe="/usr/bin/python3.11")
    )
    root = "/usr/lib/python3/dist-packages/salt"
    found = daemons.running_from(services, [root], "/usr/bin/python3.11", proc.path)
    assert [each.unit for each in found] == ["salt-minion2"]
