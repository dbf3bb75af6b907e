"""A master, its syndic and its API that run from the minion's packages: one update for all."""

import dataclasses
import pathlib

import pytest

from saltext_safeupdate.core.errors import CommandError
from saltext_safeupdate.core.generations import meeting, own_tree
from saltext_safeupdate.core.host import backup, locks, processes
from saltext_safeupdate.core.host.servers import Server
from saltext_safeupdate.core.record.parts import Code, Request, WayBack
from saltext_safeupdate.core.record.phase import Phase
from saltext_safeupdate.core.supervisor.initiator import Master
from tests.support.simulated import FakeServices, Killed

from ..conftest import NEW, OLD, Host
from .test_neighbours import Units

NAMES = ("salt-master", "salt-syndic", "salt-api")


class WithMaster(Host):
    """A host whose minion has its master beside it, with a syndic and an API."""

    def __init__(self, directory):
        super().__init__(directory)
        self.account = directory / "account"
        self.keys = directory / "pki" / "minions"
        self.keys.mkdir(parents=True)
        (self.keys / "web1").write_text("key")
        self.config = directory / "master"
        self.config.write_text("before")
        self.events = []
        self.listens = lambda: True
        self.beside = {name: FakeServices() for name in NAMES}
        for name, service in self.beside.items():
            service.calls = _Noted(self.events, name)
        self.services.calls = _Noted(self.events, "salt-minion")
        units = {name.replace("-", "_"): service for name, service in self.beside.items()}
        self.all = Units(salt_minion=self.services, **units)
        for name in ("spawn", "arm", "rest", "disarm", "watchdog"):
            setattr(self.all, name, getattr(self.services, name))
        self.servers = tuple(
            Server(unit=name, program=name, **(self.of_master() if name == NAMES[0] else {}))
            for name in NAMES
        )

    def of_master(self):
        return {"host": "127.0.0.1", "port": 4506, "greets": True, "keys": str(self.keys)}

    def with_engine(self):
        """Have an engine of the master that runs as the update begins; return its lock."""
        master = self.servers[0]
        self.servers = (
            Server(**{**vars(master), "engine": str(self.account)}),
            *self.servers[1:],
        )
        lock = locks.Lock(str(self.account), "engine")
        self.open.append(lock)
        assert lock.try_exclusive()
        return lock

    def record(self, phase, **changes):
        code = Code(own=tuple(sorted(OLD)), roots=(str(self.root),), servers=self.servers)
        paths = self.beside_the_minion().backup_paths
        back = WayBack(paths=paths, kept=paths)
        return super().record(phase, **{"code": code, "way_back": back, **changes})

    def context(self, taken, **kwargs):
        systems = dict.fromkeys(("services", "inhibitor", "watchdogs"), self.all)
        kwargs |= {**systems, "reaches": lambda addresses: self.listens()}
        return super().context(taken, **kwargs)

    def initiator(self, **kwargs):
        given = {"services": self.all, "inhibitor": self.all, "master": self.beside_the_minion}
        return super().initiator(**given, **kwargs)

    def beside_the_minion(self):
        # The first ones would count as the minion's own configuration.
        others = tuple(f"{self.keys.parent}/none{number}" for number in range(4))
        paths = (*others, str(self.config), str(self.keys.parent))
        return Master(servers=self.servers, backup_paths=paths)

    def dying(self, kill_at, when):
        store = super().dying(kill_at, when)
        for service in self.beside.values():
            service.alive = store.check
        return store

    def all_die(self):
        super().all_die()
        for service in self.beside.values():
            service.alive = lambda: None

    def master_dies(self, *, on_new=True):
        """Have the new master die as often as it starts."""
        self.beside["salt-master"].dies_while = lambda: self.packages.versions == NEW

    def up(self):
        return {name: service.active for name, service in self.beside.items()}

    def changes(self):
        """Return what was started, stopped and restarted, in its order."""
        verbs = ("restart", "start", "stop")
        return [f"{verb} {name}" for name, verb in self.events if verb in verbs]

    def assert_at_peace(self):
        super().assert_at_peace()
        assert not any(service.refuses for service in self.beside.values())


