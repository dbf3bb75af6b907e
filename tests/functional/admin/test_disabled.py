"""The state that takes everything off again: the host is as it was before the set-up."""

import os

import pytest
import salt.utils.yaml

from saltext_safeupdate.core.jobs.ledger import UNKNOWN
from saltext_safeupdate.core.jobs.stop_guard import StopGuard
from saltext_safeupdate.this_host import Host
from tests.support.fakes import FakeRunner

ENABLED = {"it": {"safeupdate.enabled": []}}
DISABLED = {"it": {"safeupdate.disabled": []}}
# What Salt and the simulated package manager write by themselves.
NOT_OURS = ("cache", "roots", "run", "packages")


@pytest.fixture
def host(minion, monkeypatch):
    """A minion with a unit, whose drop-ins are below its own directory."""
    reload = FakeRunner({("systemctl", "daemon-reload"): (0, "", "")})
    guard = StopGuard(minion.host.settings, run=reload, units=str(minion.path / "units"))
    (minion.path / "units").mkdir()
    monkeypatch.setattr(Host, "stop_guard", guard)
    return minion


def _tree(path):
    """Return all that is below the directory, with its contents, modes and owners."""
    found = {}
    for folder, below, names in os.walk(path):
        if folder == str(path):
            below[:] = [name for name in below if not name.startswith(NOT_OURS)]
        for name in (*below, *names):
            if folder == str(path) and name.startswith(NOT_OURS):
                continue
            each = os.path.join(folder, name)
            seen = os.lstat(each)
            content = None
            if os.path.isfile(each):
                with open(each, "rb") as file:
                    content = file.read()
            found[os.path.relpath(each, path)] = (seen.st_mode, seen.st_uid, seen.st_gid, content)
    return found


def test_no_difference_is_left(host):
    said = {"engines": ["a"], "id": "x", "safeupdate": host.opts["safeupdate"]}
    (host.path / "minion").write_text(salt.utils.yaml.safe_dump(said))
    stand_ins = host.path.with_name(f"{host.path.name}-safeupdate") / "minion"
    before = _tree(host.path)
    results = host.apply(ENABLED, pillar={"safeupdate": {"attempts": 3}})
    assert results["it"]["result"] is True, results
    assert host.record().phase.value == "committed"
    assert set(_tree(host.path)) > set(before)
    assert "attempts: 3" in (host.path / "minion.d" / "_safeupdate.conf").read_text()
    would = host.apply(DISABLED, test=True)["it"]
    assert would["result"] is None, would
    assert "would restart" in would["comment"]
    assert host.record().reason == "safeupdate.enabled"
    done = host.apply(DISABLED)["it"]
    assert done["result"] is True, done
    assert (
        set(done["changes"])
        == set(would["changes"])
        == {
            str(host.path / "minion.d" / "_safeupdate.conf"),
            str(stand_ins),
            str(host.path / "units" / "salt-minion.service.d" / "50-safeupdate-guard.conf"),
            str(host.path / "state"),
            str(host.path / "locks"),
        }
    )
    assert host.journal("minion restarts") == [("minion restarts",), ("minion restarts",)]
    assert _tree(host.path) == before
    assert not stand_ins.parent.exists()
    # Nothing of what only looks makes anything.
    host.functions["safeupdate.status"]()
    assert host.functions["safeupdate.accepted"](["20260101000000000000"]) == {
        "20260101000000000000": UNKNOWN
    }
