"""State runs that a master starts, in each way in which it can."""

import json

import pytest

from tests.integration.conftest import MASTER, PackagedMaster
from tests.support.waiting import wait_for

BOTH = ("install", "salt-common", "salt-minion")
LAST = [("note", "first"), ("note", "last"), BOTH]
DEFERRED = "Deferred to the end of the run"
UPDATE = """
first:
  note.that: []
own:
  pkg.latest:
    - name: salt-minion
last:
  note.that:
    - require:
      - pkg: own
"""


@pytest.fixture(scope="module")
def master(salt_factories, site):
    reaction = site.path / "reaction.sls"
    reaction.write_text(
        "run:\n  local.state.apply:\n    - tgt: {{ data['id'] }}\n    - arg: [it]\n"
    )
    site.sls("it", UPDATE)
    site.sls("other", "other:\n  note.that: []\n")
    site.sls("orch", "update:\n  salt.state:\n    - tgt: {{ pillar['who'] }}\n    - sls: it\n")
    daemon = salt_factories.salt_master_daemon(
        "ordering-master",
        factory_class=PackagedMaster,
        overrides={
            "file_roots": {"base": [str(site.roots)]},
            "reactor": [{"ours/go": [str(reaction)]}],
            "worker_threads": 4,
            **MASTER,
        },
    )
    with daemon.started():
        yield daemon


@pytest.fixture(scope="module")
def one(master, make_guest):
    return make_guest(master, "one")


@pytest.fixture
def guest(one):
    one.reset()
    return one


@pytest.fixture(scope="module")
def salt(master):
    return master.salt_cli(timeout=120)


def settled(guest):
    """Wait until the update is over and the drain has ended."""
    wait_for(guest.restarted, "the restart")
    # What it tells takes a job, so it is asked once, when this says that it is over.
    wait_for(lambda: guest.phase() == "committed", "the end of the update")
    wait_for(lambda: not guest.draining(), "the end of the drain")
    status = guest.run("safeupdate.status")
    assert (status["phase"], status["draining"]) == ("committed", False)


def own_of(results):
    (own,) = [result for tag, result in results.items() if tag.startswith("pkg_|-own_|-")]
    return own


@pytest.mark.parametrize("arguments", [("state.apply", "it"), ("state.sls", "it", "queue=True")])
def test_from_the_master(guest, salt, arguments):
    returned = salt.run(*arguments, minion_tgt=guest.id)
    assert returned.returncode == 0
    assert DEFERRED in own_of(returned.data)["comment"]
    settled(guest)
    assert guest.journal() == [*LAST, ("minion restarts",)]


def test_orchestrate(guest, master):
    pillar = json.dumps({"who": guest.id})
    returned = master.salt_run_cli(timeout=120).run("state.orchestrate", "orch", pillar=pillar)
    assert returned.returncode == 0
    (step,) = next(iter(returned.data["data"].values())).values()
    assert DEFERRED in str(step["changes"])
    settled(guest)
    assert guest.journal() == [*LAST, ("minion restarts",)]


def test_reactor(guest):
    assert guest.run("event.send", "ours/go")
    settled(guest)
    assert guest.journal() == [*LAST, ("minion restarts",)]


def test_schedule(guest):
    options = {"function": "state.apply", "job_args": ["it"], "seconds": 3600}
    guest.run("schedule.add", "update", run_on_start=False, **options)
    try:
        guest.run("schedule.run_job", "update")
        settled(guest)
    finally:
        guest.run("schedule.delete", "update")
    assert guest.journal() == [*LAST, ("minion restarts",)]


def test_salt_call_with_a_master(guest):
    returned = guest.daemon.salt_call_cli(timeout=120).run("state.apply", "it")
    assert DEFERRED in own_of(returned.data)["comment"]
    settled(guest)
    assert guest.journal() == [*LAST, ("minion restarts",)]


def test_salt_call_of_a_function(guest):
    returned = guest.daemon.salt_call_cli(timeout=120).run("pkg.install", "salt-minion")
    assert returned.data["salt-minion"] == {"old": "1", "new": "2"}
    settled(guest)


@pytest.mark.soak
def test_beside_an_extension_that_wraps_the_same_functions(
    master, make_guest, salt, tmp_path_factory
):
    """It does so both before this one and after it."""
    called = tmp_path_factory.mktemp("foreign")
    engines = [{"foreign_before": {}}, {"safeupdate": {}}, {"foreign_after": {}}]
    guest = make_guest(master, "beside", engines=engines, foreign=str(called))
    assert salt.run("test.ping", minion_tgt=guest.id).data is True
    returned = salt.run("state.apply", "it", minion_tgt=guest.id)
    assert DEFERRED in own_of(returned.data)["comment"]
    settled(guest)
    assert guest.journal() == [*LAST, ("minion restarts",)]
    guest.daemon.terminate()
    names = {path.name for path in called.iterdir()}
    for name in ("_handle_decoded_payload", "_target", "_return_pub", "call", "call_high"):
        assert {f"before.{name}", f"after.{name}"} <= names


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("threads", {"multiprocessing": False}),
        ("alone", {"process_count_max": 1}),
        ("startup", {"startup_states": "sls", "sls_list": ["it"]}),
    ],
)
def test_another_configuration(master, make_guest, salt, name, options):
    guest = make_guest(master, name, **options)
    if name != "startup":
        returned = salt.run("state.apply", "it", minion_tgt=guest.id)
        assert DEFERRED in own_of(returned.data)["comment"]
    settled(guest)
    assert guest.journal() == [*LAST, ("minion restarts",)]
    guest.daemon.terminate()