class _Noted(list):
    """The calls of one service, which are noted in the order of all as well."""

    def __init__(self, events, name):
        super().__init__()
        self.events, self.name = events, name

    def append(self, verb):
        super().append(verb)
        self.events.append((self.name, verb))


@pytest.fixture
def host(tmp_path):
    host = WithMaster(tmp_path)
    yield host
    host.all_die()


UP = dict.fromkeys(NAMES, "active")


def test_they_stop_before_packages_change_and_the_master_starts_first(host):
    host.ask()
    seen = []

    def look(files):
        seen.append(set(host.up().values()))
        seen.extend(service.refuses for service in (host.services, *host.beside.values()))

    host.packages.installs = look
    host.supervise()
    assert (host.last.phase, host.packages.versions) == (Phase.COMMITTED, NEW)
    assert seen == [{"inactive"}, True, True, True, True]
    assert host.changes() == [
        "stop salt-api",
        "stop salt-syndic",
        "stop salt-master",
        "start salt-master",
        "start salt-syndic",
        "start salt-api",
        "restart salt-minion",
    ]
    host.assert_at_peace()


def test_who_has_asked_is_answered_before_the_master_stops(host):
    """The job of the request may end when all is ready already."""
    host.ask()
    host.ledger.accept("7", jid="7", fun="safeupdate.update", master="m", call=b"", owner="")
    host.ledger.begin("7", "")
    record = host.last
    host.store.save(type(record)(**{**vars(record), "jid": "7"}))
    host.clock.after(4, lambda: host.ledger.finish("7", b"x", 0))
    host.clock.after(8, lambda: host.ledger.delivered("7"))
    stopped = []
    stop = host.beside["salt-api"].stop

    def noted(unit):
        stopped.append(host.clock.passed)
        stop(unit)

    host.beside["salt-api"].stop = noted
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert stopped[0] >= 8


def test_a_master_that_takes_no_answer_is_not_waited_for_long(host):
    host.ask()
    host.ledger.accept("7", jid="7", fun="safeupdate.update", master="m", call=b"", owner="")
    host.ledger.begin("7", "")
    host.ledger.finish("7", b"x", 0)
    record = host.last
    host.store.save(type(record)(**{**vars(record), "jid": "7"}))
    host.supervise()
    assert host.last.phase is Phase.COMMITTED


def test_the_minion_waits_for_a_master_that_listens(host):
    host.ask()
    up, asked = [], []

    def listens():
        up.append(host.changes()[-1])
        asked.append(True)
        return len(asked) > 5

    host.listens = listens
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert set(up[:6]) == {"start salt-master"}, "nobody else starts before it listens"


def test_a_new_master_has_as_long_as_a_new_minion(host):
    host.settings = dataclasses.replace(host.settings, restart_timeout=30.0, watch_timeout=300.0)
    host.ask()
    host.listens = lambda: host.clock.passed > 200
    host.supervise()
    assert host.last.phase is Phase.COMMITTED


def test_what_did_not_run_is_not_started(host):
    host.beside["salt-api"].stop("salt-api")
    host.events.clear()
    host.ask()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert host.up() == {**UP, "salt-api": "inactive"}
    assert not [change for change in host.changes() if "salt-api" in change]


@pytest.mark.parametrize("name", NAMES)
def test_if_one_does_not_come_up_all_go_back(host, name):
    host.ask()
    host.beside[name].dies_while = lambda: host.packages.versions == NEW
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert f"{name} " in host.last.reason
    assert f"journalctl -u {name}" in host.last.reason
    assert (host.packages.versions, host.up()) == (OLD, UP)
    assert host.services.active == "active"
    assert {row.version for row in host.store.quarantined()} == set(NEW.values())
    host.assert_at_peace()


