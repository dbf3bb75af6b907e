"""The restart after which the minion runs without us, and what it takes away."""

import os
import pathlib

import pytest

from saltext_safeupdate.core.errors import LockHeldError
from saltext_safeupdate.core.host import linked_copy, minions, processes
from saltext_safeupdate.core.host.engine_at_rest import Rest
from saltext_safeupdate.core.record.parts import Request
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.settings import Settings
from saltext_safeupdate.core.supervisor import leaving
from saltext_safeupdate.core.supervisor.leaving import Leaving

CONFIG = "/etc/salt/minion"
# An update of this extension, and a look into packages that was killed.
LEFT = ("staged-extension", "unpacked-ab12")


@pytest.fixture
def leaves(host):
    """Have the removal asked for, and a minion that does not report any more."""
    host.reports = False
    leaving.ask(host.store, CONFIG)
    for name in ("supervisor-x/saltext", "revisions/u1", "staged", *LEFT):
        os.makedirs(f"{host.settings.state_dir}/{name}")
    for name in ("stop_guard.sh", "settings-x.json", ".settings-x.json.ab1", "environment.json"):
        pathlib.Path(host.settings.state_dir, name).touch()
    for name in ("bypass", "return1.lock", "waited", "handover.5.word"):
        os.makedirs(host.settings.run_dir, exist_ok=True)
        pathlib.Path(host.settings.run_dir, name).touch()
    pathlib.Path(host.settings.run_dir, "handover.5.open").mkdir()
    return host


def _restart(host, **kwargs):
    host.record(Phase.WAITING, kind="restart", versions_from={})
    host.supervise(**kwargs)


def test_a_minion_that_stays_up_is_enough_and_everything_goes(leaves):
    _restart(leaves, owed=leaves.ledger.owed)
    assert leaves.restarts() == ["restart"]
    assert leaves.clock.passed >= leaves.settings.stable_interval - 0.1
    assert not os.path.exists(leaves.settings.run_dir)
    assert not os.path.exists(leaves.settings.state_dir)


def test_the_copies_of_the_code_of_generations_go_with_it(leaves):
    root = str(leaves.root)
    minions.register(
        leaves.settings.registry_dir,
        minions.Minion(
            config=str(leaves.root.parent / "minion"),
            id="m",
            unit="salt-minion",
            state_dir=str(leaves.settings.state_dir),
            run_dir=str(leaves.settings.run_dir),
            roots=(root,),
        ),
    )
    held = linked_copy.make([root], "g1.2.3")[root]
    fd = linked_copy.hold(held)
    linked_copy.make([root], "g1.2.4")
    _restart(leaves, owed=leaves.ledger.owed)
    os.close(fd)
    assert list(linked_copy.leftovers([root])) == [held], "that of another minion stays"


def test_a_minion_that_does_not_start_takes_nothing_away(leaves):
    leaves.services.dies = 99
    _restart(leaves)
    assert leaves.last.phase is Phase.FAILED
    assert leaving.kept(leaves.settings) == [leaves.settings.state_dir, leaves.settings.run_dir]


@pytest.mark.parametrize("what", ["return", "interrupted", "engine", "resting engine"])
def test_nothing_goes_that_is_needed(leaves, what):
    described = {"jid": "1", "fun": "test.ping", "master": "m"}
    if what == "return":
        leaves.ledger.add_undelivered("1", **described, payload=b"x")
    elif what == "interrupted":
        leaves.ledger.accept("1", **described, call=b"", owner="")
        leaves.ledger.begin("1", "")
    else:
        lock = leaves.lock("engine")
        assert lock.try_exclusive()
        if what == "resting engine":
            now = processes.since_boot()
            Rest(processes.me(), "signs", now, now).write(lock)
            lock.release()
    _restart(leaves, owed=leaves.ledger.owed)
    assert leaves.last.phase is Phase.COMMITTED
    expected = {"return": "not delivered", "interrupted": "was interrupted"}
    assert expected.get(what, "still runs with it") in leaves.last.reason
    assert "safeupdate.disabled again" in leaves.last.reason
    assert os.path.exists(leaves.settings.state_dir + "/stop_guard.sh")


def test_a_job_that_is_held_meanwhile_is_left_to_salt(leaves):
    held = {"jid": "1", "fun": "test.ping", "master": "m", "call": b"", "owner": ""}
    assert leaves.ledger.hold("1", **held) is None
    _restart(leaves, owed=leaves.ledger.owed)
    assert not os.path.exists(leaves.settings.state_dir)


def test_no_update_begins_any_more(leaves):
    with pytest.raises(LockHeldError, match=r"safeupdate\.enabled first"):
        leaves.request_update(Request())
    assert leaves.last is None


def test_what_others_have_there_stays(host, tmp_path):
    state, run = tmp_path / "a" / "minions" / "x", tmp_path / "r"
    settings = Settings(state_dir=str(state), run_dir=str(run), registry_dir=str(tmp_path / "reg"))
    other = str(tmp_path / "salt2" / "minion")
    os.mkdir(os.path.dirname(other))
    for config in (CONFIG, other):
        noted = minions.Minion(config=config, id="x", unit="u", state_dir="/x", run_dir="/x")
        minions.register(settings.registry_dir, noted)
    (state / "revisions").mkdir(parents=True)
    (state / "mine").touch()
    made, full = tmp_path / "made", tmp_path / "full"
    made.mkdir()
    (full / "x").mkdir(parents=True)
    store = type(host.store)(settings.database, clock=host.clock)
    also = [str(tmp_path / "also"), "relative"]
    (tmp_path / "also").touch()
    leaving.ask(store, CONFIG, also, [str(made), str(full)])
    assert Leaving(settings=settings, store=store, owed=tuple).take_away() == ""
    assert sorted(path.name for path in state.iterdir()) == ["mine"]
    assert not run.exists()
    assert os.listdir(settings.registry_dir) == [
        os.path.basename(minions.path_of(settings.registry_dir, other))
    ]
    assert (made.exists(), full.exists(), (tmp_path / "also").exists()) == (False, True, False)
    (state / "mine").unlink()
    assert Leaving(settings=settings, store=store, owed=tuple).take_away() == ""
    # With the last minion of the host.
    assert not (tmp_path / "a" / "minions").exists()
