"""What becomes of a minion whose code was replaced on the disk."""

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.generations.generation import Report
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.minion import changed
from tests.support.this_host import SimulatedHost, opts, record

FILES = ("/usr/lib/a.py", "/usr/lib/b.py", "/usr/lib/c.py", "/usr/lib/d.py", "/usr/lib/e.py")
NAMED = "/usr/lib/a.py, /usr/lib/b.py, /usr/lib/c.py and 2 more"


class Code:
    def __init__(self):
        self.files, self.settled = FILES, 0

    def changed(self):
        return self.files

    def settle(self):
        self.settled += 1


class Manager:
    at_work = False

    def busy(self):
        return self.at_work


class World:
    def __init__(self, tmp_path, **settings):
        given = opts(tmp_path)
        given["safeupdate"] |= settings
        self.host, self.code, self.now, self.calls = SimulatedHost(given), Code(), 1e9, []
        self.host.manager = Manager()
        self.generations = Generations(self.host.store)
        self.generations.reports("me", Report(at=self.now))

    def run(self, argv, *, timeout):
        self.calls.append(argv[-2:])

    def look(self):
        changed.look(self.code, self.host, "me", self.host.opts, self.run, lambda: self.now)

    @property
    def told(self):
        return self.generations.of("me").changed


@pytest.fixture
def world(tmp_path):
    return World(tmp_path, on_change="restart")


def test_it_is_told_and_the_minion_goes_on_by_default(tmp_path, caplog):
    world = World(tmp_path)
    world.look()
    assert (world.told, world.calls, world.code.settled) == (NAMED, [], 1)
    assert f"replaced on the disk: {NAMED}. It continues" in caplog.text


def test_nothing_is_told_of_nothing(world):
    world.code.files = ()
    world.look()
    assert (world.told, world.calls, world.code.settled) == (None, [], 0)


def test_it_restarts_if_it_is_to(world):
    world.look()
    assert world.calls == [(f"reason=its code was replaced on the disk: {NAMED}", "jitter=10")]
    assert (world.told, world.code.settled) == (NAMED, 1)


def test_something_that_replaces_files_all_the_time_restarts_it_once_an_hour(world, caplog):
    for later, times in ((0, 1), (1800, 1), (3601, 2)):
        world.now = 1e9 + later
        world.look()
        assert len(world.calls) == times
    assert "it has already restarted for this within the last hour" in caplog.text


def test_a_restart_that_cannot_be_asked_for_is_asked_for_again(world, monkeypatch):
    def refuse(argv, *, timeout):
        raise CommandError(argv, "exit status 1", stderr="No module named salt")

    with monkeypatch.context() as patch:
        patch.setattr(world, "run", refuse)
        with pytest.raises(CommandError):
            world.look()
    assert world.code.settled == 0
    world.look()
    assert len(world.calls) == 1


@pytest.mark.parametrize("phase", [Phase.REQUESTED, Phase.INSTALLING, Phase.WATCHING])
def test_an_update_of_ours_restarts_it_by_itself(world, phase):
    record(world.host, phase)
    world.look()
    assert (world.told, world.calls, world.code.settled) == (None, [], 0)


def test_while_packages_are_installed_it_waits(world):
    world.host.manager.at_work = True
    world.look()
    assert (world.told, world.calls, world.code.settled) == (None, [], 0)
    world.host.manager.at_work = False
    world.look()
    assert len(world.calls) == 1


def test_after_an_update_that_failed_somebody_has_to_look(world, caplog):
    record(world.host, Phase.FAILED, created=1e9 + 5)
    world.look()
    assert (world.told, world.calls) == (NAMED, [])
    assert "an update has failed" in caplog.text
    # The next minion is none that it has failed below.
    world.generations.reports("me", Report(at=1e9 + 10))
    world.look()
    assert len(world.calls) == 1


def test_the_package_may_be_gone_as_well(world, monkeypatch, caplog):
    def gone(self):
        raise ModuleNotFoundError("No module named 'saltext_safeupdate.core.packages.apt'")

    monkeypatch.setattr(SimulatedHost, "manager", property(gone, lambda self, value: None))
    world.look()
    assert len(world.calls) == 1
    assert "is missing" in caplog.text


@pytest.mark.parametrize(("count", "text"), [(1, "1"), (3, "1, 2, 3"), (4, "1, 2, 3 and 1 more")])
def test_some_are_named(count, text):
    assert changed.named([str(each + 1) for each in range(count)]) == text
