"""
What the first versions wrote is read, and brought to its end.

``captured/earlier`` holds what they left of simulated updates when they were killed after each
write of the record, and the database of some jobs.
"""

import itertools
import json
import pathlib
import sqlite3

import pytest

from saltext_safeupdate.core.host import backup, linked_copy, processes
from saltext_safeupdate.core.jobs.ledger import Ledger, State
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.supervisor import watchdog
from tests.support.simulated import FakeTransactional

from ..conftest import NEW, OLD

EARLIER = pathlib.Path(__file__).parents[1] / "captured" / "earlier"
CAPTURED = (EARLIER / "updates.jsonl").read_text(encoding="utf-8").splitlines()
COLUMNS = ("versions_from", "versions_to", "unit", "extra")


def _name(line):
    row = json.loads(line)
    return f"{row['scenario']}-{row['row']['phase']}-{len(row['row']['extra'])}"


@pytest.fixture(params=CAPTURED, ids=_name)
def found(request, tmp_path):
    text = request.param.replace("@tmp@", str(tmp_path)).replace("@boot@", processes.boot())
    return json.loads(text)


def _insert(db, row):
    """Write a record as the earlier version did."""
    values = [json.dumps(row[key]) if key in COLUMNS else row[key] for key in row]
    db.execute(
        f"INSERT INTO updates ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", values
    )


def _lay_out(host, found, monkeypatch):
    """Have the host as it was when the earlier supervisor was killed, some time ago."""
    host.clock.now += 100
    with host.store.transaction() as db:
        row = found["row"]
        _insert(db, row)
        for phase in found["phases"]:
            db.execute(
                "INSERT INTO phases (id, phase, reason, at) VALUES (?, ?, '', 0)",
                (row["id"], phase),
            )
    for name, value in found["facts"].items():
        host.store.set_fact(name, value)
    extra = row["extra"]
    for _, _, path, content in extra.get("old_files", []) + extra.get("new_files", []):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).write_text(content)
    if extra.get("backup"):
        pathlib.Path(extra["backup"]).parent.mkdir(parents=True, exist_ok=True)
        backup.save([], extra["backup"])
    if extra.get("copies") and not Phase(row["phase"]).final:
        linked_copy.make([str(host.root)], row["id"])
    services = host.services
    services._invocations, services._pids = itertools.count(100), itertools.count(1000)
    services.active, services.pid, services.invocation, services.refuses, armed = found["service"]
    services.armed = {watchdog.unit(host.settings): ()} if armed else {}
    if found["snapshot"] is None:
        host.packages.versions.update(found["versions"])
    else:
        host.packages = FakeTransactional(**OLD)
        snapshots = host.packages.snapshots
        snapshots.contents = {int(key): each for key, each in found["versions"].items()}
        snapshots.now, snapshots.next = found["snapshot"]
    host.packages.offers = {name: [NEW[name], OLD[name]] for name in OLD}
    if "broken" in found["scenario"]:
        services.dies_while = lambda: _running(host) == NEW


def _running(host):
    snapshots = host.packages.snapshots
    return snapshots.contents[snapshots.now] if snapshots else host.packages.versions


def test_an_update_in_every_phase(host, found, monkeypatch):
    boots = [found["facts"].get("running", {}).get("boot", "boot-0")]
    if found["snapshot"] is not None:
        monkeypatch.setattr(processes, "boot", lambda: boots[-1])
    _lay_out(host, found, monkeypatch)
    before = host.last
    assert before.phase.column == found["row"]["phase"]
    for _ in range(4):
        host.supervise()
        if host.last.phase.final:
            break
        assert host.last.awaits_boot
        boots.append(f"{boots[-1]}+")
        host.packages.snapshots.now = host.packages.snapshots.next
        host.services.refuses = host.services.rests = False
        host.services._up()
    update = host.store.get(before.id)
    assert update.phase.final
    assert host.services.active == "active"
    scenario, began = found["scenario"], "installing" in found["phases"]
    if scenario in ("a request", "a boot") or (scenario == "a state run" and began):
        assert update.phase in (Phase.COMMITTED, Phase.FAILED)
        assert _running(host) == (NEW if update.phase is Phase.COMMITTED else OLD)
    elif "broken" in scenario:
        assert (update.phase, _running(host)) == (Phase.ROLLED_BACK, OLD)
    elif scenario == "a restart":
        assert update.phase is Phase.COMMITTED
    else:
        assert (update.phase, _running(host)) == (Phase.FAILED, OLD)


def test_every_phase_of_then_is_among_them():
    then = {"requested", "checking", "staging", "waiting", "installing", "restarting"}
    then |= {"watching", "committed", "rolling_back", "rolled_back"}
    assert {json.loads(line)["row"]["phase"] for line in CAPTURED} == then


@pytest.mark.parametrize("line", CAPTURED, ids=_name)
def test_the_first_versions_find_what_they_look_for(host, line):
    """Written again by this version, each key that was there is there, with its value."""
    found = json.loads(line)
    row = found["row"]
    with host.store.transaction() as db:
        _insert(db, row)
    # They take what is missing for the False that it always was.
    assert not (row["extra"].get("request") or {}).pop("number", False)
    host.store.save(host.store.get(row["id"]))
    with host.store.connection() as db:
        phase, extra = db.execute("SELECT phase, extra FROM updates").fetchone()
    assert phase == row["phase"]
    written = json.loads(extra)
    empty = (None, [], "", {})
    assert {key: value for key, value in row["extra"].items() if value not in empty} == {
        key: value for key, value in written.items() if key in row["extra"] and value not in empty
    }


@pytest.fixture
def database(tmp_path):
    path = str(tmp_path / "state" / "safeupdate.db")
    store = Store(path)
    (tmp_path / "state").mkdir(mode=0o700)
    db = sqlite3.connect(path)
    db.executescript((EARLIER / "jobs.sql").read_text(encoding="utf-8"))
    db.close()
    return path, store


def test_the_jobs_of_a_ledger(database):
    ledger = Ledger(database[0])
    jobs = {job.key: job for job in ledger.open()}
    states = {key[-1]: job.state for key, job in jobs.items() if "/" not in key}
    assert states == {
        "1": State.HELD,
        "2": State.ACCEPTED,
        "3": State.RUNNING,
        "4": State.FINISHED,
        "5": State.FINISHED,
    }
    assert jobs["20260101000000000007/ssh:web"].jid == "20260101000000000007"
    assert ledger.full("20260101000000000001").call == b"call held"
    assert ledger.full("20260101000000000004").payload == b"x" * 300_000
    assert ledger.outcome("20260101000000000004") == (State.FINISHED, 2)
    assert ledger.outcome("20260101000000000006") == (State.DELIVERED, 0)
    assert ledger.chunks("20260101000000000003") == {
        "file_|-a_|-/a_|-managed": ("digest", b"result")
    }
    assert [job.jid[-1] for job in ledger.undelivered()] == ["4", "5"]
    again = {"jid": "1", "fun": "cmd.run", "master": "m1", "call": b"", "owner": "o"}
    assert ledger.accept("20260101000000000006", **again) is State.DELIVERED, "never run again"


def test_what_was_known_beside_the_updates(database):
    store = database[1]
    assert [(row.package, row.version, row.id) for row in store.quarantined()] == [
        ("salt-minion", "3007.15", "u0")
    ]
    assert store.fact("previous")["versions"] == {"salt": "3006.28"}
