"""A minion whose configuration names this extension, while its package is gone, or half there."""

import importlib.util
import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import salt.config
import salt.loader
import salt.minion
import salt.utils.jid
import salt.version
from salt.exceptions import CommandExecutionError

from saltext_safeupdate.admin.setup.set_up import SetUp
from saltext_safeupdate.admin.setup.stand_ins import StandIns
from saltext_safeupdate.core.generations.table import Generations
from saltext_safeupdate.core.jobs.ledger import Ledger
from saltext_safeupdate.core.record.store import Store
from saltext_safeupdate.core.settings import of_minion
from saltext_safeupdate.minion import publication, queues, unrecorded
from saltext_safeupdate.this_host import Host
from tests.support.forked import forked
from tests.support.removable import Removable, in_a_new_process
from tests.support.synced import synced
from tests.support.waiting import wait_for

from .masterless import Masterless

newest = pytest.mark.skipif(
    not salt.version.__version__.startswith("3008"),
    reason="Salt's loader, which differs by series, is tested on each; the minion once",
)


def _cut(path, size=200):
    path.write_text(path.read_text()[:size] + "\n(")


# What may be the matter with the package, and with what stands in for it.
PACKAGES = {
    "there": lambda package: None,
    "gone": lambda package: package.remove(),
    "an empty directory": lambda package: (package.remove(), package.home.mkdir()),
    "without the executor": lambda package: (package.home / "executors/safeupdate.py").unlink(),
    "half a file of the executor": lambda package: _cut(package.home / "executors/safeupdate.py"),
    "without the room of the executor": lambda package: (
        package.home / "minion/executor.py"
    ).unlink(),
    "without the hooks": lambda package: (package.home / "hooks.py").unlink(),
    "half a file of the hooks": lambda package: _cut(package.home / "hooks.py"),
    "without the patches": lambda package: (package.home / "minion/patches.py").unlink(),
    "an error of another kind": lambda package: (package.home / "this_host.py").write_text(
        "raise OSError(5, 'a disk')"
    ),
}
STAND_INS = {
    "removed": lambda directory: (directory / "safeupdate_executor.py").unlink(),
    "broken": lambda directory: (directory / "safeupdate_executor.py").write_text("("),
    "empty": lambda directory: (directory / "safeupdate_executor.py").write_text(""),
    "without its directory": lambda directory: directory.rename(f"{directory}.away"),
}


@pytest.fixture
def site(tmp_path):
    """The package, the stand-ins beside a configuration, and the opts of the minion."""
    stand_ins = StandIns(str(tmp_path / "safeupdate.conf"), str(tmp_path / "minion"))
    stand_ins.write()
    names = {"state_dir": "state", "run_dir": "run", "registry_dir": "registry"}
    places = {name: str(tmp_path / place) for name, place in names.items()}
    opts = {
        **salt.config.DEFAULT_MINION_OPTS,
        "__role": "minion",
        "id": "minion",
        "cachedir": str(tmp_path / "cache"),
        "extension_modules": str(tmp_path / "extmods"),
        "conf_file": str(tmp_path / "minion"),
        "grains": {},
        "pillar": {},
        "file_client": "local",
        "module_executors": ["safeupdate", "direct_call"],
        "engines": [{"safeupdate": {}}],
        "executor_dirs": [stand_ins.place("executor_dirs")],
        "engines_dirs": [stand_ins.place("engines_dirs")],
        "safeupdate": places,
    }
    return SimpleNamespace(package=Removable(tmp_path / "site"), stand_ins=stand_ins, opts=opts)


def _job(opts, executors=None, fun="test.echo", **more):
    """Run a job through Salt's own code, with the executors that its loader finds."""
    functions = salt.loader.minion_mods(opts, whitelist=["test"])
    minion = SimpleNamespace(
        connected=False,
        opts=opts,
        functions=functions,
        executors=salt.loader.executors(opts, functions),
    )
    executors = list(executors or opts["module_executors"])
    data = {"fun": fun, "jid": salt.utils.jid.gen_jid({}), "arg": ["it runs"], "ret": "", **more}
    data["module_executors"] = executors
    # Salt asks this of each executor first, and loads all that there are if one has no answer.
    asked = [f"{name}.allow_missing_func" for name in executors]
    assert not any(minion.executors[each](fun) for each in asked if each in minion.executors)
    run = salt.minion.Minion._execute_job_function
    return run(minion, "test.echo", data["arg"], executors, opts, data)


def _job_and_disk(opts, **more):
    with synced() as told:
        return [_job(opts, **more), told]


