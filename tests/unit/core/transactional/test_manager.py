"""What is installed on a transactional system, and how it is asked for."""

import pytest

from saltext_safeupdate.core import wiring
from saltext_safeupdate.core.errors import VerificationError
from saltext_safeupdate.core.packages import detect as managers
from saltext_safeupdate.core.packages.files import digest
from saltext_safeupdate.core.packages.request import File
from saltext_safeupdate.core.packages.zypper import Zypper
from saltext_safeupdate.core.transactional import detect
from saltext_safeupdate.core.transactional.manager import TransactionalUpdate
from tests.support.fakes import FakeRunner

QUERY = ("-q", "--qf", r"%{NAME}\t%{VERSION}-%{RELEASE}\n", "--", "salt")
NEXT = "/.snapshots/3/snapshot"


class FakeSnapshots:
    next_root = None

    def __init__(self):
        self.installed, self.at_work = [], False

    def install(self, paths):
        self.installed.append(paths)

    def busy(self):
        return self.at_work


def _manager(answers=()):
    run = FakeRunner(answers)
    return TransactionalUpdate(run, FakeSnapshots()), run


def test_what_is_installed_is_what_the_next_boot_starts():
    now, later = ("rpm", *QUERY), ("rpm", "--root", NEXT, *QUERY)
    manager, _ = _manager({now: (0, "salt\t1-1\n", ""), later: (0, "salt\t2-1\n", "")})
    assert manager.installed(["salt"]) == {"salt": "1-1"}
    manager.snapshots.next_root = NEXT
    assert manager.installed(["salt"]) == {"salt": "2-1"}
    assert manager.running(["salt"]) == {"salt": "1-1"}


def test_files_are_verified_and_installed_in_a_snapshot(tmp_path):
    path = tmp_path / "salt.rpm"
    path.write_text("salt")
    show = (
        "rpm",
        "-qp",
        "--nosignature",
        "--qf",
        r"%{NAME}\t%{VERSION}-%{RELEASE}",
        "--",
        str(path),
    )
    manager, _ = _manager({show: (0, "salt\t1-1", "")})
    file = File("salt", "1-1", str(path), digest(str(path)))
    manager.install([file])
    assert manager.snapshots.installed == [[str(path)]]
    with pytest.raises(VerificationError):
        manager.install([file._replace(sha256="0" * 64)])
    assert len(manager.snapshots.installed) == 1


def test_zypper_downloads_on_a_read_only_root():
    argv = ("zypper", "--non-interactive", "--xmlout", "--pkg-cache-dir", "/d", "install")
    asked = (*argv, "--dry-run", "--download-only", "--oldpackage", "--", "salt=2-1")
    locks = ("zypper", "--non-interactive", "--xmlout", "locks")
    manager, run = _manager({asked: (0, "<stream/>", ""), locks: (0, "<stream/>", "")})
    manager.fetch({"salt": "2-1"}, "/d")
    assert run.calls[-1] == asked


def test_nothing_is_ever_half_done():
    manager, run = _manager()
    assert manager.unfinished(["salt"]) == []
    manager.repair(["salt"])
    assert run.calls == []


def test_a_transaction_of_others_keeps_it_busy():
    manager, _ = _manager()
    manager.snapshots.at_work = True
    assert manager.busy()


@pytest.mark.parametrize(("transactional", "kind"), [(True, TransactionalUpdate), (False, Zypper)])
def test_it_is_found(monkeypatch, transactional, kind):
    there = {"rpm", "zypper"}
    monkeypatch.setattr(managers.shutil, "which", lambda name: name if name in there else None)
    monkeypatch.setattr(detect, "transactional", lambda run: transactional)
    assert type(wiring.package_manager(FakeRunner())) is kind
