"""
A host with the database of another one.

| hardware | machine ID | key | container | is it a copy? |
| --- | --- | --- | --- | --- |
| same | same | same | - | no |
| same | another | another | - | no: its name and key were changed in place |
| another | same | same | - | yes: a clone, or an earlier state of it on another machine |
| another | another | another | - | yes: a clone that was prepared as such |
| another | same | same | yes | no: it was moved to another host |
| another | another | same | yes | no: it was made again, with its volumes |
| another | same | another | yes | no: it was renamed |
| another | another | another | yes | yes |
| unreadable | another | same | - | no |
| unreadable | another | another | - | yes |
| unreadable | another | removed | - | yes: the minion has not made one yet |
"""

import shutil

import pytest

from saltext_safeupdate.core import program
from saltext_safeupdate.core.host import processes
from saltext_safeupdate.core.jobs import copied
from saltext_safeupdate.core.jobs.ledger import State
from saltext_safeupdate.core.record.facts import RESTART
from saltext_safeupdate.core.record.parts import Owed
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.record.update import Update
from saltext_safeupdate.this_host import Host
from tests.support.this_host import opts

from .test_ticker import World

SAME, OTHER, NONE = "same\n", "another\n", None
CASES = [
    *((SAME, SAME, SAME, False, False), (SAME, OTHER, OTHER, False, False)),
    *((OTHER, SAME, SAME, False, True), (OTHER, OTHER, OTHER, False, True)),
    *((OTHER, SAME, SAME, True, False), (OTHER, OTHER, SAME, True, False)),
    *((OTHER, SAME, OTHER, True, False), (OTHER, OTHER, OTHER, True, True)),
    *((NONE, OTHER, SAME, False, False), (NONE, OTHER, OTHER, False, True)),
    (NONE, OTHER, NONE, False, True),
]


@pytest.fixture
def be(tmp_path, monkeypatch):
    """Be a host of that hardware, machine ID and key, or a container."""
    paths = {name: tmp_path / name for name in ("hardware", "system", "key", "namespace")}
    paths["namespace"].touch()
    monkeypatch.setattr(copied, "HARDWARE", str(paths["hardware"]))
    monkeypatch.setattr(copied, "MACHINE_ID", str(paths["system"]))
    monkeypatch.setattr(copied, "NAMESPACE", str(paths["namespace"]))

    def write(hardware=SAME, system=SAME, key=SAME, container=False):
        texts = {"hardware": hardware, "system": system, "key": key}
        number = paths["namespace"].stat().st_ino
        monkeypatch.setattr(copied, "OF_HOST", number + container)
        for name, text in texts.items():
            paths[name].unlink(missing_ok=True)
            if text is not None:
                paths[name].write_text(text)
        return str(paths["key"])

    return write


@pytest.fixture
def template(tmp_path, be):
    """A host in the middle of everything."""

    def made(container):
        world = World(tmp_path / "template")
        copied.look(world.store, world.ledger, be(container=container))
        world.ledger.record_from_now()
        world.job("resumed", fun="state.apply")
        world.job("not begun", runner="")
        world.job("told")
        world.job("returned")
        world.ledger.finish("returned", b"return")
        world.ledger.hold("held", jid="held", fun="cmd.run", master="m", call=b"", owner="gone")
        world.store.set_fact(RESTART, Owed(reason="asked"))
        world.store.save(Update(id="u", kind="update", phase=Phase.WATCHING))
        return world

    return made


def _goes_on(world):
    """Let the engine look, and tell what it starts, sends and says."""
    for _ in range(8):
        world.tick()
    return {*world.started, *(jid for jid, _ in world.sent)}