@pytest.mark.parametrize("matter", PACKAGES)
def test_a_job_runs_whatever_is_the_matter_with_the_package(site, matter):
    PACKAGES[matter](site.package)
    found, said = in_a_new_process(site.package, lambda: _job(site.opts))
    assert found == "it runs"
    told = [line for line in said if "as with plain Salt" in line]
    assert len(told) == (matter != "there"), said


@pytest.mark.parametrize("matter", STAND_INS)
def test_nothing_that_is_the_matter_with_a_stand_in_fails_a_job(site, matter):
    STAND_INS[matter](Path(site.stand_ins.place("executor_dirs")))
    assert in_a_new_process(site.package, lambda: _job(site.opts))[0] == "it runs"


def test_without_a_stand_in_no_job_runs(site):
    """So the tests can fail."""
    site.package.remove()
    site.opts["executor_dirs"] = []
    found, _ = in_a_new_process(site.package, lambda: _job(site.opts))
    assert "Executor 'safeupdate' is not available" in found


@pytest.mark.parametrize("resource", [None, {"type": "ssh", "id": "r1"}])
def test_what_runs_without_the_package_is_not_run_again_when_it_is_back(site, resource):
    """It was held before, or its master asks for it: both ran it a second time."""
    Path(site.opts["cachedir"]).mkdir()
    ledger = Ledger(of_minion(site.opts)[0].database)
    with ledger.transaction() as db:
        ledger._record_from(db, time.time() - 60)
    jid = salt.utils.jid.gen_jid({})
    held = {"fun": "test.echo", "jid": jid, "arg": ["it runs"], "resource_target": resource}
    key = publication.key(held)
    ledger.hold(key, jid=jid, fun="test.echo", master="m", call=b"c", owner="x:1:1")
    gap = salt.utils.jid.gen_jid({})
    assert gap not in ledger.known([gap])
    site.package.remove()
    noted = Path(site.opts["cachedir"], "safeupdate-unrecorded")
    for data in ({**held, queues.OF_JOBS: jid}, {"jid": gap, "ret": ""}):
        found, _ = in_a_new_process(site.package, lambda d=data: _job_and_disk(site.opts, **d))
        assert found[0] == "it runs"
        # Else a power cut would have it run again.
        assert found[1][str(noted)] == noted.stat().st_size
        assert (str(noted.parent) in found[1]) is (data["jid"] == jid)
    assert noted.stat().st_mode & 0o777 == 0o600
    unrecorded.bring_in(site.opts, ledger)
    assert ledger.open() == []
    assert ledger.known([jid, gap]) == {jid: "delivered", gap: "unknown"}


def test_a_run_that_was_to_go_on_does_not_begin_anew_without_the_package(site):
    Path(site.opts["cachedir"]).mkdir()
    site.package.remove()

    def run():
        try:
            return _job(site.opts, **{publication.GOES_ON: True})
        except CommandExecutionError as err:
            return str(err)

    found, _ = in_a_new_process(site.package, run)
    assert "should have continued after a restart" in found


@pytest.mark.parametrize("name", ["safeupdate", "transactional_update"])
@pytest.mark.parametrize(
    ("before", "after", "runs"),
    [("", "", True), ("['splay', '", "']", True), ("[splay, ", "]", True), ("[", ", sudo]", False)],
)
def test_a_stand_in_that_is_last_runs_the_job_also_where_the_list_is_a_text(
    site, name, before, after, runs
):
    """Nothing ran, and Salt told of a success."""
    (path,) = Path(site.stand_ins.place("executor_dirs")).glob(f"{name}*.py")
    opts = {**site.opts, "module_executors": f"{before}{name}{after}"}
    site.package.remove()

    def execute():
        spec = importlib.util.spec_from_file_location("stand_in", path)
        stand_in = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(stand_in)
        data = {"fun": "test.echo", "jid": "1"}
        return stand_in.execute(opts, data, lambda text: text, ["it runs"], {})

    assert in_a_new_process(site.package, execute)[0] == ("it runs" if runs else None)


def test_a_job_runs_also_if_nothing_can_be_written_down(site):
    Path(site.opts["cachedir"]).write_text("no directory")
    site.package.remove()
    found, said = in_a_new_process(site.package, lambda: _job(site.opts))
    assert found == "it runs"
    assert any("cannot be written down" in line for line in said), said


EXECUTORS = ["safeupdate", "transactional_update", "direct_call"]


