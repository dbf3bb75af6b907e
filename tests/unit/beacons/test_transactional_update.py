from unittest.mock import Mock

import pytest

from saltext_safeupdate.beacons import transactional_update as beacon
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.transactional import roots
from saltext_safeupdate.core.transactional.roots import Roots, Subvolume

ONE, TWO = Subvolume(1, 261), Subvolume(2, 262)
PENDING = {"tag": "pending", "running": 1, "default": 2}


@pytest.fixture
def read(monkeypatch):
    fake = Mock(spec=roots.read_roots)
    monkeypatch.setattr(roots, "read_roots", fake)
    monkeypatch.setattr(beacon, "__context__", {}, raising=False)
    return fake


def test_each_change_is_told_once(read):
    told = []
    for default in (ONE, TWO, TWO, Subvolume(2, 270), ONE, ONE):
        read.return_value = Roots(running=ONE, default=default)
        told.append(beacon.beacon([]))
    activated = {"tag": "activated", "running": 1, "default": 1}
    assert told == [[], [PENDING], [], [PENDING], [activated], []]


def test_what_cannot_be_read_is_no_event(read, caplog):
    read.side_effect = SafeUpdateError("x")
    assert beacon.beacon([]) == []
    assert "whether a snapshot waits for a reboot is not known: x" in caplog.text


def test_validate():
    assert beacon.validate([{"interval": 60}])[0] is True
    assert beacon.validate({})[0] is False


def test_virtual(monkeypatch):
    monkeypatch.setattr(beacon.salt.utils.path, "which", lambda _: None)
    assert beacon.__virtual__()[0] is False
