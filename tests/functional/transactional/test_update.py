"""An update of the minion on a real btrfs root: installed in a snapshot, activated by a boot."""

import contextlib
import sqlite3

import pytest

from saltext_safeupdate.core.host import processes

from .conftest import WITHOUT_SALT
from .host import BROKEN, NEW, OLD

pytestmark = WITHOUT_SALT


def test_what_runs_there_knows_the_boot_of_the_system_and_not_that_of_its_host(rig):
    boots = {processes.boot()}
    for _ in range(2):
        rig.boot()
        boots.add(rig.visit(lambda: print(processes.boot())).stdout.strip())
    assert len(boots) == 3, boots


def test_it_is_installed_in_a_snapshot_and_committed_after_the_boot(host):
    found = host.update("3008.3")
    assert found["last"]["phase"] == found["last"]["awaits"][1] == "waiting_for_boot"
    assert (found["running"], found["installed"]) == (OLD, NEW)
    assert (host.rig.default(), host.rig.numbers()) == (3, [1, 2, 3])
    assert host.reboots() == []
    assert host.armed(3)
    # Until the boot, a supervisor that is started has nothing to do.
    assert host("supervise") == found

    host.boot()
    found = host("supervise")
    assert found["last"]["phases"][-4:] == ["stepping", "restarting", "watching", "committed"]
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


@pytest.mark.parametrize("works", [True, False])
def test_what_lives_beside_salt_comes_along_in_the_transaction(host, works):
    """The new Salt has another interpreter."""
    info = "beside-1.dist-info"
    script = f"""
        for name in old new; do /usr/bin/python3 -m venv --without-pip /data/$name; done
        cd /data/old/lib/python3*/site-packages
        touch needed.py; echo import {"sys" if works else "needed"} > beside.py; mkdir {info}
        printf 'Metadata-Version: 2.1\nName: beside\nVersion: 1\n' > {info}/METADATA
        printf 'beside.py,,\n{info}/METADATA,,\n{info}/RECORD,,\n' > {info}/RECORD
    """
    host.rig.ok("transactional-update", "--non-interactive", "run", "sh", "-c", script)
    host.boot()
    found = host.update("3008.3")
    there = list(host.rig.in_snapshot(4, "/data/new/lib").glob("python3*/site-packages/beside.py"))
    if works:
        assert found["last"]["phase"] == "waiting_for_boot"
        assert len(there) == 1
    else:
        assert found["last"]["phase"] == "failed"
        assert "cannot import these extensions: beside 1" in found["last"]["reason"]
        assert (found["installed"], host.rig.numbers()) == (OLD, [1, 2, 3])


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
    assert host("supervise")["last"]["phase"] == "waiting_for_boot"
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
    """A transaction that orphans it: the review of uyuni-rfc #92."""
    host.rig.ok("transactional-update", "--non-interactive", "run", "touch", "/data/other")
    found = host.update("3008.3")
    assert found["last"]["phase"] == "failed"
    assert "Snapshot 3 waits for a reboot" in found["last"]["reason"]
    assert host.rig.default() == 3


def test_a_transaction_that_brings_it_along_is_watched_too(host):
    found = host("transaction", files=host.files("3008.4"))
    assert (found["last"]["phase"], found["last"]["from"]) == ("delivering", OLD)
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
