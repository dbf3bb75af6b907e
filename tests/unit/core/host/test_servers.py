"""What shows that a master beside a minion works."""

import os

import pytest

from saltext_safeupdate.core.host import locks, servers
from saltext_safeupdate.core.host.reach import Address, is_here
from saltext_safeupdate.core.host.servers import Server


def _reached(addresses):
    return True


def _had(directory):
    return True


def test_they_start_in_an_order():
    given = [Server(unit=name, program=f"salt-{name}") for name in ("api", "syndic", "master")]
    assert [each.unit for each in servers.in_order(given)] == ["master", "syndic", "api"]


@pytest.mark.parametrize(
    ("interface", "address"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("10.0.0.1", "10.0.0.1")]
)
def test_who_listens_everywhere_is_reached_on_this_host(interface, address):
    assert servers.address(interface) == address


def test_a_master_has_to_listen_where_it_did():
    master = Server(unit="m", program="salt-master", host="::1", port=4510, greets=True)
    asked = []

    def reaches(addresses):
        asked.extend(addresses)
        return False

    said = servers.missing(master, reaches, _had)
    assert asked == [Address("::1", 4510, True)]
    assert said == "does not answer at ::1 port 4510"
    assert servers.missing(master, _reached, _had) == ""


def test_its_engine_has_to_have_its_lock(tmp_path):
    master = Server(unit="m", program="salt-master", engine=str(tmp_path / "safeupdate"))
    assert "engine" in servers.missing(master, _reached, _had)
    assert not os.path.exists(master.engine), "to look there makes nothing"
    lock = locks.Lock(master.engine, "engine")
    assert "engine" in servers.missing(master, _reached, _had)
    assert lock.try_exclusive()
    assert servers.missing(master, _reached, _had) == ""
    lock.close()


def test_it_has_to_have_keys_if_it_had(tmp_path):
    master = Server(unit="m", program="salt-master", keys=str(tmp_path / "minions"))
    assert str(tmp_path) in servers.missing(master, _reached, _had)
    assert servers.missing(master, _reached, lambda directory: False) == ""
    os.makedirs(f"{master.keys}/web1")
    assert servers.missing(master, _reached, _had) == ""


@pytest.mark.parametrize(
    ("host", "here"), [("127.0.0.1", True), ("192.0.2.1", False), ("no.such.host.invalid", False)]
)
def test_an_address_of_this_host_is_told_from_others(host, here):
    assert is_here(host) is here
