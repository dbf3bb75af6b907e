"""The engine of a real minion rests while there is nothing to do, and nothing is lost by it."""

import contextlib
import os
import signal
import tempfile
from pathlib import Path

import pytest

from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import engine_at_rest, locks, processes
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record.store import Store
from tests.support.real_master import RealMaster
from tests.support.real_minion import SHELL, RealMinion
from tests.support.removable import Removable
from tests.support.waiting import wait_for

# A minion that prepares to be handed over, and whose engine does not wait for a minute.
SOON = """
from saltext_safeupdate import this_host
from saltext_safeupdate.core.generations import code
from saltext_safeupdate.core.jobs import guard_file
this_host._tree = lambda: ({site!r},)
guard_file.hands_over = lambda settings: True
code._INTERVAL = 1.0
from saltext_safeupdate.core.jobs import ticker
ticker._TIDY_INTERVAL = 1.0
from saltext_safeupdate.minion import rest
rest._QUIET = 2.0
"""


class Resting(RealMinion):
    def __init__(self, path, **options):
        super().__init__(path, **options)
        self.package = Removable(self.path / "site")
        self.prelude = self.package.prelude + SOON.format(site=str(self.package.site))

    @property
    def main(self):
        """The PID of its main process."""
        generations = Generations(Store(self.settings.database))
        return processes.pid(generations.serving().process)

    def engines(self):
        """Return the PIDs of its engines."""
        found = []
        for pid in processes.descendants(self.pid):
            # It may end meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if b"Engine" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def rests(self):
        run_dir = self.settings.run_dir
        return (
            engine_at_rest.is_there(run_dir)
            and not locks.held(run_dir, "engine")
            and not self.engines()
        )

    def wait_rest(self):
        try:
            wait_for(self.rests, "that its engine rests")
        except BaseException:
            print(self.log())
            raise

    def wait_engine(self):
        wait_for(lambda: locks.held(self.settings.run_dir, "engine"), "its engine")


@pytest.fixture
def place():
    # The path of a socket has to be short.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as path:
        yield Path(path)


@pytest.fixture
def masters(place):
    made = []

    def make(**options):
        path = place / f"m{len(made)}"
        path.mkdir()
        made.append(RealMaster(path, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def begin(place):
    made = []

    def start(*of, **options):
        names = {"master_port": "ret_port", "publish_port": "publish_port"}
        ports = {name: of[0].config[theirs] for name, theirs in names.items()}
        path = place / str(len(made))
        path.mkdir()
        made.append(
            Resting(
                path,
                id=f"{place.name}-{len(made)}",
                startup_states="",
                **{"master": "127.0.0.1", **ports, **options},
            )
        )
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        # A program that it has started may be in a group of its own.
        started = processes.descendants(each.pid)
        each.kill()
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_it_rests_and_does_its_work_when_there_is_some(masters, begin):
    master = masters()
    minion = begin(master)
    master.wait_minion(minion)
    minion.wait_rest()
    assert "engine" not in str(master.call(minion, "safeupdate.check"))
    # A job is killed.
    minion.wait_rest()
    jid = master.publish(minion, "cmd.run", f"{minion.noting('job')}; sleep 600", *SHELL)
    minion.wait_for("job", 1)
    (job,) = (each for each in Ledger(minion.settings.database).open() if each.jid == jid)
    os.kill(processes.pid(job.runner), signal.SIGKILL)
    wait_for(lambda: master.returned(minion, jid), "the report of the engine")
    minion.wait_rest()
    # A return finds no master.
    gate = minion.path / "gate"
    jid = master.publish(
        minion, "cmd.run", f"until test -e {gate}; do sleep 0.1; done; echo x", *SHELL
    )
    minion.wait_engine()
    with master.silent():
        gate.touch()
        ledger = Ledger(minion.settings.database)
        wait_for(lambda: [each for each in ledger.undelivered() if each.jid == jid], "no answer")
    wait_for(lambda: master.returned(minion, jid), "the return by the engine")
    minion.wait_rest()
    assert "an error of this extension" not in minion.log()


def test_code_that_is_replaced_meanwhile_is_noticed(masters, begin):
    master = masters()
    minion = begin(master)
    master.wait_minion(minion)
    minion.wait_rest()
    store, file = Store(minion.settings.database), minion.package.home / "hooks.py"
    (minion.package.home / "new").write_text(f"{file.read_text()}\n")
    os.replace(minion.package.home / "new", file)
    (minion.package.home / "__init__.py").write_text('__version__ = "99.0"\n')
    wait_for(lambda: "version 99.0 of the extension is installed" in minion.log(), "its engine")
    # A copy of the old version is what it was loaded from.
    assert "an error of this extension" not in minion.log()
    assert Generations(store).serving() is not None


def test_with_two_masters_none_of_the_engines_stays_and_each_job_is_looked_after(masters, begin):
    first = masters()
    at = {"interface": "127.0.0.2", "publish_port": first.config["publish_port"]}
    second = masters(like=first, ret_port=first.config["ret_port"], **at)
    minion = begin(first, master=["127.0.0.1", "127.0.0.2"])
    for each in (first, second):
        each.wait_minion(minion)
    minion.wait_rest()
    for number, each in enumerate((first, second)):
        word = f"job{number}"
        jid = each.publish(minion, "cmd.run", f"{minion.noting(word)}; sleep 600", *SHELL)
        minion.wait_for(word, 1)
        (job,) = (one for one in Ledger(minion.settings.database).open() if one.jid == jid)
        os.kill(processes.pid(job.runner), signal.SIGKILL)
        wait_for(lambda each=each, jid=jid: each.returned(minion, jid), "the report of an engine")
        minion.wait_rest()
    assert "an error of this extension" not in minion.log()
