"""What is known of this host, and the objects that act, from the opts."""

import dataclasses
import json
import os
import sys

import pytest
from salt import syspaths

from saltext_safeupdate import factory
from saltext_safeupdate.admin.status.status import described
from saltext_safeupdate.core import wiring
from saltext_safeupdate.core.errors import SafeUpdateError
from saltext_safeupdate.core.host import init_system, minions, own_unit, processes
from saltext_safeupdate.core.host.daemons import Daemon
from saltext_safeupdate.core.host.direct import Direct
from saltext_safeupdate.core.host.servers import Server
from saltext_safeupdate.core.host.service import ServiceState
from saltext_safeupdate.core.packages.own import Own
from saltext_safeupdate.this_host import Host
from tests.support.simulated import FakePackages, FakeServices
from tests.support.this_host import VERSIONS
from tests.support.this_host import opts as make_opts


def test_everything_is_known_and_built_from_the_opts(tmp_path, monkeypatch):
    opts = make_opts(tmp_path)
    monkeypatch.setattr(wiring, "package_manager", lambda: FakePackages(**VERSIONS))
    monkeypatch.setattr(init_system, "detect", FakeServices)
    real = Host(opts)
    assert real.settings.state_dir == opts["safeupdate"]["state_dir"]
    assert real.store.path == real.ledger.path == real.settings.database
    assert real.own() == Own(frozenset(VERSIONS), False)
    assert all(os.path.isabs(root) for root in real.roots())
    by = factory.transaction(real, print, "5").by
    assert by.installation.own == ("salt", "salt-minion")
    assert by.jobs.processes() == {}


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """The opts of a minion beside the one of ``/etc/salt``."""
    (tmp_path / "venv-salt-minion").mkdir()
    (tmp_path / "venv-salt-minion" / "minion").touch()
    monkeypatch.setattr(own_unit, "name", lambda: "")
    opts = make_opts(tmp_path)
    opts["conf_file"] = f"{tmp_path}/venv-salt-minion/minion"
    opts["safeupdate"]["registry_dir"] = str(tmp_path / "registry")
    return opts


def test_the_service_is_the_unit_that_the_minion_runs_in(bundle, monkeypatch):
    assert Host(bundle).settings.service == "salt-minion"
    monkeypatch.setattr(own_unit, "name", lambda: "venv-salt-minion")
    of_minion = Host(bundle)
    assert of_minion.settings.service == "venv-salt-minion"
    # What does not run in it, such as salt-call, knows what the minion has noted.
    minions.register(of_minion.settings.registry_dir, of_minion.noted(processes.me()))
    monkeypatch.setattr(own_unit, "name", lambda: "")
    assert Host(bundle).settings.service == "venv-salt-minion"
    bundle["safeupdate"]["service"] = "mine"
    assert Host(bundle).settings.service == "mine"


def test_two_minions_do_not_have_the_same_locks(bundle):
    made = Host(bundle)
    assert made.claim() == ""
    places = {**bundle["safeupdate"], "state_dir": f"{made.settings.state_dir}2"}
    second = Host({**bundle, "conf_file": "/etc/salt2/minion", "safeupdate": places})
    for process, refused in ((processes.me(), True), ("gone:1:1", False)):
        minions.register(made.settings.registry_dir, made.noted(process))
        assert made.why_not_ours() == ""
        for found in (second.why_not_ours(), second.claim()):
            assert (made.settings.run_dir in found) is refused


def test_a_minion_notes_where_it_has_its_things(bundle):
    made = Host(bundle)
    noted = made.noted(processes.me())
    assert noted.config == bundle["conf_file"]
    assert (noted.state_dir, noted.run_dir) == (made.settings.state_dir, made.settings.run_dir)
    assert noted.runs
    assert bundle["conf_file"] in noted.backup
    assert all(map(os.path.isdir, noted.roots))


def test_a_minion_that_has_noted_itself_is_waited_for_as_long_as_it_has_the_extension(
    bundle, monkeypatch
):
    services = FakeServices()
    monkeypatch.setattr(wiring, "package_manager", lambda: FakePackages(**VERSIONS))
    monkeypatch.setattr(init_system, "detect", lambda: services)
    made = Host(bundle)
    places = {"state_dir": "/srv/other", "run_dir": "/run/other"}
    other = Host({**bundle, "safeupdate": {**bundle["safeupdate"], **places}})
    config = f"{os.path.dirname(bundle['conf_file'])}/other"
    open(config, "w").close()
    assert made.others() == ()
    for process, known in ((processes.me(), True), ("gone:1:1", False)):
        noted = dataclasses.replace(other.noted(process), config=config, unit="other")
        minions.register(made.settings.registry_dir, noted)
        assert made.others() == (noted,)
        monkeypatch.setattr(
            services,
            "state",
            lambda unit: ServiceState("active", "enabled", 71 if unit == "other" else 72),
        )
        assert {72, os.getpid()} <= made.known()
        assert (71 in made.known()) is known
        assert factory.initiator(made).others == (noted,)


class Asked(FakePackages):
    """Remembers whose owners were asked for."""

    def owners(self, paths):
        self.paths = set(paths)
        return super().owners(paths)