@pytest.fixture
def beside(host, monkeypatch):
    """Have a minion that reads its own tree, so that its jobs run meanwhile."""
    alive = processes.alive
    monkeypatch.setattr(processes, "alive", lambda who: who.startswith("main:") or alive(who))
    monkeypatch.setattr(own_tree, "of", lambda roots, process: {str(host.root): "a copy"})
    monkeypatch.setattr(meeting, "can_be_asked", lambda run_dir, process: True)
    host.reported_with(hands_over=True, own_tree=True)
    return host.generations.serving().process


def test_a_minion_that_reads_its_own_tree_is_not_touched_if_they_go_back(host, beside):
    host.ask()
    host.master_dies()
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert host.last.progress.beside == (beside,)
    assert (host.packages.versions, host.up()) == (OLD, UP)
    assert [change for change in host.changes() if "salt-minion" in change] == []
    host.assert_at_peace()


@pytest.mark.parametrize("kill_at", range(1, 12))
def test_nor_if_a_supervisor_dies_on_that_way(host, beside, kill_at):
    host.ask()
    host.master_dies()
    host.kill_then_recover(kill_at, "after")
    assert host.last.phase is Phase.ROLLED_BACK
    assert (host.packages.versions, host.up()) == (OLD, UP)
    host.assert_at_peace()


def test_without_a_way_back_the_others_start_all_the_same(host):
    host.settings = dataclasses.replace(host.settings, rollback="optional")
    host.packages.secures = False
    host.ask()
    host.master_dies()
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "salt-master" in host.last.reason
    assert "no way back" in host.last.reason
    assert host.packages.versions == NEW
    assert (host.up()["salt-syndic"], host.up()["salt-api"]) == ("active", "active")
    changes = host.changes()
    assert changes.index("start salt-api") < changes.index("restart salt-minion")
    host.assert_at_peace()


def unstartable(host, name):
    """Have systemd refuse to start one of them, such as one that somebody has masked meanwhile."""

    def refused(unit):
        raise CommandError(("systemctl", "start", unit), f"Unit {unit} is masked.")

    host.beside[name].start = refused


@pytest.mark.parametrize("name", NAMES)
def test_one_that_cannot_be_started_keeps_nothing_else_down_on_the_way_back(host, name):
    host.ask()
    unstartable(host, name)
    host.services.dies_while = lambda: host.packages.versions == NEW
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert f"Unit {name} is masked." in host.last.reason
    assert host.packages.versions == OLD
    assert host.services.active == "active"
    assert host.up() == {**UP, name: "inactive"}
    host.assert_at_peace()


@pytest.mark.parametrize("name", NAMES)
def test_nor_if_nothing_was_changed(host, name):
    host.ask()
    unstartable(host, name)

    def fail(files):
        raise CommandError(("fake",), "made to fail")

    host.packages.installs = fail
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert host.packages.versions == OLD
    assert host.services.active == "active"
    assert host.up() == {**UP, name: "inactive"}
    host.assert_at_peace()


def test_a_master_that_takes_longer_to_stop_than_anybody_waits_is_started_again(host):
    """It ends by the time of its unit, after the update has been given up."""
    host.ask()
    master = host.beside["salt-master"]

    def stops(unit):
        master.active = "deactivating"
        raise CommandError(("systemctl", "stop", unit), "timed out")

    master.stop = stops
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "othing was changed" in host.last.reason
    assert (host.packages.versions, host.up()) == (OLD, UP)
    host.assert_at_peace()


def test_a_master_that_runs_and_does_not_listen_is_none(host):
    host.ask()
    host.listens = lambda: host.packages.versions == OLD
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert "127.0.0.1" in host.last.reason
    assert (host.packages.versions, host.up()) == (OLD, UP)


def test_its_engine_has_to_run_again(host):
    lock = host.with_engine()
    host.ask()

    def change(files):
        # The new one starts no engine.
        if host.last.phase is Phase.INSTALLING:
            lock.release()
        else:
            assert lock.try_exclusive()

    host.packages.installs = change
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert "safeupdate_redeliver" in host.last.reason
    assert host.packages.versions == OLD


def test_an_engine_that_runs_is_proof(host):
    host.with_engine()
    host.ask()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED


