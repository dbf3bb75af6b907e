"""What this extension's own functions and states do inside a transaction, through salt-call."""

import json

import pytest
import yaml

from saltext_safeupdate.core.host import locks
from saltext_safeupdate.core.record.store import Store

from .host import NEW
from .test_salt import FILE, chunk

SETUP = "safeupdate:\n  safeupdate.enabled: []\n"
CONF = "/etc/salt/minion.d/_safeupdate.conf"
DROP_IN = "/etc/systemd/system/salt-minion.service.d/50-safeupdate-guard.conf"
PROGRAM = "/var/lib/salt-safeupdate/stop_guard.sh"
DOCUMENTED = ["transactional_update", "direct_call"]


@pytest.fixture
def minion(rig):
    """A fresh minion. apt, which the machine of the tests may have, finds that it has nothing."""
    rig.path(CONF).parent.mkdir()
    status = rig.path("/var/lib/dpkg/status")
    status.parent.mkdir(parents=True, exist_ok=True)
    status.touch()
    yield rig
    rig.path("/var/lib/dpkg/status").unlink()


def newest(rig):
    """Return the newest record of the running minion, or None."""
    store = Store(str(rig.top / "@/var/lib/salt-safeupdate/safeupdate.db"))
    return store.latest() if store.exists() else None


SERVICES = """
/etc/systemd/system/web.service:
  file.managed:
    - contents: "[Service]"
web:
  service.running:
    - watch:
      - file: /etc/systemd/system/web.service
/etc/salt/some.conf:
  file.managed:
    - contents: "some: thing"
salt-minion:
  service.running:
    - watch:
      - file: /etc/salt/some.conf
minion-restart:
  safeupdate.restarted:
    - watch:
      - file: /etc/salt/some.conf
of-a-module:
  module.run:
    - x.f: []
"""


def test_a_set_up_minion_works_afterwards(minion):
    """
    It wrote the letters of "[direct_call]" as executors, and nothing ran any more.

    A watched service with a unit file in /etc failed, what the minion was asked for went into a
    database that nobody reads, and byte code made a snapshot.
    """
    function = "def f(): return repr(__opts__.get('module_executors'))"
    script = f'mkdir /data/modules; echo "{function}" > /data/modules/x.py'
    minion.drive("run", command=["sh", "-c", script])
    minion.boot()
    minion.configure(module_dirs=["/data"], use_superseded=["module.run"])
    minion.sls("safeupdate", SETUP)
    minion.sls("all", SETUP + SERVICES)
    # Another job runs, so the restart that is asked for waits.
    other = locks.share(str(minion.path("/run/salt-safeupdate")), "jobs")
    found = minion.salt("transactional_update.apply", "all")
    # What the function sees is what is configured, nothing, and no option of a command line.
    assert chunk(found, "_|-of-a-module_|-")["changes"] == {"x.f": "None"}
    written = {"module_executors": ["safeupdate", "direct_call"], "engines": [{"safeupdate": {}}]}
    stand_ins = "/etc/salt-safeupdate/minion"
    places = {"executor_dirs": ["executor"], "engines_dirs": ["engines"]}
    written |= {key: [f"{stand_ins}/{name}" for name in names] for key, names in places.items()}
    assert yaml.safe_load(minion.path(CONF).read_text()) == written
    assert all(minion.path(f"{stand_ins}/{name}").is_dir() for (name,) in places.values())
    assert f"ExecStop=-/bin/sh {PROGRAM}" in minion.path(DROP_IN).read_text()
    assert minion.path(PROGRAM).exists()
    report = chunk(found, "_|-report")
    assert report["changes"] == {"restarted": ["restart web"]}
    asked = "The minion restarts when its jobs have ended, as asked for: restart salt-minion"
    assert asked in report["comment"]
    assert (newest(minion).kind, newest(minion).phase.final) == ("restart", False)
    log = minion.path("/run/rig/systemctl").read_text().splitlines()
    assert log.index("daemon-reload") < log.index("restart web")
    assert "restart salt-minion" not in log
    # with the documented executor, which stays
    minion.path(CONF).unlink()
    minion.configure(module_executors=DOCUMENTED)
    found = minion.salt("state.apply", "safeupdate")
    assert set(chunk(found, "_|-enabled")["changes"]) == {CONF}
    executors = yaml.safe_load(minion.path(CONF).read_text())["module_executors"]
    assert executors == ["safeupdate", *DOCUMENTED]
    assert minion.salt("test.ping") is True
    minion.assert_clean(2, [1, 2])
    other.close()