@pytest.mark.parametrize("fun", ["test.echo", "state.apply"])
def test_on_a_transactional_system_functions_run_and_state_runs_say_why_not(
    site, monkeypatch, tmp_path, fun
):
    """Where Salt has its own executor of this name, that one does what it does."""
    tool = tmp_path / "bin" / "transactional-update"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    site.package.remove()
    alone = [*EXECUTORS[:1], "transactional_update"]
    found = [
        in_a_new_process(site.package, lambda e=each: _job(site.opts, e, fun))
        for each in (EXECUTORS, alone)
    ]
    if fun == "test.echo":
        assert [value for value, _ in found] == ["it runs", "it runs"]
    elif _has_its_own():
        # It goes for its own execution module, which this minion does not load.
        assert all("transactional_update.apply" in str(value) for value, _ in found), found
    else:
        assert all("no transaction can be opened. Nothing was done" in value for value, _ in found)


def _has_its_own():
    return importlib.util.find_spec("salt.executors.transactional_update") is not None


ENGINE = """
import json, sys
def run(opts, functions, **told):
    told.pop("returners")
    assert told.pop("table"), "what the engine notes of a known Salt"
    open(opts["told"], "w").write(json.dumps(told))
"""


@pytest.mark.parametrize("matter", ["gone", "without the patches"])
def test_the_engine_comes_by_itself_when_the_package_is_there_again(site, tmp_path, matter):
    (engine,) = Path(site.stand_ins.place("engines_dirs")).glob("*.py")
    engine.write_text(engine.read_text().replace("_INTERVAL = 10.0", "_INTERVAL = 0.02"))
    site.opts["told"] = str(tmp_path / "told")
    (site.package.home / "minion/engine.py").write_text(ENGINE)
    PACKAGES[matter](site.package)

    def work():
        engines = salt.loader.engines(site.opts, {}, [], {})
        # In the main process, which starts what it finds; then in a child of it.
        assert "safeupdate.start" in engines
        child = forked(lambda hear, say: engines["safeupdate.start"]())
        with child as waits:
            site.package.put_back()
            (site.package.home / "minion/engine.py").write_text(ENGINE)
            assert waits.wait() == 0
        return json.loads((tmp_path / "told").read_text())

    found, _ = in_a_new_process(site.package, work)
    assert found == {"hooked": False, "late": True}


@newest
def test_a_real_minion_runs_its_jobs_while_pip_would_replace_the_package(tmp_path_factory):
    place = tmp_path_factory.mktemp("m")
    package = Removable(place / "site")
    stand_ins = StandIns(str(place / "safeupdate.conf"), str(place / "minion"))
    stand_ins.write()
    minion = Masterless(
        place,
        executor_dirs=[stand_ins.place("executor_dirs")],
        engines_dirs=[stand_ins.place("engines_dirs")],
        safeupdate={"extension_restart": "manual"},
    )
    minion.prelude = package.prelude
    ledger, store = Ledger(minion.settings.database), Store(minion.settings.database)
    try:
        minion.start()
        minion.wait_for("startup", 1)
        minion.queue(salt.utils.jid.gen_jid({}), "before")
        minion.wait_for("before", 1)
        # The engine loads what it needs a moment after the start of the minion.
        wait_for(lambda: store.exists() and Generations(store).report() is not None, "its engine")
        package.remove()
        gone = salt.utils.jid.gen_jid({})
        minion.queue(gone, "gone")
        minion.wait_for("gone", 1)
        package.put_back()
        minion.queue(salt.utils.jid.gen_jid({}), "again")
        minion.wait_for("again", 1)
        # Its main process has everything in its memory: each job is recorded as ever, none is open.
        assert "as with plain Salt" not in minion.log()
        wait_for(lambda: ledger.open() == [], "the end of its jobs")
        assert [job.state.value for job in ledger.find(gone)] == ["delivered"]
    finally:
        minion.kill()


def test_a_copied_configuration_runs_jobs_without_the_package_and_the_first_one(site, tmp_path):
    """As Uyuni moves a minion to its bundle: it copies ``minion.d`` and removes the rest."""
    made = tmp_path / "etc" / "salt"
    made.mkdir(parents=True)
    opts = {**site.opts, "conf_file": str(made / "minion"), "module_executors": ["direct_call"]}
    opts |= {"engines": [], "executor_dirs": [], "engines_dirs": []}
    SetUp(Host(opts), None, False).carry_out()
    copied = tmp_path / "etc" / "venv-salt-minion"
    shutil.copytree(made, copied)
    shutil.rmtree(made)
    site.package.remove()
    read = salt.config.minion_config(str(copied / "minion"), minion_id="minion")
    assert read["module_executors"] == ["safeupdate", "direct_call"]
    names = ("module_executors", "engines", "executor_dirs", "engines_dirs")
    opts |= {name: read[name] for name in names}
    assert in_a_new_process(site.package, lambda: _job(opts))[0] == "it runs"