def linked(host):
    """Have the keys on another file system."""
    pki = host.keys.parent
    pki.rename(pki.with_name("elsewhere"))
    pki.symlink_to(pki.with_name("elsewhere"))


def with_list(host):
    """Have the list of keys that a master with 'key_cache' keeps among them."""
    (host.keys / ".key_cache").write_text("web1")


@pytest.mark.parametrize("have", [None, linked, with_list])
def test_a_master_without_any_of_its_keys_is_none(host, have):
    if have:
        have(host)
    host.ask()

    def lose(files):
        if host.last.phase is Phase.INSTALLING:
            (host.keys / "web1").unlink()

    host.packages.installs = lose
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert str(host.keys) in host.last.reason


@pytest.mark.parametrize("have", [None, linked])
def test_lost_keys_come_back_and_new_ones_stay(host, have):
    if have:
        have(host)
    host.ask()

    def change(files):
        if host.last.phase is Phase.INSTALLING:
            (host.keys / "web1").unlink()
            # Somebody accepts a key while packages change, and another one later.
            (host.keys / "web2").write_text("key")

    host.packages.installs = change

    def listens():
        if host.last.phase is not Phase.RESTARTING:
            return True
        (host.keys / "web3").write_text("key")
        return False

    host.listens = listens
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert sorted(path.name for path in host.keys.iterdir()) == ["web1", "web2", "web3"]


def loses_keys(host):
    """Have the new master lose its keys as it starts, and return that it listens."""

    def listens():
        if host.last.phase is Phase.RESTARTING:
            (host.keys / "web1").unlink(missing_ok=True)
        return True

    host.listens = listens


@pytest.mark.parametrize("have", [None, linked, with_list])
def test_keys_that_the_new_master_loses_come_back(host, have):
    """The files of the update are noted before: it is not somebody else who has done that."""
    if have:
        have(host)
    loses_keys(host)
    host.ask()
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert str(host.keys) in host.last.reason
    assert "web1" in [path.name for path in host.keys.iterdir()]


def test_keys_come_back_also_if_the_supervisor_dies_among_them(host, monkeypatch):
    (host.keys / "web2").write_text("key")

    def listens():
        if host.last.phase is Phase.RESTARTING:
            for path in host.keys.iterdir():
                path.unlink()
        return True

    host.listens = listens
    host.ask()
    put_in_place, seen = backup._put_in_place, []

    def dies(entry):
        put_in_place(entry)
        if entry.path.endswith("web1") and not seen:
            seen.append(entry.path)
            raise Killed

    monkeypatch.setattr(backup, "_put_in_place", dies)
    with pytest.raises(Killed):
        host.supervise()
    host.all_die()
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert sorted(path.name for path in host.keys.iterdir()) == ["web1", "web2"]


def test_a_key_that_somebody_deletes_meanwhile_does_not_come_back(host):
    (host.keys / "web2").write_text("key")

    def listens():
        if host.last.phase is not Phase.RESTARTING:
            return True
        (host.keys / "web2").unlink(missing_ok=True)
        return False

    host.listens = listens
    host.ask()
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert [path.name for path in host.keys.iterdir()] == ["web1"]


@pytest.mark.parametrize("have", [None, linked, with_list])
@pytest.mark.parametrize("then", ["deleted", "rejected"])
def test_a_key_that_somebody_takes_away_while_packages_change_does_not_come_back(host, have, then):
    """He would see a minion let in again that he has shut out."""
    (host.keys / "web2").write_text("key")
    if have:
        have(host)
    refused = host.keys.with_name("minions_rejected")
    refused.mkdir()

    def change(files):
        if host.last.phase is Phase.INSTALLING:
            if then == "rejected":
                (refused / "web2").write_text("key")
            (host.keys / "web2").unlink()

    host.packages.installs = change
    host.master_dies()
    host.ask()
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert [path.name for path in host.keys.iterdir() if path.name[0] != "."] == ["web1"]
    assert [path.name for path in refused.iterdir()] == ["web2"] * (then == "rejected")
    assert "Changed by others since, and left as they are" in host.last.reason
    assert "web2" in host.last.reason


