"""
Real minions of real masters, in each set-up that somebody may have.

Each gets a job; one that is held; one whose return nobody takes; is killed, with both; misses one;
and starts again. What the extension cannot do in a set-up ends as with plain Salt, which is one of
the set-ups, and ``safeupdate.check`` says so.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import yaml

from devtools import as_packaged
from saltext_safeupdate import hooks
from saltext_safeupdate.admin.setup.stand_ins import StandIns
from saltext_safeupdate.core.generations.generation import Report
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.host import locks, processes
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record.facts import PENDING_KEY
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.supervisor import probe
from saltext_safeupdate.core.supervisor.verdict import Verdict
from saltext_safeupdate.minion.intake import TOGETHER
from saltext_safeupdate.this_host import Host
from tests.support.real_master import RealMaster
from tests.support.real_minion import SHELL, RealMinion, humble, mounted
from tests.support.removable import Removable
from tests.support.waiting import wait_for
from tests.support.watched import Way, judged, supervised

NOBODY = 65534
AS_NOBODY = tuple(as_packaged.as_user([]))
# Masters by name, each with a minion's zone: as far from UTC as there is.
ZONES = {"UTC": "UTC", "west": "WEST+12", "east": "EAST-14"}
# More than every time-out of a minion here.
STEP = 600
DAY = 86400
STEPPED = """
import datetime, time
_of_the_day = time.time
_step = lambda: int(open({file!r}).read() or 0)
time.time = lambda: _of_the_day() + _step()
time.time_ns = lambda: int(time.time() * 10**9)
class _Stepped(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(time.time(), tz)
    @classmethod
    def utcnow(cls):
        return cls.now(datetime.timezone.utc).replace(tzinfo=None)
datetime.datetime = _Stepped
"""
# Another Salt: it finds the function where its own code looks for it, and we do not.
MOVED = """
import builtins, importlib
_owner = importlib.import_module({module!r})
for _name in {names!r}: _owner = getattr(_owner, _name)
_function = vars(_owner)[{function!r}]
delattr(_owner, {function!r})
_base = getattr(_owner, "__bases__", (object,))[0]
if _base is object:
    _plain = getattr(_function, "__func__", _function)
    def _elsewhere(*given):
        if given[-1] != {function!r}: raise AttributeError(given[-1])
        return _function.__get__(given[0], _owner) if len(given) > 1 else _plain
    _owner.__getattr__ = _elsewhere
    if not {names!r}: setattr(builtins, {function!r}, _plain)
else:
    setattr(_base, {function!r}, _function)
"""


@dataclass(frozen=True)
class SetUp:
    """
    One set-up, and what the extension can do there.

    *make* changes a minion before its first start. *holds* tells whether jobs can be held,
    *keeps* whether they and their returns are kept, *codes* has what ``safeupdate.check`` finds
    besides what it finds in every set-up here.
    """

    options: Mapping = field(default_factory=dict)
    master: str = "UTC"
    make: Callable = lambda minion: None
    holds: bool = True
    keeps: bool = True
    codes: frozenset = frozenset()
    starts: int = 2
    step: int = 0


def _closed(name):
    """Have a directory of the settings be in one of somebody else."""

    def make(minion):
        closed = minion.path / "closed"
        closed.mkdir(mode=0o700)
        shutil.chown(closed, NOBODY, NOBODY)
        minion.config["safeupdate"][name] = str(closed / name)
        minion.prepare = humble

    return make


def _full(name):
    """Have a directory of the settings be on a file system that takes no file."""

    def make(minion):
        full = minion.path / "full"
        full.mkdir()
        minion.config["safeupdate"][name] = str(full / name)
        minion.prepare = mounted(full, "nr_inodes=1")

    return make


def _no_systemd(minion):
    minion.prepare = mounted("/run", "size=1m")


def _not_root(minion):
    minion.config["user"] = "nobody"
    minion.wrapper = AS_NOBODY
    shutil.chown(minion.path, NOBODY, NOBODY)


def _not_root_in_roots_directories(minion):
    _not_root(minion)
    closed = minion.path / "closed"
    closed.mkdir(mode=0o700)
    for name in ("state_dir", "run_dir"):
        minion.config["safeupdate"][name] = str(closed / name)


def _stepped(minion):
    minion.prelude = STEPPED.format(file=str(minion.path / "step"))
    minion.step(0)


def _moved(place):
    def make(minion):
        row = ROWS[place]
        module = getattr(row.owner, "__module__", row.owner.__name__)
        names = [row.owner.__name__] if hasattr(row.owner, "__module__") else []
        minion.prelude = MOVED.format(module=module, names=names, function=row.name)

    return make


def _zone(name):
    def make(minion):
        minion.environment["TZ"] = ZONES[name]

    return make


def _unknown(place):
    """Return the set-up with a Salt that lacks this function."""
    return SetUp(make=_moved(place), holds=False, keeps=False, codes=frozenset({"hooks"}))


FAILOVER = {"master_type": "failover", "master_alive_interval": 3600}
ROWS = {row.place: row for row in hooks._table(Host({"safeupdate": {}}))}
NOT_HERE = frozenset({"executor", "engine", "hooks"})
SET_UPS = {
    "as it is": SetUp(starts=3),
    "plain Salt": SetUp(
        {"module_executors": ["direct_call"], "engines": []},
        holds=False,
        keeps=False,
        codes=NOT_HERE,
    ),
    "far west": SetUp(master="west", make=_zone("west")),
    "far east, unique_jid": SetUp(master="east", make=_zone("east")),
    "host and port": SetUp({"master": "{host}:{port}", "master_port": 4506}),
    "failover, the first": SetUp({"master": ["{host}:{port}", "{host}:1"], **FAILOVER}),
    "failover, the second": SetUp({"master": ["{host}:1", "{host}:{port}"], **FAILOVER}),
    "not root": SetUp(make=_not_root),
    "not root, in root's directories": SetUp(
        make=_not_root_in_roots_directories,
        holds=False,
        keeps=False,
        codes=frozenset({"locks", "database"}),
    ),
    "run directory not writable": SetUp(
        make=_closed("run_dir"), holds=False, codes=frozenset({"locks"})
    ),
    "state directory not writable": SetUp(
        make=_closed("state_dir"), keeps=False, codes=frozenset({"database"})
    ),
    "run directory full": SetUp(make=_full("run_dir"), holds=False, codes=frozenset({"locks"})),
    "state directory full": SetUp(
        make=_full("state_dir"), keeps=False, codes=frozenset({"database"})
    ),
    "no systemd": SetUp(make=_no_systemd),
    "threads": SetUp({"multiprocessing": False}),
    "clock forward": SetUp(make=_stepped, step=STEP),
    "clock back": SetUp(make=_stepped, step=-STEP),
    "unknown Salt": _unknown("salt.minion.Minion._invoke_execution"),
}


class Minion(RealMinion):
    """A minion whose clock can be set, and whose longest job ends when it is told."""

    def __init__(self, path, set_up, master, **options):
        at = {"host": "127.0.0.1", "port": master.config["ret_port"]}
        super().__init__(
            path,
            **{
                "master": at["host"],
                "master_port": at["port"],
                "publish_port": master.config["publish_port"],
                # What waits for a master that says nothing.
                "return_retry_timer": 1,
                "return_retry_timer_max": 1,
                "return_retry_tries": 1,
                "request_channel_timeout": 3,
                "auth_timeout": 3,
                "acceptance_wait_time": 1,
                "grains": {"where": "here"},
                **{name: _filled(value, at) for name, value in set_up.options.items()},
                **options,
            },
        )
        self._clock = 0
        self.go = self.etc / "go"
        set_up.make(self)

    def start(self, **options):
        # What is made for it belongs to its user.
        owner = self.path.stat()
        if owner.st_uid:
            for each in (self.etc, *(self.path / "root").rglob("*")):
                shutil.chown(each, owner.st_uid, owner.st_gid)
        super().start(**options)

    def step(self, seconds):
        """
        Set its clock further by so much.

        One that runs has looked into its queue: from then on it goes by a clock that nobody sets.
        """
        if seconds and self._process:
            wait_for(self._has_looked, "a look into its queue")
        self._clock += seconds
        (self.path / "step").write_text(str(self._clock))

    def _has_looked(self):
        """Tell whether this process of it has noted its masters, which it does just then."""
        serving = Generations(Store(self.settings.database)).serving()
        return serving is not None and bool(serving.masters) and processes.alive(serving.process)

    def waiting(self):
        wait = f"while [ ! -e {self.go} ]; do sleep 0.1; done"
        return f"{self.noting('begun')}; {wait}; {self.noting('waited')}"

    def jobs(self):
        """Return what says that jobs run."""
        proc = os.path.join(self.opts["cachedir"], "proc")
        return os.listdir(proc) if os.path.isdir(proc) else []


def _filled(value, at):
    if isinstance(value, list):
        return [_filled(each, at) for each in value]
    return value.format(**at) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def masters(tmp_path_factory):
    """Return masters by name; each starts when it is first wanted. One keeps no grains."""
    made = {}
    east = {"unique_jid": True, "minion_data_cache": False}

    def master(name):
        if name not in made:
            path = tmp_path_factory.mktemp("a")
            more = east if name == "east" else {}
            made[name] = RealMaster(path, zone=ZONES[name], **more)
        return made[name]

    yield master
    for each in made.values():
        each.close()


@pytest.fixture
def begin():
    """Make minions; all end with the test."""
    made = []
    # Directories of pytest are closed to others.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        os.chmod(place, 0o755)

        def minion(set_up, master, *, of=None, **options):
            path = of.path if of else Path(place, "m")
            path.mkdir(exist_ok=True)
            options = {"id": Path(place).name, **options}
            made.append(Minion(path, set_up, master, **options))
            return made[-1]

        yield minion
        for each in made:
            each.kill()


pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
# In every run, others have what is in them: a switch of masters, a clock, a directory, a user.
RARE = (
    *("failover, the first", "not root, in root's directories", "host and port", "far west"),
    *("run directory not writable", "state directory full", "clock forward", *ROWS),
)
CASES = [
    pytest.param(each, id=name, marks=[pytest.mark.soak] if name in RARE else [])
    for name, each in [*SET_UPS.items(), *((place, _unknown(place)) for place in sorted(ROWS))]
]


@pytest.mark.parametrize("set_up", CASES)
def test_jobs_and_returns_are_kept_where_they_can_be(set_up, masters, begin):
    master = masters(set_up.master)
    minion = begin(set_up, master)
    if set_up.keeps:
        _aged(minion)
    minion.start()
    try:
        _lives(set_up, master, minion)
    except BaseException:
        print(minion.log())
        raise


def _aged(minion):
    """Have its ledger be a day old: it says nothing of jobs from the time around its beginning."""
    ledger = Ledger(
        minion.settings.database,
        clock=lambda: time.time() - DAY,
        uptime=lambda: processes.since_boot() - DAY,
    )
    ledger.record_from_now()


def _lives(set_up, master, minion):
    ledger = Ledger(minion.settings.database)
    master.wait_minion(minion)
    minion.wait_for("startup", 1)
    assert master.call(minion, "cmd.run", minion.noting("job"), *SHELL) == ""
    found = {each["code"] for each in master.call(minion, "safeupdate.check")}
    assert found >= set_up.codes
    assert found.isdisjoint({"locks", "database", "hooks", "engine", "executor"} - set_up.codes)

    minion.step(set_up.step)
    waited = master.publish(minion, "cmd.run", minion.waiting(), *SHELL)
    minion.wait_for("begun", 1)
    drain = locks.acquire(minion.settings.run_dir, "drain", "") if set_up.holds else None
    held = master.publish(minion, "cmd.run", minion.noting("held"), *SHELL)
    if drain:
        wait_for(lambda: held in minion.queued(), "a held job")
    else:
        wait_for(lambda: master.returned(minion, held), "the return of a job that was not held")

    minion.step(set_up.step)
    with master.silent():
        minion.go.touch()
        minion.wait_for("waited", 1)
        if set_up.keeps:
            wait_for(ledger.undelivered, "the return to be kept")
        else:
            wait_for(lambda: waited not in minion.jobs(), "the job to end")
        minion.kill()
    minion.step(set_up.step)
    # Nobody has restarted it: it was away.
    missed = master.publish(minion, "cmd.run", minion.noting("missed"), *SHELL)
    minion.start()
    master.wait_minion(minion)

    minion.step(set_up.step)
    if drain:
        assert minion.notes("held") == 0
        drain.close()
    minion.wait_for("held", 1)
    wait_for(lambda: master.returned(minion, held), "the return of a job that was held")
    if set_up.keeps:
        wait_for(lambda: master.returned(minion, waited), "a return")
        wait_for(lambda: ledger.open() == [], "the end of all")
        report = master.redeliver(minion)
        assert minion.id in report["away"][missed], report
    minion.wait_for("startup", 2)
    if set_up.starts > 2:
        minion.kill()
        minion.start()
        minion.wait_for("startup", 3)
        master.wait_minion(minion)
        wait_for(lambda: ledger.open() == [], "the end of all")
    counts = [minion.notes(word) for word in ("job", "begun", "waited", "held")]
    assert counts == [1, 1, 1, 1]
    assert minion.notes("missed") == 0


def test_held_jobs_begin_although_the_clock_was_set_back(masters, begin):
    """There are more of them than begin in one pass of the queue."""
    set_up = SetUp(make=_stepped)
    master = masters(set_up.master)
    minion = begin(set_up, master)
    minion.start(startup_states="")
    master.wait_minion(minion)
    seen = 0
    for count, step in ((2 * TOGETHER + 1, -STEP), (1, -STEP)):
        with closing(locks.acquire(minion.settings.run_dir, "drain", "")):
            held = [
                master.publish(minion, "cmd.run", minion.noting("held"), *SHELL)
                for _ in range(count)
            ]
            wait_for(lambda held=held: minion.queued() >= set(held), "held jobs")
            minion.step(step)
        seen += count
        minion.wait_for("held", seen)
        for jid in held:
            wait_for(lambda jid=jid: master.returned(minion, jid), "a return")


def test_jobs_and_returns_are_kept_after_a_switch_of_masters(tmp_path_factory, begin):
    first = RealMaster(tmp_path_factory.mktemp("a"))
    # Salt's own look at the connection knows one port of all masters.
    ports = {name: first.config[name] for name in ("publish_port", "ret_port")}
    path = tmp_path_factory.mktemp("a")
    second = RealMaster(path, like=first, interface="127.0.0.2", **ports)
    both = [f"{master.config['interface']}:{ports['ret_port']}" for master in (first, second)]
    # How often it looks whether its master is there.
    options = {"master": both, "master_type": "failover", "master_alive_interval": 5}
    minion = begin(SetUp(options), first)
    _aged(minion)
    try:
        # In its first minute, one that has just made its keys may not see in Salt 3007 that this
        # master is gone: it keeps an AsyncAuth of the time before there were any.
        minion.start(startup_states="")
        first.wait_minion(minion)
        minion.kill()
        minion.start()
        first.wait_minion(minion)
        # Their SLS comes from it.
        minion.wait_for("startup", 1)
        first.close()
        _lives(SetUp(), second, minion)
    except BaseException:
        print(minion.log())
        raise
    finally:
        first.close()
        second.close()


# What makes a minion that is well look ill to a watch. A job takes all of its processes meanwhile.
BLACKOUT = {"grains": {"minion_blackout": True, "minion_blackout_whitelist": ["cmd.run"]}}
LISTED = {"disable_modules": ["test", "event"]}
FULL = {"process_count_max": 1}
LATE = {"random_startup_delay": 3}
# Seconds. Longer than a watch that does not know of it, with the longest that may be drawn.
DELAY = 20
LONGEST_DELAY = f"""
import random
_drawn = random.randint
random.randint = lambda low, high: high if high == {DELAY} else _drawn(low, high)
"""
DEPENDENT = """
import sys
from saltext_safeupdate.core.generations import code
code._INTERVAL = 0.2
sys.path.insert(0, {site!r})
import safeupdate_dependency
"""
LOOKS_ILL = {
    "all of it": {**BLACKOUT, **LISTED, **FULL, **LATE},
    "a blackout": BLACKOUT,
    "modules that are disabled": LISTED,
    "modules that are not listed": {"whitelist_modules": ["cmdmod", "config", "saltutil"]},
    "as many jobs as it may have": FULL,
    "a second master that is dead": {"master": ["{host}:{port}", "{host}:1"]},
    "nothing is returned": {"pub_ret": False},
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "all of it" else pytest.mark.soak)
        for name in LOOKS_ILL
    ],
)
def test_a_minion_that_is_well_proves_it(name, masters, begin):
    master = masters("UTC")
    minion = begin(SetUp(LOOKS_ILL[name]), master)
    minion.start(startup_states="")
    with supervised(minion, timeout=60) as context:
        if LOOKS_ILL[name].get("process_count_max"):
            master.wait_minion(minion)
            # It does not do what it is asked, so that does not tell that it listens.
            wait_for(lambda: "ready to receive requests" in minion.log(), "it listens")
            waited = master.publish(minion, "cmd.run", minion.waiting(), *SHELL)
            minion.wait_for("begun", 1)
            assert judged(context, heard=True).verdict is Verdict.WELL, minion.log()
            minion.go.touch()
            wait_for(lambda: master.returned(minion, waited), "the return of the job before it")
        else:
            assert judged(context, heard=True).verdict is Verdict.WELL, minion.log()


def test_a_master_that_is_away_or_cannot_store_is_no_fault_of_the_minion(masters, begin):
    master = masters("UTC")
    way = Way(master.config["ret_port"])
    minion = begin(SetUp({"master_port": way.port}), master)
    minion.start(startup_states="")
    with supervised(minion, timeout=60) as context:
        quick = replace(context, settings=replace(context.settings, watch_timeout=3.0))
        assert judged(context, heard=True).verdict is Verdict.WELL, minion.log()
        way.cut()
        assert not probe.reaches_master(quick, 1), "so nothing would be expected of the next one"
        verdict, reason, _ = judged(quick, heard=True)
        assert verdict is Verdict.UNPROVEN, reason
        assert "this host does not reach its master" in reason
        # It was away before the update as well.
        verdict, reason, _ = judged(quick, heard=None)
        assert verdict is Verdict.UNPROVEN, reason
        way.mend()
        assert judged(context, heard=None).verdict is Verdict.WELL, minion.log()
        # The first one only takes connections, the second one only greets.
        for stands_still in (master.silent, master.jammed):
            with stands_still():
                verdict, reason, _ = judged(quick, heard=True)
                assert verdict is Verdict.UNPROVEN, reason
                assert "this host does not reach its master" in reason
            assert judged(context, heard=True).verdict is Verdict.WELL, minion.log()
        with master.unable_to_store():
            assert judged(context, heard=True).verdict is Verdict.WELL, minion.log()
    way.cut()


def test_code_that_somebody_replaces_below_a_minion_is_told(masters, begin):
    """The engine looks at what the main process had loaded before it took any job."""
    master = masters("UTC")
    minion = begin(SetUp(), master)
    site = minion.path / "site"
    site.mkdir()
    (site / "safeupdate_dependency.py").write_text("ITS = 1\n")
    minion.prelude = DEPENDENT.format(site=str(site))
    minion.start(startup_states="")
    master.wait_minion(minion)
    store = Store(minion.settings.database)
    wait_for(lambda: store.exists() and Generations(store).serving(), "the engine")
    assert Generations(store).serving().changed is None
    (site / "new").write_text("ITS = 2\n")
    os.replace(site / "new", site / "safeupdate_dependency.py")
    wait_for(lambda: Generations(store).serving().changed, "what was replaced")
    assert Generations(store).serving().changed == str(site / "safeupdate_dependency.py")
    wait_for(lambda: "replaced on the disk" in minion.log(), "the line in the log")
    assert master.call(minion, "cmd.run", minion.noting("works"), *SHELL) == ""
    assert minion.notes("works") == 1


def test_a_key_that_waits_to_be_accepted_is_no_fault_of_the_minion(tmp_path_factory, begin):
    """As after a new ID, a new key, or a key that somebody has deleted on the master."""
    master = RealMaster(tmp_path_factory.mktemp("a"), auto_accept=False)
    keys = Path(master.opts["pki_dir"])
    with closing(master):
        minion = begin(SetUp({"acceptance_wait_time": 1}), master)
        minion.start(startup_states="")
        with supervised(minion, timeout=60) as context:
            verdict, reason, _ = judged(context, heard=True)
            assert verdict is Verdict.UNPROVEN, reason
            assert f"'salt-key -a {minion.id}'" in reason
            (keys / "minions_pre" / minion.id).rename(keys / "minions" / minion.id)
            wait_for(lambda: context.store.fact(PENDING_KEY) is None, "its key to be accepted")
            assert judged(context, heard=True).verdict is Verdict.WELL, minion.log()


@pytest.mark.soak
def test_the_delay_of_a_start_is_added_to_the_time_of_the_watch(masters, begin):
    minion = begin(SetUp({"random_startup_delay": DELAY}), masters("UTC"))
    minion.prelude = LONGEST_DELAY
    # As the minion before it has left it.
    before = Generations(Store(minion.settings.database))
    before.reports("1:1:1", Report(at=1.0, startup_delay=DELAY))
    minion.start(startup_states="")
    with supervised(minion, timeout=DELAY * 0.75) as context:
        assert judged(context, heard=True).verdict is Verdict.WELL, minion.log()


@pytest.mark.soak
def test_a_startup_state_that_takes_long_is_no_fault_of_the_minion(masters, begin):
    """Nor is a health check that has to wait for it."""
    master = masters("UTC")
    minion = begin(SetUp(), master)
    sls = Path(master.config["file_roots"]["base"][0], "waits.sls")
    sls.write_text(yaml.safe_dump({"waits": {"cmd.run": [{"name": minion.waiting()}]}}))
    minion.start(sls_list=["waits"])
    with supervised(minion, timeout=60) as context:
        minion.wait_for("begun", 1)
        assert judged(context, heard=True).verdict is Verdict.WELL, minion.log()
        checking = replace(context, settings=replace(context.settings, health_check=("start",)))
        quick = replace(checking, settings=replace(checking.settings, watch_timeout=10.0))
        verdict, reason, _ = judged(quick, heard=True)
        assert verdict is Verdict.UNPROVEN, reason
        assert "because other jobs came first" in reason
        assert minion.notes("startup") == 0
        minion.go.touch()
        minion.wait_for("startup", 1)
        assert judged(checking, heard=True).verdict is Verdict.WELL, minion.log()
    assert [minion.notes(word) for word in ("begun", "waited", "startup")] == [1, 1, 2]


@pytest.mark.soak
def test_a_minion_that_starts_without_the_package_works_and_gets_its_engine(masters, begin):
    master = masters("UTC")
    minion = begin(SetUp(), master, safeupdate={"extension_restart": "manual"})
    stand_ins = StandIns(str(minion.etc / "safeupdate.conf"), str(minion.etc / "minion"))
    stand_ins.write()
    for option in ("executor_dirs", "engines_dirs"):
        minion.config[option] = [stand_ins.place(option)]
    package, store = Removable(minion.path / "site"), Store(minion.settings.database)
    minion.prelude = package.prelude
    package.remove()
    # The stand-in looks that often; the engine itself takes no options.
    minion.start(startup_states="", engines=[{"safeupdate": {"interval": 0.2}}])
    master.wait_minion(minion)
    assert master.call(minion, "cmd.run", minion.noting("gone"), *SHELL) == ""
    assert "The minion works as with plain Salt" in minion.log()
    assert not store.exists()
    package.put_back()
    wait_for(lambda: "was started without hooks" in minion.log(), "its engine")
    assert Generations(store).report().hooked is None
    assert master.call(minion, "cmd.run", minion.noting("again"), *SHELL) == ""
    minion.kill()
    minion.start(startup_states="")
    wait_for(lambda: Generations(store).report().hooked, "the hooks")
    master.wait_minion(minion)
    jid = master.publish(minion, "cmd.run", minion.noting("recorded"), *SHELL)
    wait_for(lambda: master.returned(minion, jid), "the return of a job that is recorded")
    assert Ledger(minion.settings.database).outcome(jid) is not None
    assert [minion.notes(word) for word in ("gone", "again", "recorded")] == [1, 1, 1]


def test_two_minions_of_one_host_have_each_its_own_jobs(masters, begin):
    """They have one root directory and what else belongs to a host; one holds its jobs."""
    master, set_up = masters("UTC"), SetUp()
    one = begin(set_up, master)
    two = begin(set_up, master, of=one, id="neighbour", etc="etc2", **_apart(one.path))
    both = (one, two)
    for each in both:
        _aged(each)
        each.start()
    for each in both:
        master.wait_minion(each)
        each.wait_for("startup", 1)
    waited = {each: master.publish(each, "cmd.run", each.waiting(), *SHELL) for each in both}
    for each in both:
        each.wait_for("begun", 1)
    drain = locks.acquire(one.settings.run_dir, "drain", "")
    held = {each: master.publish(each, "cmd.run", each.noting("held"), *SHELL) for each in both}
    wait_for(lambda: held[one] in one.queued(), "a held job of the one")
    wait_for(lambda: master.returned(two, held[two]), "the job of the other")
    with master.silent():
        for each in both:
            each.go.touch()
        for each in both:
            ledger = Ledger(each.settings.database)
            wait_for(ledger.undelivered, "the return to be kept")
            assert {job.jid for job in ledger.undelivered()} == {waited[each]}
        for each in both:
            each.kill()
    for each in both:
        each.start()
        master.wait_minion(each)
    assert (one.notes("held"), two.notes("held")) == (0, 1)
    drain.close()
    for each in both:
        each.wait_for("held", 1)
        for jid in (waited[each], held[each]):
            wait_for(lambda each=each, jid=jid: master.returned(each, jid), "a return")
        wait_for(lambda each=each: Ledger(each.settings.database).open() == [], "the end of all")
        each.wait_for("startup", 2)
        assert [each.notes(word) for word in ("begun", "waited", "held")] == [1, 1, 1]


def _apart(path):
    """Return the options that two minions of one host cannot have in common, for the second."""
    root = path / "root"
    return {
        "pidfile": str(root / "run2.pid"),
        "pki_dir": str(root / "etc2/pki"),
        "cachedir": str(root / "cache2"),
        "sock_dir": str(path / "s2"),
        "log_file": str(root / "log2"),
        "extension_modules": str(root / "ext2"),
    }
