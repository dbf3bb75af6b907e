"""How what is installed comes to run, on a plain host and on a transactional one."""

import pytest

from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.generations import activation
from saltext_safeupdate.core.packages.request import File
from tests.support.simulated import FakePackages, FakeTransactional


@pytest.fixture
def package(tmp_path):
    path = tmp_path / "salt.rpm"
    path.write_text("salt 2\n")
    return File("salt", "2", str(path), "")


def test_on_a_plain_host_all_is_there_at_once(tmp_path, package):
    packages = FakePackages(salt="1")
    found = activation.of(packages, packages)
    assert (found.by_boot, found.pending, found.waiting) == (False, False, "")
    assert found.written(("/opt", "/usr")) == ("/opt", "/usr")
    secured = found.secure(["salt"], str(tmp_path))
    assert ([(f.package, f.version) for f in secured.files], secured.snapshot) == (
        [("salt", "1")],
        None,
    )
    found.install([package], extensions="/ignored")
    assert packages.versions == {"salt": "2"}
    assert not found.has({"number": 1, "ident": 257})
    with pytest.raises(SafeUpdateError, match="not a transactional system any more"):
        _ = found.snapshots


def test_on_a_transactional_host_it_waits_for_a_boot(tmp_path, package):
    packages = FakeTransactional(salt="1")
    found = activation.of(packages, packages)
    assert (found.by_boot, found.pending, found.waiting) == (True, False, "")
    assert found.written(("/opt", "/usr")) == ("/.snapshots",)
    secured = found.secure(["salt"], str(tmp_path))
    assert (secured.files, secured.snapshot) == ([], {"number": 1, "ident": 257})
    found.install([package])
    assert (packages.running(["salt"]), packages.versions) == ({"salt": "1"}, {"salt": "2"})
    assert (found.pending, found.waiting) == (True, "Snapshot 2 waits for a reboot.")
    assert found.has(found.snapshots.default())
    assert not found.has({"number": 9, "ident": 265})


@pytest.mark.parametrize("manager", [None, FakePackages(salt="1")], ids=["none", "another"])
def test_what_has_its_own_installer_comes_with_a_restart(manager, package):
    """As this extension has."""
    pip = FakePackages(salt="1")
    found = activation.of(manager, pip)
    assert not found.by_boot
    found.install([package])
    assert pip.versions == {"salt": "2"}


def test_without_a_package_manager_nothing_can_be_done(tmp_path, package):
    found = activation.of(None, None)
    for act in (lambda: found.secure(["salt"], str(tmp_path)), lambda: found.install([package])):
        with pytest.raises(SafeUpdateError, match="no supported package manager"):
            act()