@pytest.mark.parametrize("by", ["a request", "a job"])
def test_what_others_have_written_meanwhile_stays(host, by):
    """The configuration of a master, which somebody edits while its minion is watched."""

    def change(files=()):
        if host.last.phase is Phase.INSTALLING:
            host.packages.versions.update(NEW)

    def listens():
        if host.last.phase is not Phase.RESTARTING:
            return True
        host.config.write_text("edited")
        return False

    host.listens = listens
    if by == "a job":
        host.transaction().change(change, host.job())
        host.all_die()
    else:
        host.ask()
        host.packages.installs = change
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert host.config.read_text() == "edited"
    assert str(host.config) in host.last.reason


def test_if_the_minion_does_not_come_up_they_go_back_with_it(host):
    host.ask()
    host.services.dies_while = lambda: host.packages.versions == NEW
    running = []
    install = host.packages.install

    def back(files):
        if host.last.phase is Phase.ROLLING_BACK:
            running.append(set(host.up().values()))
        return install(files)

    host.packages.install = back
    host.supervise()
    assert host.last.phase is Phase.ROLLED_BACK
    assert running == [{"inactive"}]
    assert (host.packages.versions, host.up()) == (OLD, UP)
    host.assert_at_peace()


def test_an_installation_that_changes_nothing_leaves_them_running(host):
    host.ask()

    def fail(files):
        raise CommandError(("fake",), "made to fail")

    host.packages.installs = fail
    host.supervise()
    assert host.last.phase is Phase.FAILED
    assert "othing was changed" in host.last.reason
    assert (host.packages.versions, host.up()) == (OLD, UP)
    host.assert_at_peace()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kill_at", range(1, 12))
@pytest.mark.parametrize("bad", [False, True])
def test_a_supervisor_that_dies_anywhere_leaves_all_running(host, kill_at, when, bad):
    host.ask()
    if bad:
        host.master_dies()
    host.kill_then_recover(kill_at, when)
    assert host.last.phase is (Phase.ROLLED_BACK if bad else Phase.COMMITTED)
    assert host.packages.versions == (OLD if bad else NEW)
    assert host.up() == UP
    if not bad:
        stops = [change for change in host.changes() if "salt-master" in change]
        assert stops == ["stop salt-master", "start salt-master"]
    host.assert_at_peace()


@pytest.mark.parametrize("boots", [True, False])
@pytest.mark.parametrize("phase", [Phase.INSTALLING, Phase.DELIVERING, Phase.STEPPING])
def test_after_a_power_cut_the_boot_may_have_started_them(host, phase, boots):
    """
    systemd starts what is enabled before the supervisor is there again, or has not come to it yet.

    What was to start is not started any more if the master that it needs is stopped before.
    """
    host.ask()
    other = with_dependent(host)
    wanted = {Phase.INSTALLING: 1, Phase.DELIVERING: 2, Phase.STEPPING: 3}[phase]
    seen = []

    class Cut(Exception):
        pass

    save = host.store.save

    def cut(update, *others, **fence):
        saved = save(update, *others, **fence)
        if update.phase is phase and not seen:
            seen.append(wanted)
            raise Cut
        return saved

    host.store.save = cut
    with pytest.raises(Cut):
        host.supervise()
    host.all_die()
    host.store.save = save
    for service in host.beside.values():
        # The drop-ins were on a file system that is gone.
        service.refuses = False
        service.active, service.pid = "inactive", 0
        if boots:
            service.run()
    other.active, other.pid = "inactive", 0
    host.services.refuses = False
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert (host.packages.versions, host.up(), other.active) == (NEW, UP, "active")
    host.assert_at_peace()