@pytest.mark.parametrize("prefix", ["/usr", "/usr/local", "/opt/saltstack/salt"])
def test_the_systems_own_interpreter_is_not_salts(tmp_path, monkeypatch, prefix):
    """Its package has no version of Salt's: no update could be asked for."""
    manager = Asked(**VERSIONS)
    monkeypatch.setattr(wiring, "package_manager", lambda: manager)
    monkeypatch.setattr(init_system, "detect", FakeServices)
    monkeypatch.setattr(sys, "prefix", prefix)
    Host(make_opts(tmp_path)).own()
    assert (sys.executable in manager.paths) is (prefix == "/opt/saltstack/salt")
    assert any(path.endswith("/salt/version.py") for path in manager.paths)


@pytest.mark.parametrize(("user", "refused"), [("root", True), ("salt", False)])
def test_a_minion_of_root_does_not_use_what_another_user_has(bundle, monkeypatch, user, refused):
    """That user could have it run whatever there is to run."""
    state = bundle["safeupdate"]["state_dir"]
    os.makedirs(state, mode=0o700)
    found = os.stat(state)
    theirs = os.stat_result((*found[:4], 4711, *found[5:]))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    real = os.stat
    monkeypatch.setattr(
        os, "stat", lambda path, **more: theirs if path == state else real(path, **more)
    )
    host = Host({**bundle, "user": user})
    assert ("4711" in host.why_not_ours()) is refused
    assert ("4711" in host.claim()) is refused


@pytest.fixture
def with_master(tmp_path, monkeypatch):
    """A minion beside a master whose configuration is in a place of its own."""
    (tmp_path / "salt2").mkdir()
    settings = {
        "root_dir": str(tmp_path),
        "id": "m",
        "pki_dir": "/pki",
        "cachedir": "/cache2",
        "ret_port": 4510,
        "default_include": "conf.d/*.conf",
    }
    (tmp_path / "salt2" / "master").write_text(json.dumps(settings))
    monkeypatch.setattr(wiring, "package_manager", lambda: FakePackages(**VERSIONS))
    monkeypatch.setattr(init_system, "detect", FakeServices)
    config = str(tmp_path / "salt2")
    running = [Daemon(f"salt-{name}", f"salt-{name}", 1, config) for name in ("api", "master")]
    running.append(Daemon("salt-minion", "salt-minion", 2))
    made = Host(make_opts(tmp_path))
    monkeypatch.setattr(made, "daemons", lambda: running)
    return made


def test_what_runs_of_a_master_is_known_with_what_is_put_back_of_it(with_master, tmp_path):
    servers, paths = with_master.masters()
    assert servers == (
        Server(
            unit="salt-master",
            program="salt-master",
            host="127.0.0.1",
            port=4510,
            greets=True,
            keys=f"{tmp_path}/pki/minions",
        ),
        Server(unit="salt-api", program="salt-api"),
    )
    assert paths == tuple(f"{tmp_path}/{each}" for each in ("salt2/master", "salt2/conf.d", "pki"))


def test_an_update_has_a_master_with_it_and_a_restart_has_not(with_master):
    by = factory.initiator(with_master)
    record = by.new_record("update", "", "")
    servers, paths = with_master.masters()
    assert (record.code.servers, record.way_back.kept) == (servers, paths)
    assert record.way_back.paths[-3:] == paths
    assert described(record)["servers"] == ["salt-master", "salt-api"]
    restart = by.new_record("restart", "", "")
    assert (restart.code.servers, restart.way_back.kept) == ((), ())
    assert "servers" not in described(restart)


def test_a_master_that_could_not_start_again_is_a_reason_to_refuse(with_master, tmp_path):
    (tmp_path / "salt2" / "master").write_text("{")
    with pytest.raises(SafeUpdateError, match=r"salt2/master, is not valid.*Nothing was changed"):
        factory.initiator(with_master).new_record("update", "", "")


@pytest.mark.parametrize(
    ("arguments", "conf_file", "is_another"),
    [
        (["-c", "{tmp}/one"], "{tmp}/one/minion", False),
        (["-c", "{tmp}/link/"], "{tmp}/one/minion", False),
        (["-l", "info", "--config-dir={tmp}/one"], "{tmp}/two/minion", True),
        (["-c{tmp}/one"], "{tmp}/two/minion", True),
        (["--config", "{tmp}/one"], "{tmp}/two/minion", True),
        ([], "{tmp}/two/minion", True),
        ([], f"{syspaths.CONFIG_DIR}/minion", False),
        (["-c", "one"], "{tmp}/one/minion", False),
    ],
)
def test_the_keeper_of_another_minion_is_not_told_anything(
    tmp_path, monkeypatch, arguments, conf_file, is_another
):
    (tmp_path / "one").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    state = tmp_path / "keepers" / "salt-minion" / "state.json"
    state.parent.mkdir(parents=True)
    told = {
        **{"keeper": processes.me(), "pid": 0, "active": "active", "invocation": "", "status": 0},
        **{
            "slot": "",
            "before": "",
            "arguments": [each.format(tmp=tmp_path) for each in arguments],
        },
    }
    state.write_text(json.dumps(told))
    services = Direct(lambda *_, **__: None, keepers=str(tmp_path / "keepers"))
    monkeypatch.setattr(init_system, "detect", lambda: services)
    monkeypatch.setattr(own_unit, "name", lambda: "")
    monkeypatch.setattr(wiring, "package_manager", lambda: None)
    opts = make_opts(tmp_path)
    opts["conf_file"] = conf_file.format(tmp=tmp_path)
    real = Host(opts)
    if is_another:
        with pytest.raises(SafeUpdateError, match=r"keeper of salt-minion.*Nothing was changed"):
            factory.initiator(real)
    else:
        assert factory.initiator(real).services is services
