"""
What a release has written, captured once, and read by every later one.

``python -m tests.support.releases`` writes the capture of this version into ``tests/data``; Salt
has to be importable. It is done once for each release and never changed afterwards.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import tarfile
import tempfile
from dataclasses import asdict, replace
from typing import Any

import salt.config

from saltext_safeupdate import __version__
from saltext_safeupdate.core.errors import InputError
from saltext_safeupdate.core.generations.claims import Claims
from saltext_safeupdate.core.generations.generation import Probe, Report, Standing
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import backup
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record import facts, parts
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.core.slots import manifest
from saltext_safeupdate.core.slots.store import Slots
from saltext_safeupdate.fleet import plan, request, rollout
from saltext_safeupdate.fleet.inventory import Record
from saltext_safeupdate.master import onboarding
from saltext_safeupdate.master.account import Account
from saltext_safeupdate.master.aiming import Target
from saltext_safeupdate.master.store import ROLLOUTS
from saltext_safeupdate.master.store import Store as MasterStore
from saltext_safeupdate.minion import unrecorded
from tests.support import builds

DATA = pathlib.Path(__file__).parents[1] / "data" / "releases"
MINION = "salt-minion"
NOW = 1_790_000_000.0
# How minions were set up, as the runner keeps it.
ONBOARDING = {
    **{"by": "jo", "began": NOW, "looked": NOW + 60, "ended": NOW + 90, "waits": "", "stopped": ""},
    **{"waves": [["web1"], ["web2"]], "done": ["web1"], "failed": {"web2": "does not answer"}},
    **{"under_way": {}, "not_begun": [], "left_out": {}, "remarks": {}, "retcode": 1},
}
FILES = (("salt-minion", "3007.15", "/var/cache/salt-minion_3007.15.deb", "ab" * 32),)


class Place:
    """The directories of a minion and of a master, all below *top*."""

    def __init__(self, top: pathlib.Path) -> None:
        self.top = top
        self.database = str(top / "state" / "safeupdate.db")
        self.backup = str(top / "state" / "backup")
        self.minion_opts = {"cachedir": str(top / "minion")}
        self.slots = Slots(str(top / "slots"))
        self.account = Account(str(top / "master" / "safeupdate" / "account.db"))
        self.opts = salt.config.DEFAULT_MASTER_OPTS.copy()
        for key in ("cachedir", "root_dir", "extension_modules"):
            self.opts[key] = str(top / "master")

    def master(self) -> MasterStore:
        return MasterStore(self.opts)


# -- what this version writes ------------------------------------------------------------


def write(top: pathlib.Path) -> None:
    """Have this version write one of each thing that it stores below *top*."""
    for name in ("state", "minion", "master"):
        (top / name).mkdir(mode=0o700)
    place = Place(top)
    _write_updates(Store(place.database, clock=lambda: NOW))
    _write_jobs(Ledger(place.database, clock=lambda: NOW))
    unrecorded.note(place.minion_opts, "20260921120000000009", "4711 1")
    config = top / "minion" / "minion.conf"
    config.write_text("id: web1\n")
    backup.save([str(config), str(top / "minion" / "gone")], place.backup)
    _write_slots(place)
    _write_master(place)


def _write_updates(store: Store) -> None:
    done = Update(
        id="56bdf97092bb",
        kind="update",
        reason="safeupdate.update",
        jid="20260921120000000001",
        created=NOW,
        versions_from={"salt-minion": "3007.15"},
        versions_to={"salt-minion": "3008.3"},
        unit={"active": "active", "enabled": "enabled"},
        request=parts.Request(version="3008.3", serial=20260921120000000000),
        code=parts.Code(own=("salt-minion",), roots=("/opt/saltstack/salt",)),
        staged=parts.Staged(files=(("salt-minion", "3008.3", "/var/cache/new.deb", "cd" * 32),)),
        way_back=parts.WayBack(files=FILES, paths=("/etc/salt",), backup="/var/lib/backup"),
        progress=parts.Progress(
            steps=("3008-rename",), master=True, restarted=NOW, again=("salt-minion",)
        ),
    )
    way = (Phase.CHECKING, Phase.STAGING, Phase.WAITING, Phase.INSTALLING, Phase.DELIVERING)
    store.save(done, number=20260921120000000000)
    for phase in (*way, Phase.RESTARTING, Phase.WATCHING):
        done = store.save(done.advance(phase))
    store.save(done.advance(Phase.COMMITTED, reason="the probe was answered"))
    under_way = Update(id="0123456789ab", kind="update", phase=Phase.WATCHING, created=NOW + 60)
    store.save(
        replace(
            under_way,
            former=parts.Former(pid=42, invocation="ef" * 16, report=NOW, process="4711 1 2"),
            boot=parts.Boot(awaits=("boot", "watching")),
            watched=parts.Watched(boot="boot", until=300.0),
            owed=parts.Owed(jid="1", reason="minion.restart", processes={"12": "12 3"}),
        )
    )
    store.quarantine({"salt-minion": "3008.2"}, "0123456789ab", "it was rolled back")
    store.set_fact(facts.STEPS_SINCE, "3008.3")
    store.set_fact(facts.MADE, ("/etc/salt/minion.d",))
    store.set_fact(facts.UNSLOTTED, facts.Unslotted(version="3007.15", program="/usr/bin/minion"))
    generations = Generations(store)
    generations.begins("4711 1 2")
    generations.reports("4711 1 2", Report(at=NOW, version="3008.3", extension=__version__))
    generations.notes_masters("4711 1 2", (("salt", True),))
    generations.ask("4711 1 2", Probe(jid="7", fun="test.echo", arg=("x",)))
    generations.begins("4712 1 3")
    generations.stands("4712 1 3", Standing.LEAVING)
    Claims(store, clock=lambda: NOW).claim("20260921120000000002", "4711 1 2")


def _write_jobs(ledger: Ledger) -> None:
    ledger.record_from_now()
    for number, fun in enumerate(("test.arg", "cmd.run", "state.apply", "pkg.install", "x.y"), 2):
        jid = f"2026092112000000000{number}"
        given = {"jid": jid, "fun": fun, "master": "salt", "owner": "4711 1 2"}
        if fun == "test.arg":
            ledger.hold(jid, **given, call=b"held")
            continue
        ledger.accept(jid, **given, call=fun.encode())
        if fun == "cmd.run":
            continue
        ledger.begin(jid, "4713 1 4")
        if fun == "state.apply":
            ledger.add_chunk(jid, "pkg_|-x_|-x_|-installed", "digest", b"result", durable=True)
        else:
            ledger.finish(jid, b"a return " * 4000, retcode=1)
        if fun == "x.y":
            ledger.delivered(jid)


def _write_slots(place: Place) -> None:
    for version in ("3007.15", "3008.3"):
        name = f"salt-{version}.tar.xz"
        path = builds.tarball(place.top / name, builds.onedir(version))
        said = {"version": version, "name": f"salt-{version}", "machine": "any"}
        described = builds.described(path, **said)
        (place.top / f"{name}.json").write_text(json.dumps(described))
        found = manifest.parse(json.dumps(described).encode())
        slot = place.slots.stage(found, {name: path})
        place.slots.activate(MINION, slot.ident)
        os.unlink(path)


def _write_master(place: Place) -> None:
    place.account.published("20260921120000000002", b"a load", ["web1", "web2"], Target("web*"))
    place.account.published("20260921120000000003", b"another", ["web1"], Target(["web1"], "list"))
    store = place.master()
    wanted = {"groups": [{"name": "web", "target": "web*"}], "version": "3008.3", "soak": 5}
    names = ["web1", "web2", "web3"]
    made = plan.make(
        request.from_mapping(wanted),
        {"web": names},
        {name: plan.Facts(version="3007.15") for name in names},
        plan_id="20260921-120000-9f3a",
        number=20260921120000000000,
        now=NOW,
    )
    store.save_plan(made)
    store.save_rollout(rollout.begin(made, NOW))
    store.set_records(
        Record(minion=name, seen=NOW, running="3007.15", problems=("disk-space",), way="apt")
        for name in names
    )
    store.quarantine("3008.2", "two canaries have rolled it back")
    store.quarantine("3008.1", "taken back")
    store.allow("3008.1", by="jo", now=NOW)
    store.cache.write(ROLLOUTS, "onboarding", ONBOARDING)


# -- what a version makes of it ----------------------------------------------------------


def read(top: pathlib.Path) -> dict[str, Any]:
    """Return what the code of this version reads there, as plain data."""
    place = Place(top)
    found = {**_read_updates(Store(place.database)), **_read_jobs(place)}
    found |= {**_read_slots(place), **_read_master(place)}
    kept = backup.load(place.backup)
    found["backup"] = [[os.path.basename(each.path), each.digest] for each in kept.entries]
    return dict(json.loads(json.dumps(found)))


def _read_updates(store: Store) -> dict[str, Any]:
    updates = store.updates()
    generations = Generations(store)
    serving = generations.of("4711 1 2")
    assert serving is not None
    claims = Claims(store)
    return {
        "updates": [{**asdict(each), "phase": each.phase.value} for each in updates],
        "history": [[row.phase, row.reason] for each in updates for row in store.history(each.id)],
        "quarantined": [[row.package, row.version, row.reason] for row in store.quarantined()],
        "taken": store.taken().number,
        "older request": _refused(store),
        "steps since": store.fact(facts.STEPS_SINCE),
        "made": store.fact(facts.MADE),
        "unslotted": asdict(store.fact(facts.UNSLOTTED)),
        "report": asdict(serving.report),
        "masters": serving.masters,
        "probe": asdict(serving.probe),
        "standing": [serving.standing.value, generations.of("4712 1 3").standing.value],
        "claimed by it": claims.claim("20260921120000000002", "4711 1 2"),
        "claimed by another": claims.claim("20260921120000000002", "4712 1 3"),
    }


def _refused(store: Store) -> bool:
    with contextlib.suppress(InputError):
        store.take(20260921110000000000, "x")
        return False
    return True


def _read_jobs(place: Place) -> dict[str, Any]:
    ledger = Ledger(place.database)
    found = {}
    for job in ledger.open():
        full = ledger.full(job.key)
        found[job.key] = [full.state.value, full.fun, full.master, full.owner, full.attempts]
        found[job.key] += [_text(full.call), _text(full.payload)]
        found[job.key].append(ledger.outcome(job.jid)[1])
    chunks = ledger.chunks("20260921120000000004")
    delivered = ledger.outcome("20260921120000000006")
    noted = unrecorded.pending(place.minion_opts)
    unrecorded.bring_in(place.minion_opts, ledger)
    return {
        "jobs": found,
        "delivered": [delivered[0].value, delivered[1]],
        "states": {tag: [digest, _text(result)] for tag, (digest, result) in chunks.items()},
        "unrecorded": [noted, unrecorded.pending(place.minion_opts)],
    }


def _text(content: bytes | None) -> str | None:
    if content is None or len(content) < 100:
        return None if content is None else content.decode()
    return f"{len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}"


def _read_slots(place: Place) -> dict[str, Any]:
    slots = place.slots.slots()
    for slot in slots:
        place.slots.verify(slot.ident)
    paths = sorted(place.top.glob("*.tar.xz.json"))
    return {
        "slots": sorted([slot.ident, slot.version, slot.kind] for slot in slots),
        "active": [place.slots.active(MINION), place.slots.previous(MINION)],
        "builds": [manifest.parse(path.read_bytes()).ident for path in paths],
    }


def _read_master(place: Place) -> dict[str, Any]:
    store = place.master()
    (name,) = store.rollouts()
    found, planned = store.rollout(name), store.plan(name)
    ticket = place.account.ticket(1, ["web2"])
    again = place.account.redeem(ticket)
    return {
        "published": [one.jid for one in place.account.since(0)],
        "again": [again.jid, _text(again.load), again.minions, again.target],
        "rollout": [found.mode.value, {m: each.step.value for m, each in found.minions.items()}],
        "outline": store.outline(name).counts,
        "plan": [planned.id, planned.request.version, [list(w.minions) for w in planned.waves]],
        "records": {m: asdict(each) for m, each in store.records().items()},
        "kept": store.quarantined(),
        "allowed": store.allowed(),
        "onboarding": onboarding.kept(store),
        "problems": list(store.problems),
    }


# -- captures ----------------------------------------------------------------------------


def captured() -> list[str]:
    """Return the releases of which there is a capture."""
    return sorted(path.name.removesuffix(".tar.xz") for path in DATA.glob("*.tar.xz"))


def unpack(release: str, top: pathlib.Path) -> dict[str, Any]:
    """Unpack a capture into *top*; return what the release itself has read there."""
    with tarfile.open(DATA / f"{release}.tar.xz") as archive:
        # With the permissions that it has, also where Python would take some of them.
        archive.extraction_filter = lambda member, _: member
        archive.extractall(top)
    return dict(json.loads((DATA / f"{release}.json").read_text(encoding="utf-8")))


def capture(release: str = __version__) -> None:
    """Write the capture of this version. It is an error if there is one already."""
    DATA.mkdir(parents=True, exist_ok=True)

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tempfile.TemporaryDirectory() as scratch:
        top = pathlib.Path(scratch)
        os.umask(0o022)
        write(top)
        with tarfile.open(DATA / f"{release}.tar.xz", "x:xz") as archive:
            for path in sorted(top.iterdir()):
                archive.add(path, path.name, filter=plain)
        # Behind that, because it changes some of it.
        text = json.dumps(read(top), indent=1, sort_keys=True)
        (DATA / f"{release}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    capture()