UP = "up:\n  safeupdate.updated:\n    - version: '3008.3'\n"


@pytest.fixture
def rpm_host(host):
    """A host on which rpm is all that there is; call it with the words of salt-call."""
    rig, place = host.rig, "/var/cache/programs"
    rig.path(CONF).parent.mkdir()
    rig.configure(safeupdate={"packages": list(NEW), "rollback": "optional"})
    # No systemd runs there: what restarts the minion has to be something.
    script = rig.path("/etc/init.d/salt-minion")
    script.parent.mkdir(exist_ok=True)
    script.write_text("#!/bin/sh\n")
    rig.ok("sh", "-c", f"mkdir -p {place} && ln -sf /usr/bin/* /usr/sbin/* {place}")
    for name in ("apt-get", "dpkg-query"):
        rig.path(f"{place}/{name}").unlink(missing_ok=True)

    def call(*words):
        done = rig.run("env", f"PATH=/usr/local/sbin:{place}", *rig.salt_argv(*words))
        return done.returncode, json.loads(done.stdout)["local"]

    return call


def test_an_update_is_asked_of_the_running_minion(rpm_host, host):
    """It looked into a hidden database, and took the packages of the snapshot for what runs."""
    rig = host.rig
    rig.sls("up", UP)
    rig.sls("more", FILE.format(name="/data/x", text="x") + SETUP + UP)
    retcode, found = rpm_host("transactional_update.sls", "more")
    told = chunk(found, "_|-updated")
    assert (retcode, told["result"], told["changes"]) == (2, False, {})
    assert "waits for a reboot" in told["comment"]
    assert "Happens with the reboot" in chunk(found, "_|-report")["comment"]
    assert not rig.path(CONF).exists()
    assert newest(rig) is None
    host.boot()
    assert rig.path(CONF).exists()
    assert rig.path(PROGRAM).exists()
    retcode, found = rpm_host("transactional_update.sls", "up")
    told = chunk(found, "_|-updated")
    assert (retcode, told["result"], set(told["changes"])) == (0, True, set(NEW))
    assert newest(rig).versions_to == NEW


REFUSED = [
    "accepted",
    "cancel",
    "check",
    "drain",
    "forget",
    "forget_slot",
    "history",
    "jobs",
    "plan",
    "resume",
    "revisions",
    "rollback",
    "stage",
    "status",
    "unquarantine",
    "wait",
]
ARGUMENT = {
    "accepted": "[]",
    "forget": "1",
    "forget_slot": "1",
    "resume": "1",
    "unquarantine": "1",
}


@pytest.mark.soak
def test_what_needs_the_running_minion_is_refused_inside(rig):
    rig.configure(use_superseded=["module.run"])
    states = [
        f"{name}:\n  module.run:\n    - safeupdate.{name}:"
        + (f"\n      - {ARGUMENT[name]!r}\n" if name in ARGUMENT else " []\n")
        for name in REFUSED
    ]
    rig.sls("all", "".join(states))
    found = rig.salt("transactional_update.sls", "all", retcode=2)
    said = {each["__id__"]: each["comment"] for each in found.values()}
    assert [name for name in REFUSED if "Call it outside" not in said[name]] == []
    rig.assert_clean(1, [1])


@pytest.mark.soak
def test_without_anybody_to_ask_nothing_is_promised(minion):
    """The tool started by hand."""
    minion.sls("safeupdate", SETUP)
    for words in (("safeupdate.restart",), ("state.apply", "safeupdate")):
        inner = json.dumps(list(minion.salt_argv(*words)))
        assert "exit status" in minion.salt_error("transactional_update.run", inner)
    minion.assert_clean(1, [1])
    assert not minion.path(CONF).exists()
