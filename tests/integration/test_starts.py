"""Real minions that start while their master is away, and what is theirs then."""

import os
import signal
import tempfile
from pathlib import Path

import pytest

from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs.ledger import Ledger
from tests.support.real_master import RealMaster
from tests.support.real_minion import SHELL, RealMinion
from tests.support.removable import Removable
from tests.support.waiting import wait_for

# Nobody listens there.
NOWHERE = {"master": "127.0.0.1", "master_port": 1, "publish_port": 2}
# What waits for a master that says nothing.
SOON = {
    "startup_states": "",
    "return_retry_timer": 1,
    "return_retry_timer_max": 1,
    "return_retry_tries": 1,
    "auth_timeout": 3,
    "acceptance_wait_time": 1,
}


@pytest.fixture
def begin():
    """Make minions; all end with the test."""
    made = []
    # The path of a socket has to be short.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:

        def minion(**options):
            path = Path(place, str(len(made)))
            path.mkdir()
            options = {**SOON, "id": f"{Path(place).name}-{path.name}", **options}
            made.append(RealMinion(path, **options))
            return made[-1]

        yield minion
        for each in made:
            each.kill()


def _engine_runs(minion):
    return locks.held(minion.settings.run_dir, "engine")


def _engine_dies(minion):
    (engine,) = (
        pid
        for pid in processes.descendants(minion.pid)
        if "Engine" in Path(f"/proc/{pid}/cmdline").read_text()
    )
    os.kill(engine, signal.SIGKILL)
    wait_for(lambda: not processes.start_time(engine), "the end of its engine")


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    made = RealMaster(tmp_path_factory.mktemp("a"))
    yield made
    made.close()


# A name that is not found until there is a file.
NAME = "late.test"
UNNAMED = f"""
import os, socket
_found = socket.getaddrinfo
def _getaddrinfo(host, *given, **more):
    if host == {NAME!r} and not os.path.exists({{file!r}}):
        raise socket.gaierror(socket.EAI_NONAME, host)
    return _found("127.0.0.1" if host == {NAME!r} else host, *given, **more)
socket.getaddrinfo = _getaddrinfo
"""


def _of(master):
    ports = {"master_port": "ret_port", "publish_port": "publish_port"}
    return {name: master.config[theirs] for name, theirs in ports.items()}


def test_a_minion_whose_masters_are_not_found_at_first_has_its_engine(master, begin):
    """With 'failover', Salt ends the engines then, and tries again without them."""
    minion = begin(**_of(master), master=[NAME], master_type="failover")
    named = minion.path / "named"
    minion.prelude = UNNAMED.format(file=str(named))
    minion.start()
    wait_for(lambda: "No master could be resolved" in minion.log(), "the first attempt")
    named.touch()
    master.wait_minion(minion)
    wait_for(lambda: _engine_runs(minion), "its engine")
    _engine_dies(minion)
    wait_for(lambda: _engine_runs(minion), "that Salt starts it again")


# Code of a minion that prepares to be handed over, which it loads as soon as it has a master.
LATE = """
import sys
sys.path.insert(0, {site!r})
from saltext_safeupdate import this_host
from saltext_safeupdate.core.jobs import guard_file
this_host._tree = lambda: ({site!r},)
guard_file.hands_over = lambda settings: True
import salt.minion
_init = salt.minion.Minion._post_master_init
def _post_master_init(minion, master):
    import safeupdate_late
    open({notes!r}, "a").write(safeupdate_late.IS + "\\n")
    return _init(minion, master)
salt.minion.Minion._post_master_init = _post_master_init
"""


def test_code_that_changes_while_a_minion_waits_for_its_master_is_not_mixed(master, begin):
    minion = begin(**_of(master), master="127.0.0.1")
    site = minion.path / "site"
    site.mkdir()
    (site / "safeupdate_late.py").write_text("IS = 'old'\n")
    minion.prelude = LATE.format(site=str(site), notes=str(minion.notes_file))
    with master.silent():
        minion.start()
        wait_for(lambda: _engine_runs(minion), "its engine, which is started after 5 seconds")
        (site / "new").write_text("IS = 'new'\n")
        os.replace(site / "new", site / "safeupdate_late.py")
    master.wait_minion(minion)
    assert (minion.notes("old"), minion.notes("new")) == (1, 0), minion.log()


def test_an_extension_that_is_replaced_while_a_minion_waits_for_its_master_is_not_mixed(
    master, begin
):
    """Also if the minion makes no copy of its code."""
    minion = begin(**_of(master), master="127.0.0.1")
    package = Removable(minion.path / "site")
    minion.prelude = package.prelude
    with master.silent():
        minion.start()
        wait_for(lambda: _engine_runs(minion), "its engine, which is started after 5 seconds")
        for part in (package.home / "minion").glob("*.py"):
            part.write_text("raise ImportError('another version')\n")
    master.wait_minion(minion)
    jid = master.publish(minion, "cmd.run", minion.noting("job"), *SHELL)
    wait_for(lambda: master.returned(minion, jid), "a return")
    assert Ledger(minion.settings.database).outcome(jid) is not None
    assert "an error of this extension" not in minion.log()


# An engine of somebody else.
SLOW = """
import time
def __virtual__():
    time.sleep(7)
    return False
"""


@pytest.mark.soak
def test_an_engine_that_is_late_is_started_again_when_it_dies(begin):
    """On a slow host, Salt would look whether there are engines before ours is started."""
    minion = begin(**NOWHERE, engines=["slow", {"safeupdate": {}}])
    minion.config["engines_dirs"] = [str(minion.path)]
    (minion.path / "slow.py").write_text(SLOW)
    minion.start()
    wait_for(lambda: _engine_runs(minion), "its engine")
    _engine_dies(minion)
    wait_for(lambda: _engine_runs(minion), "that Salt starts it again")


# A clock that is an hour behind as soon as there is a file.
SET_BACK = """
import os, time
_of_the_day = time.time
time.time = lambda: _of_the_day() - 3600 * os.path.exists({file!r})
"""


@pytest.mark.soak
def test_a_clock_that_is_set_back_does_not_keep_the_engine_from_starting(begin):
    """The loop of Salt 3006 goes by the time of day."""
    minion = begin(**NOWHERE)
    back = minion.path / "back"
    minion.prelude = SET_BACK.format(file=str(back))
    minion.start()
    wait_for(lambda: "Starting Engine(salt.loaded" in minion.log(), "that Salt starts engines")
    back.touch()
    wait_for(lambda: _engine_runs(minion), "its engine")


# Plain, and with a Salt that the hooks do not know.
UNKNOWN = "import salt.minion; del salt.minion.Minion._fire_master_minion_start\n"


# Without the process that looks after the main process.
ONE = "import sys; sys.argv.append('--disable-keepalive')\n"


@pytest.mark.parametrize(
    "prelude",
    ["", UNKNOWN, pytest.param(ONE, marks=pytest.mark.soak)],
    ids=["hooks", "no hooks", "one process"],
)
def test_a_minion_that_reaches_no_master_ends_when_it_is_told(prelude, begin):
    """Salt ends the engines of minions that have had a master, and waits for the end of all."""
    minion = begin(**NOWHERE)
    minion.prelude = prelude
    minion.start()
    wait_for(lambda: _engine_runs(minion), "its engine")
    os.kill(minion.pid, signal.SIGTERM)
    wait_for(minion.has_ended, "its end")
    assert not _engine_runs(minion)