class TestInTheProcessOfAJob:
    """A state run may need its master until its end: they restart behind it."""

    def change(self, host):
        seen = []

        def work():
            seen.append(host.up())
            seen.extend(service.refuses for service in host.beside.values())
            host.packages.versions.update(NEW)

        host.transaction().change(work, host.job())
        return seen

    def test_they_run_on_and_nobody_restarts_them_while_packages_change(self, host):
        assert self.change(host) == [UP, True, True, True]
        assert host.changes() == []
        assert host.last.code.servers == host.servers

    def test_without_a_change_nothing_stays(self, host):
        host.transaction().change(lambda: None, host.job())
        assert not any(service.refuses for service in host.beside.values())
        assert host.changes() == []

    def test_they_restart_once_in_their_order(self, host):
        self.change(host)
        host.all_die()
        host.supervise()
        assert host.last.phase is Phase.COMMITTED
        assert host.changes() == [
            "restart salt-master",
            "restart salt-syndic",
            "restart salt-api",
            "restart salt-minion",
        ]
        host.assert_at_peace()


def test_a_restart_of_the_minion_is_none_of_theirs(host):
    host.request_restart()
    assert host.last.code.servers == ()
    host.all_die()
    host.supervise()
    assert host.last.phase is Phase.COMMITTED
    assert {change.split()[1] for change in host.changes()} == {"salt-minion"}


def test_an_update_of_the_extension_leaves_them_alone(host):
    by = host.initiator(pip=host.packages)
    record = by.new_record("update", "", "", request=Request(extension=True))
    assert record.code.servers == ()


def test_the_record_has_them_after_it_was_read_again(host):
    host.ask()
    assert host.store.get("u1").code.servers == host.servers
    assert pathlib.Path(host.servers[0].keys) == host.keys


def with_dependent(host, name="salt-master"):
    """Have a service that ends with another one."""
    other = FakeServices()
    needed = host.services if name == "salt-minion" else host.beside[name]
    needed.needed_by["monitoring"] = host.all.units["monitoring"] = other
    return other


@pytest.mark.parametrize("works", [True, False])
def test_what_ends_with_a_master_is_started_when_the_master_works_again(host, works):
    """A restart by its package would have left it running: systemd starts nothing that depends."""
    host.ask()
    other, seen = with_dependent(host), []
    host.packages.installs = lambda files: seen.append(other.active)
    if not works:
        host.master_dies()
    host.supervise()
    assert host.last.phase is (Phase.COMMITTED if works else Phase.ROLLED_BACK)
    assert seen[0] == "inactive"
    assert (other.active, set(host.up().values())) == ("active", {"active"})
    host.assert_at_peace()


def test_what_ends_with_the_minion_is_started_after_a_rollback(host):
    host.ask()
    other = with_dependent(host, "salt-minion")
    host.services.dies_while = lambda: host.packages.versions == NEW
    host.supervise()
    assert (host.last.phase, other.active) == (Phase.ROLLED_BACK, "active")


def test_one_that_had_ended_before_stays_so(host):
    host.ask()
    other = with_dependent(host)
    other.active, other.pid = "inactive", 0
    host.supervise()
    assert (host.last.phase, other.active) == (Phase.COMMITTED, "inactive")


def test_a_master_that_could_not_start_again_is_not_stopped(host):
    """Somebody masks a unit that runs, so that its package does not restart it."""
    host.ask()
    host.beside["salt-master"].enabled = "masked"
    host.supervise()
    assert (host.last.phase, host.packages.versions) == (Phase.FAILED, OLD)
    assert "could not be started again" in host.last.reason
    assert (host.up(), host.changes()) == (UP, [])
    host.assert_at_peace()


@pytest.mark.parametrize("works", [True, False])
def test_a_master_that_something_else_starts_in_the_midst_is_restarted(host, works):
    """As what a unit needs that a timer starts: systemd refuses only what is asked for itself."""
    host.ask()
    master, mixed = host.beside["salt-master"], []

    def start(files):
        master.run()
        mixed.append(master.invocation)

    host.packages.installs = start
    if not works:
        host.services.dies_while = lambda: host.packages.versions == NEW
    host.supervise()
    assert host.last.phase is (Phase.COMMITTED if works else Phase.ROLLED_BACK)
    assert (master.active, master.invocation in mixed) == ("active", False)