@pytest.mark.parametrize(("hardware", "system", "key", "container", "is_copy"), CASES)
def test_nothing_continues_on_a_copy(
    template, be, tmp_path, hardware, system, key, container, is_copy
):
    template(container)
    shutil.copytree(tmp_path / "template", tmp_path / "copy")
    world, key_file = World(tmp_path / "copy"), be(hardware, system, key, container)
    copied.look(world.store, world.ledger, key_file)
    update = world.store.latest()
    if not is_copy:
        assert _goes_on(world) == {"resumed", "not begun", "told", "returned", "held"}
        assert (update.phase, bool(world.launched)) == (Phase.WATCHING, True)
        return
    assert _goes_on(world) == set()
    assert world.ledger.open() == []
    assert update.phase is Phase.FAILED
    assert "copy" in update.reason
    # Only this is told, under the name of the copy.
    assert world.published == ["failed"]
    assert world.store.fact(RESTART) is None
    # Of the time before, it knows nothing.
    assert world.ledger.known(["20200101000000000000"]) == {"20200101000000000000": "unknown"}
    # What came since is the copy's own.
    world.job("own", runner="")
    copied.look(world.store, world.ledger, key_file)
    assert _goes_on(world) == {"own"}


@pytest.mark.parametrize(
    ("seconds", "boot", "old"),
    [(86500, "another", True), (86000, "another", False), (86500, "", False)],
)
def test_jobs_of_the_day_before_another_boot_are_reported(
    template, be, monkeypatch, seconds, boot, old
):
    """The host was off, or was set back: then they may have returned."""
    world, key_file = template(container=False), be()
    now = boot or processes.boot()
    monkeypatch.setattr(copied.processes, "boot", lambda: now)
    monkeypatch.setattr(copied.time, "time", lambda: world.now + seconds)
    copied.look(world.store, world.ledger, key_file)
    if not old:
        assert _goes_on(world) == {"resumed", "not begun", "told", "returned", "held"}
        return
    call = {"jid": "held", "fun": "cmd.run", "master": "m", "call": b"", "owner": "main"}
    assert world.ledger.accept("held", **call, over=(State.HELD,)) is State.HELD, "from a queue"
    _goes_on(world)
    assert world.started == []
    told = {jid: payload.decode() for jid, payload in world.sent}
    assert told.pop("returned") == "return"
    assert sorted(told) == ["held", "not begun", "resumed", "told"]
    assert all("more than a day" in each for each in told.values())
    nothing = sorted(jid for jid, each in told.items() if "was held, and was not run" in each)
    assert nothing == ["held", "not begun"]
    assert world.ledger.open() == []
    # An update continues, as its packages are of that time as well.
    assert world.launched


def test_what_is_learned_later_is_noted(template, be):
    world = template(container=False)
    # As another user, before the minion has made its key, and without options, as a supervisor.
    be(hardware=NONE, key=NONE)
    copied.look(world.store, world.ledger)
    be()
    copied.look(world.store, world.ledger)
    assert len(world.ledger.open()) == 5
    be(hardware=NONE, system=OTHER, key=OTHER)
    copied.look(world.store, world.ledger)
    assert world.ledger.open() == []


def test_a_minion_looks_before_it_has_hooks(template, be, tmp_path):
    world = template(container=False)
    be(hardware=OTHER)
    given = {**opts(tmp_path), "safeupdate": {"state_dir": world.settings.state_dir}}
    assert Host({**given, "pki_dir": str(tmp_path)}).claim() == ""
    assert world.ledger.open() == []


def test_a_supervisor_looks_first(template, be, tmp_path, monkeypatch):
    world = template(container=False)
    be(hardware=OTHER)
    monkeypatch.setattr(program, "read_settings", lambda path: world.settings)
    monkeypatch.setattr(program.init_system, "detect", lambda: None)
    monkeypatch.setattr(program.wiring, "package_manager", lambda: None)
    seen = []
    monkeypatch.setattr(
        program.Supervisor, "run", lambda self: seen.append(world.store.latest().phase)
    )
    assert program.main([""]) == 0
    assert seen == [Phase.FAILED]
